"""The shape of the package: imports point down, code is small, kernels use names, models stay apart."""

from __future__ import annotations

import ast
import io
import json
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from dsrd.models import names

PACKAGE = Path(__file__).parent.parent / "src" / "dsrd"
FILES = sorted(PACKAGE.rglob("*.py"))
MODEL_NAMES = {*names()}
every_file = pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))

LAYERS = (
    ("errors",),
    ("faults",),
    ("compiled", "compiled_cache"),
    ("hashing",),
    ("decoding",),
    ("files",),
    ("checksums",),
    ("machine",),
    ("processes",),
    ("ray_cluster",),
    ("reporter",),
    ("trackers",),
    ("events",),
    ("ranges",),
    ("protocol",),
    ("mapped",),
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
    ("live",),
    ("report",),
    ("cli",),
    ("",),  # `dsrd` itself: the public names, and `python -m dsrd`
)
"""From the bottom up. A file imports its own layer and those below it."""

MOST_LINES = 400
MOST_LINES_OF_A_FUNCTION = 60
MOST_ARGUMENTS = 6


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def module_of(path: Path) -> str:
    """`history.past` for `src/dsrd/history/past.py`; the empty string for the package itself."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(part for part in parts if part not in ("__init__", "__main__"))


MODULES = {module_of(path) for path in FILES}


def layer_of(module: str) -> int:
    part = module.partition(".")[0]
    return next(number for number, layer in enumerate(LAYERS) if part in layer)


def imports(tree: ast.AST) -> Iterator[str]:
    """Modules of the package that a file imports: at its top, inside functions, or for types only."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imported = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "write imports in full"
            imported = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in imported:
            head, _, module = name.partition(".")
            if head == "dsrd" and module != "__version__":
                yield module if module in MODULES else module.rpartition(".")[0]


# --- Direction of imports ----------------------------------------------------------------------------------------


def test_every_top_level_part_has_a_layer():
    parts = {module.partition(".")[0] for module in MODULES}
    assert parts == {name for layer in LAYERS for name in layer}


@every_file
def test_imports_point_down(path: Path):
    layer = layer_of(module_of(path))
    upward = [module for module in imports(tree_of(path)) if layer_of(module) > layer]
    assert not upward, f"{path.relative_to(PACKAGE)} ({LAYERS[layer]}) imports {upward}"


LOAD_FROM_THE_BOTTOM_UP = """
import importlib, json, sys

layers = json.load(sys.stdin)
for number, layer in enumerate(layers):
    higher = {name for names in layers[number + 1 :] for name in names}
    for name in layer:
        importlib.import_module(name)
        if higher & sys.modules.keys():
            sys.exit(f"{name} loads {sorted(higher & sys.modules.keys())}")
"""


def load_from_the_bottom_up(layers: list[list[str]]) -> str:
    """Load modules layer by layer in a fresh process; the error if one loads a module of a higher layer."""
    command = [sys.executable, "-c", LOAD_FROM_THE_BOTTOM_UP]
    result = subprocess.run(command, input=json.dumps(layers), capture_output=True, text=True, check=False)
    assert result.returncode == 0 or result.stderr
    return result.stderr


def test_no_module_loads_a_higher_layer():
    """One process for all layers is enough: what a layer loads too early has not been loaded by those below."""
    layers = [
        [f"dsrd.{module}" for module in sorted(MODULES - {""}) if layer_of(module) == n]
        for n in range(len(LAYERS))
    ]
    assert load_from_the_bottom_up(layers) == ""


def test_loading_a_higher_layer_is_noticed():
    assert "dsrd.state loads ['dsrd.events']" in load_from_the_bottom_up([["dsrd.state"], ["dsrd.events"]])


NOT_EVERYWHERE = {"fcntl", "grp", "msvcrt", "pwd", "resource", "termios", "winreg"}
"""Modules of the standard library that Linux, macOS and Windows do not all have."""


