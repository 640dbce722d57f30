"""What a person sees: tables and notes; bars are the reporter's. Results go to standard output, the rest to
standard error.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from dsrd.config import label
from dsrd.files import json_text
from dsrd.reporter import Progress as Report
from dsrd.reporter import bar, download_bar

__all__ = ["Report", "as_json", "bar", "download_bar", "figures", "line", "note", "results", "rows_of", "table"]

PIPE_WIDTH = 200  # columns of a table that goes to a file or another program: nothing is cut off there
KINDS = ("random", "historical", "inductive")


def note(*lines: str) -> None:
    """Say something on standard error."""
    for line in lines:
        print(line, file=sys.stderr)


def line(text: str) -> None:
    """A result in words, on standard output."""
    print(text, flush=True)


def as_json(value: Any) -> None:
    """One object on one line, the last of standard output."""
    line(json_text(value))


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Print a table; numbers stand right, words left."""
    cells = [list(row) for row in rows]
    shown = Table(
        title=title,
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=(0, 1, 0, 0),
    )
    for number, column in enumerate(columns):
        words = sum(isinstance(row[number], str) and not _is_figure(row[number]) for row in cells)
        left = number == 0 or words > len(cells) / 2
        shown.add_column(column, justify="left" if left else "right", overflow="fold")
    for row in cells:
        shown.add_row(*(Text(_cell(value)) for value in row))
    console = Console()
    (console if console.is_terminal else Console(width=PIPE_WIDTH)).print(shown, "")


def figures(title: str, values: Mapping[str, Any]) -> None:
    """Nested figures as a table with one row each."""
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


def _is_figure(text: str) -> bool:
    return all(letter in "0123456789.,%-/ e+" for letter in text)


def rows_of(record: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """A record's test results by model, a row for every head it was asked by."""
    name, others = label(record["model"], record["preset"]), record.get("heads", {})
    if not others:
        return {name: record["results"]}
    rows = {f"{name} ({record['head']})": record["results"]}
    return rows | {f"{name} ({head})": found["results"] for head, found in others.items()}


def results(title: str, rows: Mapping[str, Mapping[str, Any]]) -> None:
    """A table of test results: one row per model and setting, AP / AUC per kind of negatives."""
    settings = [setting for found in rows.values() for setting in found.values()]
    kinds = [kind for kind in KINDS if any(kind in setting for setting in settings)]
    ranked = any("ranking" in setting for setting in settings)
    columns = ["model", "setting", *kinds, *(["MRR / Hits@10"] if ranked else [])]
    lines = []
    for name, found in rows.items():
        for setting, values in found.items():
            cells = [_both(values.get(kind, {}), "ap", "auc") for kind in kinds]
            cells += [_both(values.get("ranking", {}), "mrr", "hits@10")] if ranked else []
            lines.append([name, setting, *cells])
    table(title, columns, lines)


def _both(values: Mapping[str, float | None], first: str, second: str) -> str | None:
    """Two figures in one cell; none where there were no events to measure on."""
    shown = [values.get(first), values.get(second)]
    return None if None in shown else " / ".join(f"{value:.2f}" for value in shown)
