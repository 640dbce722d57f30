"""The shape of the package: imports point down, files and functions stay small, models stay in `models/`."""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

from dsrd.models import names

PACKAGE = Path(__file__).parent.parent / "src" / "dsrd"
FILES = sorted(PACKAGE.rglob("*.py"))

LAYERS = (
    ("errors",),
    ("compiled",),
    ("files",),
    ("machine",),
    ("reporter",),
    ("trackers",),
    ("events",),
    ("protocol",),
    ("state",),
    ("config",),
    ("data", "synthetic"),
    ("history",),
    ("negatives",),
    ("nn",),
    ("models",),
    ("evaluate",),
    ("train",),
    ("estimator",),
    ("classify",),
    ("experiments",),
    ("cli",),
    ("",),  # `dsrd` itself: the public names, and `python -m dsrd`
)
"""From the bottom up. A file imports its own layer and those before it."""

MOST_LINES = 400
MOST_LINES_OF_A_FUNCTION = 60


def module_of(path: Path) -> str:
    """`graph.past` of `src/dsrd/graph/past.py`; the package itself is ``."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(part for part in parts if part not in ("__init__", "__main__"))


MODULES = {module_of(path) for path in FILES}


def layer_of(module: str) -> int:
    part = module.partition(".")[0]
    return next(number for number, layer in enumerate(LAYERS) if part in layer)


def imports(tree: ast.AST) -> Iterator[str]:
    """Modules of the package that a file imports anywhere, also inside functions and for types only."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "write imports in full"
            found = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in found:
            head, _, module = name.partition(".")
            if head == "dsrd" and module != "__version__":
                yield module if module in MODULES else module.rpartition(".")[0]


def test_every_top_level_part_has_a_layer():
    parts = {module.partition(".")[0] for module in MODULES}
    assert parts == {name for layer in LAYERS for name in layer}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_down(path: Path):
    own = layer_of(module_of(path))
    upward = [module for module in imports(ast.parse(path.read_text())) if layer_of(module) > own]
    assert not upward, f"{path.relative_to(PACKAGE)} ({LAYERS[own]}) imports {upward}"


NOT_EVERYWHERE = {"fcntl", "grp", "msvcrt", "pwd", "resource", "termios", "winreg"}
"""Modules of the standard library that Linux, macOS and Windows do not all have."""


def imported_on_loading(node: ast.AST) -> Iterator[str]:
    """First parts of the modules a file imports when it is loaded itself: not those imported inside functions."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            yield (child.module or "").partition(".")[0]
        elif not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from imported_on_loading(child)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_modules_load_on_every_system(path: Path):
    assert not NOT_EVERYWHERE & {*imported_on_loading(ast.parse(path.read_text()))}


def test_the_package_loads_without_the_modules_windows_lacks():
    script = (
        "import sys; sys.modules['fcntl'] = sys.modules['resource'] = None; "
        "import dsrd.cli.main, dsrd.train.trainer, dsrd.estimator.link_predictor; print('loaded')"
    )
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (found.returncode, found.stdout) == (0, "loaded\n"), found.stderr


OF_THE_COMMAND_LINE = re.compile(r"--[a-z]|`dsrd ")


def messages(tree: ast.AST) -> Iterator[ast.Constant]:
    """Text in what is raised, and in calls that make an error: `DsrdError()`, `unknown()`, `origin.error()`."""
    for node in ast.walk(tree):
        called = getattr(node.func, "attr", getattr(node.func, "id", "")) if isinstance(node, ast.Call) else ""
        if isinstance(node, ast.Raise) or called in ("error", "unknown") or called.endswith("Error"):
            yield from (
                each for each in ast.walk(node) if isinstance(each, ast.Constant) and isinstance(each.value, str)
            )


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_errors_of_the_library_do_not_speak_of_the_command_line(path: Path):
    """Who calls it from Python has no options; the command line may add what to type."""
    if path.relative_to(PACKAGE).parts[0] == "cli":
        return
    found = [
        f"{path.relative_to(PACKAGE)}:{text.lineno}: {text.value}"
        for text in messages(ast.parse(path.read_text()))
        if OF_THE_COMMAND_LINE.search(text.value)
    ]
    assert not found


def test_messages_are_found():
    raised = "raise DsrdError(f'{x}: give --top')\nraise origin.error('run `dsrd train`', 3)\nfine('--quiet')"
    found = {text.value for text in messages(ast.parse(raised)) if OF_THE_COMMAND_LINE.search(text.value)}
    assert found == {": give --top", "run `dsrd train`"}


def test_files_are_small():
    lengths = {str(path.relative_to(PACKAGE)): len(path.read_text().splitlines()) for path in FILES}
    assert not {name: lines for name, lines in lengths.items() if lines > MOST_LINES}


def test_functions_fit_a_screen():
    long = {}
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or 0) - node.lineno + 1
                if lines > MOST_LINES_OF_A_FUNCTION:
                    long[f"{path.relative_to(PACKAGE)}:{node.lineno} {node.name}"] = lines
    assert not long


def test_no_model_is_named_outside_models():
    """Shared code asks what a model can do, never who it is.

    Prose may name models in two places: in `nn/`, whose parts it holds; in the package's own, as an example.
    """
    named = []
    for path in FILES:
        place = path.relative_to(PACKAGE)
        if place.parts[0] == "models":
            continue
        text = without_prose(path.read_text()) if place.parts[0] in ("nn", "__init__.py") else path.read_text()
        for number, line in enumerate(text.splitlines(), start=1):
            named += [f"{place}:{number}: {name}" for name in model_words() & set(words(line))]
    assert not named


def model_words() -> set[str]:
    """The models' names; not the one that is also the package's."""
    return {*names()} - {PACKAGE.name}


def words(line: str) -> list[str]:
    return re.findall(r"[a-z0-9]+", line.lower())


def without_prose(source: str) -> str:
    """A source text with comments and docstrings blanked, lines kept."""
    lines = source.splitlines()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        alone = token.line.strip().startswith(('"""', 'r"""'))
        if token.type == tokenize.COMMENT or (token.type == tokenize.STRING and alone):
            (first, start), (last, end) = token.start, token.end
            for row in range(first, last + 1):
                line = lines[row - 1]
                lines[row - 1] = (line[:start] if row == first else "") + (line[end:] if row == last else "")
    return "\n".join(lines)
