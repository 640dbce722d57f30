"""`dsrd models`."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from textwrap import fill
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dsrd.cli import options, output
from dsrd.cli.settings_help import choices, comments

if TYPE_CHECKING:  # importing a model takes a second that `--help` should not
    from dsrd.models import Preset, TemporalModel

EXAMPLES = options.examples("dsrd models", "dsrd models dsrd", "dsrd models --json")
WIDTH = 79
FIDELITY = "Fidelity\n--------\n"  # the heading of that section of a docstring
Name = Annotated[
    str | None, typer.Argument(metavar="NAME", help="One model in full.", show_default="all, in short")
]


def models(name: Name = None, json: options.Json = False) -> None:
    """List the models, what they read and cost; or one in full."""
    from dsrd.models import DEFAULT, names

    rows = [{**_row(each), "default": each == DEFAULT} for each in ([name] if name else names())]
    if json:
        output.as_json({"models": rows})
    elif name:
        _in_full(rows[0])
    else:
        _in_short(rows)


def _in_short(rows: list[dict[str, Any]]) -> None:
    titles = ["name", "published", "year", "parameters", "bytes/node", "notes"]
    cells = []
    for row in rows:
        where = re.sub(r",? \d{4}$", "", row["paper"])
        year = str(row["year"]) if row["year"] else None
        cells.append([row["name"], where, year, row["parameters"], row["bytes"], row["fidelity"]])
    output.table("models", titles, cells)
    for row in rows:
        chosen = ", trained when none is named" if row["default"] else ""
        output.line(fill(f"{row['name']}{chosen}: {row['summary']}", WIDTH, subsequent_indent="  "))
        switches = "; ".join(f"{key}={'|'.join(each['values'])}" for key, each in row["options"].items())
        presets = "; ".join(f"{preset}: {each['about']}" for preset, each in row["presets"].items())
        for label, text in (*_common(row), ("options", switches), ("presets", presets)):
            if text:
                output.line(fill(f"{label:8} {text}", WIDTH, initial_indent="  ", subsequent_indent=" " * 11))
    output.line("")
    output.line("Notes say how a model differs from its paper or public code: `dsrd models NAME`.")
    output.line("k: `neighbors`. A state of 0 bytes per node, if there is one, grows with events.")


def _common(row: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield "reads", row["reads"]
    yield "state", ", ".join(row["state"]) or "none"
    yield "cost", row["cost"]


def _in_full(row: dict[str, Any]) -> None:
    """The model's docstring, then every setting, the published settings and the presets."""
    output.line(_folded(row["description"]) + "\n")
    facts = [("paper", row["paper"]), *_common(row)]
    facts += [("bytes", f"{row['bytes']:,} per node"), ("weights", f"{row['parameters']:,} at the defaults")]
    for label, text in facts:
        output.line(fill(f"{label:8} {text}", WIDTH, subsequent_indent=" " * 9))
    if row["settings"]:
        output.line("\nSettings (--set model.NAME=VALUE) and their defaults:")
    for key, value in row["settings"].items():
        values = f" ({'|'.join(row['options'][key]['values'])})" if key in row["options"] else ""
        text = f"{key}={_typed(value)}  {row['comments'][key]}{values}"
        output.line(fill(text, WIDTH, initial_indent="  ", subsequent_indent=" " * 6))
    groups: dict[str, list[str]] = {}
    for dataset, given in row["published_settings"].items():
        groups.setdefault(" ".join(f"{key}={_typed(value)}" for key, value in given.items()), []).append(dataset)
    if groups:
        output.line("\nSettings of the published rows (--preset published, the default):")
    for text, datasets in groups.items():
        line = f"{', '.join(datasets)}: {text}"
        output.line(fill(line, WIDTH, initial_indent="  ", subsequent_indent=" " * 6))
    for preset, each in row["presets"].items():
        keys = " ".join(f"{key}={_typed(value)}" for key, value in each["settings"].items())
        output.line(f"\nPreset {preset} (--preset {preset}), {each['about']}; {each['parameters']:,} weights:")
        output.line(fill(keys, WIDTH, initial_indent="  ", subsequent_indent="  "))


