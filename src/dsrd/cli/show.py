"""What a person sees: progress bars, tables, notes. Results go to standard output, the rest to standard error."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from dsrd.evaluate.evaluator import Progress as Report

errors = Console(stderr=True)
output = Console()
PATIENCE = 1.0  # seconds before a bar appears: what is over sooner needs none


@contextmanager
def bar() -> Iterator[Report]:
    """A progress bar fed by (what, done, total); a new `what` starts over."""
    columns = (TextColumn("{task.description:<24}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    began = time.monotonic()
    with Progress(*columns, console=errors, transient=True) as progress:
        task = progress.add_task("", visible=False)
        label = ""

        def report(what: str, done: int, total: int) -> None:
            nonlocal label
            if what != label:
                label = what
                progress.reset(task, description=what, total=total)
            progress.update(task, completed=done, total=total, visible=time.monotonic() - began > PATIENCE)

        yield report


@contextmanager
def download_bar(name: str) -> Iterator[Any]:
    """A progress bar in bytes, fed by (there, expected)."""
    with Progress(
        TextColumn(name), BarColumn(), DownloadColumn(), TimeRemainingColumn(), console=errors
    ) as progress:
        task = progress.add_task(name, total=None)
        yield lambda there, expected: progress.update(task, completed=there, total=expected)


def note(*lines: str) -> None:
    """Say something on standard error."""
    for line in lines:
        errors.print(line, highlight=False, markup=False, soft_wrap=True)


def as_json(value: Any) -> None:
    """One object on one line, the last of standard output."""
    print(json.dumps(value), flush=True)


def table(title: str, columns: Iterable[str], rows: Iterable[Iterable[Any]]) -> None:
    """Print a table; numbers stand right."""
    shown = Table(title=title, title_justify="left")
    for number, column in enumerate(columns):
        shown.add_column(column, justify="left" if number == 0 else "right")
    for row in rows:
        shown.add_row(*(_cell(value) for value in row))
    output.print(shown)


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.2f}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def results(title: str, rows: dict[str, dict[str, Any]]) -> None:
    """A table of test results: one row per model and setting, AP / AUC per kind of negatives."""
    kinds = [
        kind
        for kind in ("random", "historical", "inductive")
        if any(kind in setting for found in rows.values() for setting in found.values())
    ]
    ranked = any("ranking" in setting for found in rows.values() for setting in found.values())
    columns = ["model", "setting", *kinds, *(["MRR / Hits@10"] if ranked else [])]
    lines = []
    for name, found in rows.items():
        for setting, values in found.items():
            cells = [_both(values.get(kind, {}), "ap", "auc") for kind in kinds]
            cells += [_both(values.get("ranking", {}), "mrr", "hits@10")] if ranked else []
            lines.append([name, setting, *cells])
    table(title, columns, lines)


def _both(values: dict[str, float], first: str, second: str) -> str:
    return f"{values[first]:.2f} / {values[second]:.2f}" if first in values else "-"
