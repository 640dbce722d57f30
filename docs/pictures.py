"""Draw docs/images/batch.svg and rooms.svg from the code: plain Python that writes SVG.

`batch.svg` is the way of a batch. Each box names a file and what it defines; drawing fails if the code lacks it.
`rooms.svg` is the import graph of the files in `src/dsrd`, in the order of `LAYERS` in tests/test_layout.py.

Run `python docs/pictures.py` after a change of either; a test compares. Boxes carry their own light ground and the
arrows are mid grey, so that the pictures read on light and on dark pages.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
PACKAGE = HERE.parent / "src" / "dsrd"
LAYOUT_TEST = HERE.parent / "tests" / "test_layout.py"

STYLE = """
text { font-family: system-ui, "Segoe UI", "DejaVu Sans", sans-serif; font-size: 14px; fill: #1b2430 }
.title { font-weight: 600 }
.small { font-size: 12px }
.code { font-family: ui-monospace, "DejaVu Sans Mono", monospace; font-size: 11px; fill: #3b4a5c }
.name { font-weight: 600 }
.outside { fill: #7d8590 }
rect { rx: 7px; stroke-width: 1.3 }
.data { fill: #e3eefb; stroke: #5b8fc7 }
.model { fill: #e4f4e6; stroke: #5aa469 }
.measure { fill: #fdf0d9; stroke: #c99b3f }
.front { fill: #f3e6f7; stroke: #a06bb3 }
.base { fill: #eceff2; stroke: #8a96a3 }
.frame { fill: none; stroke: #7d8590; stroke-dasharray: 5 4 }
.arrow { fill: none; stroke: #7d8590; stroke-width: 1.6 }
"""


class Step(NamedTuple):
    """A box of the way of a batch: what happens, and which names of which files do it."""

    title: str
    about: str
    kind: str
    code: tuple[tuple[str, str], ...]  # (file under src/dsrd, name that it defines)


READ = (
    Step("calls.csv", "one row for each event", "data", ()),
    Step("Dataset", "ids, times, features", "data", (("data/read.py", "load"), ("data/dataset.py", "Dataset"))),
    Step(
        "Task", "split, histories, passes", "measure", (("data/split.py", "split"), ("evaluate/task.py", "Task"))
    ),
    Step(
        "Trainer",
        "epochs, early stopping",
        "measure",
        (("train/trainer.py", "Trainer"), ("train/loop.py", "Learner")),
    ),
)
SCORE = ("models/base.py", "TemporalModel.score")
OBSERVE = ("models/base.py", "TemporalModel.observe")
TRAIN = (
    Step("1 draw", "one negative per event", "data", (("negatives/sampling.py", "TrainingNegatives"),)),
    Step("2 score", "events and negatives", "model", (SCORE, ("history/past.py", "Past"))),
    Step("3 loss", "and its gradient", "model", (("models/base.py", "TemporalModel.loss"),)),
    Step("4 observe", "the state changes", "model", (OBSERVE, ("state.py", "State"))),
    Step("5 step", "the weights change", "measure", (("train/loop.py", "train_epoch"),)),
)
LOOP = ("train/loop.py", "train_epoch")
MEASURE = (
    Step("run folder", "best weights, state, events", "front", (("train/run_folder.py", "RunFolder"),)),
    Step(
        "evaluate",
        "draw, score, observe",
        "measure",
        (("negatives/sampling.py", "draw_negatives"), ("evaluate/scoring.py", "score_pass")),
    ),
    Step(
        "record",
        "AP, AUC, digests, versions",
        "measure",
        (("evaluate/metrics.py", "batch_means"), ("train/record.py", "make_record")),
    ),
    Step("table", "the model beside simple rules", "front", (("estimator/results.py", "Results"),)),
)
BOX = 132  # height of a box of the way of a batch


def batch() -> str:
    """The way of a batch from a file to a table."""
    width, gap, left = 205, 22, 14
    last = left + 3 * (width + gap) + width / 2  # middle of the last box of a row
    frame = 38 + BOX + 50
    bottom = frame + BOX + 46
    under = bottom + 46
    body = [
        label(left, 26, "Reading, once", "outside"),
        *row(READ, left, 38, width, gap),
        arrow(last, 38 + BOX, last, frame - 2),
        label(left, frame - 14, "Training, for every batch of 200 events in time order", "outside"),
        f'<rect class="frame" x="{left - 6}" y="{frame}" width="900" height="{BOX + 46}"/>',
        *row(TRAIN, left + 2, frame + 14, 164, 16),
        label(left + 8, frame + BOX + 35, "The loop around all five steps:", "outside"),
        label(left + 225, frame + BOX + 35, f"{LOOP[0]}  {checked(*LOOP)}", "outside code"),
        arrow(left + 40, bottom, left + 40, under - 2),
        label(
            left + 56, under - 14, "Measuring, once: the same without steps 3 and 5, on later events", "outside"
        ),
        *row(MEASURE, left, under, width, gap),
    ]
    return picture("The way of a batch", 916, under + BOX + 12, body)


def row(steps: tuple[Step, ...], left: float, top: float, width: float, gap: float) -> Iterator[str]:
    """Boxes side by side, an arrow from each to the next."""
    for number, step in enumerate(steps):
        x = left + number * (width + gap)
        yield box(x, top, width, BOX, step.kind)
        yield label(x + 9, top + 22, step.title, "title")
        yield label(x + 9, top + 42, step.about, "small")
        for place, (file, name) in enumerate(step.code):
            yield label(x + 9, top + 66 + 34 * place, file, "code")
            yield label(x + 17, top + 81 + 34 * place, checked(file, name), "code name")
        if number:
            yield arrow(x - gap + 1, top + BOX / 2, x - 2, top + BOX / 2)


def checked(file: str, name: str) -> str:
    """The name, provided that the file defines it: a function, a class, or `Class.method`."""
    path = PACKAGE / file
    if not path.exists():
        raise SystemExit(f"docs/pictures.py: src/dsrd/{file} does not exist; correct the step that names it")
    body = ast.parse(path.read_text()).body
    for part in name.split("."):
        defined = {each.name: each for each in body if isinstance(each, ast.ClassDef | ast.FunctionDef)}
        if part not in defined:
            raise SystemExit(f"docs/pictures.py: src/dsrd/{file} does not define {name}; correct the step")
        body = defined[part].body
    return name


class Room(NamedTuple):
    """A box of the house: one or more packages."""

    packages: tuple[str, ...]
    about: str
    kind: str


ABOUT = {
    "data": ("files and frames to a Dataset; the split", "data"),
    "synthetic": ("streams drawn from a known law", "data"),
    "history": ("what was known strictly before a time", "data"),
    "negatives": ("pairs that did not happen", "data"),
    "nn": ("layers that several models share", "model"),
    "models": ("one file or package for each model", "model"),
    "evaluate": ("protocols, scoring, metrics, audit", "measure"),
    "train": ("epochs, checkpoints, run folders, records", "measure"),
    "estimator": ("LinkPredictor, the front door", "front"),
    "classify": ("labels of nodes and events", "front"),
    "experiments": ("plans, sweeps, records", "front"),
    "report": ("figures, tables, tests, one page", "front"),
    "live": ("engine, log, server, page, streams", "front"),
    "cli": ("the dsrd program", "front"),
}


def rooms() -> str:
    """The packages in the order of their layers, and which imports which."""
    house, edges = list(rooms_in_order()), import_counts()
    place = {package: number for number, room in enumerate(house) for package in room.packages}
    drawn: Counter[tuple[int, int]] = Counter()
    for (importer, imported), count in edges.items():
        drawn[place[importer], place[imported]] += count
    height, left, width = 46, 265, 400
    middle = {number: 40 + (len(house) - 1 - number) * height + 17 for number in range(len(house))}
    body = [
        label(left, 22, "An arrow leads from a package to one that it imports; wider: more imports.", "outside")
    ]
    for (importer, imported), count in sorted(drawn.items()):
        if importer != imported and imported:  # all import the ground floor, so it gets no arrows
            body.append(arc(importer, imported, count, middle, left, left + width))
    for number, room in enumerate(house):
        y = middle[number] - 17
        body.append(box(left, y, width, 34, room.kind))
        body.append(
            label(left + 10, middle[number] + 5, ", ".join(room.packages) if number else "ground floor", "title")
        )
        body.append(label(left + 122, middle[number] + 5, room.about, "small"))
    ground = house[0].packages
    body.append(label(left + 122, middle[0] + 5, f"{len(ground)} small modules that all may use:", "small"))
    half = (len(ground) + 1) // 2
    body.append(label(left + 10, middle[0] + 38, ", ".join(ground[:half]) + ",", "outside"))
    body.append(label(left + 10, middle[0] + 58, ", ".join(ground[half:]), "outside"))
    return picture("The rooms of the package", 930, middle[0] + 72, body)


def arc(importer: int, imported: int, count: int, middle: dict[int, float], left: float, right: float) -> str:
    """Beside the boxes, on either side; the further apart two rooms are, the further out it reaches."""
    start, end, far = middle[importer], middle[imported], abs(importer - imported)
    side, sign = (right, 1) if (importer + imported) % 2 else (left, -1)
    reach = side + sign * (14 + 21 * far)
    thick = min(1 + count / 12, 4)
    path = f"M {side:g} {start - 4:g} C {reach:g} {start:g} {reach:g} {end:g} {side + sign * 7:g} {end + 4:g}"
    return f'<path class="arrow" style="stroke-width:{thick:.1f}" marker-end="url(#head)" d="{path}"/>'


def rooms_in_order() -> Iterator[Room]:
    """From the ground up: what has no room of its own is the ground floor."""
    order = [package for layer in layers() for package in layer if package]
    ground = tuple(package for package in order if package not in ABOUT)
    folders = {path.name for path in PACKAGE.iterdir() if path.is_dir() and any(path.glob("*.py"))}
    if missing := sorted(folders - ABOUT.keys()):
        raise SystemExit(f"docs/pictures.py: say in ABOUT what {', '.join(missing)} is")
    yield Room(ground, "", "base")
    for package in order:
        if package in ABOUT:
            yield Room((package,), *ABOUT[package])


def layers() -> tuple[tuple[str, ...], ...]:
    """`LAYERS` of the layout test, read without importing it."""
    for node in ast.parse(LAYOUT_TEST.read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "LAYERS":
            found: tuple[tuple[str, ...], ...] = ast.literal_eval(node.value)
            return found
    raise SystemExit("docs/pictures.py: tests/test_layout.py has no LAYERS")


def import_counts() -> Counter[tuple[str, str]]:
    """How many import statements of one package name another."""
    known = {package for layer in layers() for package in layer if package}
    counts: Counter[tuple[str, str]] = Counter()
    for path in sorted(PACKAGE.rglob("*.py")):
        importer = path.relative_to(PACKAGE).with_suffix("").parts[0]
        for module in imported_modules(ast.parse(path.read_text())):
            imported = module.split(".")[1] if "." in module else ""
            if {importer, imported} <= known and importer != imported:
                counts[importer, imported] += 1
    return counts


def imported_modules(tree: ast.AST) -> Iterator[str]:
    """`dsrd.data.read` for `from dsrd.data.read import load`; once for each statement."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.startswith("dsrd."))
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "dsrd":
            yield from (f"dsrd.{alias.name}" for alias in node.names) if node.module == "dsrd" else (node.module,)


def box(x: float, y: float, width: float, height: float, kind: str) -> str:
    return f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}"/>'


def label(x: float, y: float, words: str, kind: str) -> str:
    return f'<text class="{kind}" x="{x:g}" y="{y:g}">{escape(words)}</text>'


def arrow(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<path class="arrow" marker-end="url(#head)" d="M {x1:g} {y1:g} L {x2:g} {y2:g}"/>'


def picture(title: str, width: float, height: float, body: list[str]) -> str:
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" role="img">',
        f"<title>{escape(title)}</title>",
        f"<style>{STYLE}</style>",
        '<defs><marker id="head" viewBox="0 0 8 8" refX="6" refY="4" markerWidth="8" markerHeight="8" '
        'markerUnits="userSpaceOnUse" orient="auto">',
        '<path d="M 0 0 L 8 4 L 0 8 z" fill="#7d8590"/></marker></defs>',
        *body,
        "</svg>\n",
    ]
    return "\n".join(lines)


def pages() -> dict[str, str]:
    """Each picture by its file name, seen from here."""
    return {"images/batch.svg": batch(), "images/rooms.svg": rooms()}


if __name__ == "__main__":
    for file, content in pages().items():
        (HERE / file).write_text(content, encoding="utf-8")
        print(HERE / file)