def imported_on_loading(node: ast.AST) -> Iterator[str]:
    """Top-level names of the modules that a file imports while it is loaded, not later inside functions."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            yield (child.module or "").partition(".")[0]
        elif not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from imported_on_loading(child)


@every_file
def test_modules_load_on_every_system(path: Path):
    assert not NOT_EVERYWHERE & {*imported_on_loading(tree_of(path))}


def test_the_package_loads_without_the_modules_windows_lacks():
    script = (
        "import sys; sys.modules['fcntl'] = sys.modules['resource'] = None; "
        "import dsrd.cli.main, dsrd.train.trainer, dsrd.estimator.link_predictor; print('loaded')"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout) == (0, "loaded\n"), result.stderr


# --- Models and shared code --------------------------------------------------------------------------------------


def model_of(module: str) -> str | None:
    """The model that a module belongs to; None for shared code, `models.base` included."""
    folder, _, rest = module.partition(".")
    name = rest.partition(".")[0]
    return name if folder == "models" and name in MODEL_NAMES else None


def modules_of_one_model(imports_of: dict[str, set[str]]) -> dict[str, str]:
    """Shared modules that nobody but one model imports, with that model's name."""
    users: dict[str, set[str | None]] = {}
    for module, imported in imports_of.items():
        for other in imported - {module}:
            users.setdefault(other, set()).add(model_of(module))
    return {
        module: next(iter(models))
        for module, models in users.items()
        if model_of(module) is None and len(models) == 1 and None not in models
    }


def test_a_module_that_only_one_model_uses_lives_with_that_model():
    assert not modules_of_one_model({module_of(path): {*imports(tree_of(path))} for path in FILES})


def test_modules_of_one_model_are_found():
    imports_of = {
        "models.tgn": {"nn.alone", "nn.shared", "nn.wrapped", "models.base"},
        "models.dsrd.walks": {"nn.shared", "models.dsrd.settings"},
        "models.dsrd": {"nn.package", "models.dsrd.walks"},
        "models.dsrd.dense": {"nn.package"},
        "models.base": {"nn.wrapped"},
    }
    assert modules_of_one_model(imports_of) == {"nn.alone": "tgn", "models.base": "tgn", "nn.package": "dsrd"}


def test_no_model_is_named_outside_models():
    """Shared code asks what a model can do, never which model it is.

    Comments and docstrings may name models in two places: in `nn/`, whose parts belong to several models, and in
    `dsrd/__init__.py`, as an example.
    """
    named, forbidden = [], MODEL_NAMES - {PACKAGE.name}
    for path in FILES:
        place = path.relative_to(PACKAGE)
        if place.parts[0] == "models":
            continue
        text = without_prose(path.read_text()) if place.parts[0] in ("nn", "__init__.py") else path.read_text()
        for number, line in enumerate(text.splitlines(), start=1):
            named += [f"{place}:{number}: {name}" for name in forbidden & set(words(line))]
    assert not named


def words(line: str) -> list[str]:
    return re.findall(r"[a-z0-9]+", line.lower())


def without_prose(source: str) -> str:
    """A source text with comments and docstrings blanked; the number of lines stays the same."""
    lines = source.splitlines()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        is_docstring = token.type == tokenize.STRING and token.line.strip().startswith(('"""', 'r"""'))
        if token.type == tokenize.COMMENT or is_docstring:
            (first, start), (last, end) = token.start, token.end
            for row in range(first, last + 1):
                line = lines[row - 1]
                lines[row - 1] = (line[:start] if row == first else "") + (line[end:] if row == last else "")
    return "\n".join(lines)


# --- Compiled code -----------------------------------------------------------------------------------------------

DECORATORS = {
    node.name for node in ast.walk(tree_of(PACKAGE / "compiled.py")) if isinstance(node, ast.FunctionDef)
}
TUPLE_NAME = re.compile(r"(^|_)(state|index|table|log)$")
"""Names under which compiled code holds tuples of arrays."""


