"""Tables and text on the terminal: results go to standard output, notes to standard error."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from dsrd.files import json_text

PIPE_WIDTH = 200  # table width, in characters, if the output is a file or another program


def note(*lines: str) -> None:
    """Print lines to standard error."""
    for line in lines:
        print(line, file=sys.stderr)


def line(text: str) -> None:
    """Print a result to standard output."""
    print(text, flush=True)


def as_json(value: Any) -> None:
    """Print an object as one line of JSON, the last line of standard output."""
    line(json_text(value))


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Print a table; numbers are aligned right, words left."""
    cells = [list(row) for row in rows]
    printed = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    for number, column in enumerate(columns):
        words = sum(isinstance(row[number], str) and not _is_numeric(row[number]) for row in cells)
        left = number == 0 or words > len(cells) / 2
        printed.add_column(column, justify="left" if left else "right", overflow="fold")
    for row in cells:
        printed.add_row(*(Text(_cell(value)) for value in row))
    console = Console()
    console = console if console.is_terminal else Console(width=PIPE_WIDTH)
    console.print(Text(title, style="bold"), soft_wrap=True)
    console.print(printed, "")


def figures(title: str, values: Mapping[str, Any]) -> None:
    """Print a nested mapping as a table with one row per value."""
    table(title, ["", "value"], list(_flat(values)))


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        label = prefix + key.replace("_", " ")
        if isinstance(value, Mapping):
            yield from _flat(value, f"{label}: ")
        elif isinstance(value, float):
            yield label, f"{value:,.4g}" if abs(value) < 1e5 else f"{value:,.0f}"
        elif isinstance(value, list | tuple):
            yield label, ", ".join(map(str, value)) or None
        else:
            yield label, value


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.2f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _is_numeric(text: str) -> bool:
    return all(letter in "0123456789.,%-/ e+" for letter in text)


def results(title: str, rows: Mapping[str, Mapping[str, Any]]) -> None:
    """Print test results: one row per model and setting, AP / AUC for each kind of negatives."""
    from dsrd.estimator.results import cells

    table(title, *cells(dict(rows)))