def _folded(text: str) -> str:
    """Paragraphs and notes filled to the width of a terminal; indented equations and headings stay as they are.

    >>> print(_folded("Words\\nof one paragraph.\\n\\n    a = b\\n\\n* A\\n  note.\\n* Another."))
    Words of one paragraph.
    <BLANKLINE>
        a = b
    <BLANKLINE>
    * A note.
    * Another.
    """
    kept = r"^(?:    .*|-+)$"
    # a line continues the one above unless it is empty, kept as it is, or begins a note or a paragraph
    joined: list[str] = []
    for line in text.splitlines():
        starts = not line or line.startswith("* ") or re.match(kept, line)
        if starts or not joined or not joined[-1] or re.match(kept, joined[-1]):
            joined.append(line)
        else:
            joined[-1] += f" {line.strip()}"
    return "\n".join(
        line if re.match(kept, line) else fill(line, WIDTH, subsequent_indent="  " * line.startswith("* "))
        for line in joined
    )


def _row(name: str) -> dict[str, Any]:
    from dsrd.models import model_class, published

    cls = model_class(name)
    description = inspect.cleandoc(sys.modules[cls.__module__].__doc__ or "")
    year = re.search(r"\b(?:19|20)\d{2}\b", cls.card.paper)
    sizes = _sizes(name, "default")
    presets = {
        preset: {"about": each.about, "settings": _keys(each), **_sizes(name, preset)}
        for preset, each in cls.card.presets.items()
    }
    return {
        "name": name,
        "paper": cls.card.paper,
        "year": int(year[0]) if year else None,
        "reads": cls.card.reads,
        "cost": cls.card.cost,
        "summary": (cls.__doc__ or "").strip().splitlines()[0],
        "description": description,
        **sizes,
        "bytes": sizes["state_bytes_per_node"],
        "settings": asdict(cls.Config()),
        "comments": comments(cls.Config),
        "options": _options(cls, description),
        "fidelity": len(re.findall(r"^\* ", _fidelity(description), re.M)),
        "published": sorted(published(name)),
        "published_settings": {dataset: dict(given) for dataset, given in published(name).items()},
        "presets": presets,
    }


def _fidelity(description: str) -> str:
    """The section on differences from paper and public code, a note each; empty if the docstring has none."""
    return description.partition(FIDELITY)[2]


def _options(cls: type[TemporalModel], description: str) -> dict[str, Any]:
    """Settings that choose among variants; `fidelity`: a variant is explained in the section of that name."""
    notes, about = _fidelity(description), comments(cls.Config)
    return {
        key: {"values": values, "fidelity": f"`{key}=" in notes or "see Fidelity" in about[key]}
        for key, values in choices(cls.Config).items()
    }


def _typed(value: Any) -> str:
    """A value in the form that `--set` takes."""
    if isinstance(value, tuple):
        return ",".join(map(_typed, value))
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


def _sizes(name: str, preset: str) -> dict[str, Any]:
    import torch

    from dsrd.models import GraphSpec, create, settings

    model = create(name, GraphSpec(num_nodes=1025), settings(name, "", preset, {}))
    at_rest = model.state.nbytes()
    model.state.rows_for(torch.tensor([1024]))  # rows are made when first written
    return {
        "state": list(model.state.fields),
        "state_bytes_per_node": (model.state.nbytes() - at_rest) // 1024,
        "parameters": model.num_parameters,
    }


def _keys(preset: Preset) -> dict[str, Any]:
    """The settings of a preset, with the keys that `--set` takes."""
    model = {f"model.{key}": value for key, value in preset.model.items()}
    return model | {f"train.{key}": value for key, value in preset.recipe.items()}