def compiled_functions(tree: ast.AST) -> Iterator[ast.FunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            decorators = {getattr(each, "attr", getattr(each, "id", "")) for each in node.decorator_list}
            if decorators & DECORATORS:
                yield node


def reads_by_position(tree: ast.AST) -> list[str]:
    """`state[3]` and the like in compiled functions: a tuple read by a literal position instead of a name."""
    return [
        f"line {node.lineno}: {ast.unparse(node)}"
        for function in compiled_functions(tree)
        for node in ast.walk(function)
        if isinstance(node, ast.Subscript)
        and TUPLE_NAME.search(getattr(node.value, "attr", getattr(node.value, "id", "")))
        and re.fullmatch(r"-?\d+", ast.unparse(node.slice))
    ]


def too_many_arguments(tree: ast.AST) -> list[str]:
    return [
        f"line {function.lineno}: {function.name} takes {count} arguments"
        for function in compiled_functions(tree)
        if (count := sum(isinstance(node, ast.arg) for node in ast.walk(function.args))) > MOST_ARGUMENTS
    ]


@every_file
def test_compiled_code_reads_tuples_by_name(path: Path):
    assert not reads_by_position(tree_of(path))


@every_file
def test_compiled_functions_take_few_arguments(path: Path):
    assert not too_many_arguments(tree_of(path))


def test_offences_in_compiled_code_are_found():
    tree = ast.parse(
        "@compiled\n"
        "def kernel(state, a, b, c, d, e, *f):\n"
        "    return state[3] + past.index[-1] + walk_table[0][a] + state[a] + index.time[0]\n"
        "def plain(state, a, b, c, d, e, f):\n"
        "    return state[3]\n"
    )
    reads = [read.partition(": ")[2] for read in reads_by_position(tree)]
    assert sorted(reads) == ["past.index[-1]", "state[3]", "walk_table[0]"]
    assert too_many_arguments(tree) == ["line 2: kernel takes 7 arguments"]


# --- Error messages and sizes ------------------------------------------------------------------------------------

COMMAND_LINE_OPTION = re.compile(r"--[a-z]|`dsrd ")


def messages(tree: ast.AST) -> Iterator[ast.Constant]:
    """Text in `raise` statements and in calls that make an error: `DsrdError()`, `unknown()`, `origin.error()`."""
    for node in ast.walk(tree):
        called = getattr(node.func, "attr", getattr(node.func, "id", "")) if isinstance(node, ast.Call) else ""
        if isinstance(node, ast.Raise) or called in ("error", "unknown") or called.endswith("Error"):
            yield from (
                each for each in ast.walk(node) if isinstance(each, ast.Constant) and isinstance(each.value, str)
            )


@every_file
def test_library_errors_do_not_mention_command_line_options(path: Path):
    """Somebody who calls the library from Python has no options; only `cli/` may say what to type."""
    if path.relative_to(PACKAGE).parts[0] == "cli":
        return
    mentions = [
        f"{path.relative_to(PACKAGE)}:{text.lineno}: {text.value}"
        for text in messages(tree_of(path))
        if COMMAND_LINE_OPTION.search(text.value)
    ]
    assert not mentions


def test_command_line_options_in_errors_are_found():
    raised = "raise DsrdError(f'{x}: give --top')\nraise origin.error('run `dsrd train`', 3)\nfine('--quiet')"
    mentions = {text.value for text in messages(ast.parse(raised)) if COMMAND_LINE_OPTION.search(text.value)}
    assert mentions == {": give --top", "run `dsrd train`"}


def test_files_are_small():
    lengths = {str(path.relative_to(PACKAGE)): len(path.read_text().splitlines()) for path in FILES}
    assert not {name: lines for name, lines in lengths.items() if lines > MOST_LINES}


def test_functions_fit_a_screen():
    long = {}
    for path in FILES:
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or 0) - node.lineno + 1
                if lines > MOST_LINES_OF_A_FUNCTION:
                    long[f"{path.relative_to(PACKAGE)}:{node.lineno} {node.name}"] = lines
    assert not long
