"""Write api.md and command-line.md of docs/reference, and the model of CONTRIBUTING.md into its tutorial.

Run `python docs/generate_reference.py` after a change of the public names, of an option or of that model. A test
compares the committed pages with what this file writes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer
from typer.testing import CliRunner

import dsrd
from dsrd.cli.main import app

HERE = Path(__file__).parent
NOTE = "<!-- Written by docs/generate_reference.py; change the code, then run it again. -->\n"

API = {
    "The front door": (
        "What most programs need.",
        ["LinkPredictor", "open", "load", "Results", "Table", "trackers"],
    ),
    "Streams": ("Data in memory, the split, and synthetic streams.", ["Dataset", "split", "synth", "SynthConfig"]),
    "Events and history": (
        "The containers that models see, and what was known before a time.",
        ["Events", "Query", "Neighbors", "Past", "Live"],
    ),
    "Models": (
        "What a new model builds on.",
        ["TemporalModel", "NodeEncoder", "ModelCard", "GraphSpec", "State", "create", "model_names"],
    ),
    "Training and evaluation": (
        "The parts behind `LinkPredictor`, for experiments that need them one by one.",
        ["RunConfig", "Task", "Trainer", "evaluate_model", "draw_negatives", "metrics"],
    ),
    "Experiments": ("Sweeps over models, data sets and seeds, and searches for settings.", ["experiments"]),
    "Reports": ("Figures, tables and tests from records.", ["report"]),
    "Errors": ("What the library raises.", ["DsrdError"]),
}
"""Every public name once, by what a reader looks for."""


def api_page() -> str:
    """A heading for each group of public names, and a directive that mkdocstrings replaces by the docstrings."""
    listed = [name for _, names in API.values() for name in names]
    if gone := sorted({*listed} - {*dsrd.__all__}):
        raise SystemExit(f"docs/generate_reference.py: API lists {', '.join(gone)}, which dsrd does not export")
    others = [name for name in dsrd.__all__ if name not in listed]
    groups = {**API, "Also public": ("Not sorted into a group yet.", others)} if others else API
    parts = [
        "# Python API\n",
        NOTE,
        "These names are stable: `import dsrd`, then `dsrd.NAME`. Everything else is imported from the module it "
        "lives in and may move. The text below is taken from the docstrings when the site is built; in a Python "
        "session, `help(dsrd.LinkPredictor)` shows the same.\n",
    ]
    for group, (about, names) in groups.items():
        parts += [f"## {group}\n", f"{about}\n"]
        parts += [f"::: {home(name)}\n    options:\n      heading: dsrd.{name}\n" for name in names]
    return "\n".join(parts)


def home(name: str) -> str:
    """The full path of a public name, as mkdocstrings wants it."""
    return "dsrd." + dsrd._HOME[name].replace(":", ".")


def command_line_page() -> str:
    """What `--help` prints for every command."""
    names = list(commands(typer.main.get_command(app)))
    parts = [
        "# Command line\n",
        NOTE,
        "This is what `dsrd COMMAND --help` prints, for every command. `python -m dsrd` is the same program.\n",
        *(f"* [`{' '.join(['dsrd', *words])}`](#{'-'.join(['dsrd', *words])})" for words in names),
    ]
    for words in names:
        parts.append(f"\n## {' '.join(['dsrd', *words])}\n\n```text\n{help_text(words)}\n```")
    return "\n".join(parts) + "\n"


def commands(group: Any, prefix: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The words of every command, groups opened up."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*prefix, name))
        elif not command.hidden:
            yield (*prefix, name)


def help_text(words: tuple[str, ...]) -> str:
    printed = CliRunner().invoke(app, [*words, "--help"], prog_name="dsrd", env={"COLUMNS": "90"})
    assert printed.exit_code == 0, printed.output
    return "\n".join(line.rstrip() for line in printed.output.strip().splitlines())


def add_a_model_page() -> str:
    """The tutorial with the model of CONTRIBUTING.md copied in, so that there is one such model."""
    model = re.search(r"<!-- model: (\S+) -->\n(```python\n.*?^```\n)", _read("../CONTRIBUTING.md"), re.M | re.S)
    assert model, "CONTRIBUTING.md: no model between `<!-- model: NAME.py -->` and the end of its block"
    begin, end = "<!-- copied from CONTRIBUTING.md -->\n", "<!-- /copied -->"
    before, rest = _read("tutorials/add-a-model.md").split(begin)
    return before + begin + model[2] + end + rest.split(end)[1]


def _read(file: str) -> str:
    return (HERE / file).read_text(encoding="utf-8")


def pages() -> dict[str, str]:
    """Each generated page by its file name, seen from here."""
    return {
        "reference/api.md": api_page(),
        "reference/command-line.md": command_line_page(),
        "tutorials/add-a-model.md": add_a_model_page(),
    }


if __name__ == "__main__":
    for file, content in pages().items():
        (HERE / file).write_text(content, encoding="utf-8")
        print(HERE / file)
