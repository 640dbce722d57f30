"""The results of a sweep in short: test AP of each model on each data set, mean and deviation over seeds."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from typing import NamedTuple

from dsrd.train.record import Record

KINDS = ("random", "historical", "inductive")


class Summary(NamedTuple):
    """A table: titles, and cells by row."""

    columns: list[str]
    rows: list[list[str | int | None]]


def summary(records: Iterable[tuple[str, Record]]) -> Summary:
    """The table of records, each given with the label of its model.

    >>> cell = {"results": {"transductive": {"random": {"ap": 90.0}}}, "dataset": "d", "protocol": "strict"}
    >>> summary([("a", cell), ("a", cell)]).rows
    [['a', 'd', 'strict', 'transductive', 2, '90.00 ± 0.00']]
    """
    found: dict[tuple[str, str, str, str], dict[str, list[float]]] = {}
    for label, record in records:
        for setting, kinds in record["results"].items():
            row = found.setdefault((label, record["dataset"], record["protocol"], setting), {})
            for kind, metrics in kinds.items():
                if metrics.get("ap") is not None:
                    row.setdefault(kind, []).append(metrics["ap"])
    kinds = [kind for kind in KINDS if any(kind in row for row in found.values())]
    rows: list[list[str | int | None]] = [
        [*names, max(map(len, row.values())), *(_cell(row.get(kind, [])) for kind in kinds)]
        for names, row in found.items()
        if row
    ]
    return Summary(["model", "data", "protocol", "setting", "seeds", *kinds], rows)


def _cell(values: list[float]) -> str | None:
    if not values:
        return None
    mean = f"{statistics.fmean(values):.2f}"
    return mean if len(values) == 1 else f"{mean} ± {statistics.stdev(values):.2f}"
