"""Tables of link prediction: rows of models over columns of data sets, with ranks, places and shading."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from dsrd.report.measured import (
    CEILING,
    KINDS,
    METRICS,
    MODEL,
    PROTOCOLS,
    PUBLISHED,
    READINGS,
    RULE,
    SETTINGS,
    Number,
    in_order,
    is_benchmark,
)
from dsrd.report.published import titles
from dsrd.report.statistics import ALPHA, ranks


@dataclass(frozen=True)
class View:
    """Which numbers a table shows."""

    protocol: str = "dyglib"
    reading: str = "plain"
    setting: str = "transductive"
    negatives: str = "random"
    metric: str = "ap"
    benchmarks: bool = True  # data sets of the catalogue; otherwise all others

    def shows(self, number: Number) -> bool:
        """Whether the number belongs in the table."""
        return (
            self.protocol == number.protocol
            and self.reading == number.reading
            and self.setting == number.setting
            and self.negatives == number.negatives
            and self.metric == number.metric
            and self.benchmarks == is_benchmark(number.dataset)
        )


@dataclass(frozen=True)
class Cell:
    """The numbers of one row and data set."""

    numbers: tuple[Number, ...]

    @property
    def mean(self) -> float:
        return statistics.fmean(each.value for each in self.numbers)

    @property
    def std(self) -> float | None:
        """Over seeds, or as published; None for a single seed."""
        values = [each.value for each in self.numbers]
        return statistics.stdev(values) if len(values) > 1 else self.numbers[0].std

    @property
    def notes(self) -> list[str]:
        """What a reader must know: single seed, cut by time, published, and so on."""
        first = self.numbers[0]
        alone = ["one seed"] if first.origin == MODEL and len(self.numbers) == 1 else []
        return [*alone, *dict.fromkeys(note for each in self.numbers for note in each.notes)]


@dataclass(frozen=True)
class Row:
    """A model, a published row, a rule or a ceiling."""

    name: str
    base: str
    origin: str
    cells: dict[str, Cell]  # by data set

    @property
    def is_usual(self) -> bool:
        """Whether it stands for its model: not a variant, another head or an earlier version."""
        notes = {note for cell in self.cells.values() for note in cell.notes}
        return self.name == self.base and not notes & {"earlier version", "other head"}


@dataclass
class LinkTable:
    """The rows of one view, and what follows from them: ranks, places and shading."""

    view: View
    datasets: list[str]
    rows: list[Row]
    left_out: list[str] = field(default_factory=list)

    @cached_property
    def contenders(self) -> list[Row]:
        """One row for each model, of one origin: measured here on all data sets of the field, or else published.

        The field is that of the measured model with most data sets. Rules take part where papers rank them too,
        and an earlier version of a model only where nothing of the present one was measured.
        """
        by_base: dict[str, list[Row]] = {}
        present = any(
            row.origin == MODEL and not _notes(row) & {"earlier version", "other head"} for row in self.rows
        )
        for row in self.rows:
            ranked = row.origin in (MODEL, PUBLISHED) or (row.origin == RULE and row.base in titles())
            stale = present and "earlier version" in _notes(row)
            if ranked and not stale and "other head" not in _notes(row):
                by_base.setdefault(row.base, []).append(row)
        chosen = [_representative(rows, self.anchor) for rows in by_base.values()]
        return [row for row in chosen if row is not None]

    def is_main(self, row: Row) -> bool:
        """Whether it is shown first: the usual settings of its model, or any where these were not measured."""
        others = [other for other in self.rows if other.base == row.base and other.origin == row.origin]
        unusual = _notes(row) & {"earlier version", "other head"}
        return row.is_usual or not (unusual or any(other.is_usual for other in others))

    @cached_property
    def anchor(self) -> list[str]:
        """The data sets of the measured model that has most; ranks are taken over them."""
        measured = [row for row in self.rows if row.origin == MODEL and "other head" not in _notes(row)]
        usual = [row for row in measured if row.is_usual] or measured or self.rows
        most = max(usual, key=lambda row: (len(row.cells), row.name), default=None)
        return [] if most is None else [name for name in self.datasets if name in most.cells]

    @cached_property
    def average_ranks(self) -> dict[str, float]:
        """Average rank of the contenders that have all data sets of the field, by row name."""
        rows, names, values = self.block
        return dict(zip([row.name for row in rows], ranks(values).mean(0).tolist(), strict=True)) if names else {}

    @cached_property
    def block(self) -> tuple[list[Row], list[str], np.ndarray]:
        """The largest part without holes: rows, data sets, and values.  # [data sets, rows]"""
        best: tuple[int, int, list[Row], tuple[str, ...]] = (0, 0, [], ())
        options = {tuple(name for name in self.anchor if name in row.cells) for row in self.contenders}
        for names in sorted(options):
            rows = [row for row in self.contenders if row.cells.keys() >= {*names}]
            size = (len(rows) - 1) * len(names)
            if len(rows) > 1 and names and (size, len(names)) > best[:2]:
                best = (size, len(names), rows, names)
        _, _, rows, names = best
        values = np.array([[row.cells[name].mean for row in rows] for name in names])
        return rows, list(names), values.reshape(len(names), len(rows))

    @cached_property
    def places(self) -> dict[tuple[str, str], int]:
        """Place of a contender on a data set, 1 for the best, by (row name, data set); ties share the better."""
        found: dict[tuple[str, str], int] = {}
        for dataset in self.datasets:
            values = {row.name: row.cells[dataset].mean for row in self.contenders if dataset in row.cells}
            for name, value in values.items():
                found[name, dataset] = 1 + sum(other > value for other in values.values())
        return found

    @cached_property
    def shades(self) -> dict[tuple[str, str], int]:
        """Strength of a cell's colour in percent, for the better half of a data set's contenders."""
        found: dict[tuple[str, str], int] = {}
        for dataset in self.datasets:
            values = {row.name: row.cells[dataset].mean for row in self.contenders if dataset in row.cells}
            found |= {(name, dataset): shade for name, shade in shading(values).items()}
        return found

    def warnings(self) -> list[str]:
        """What weakens a statement about ranks."""
        rows, names, _ = self.block
        told = []
        if len(names) < 6:
            told.append(f"only {len(names)} data sets; fewer than six say little")
        missing = [row.name for row in self.contenders if row not in rows]
        if missing:
            told.append(f"left out for want of results on some data sets: {', '.join(missing)}")
        if [name for name in self.anchor if name not in names]:
            told.append(f"data sets left out: {', '.join(name for name in self.anchor if name not in names)}")
        pairs = len(rows) * (len(rows) - 1) // 2
        if names and pairs * 2.0 ** (1 - len(names)) > ALPHA:
            told.append(f"on {len(names)} data sets no pair of {len(rows)} models can differ significantly")
        return told


def _notes(row: Row) -> set[str]:
    return {note for cell in row.cells.values() for note in cell.notes}


def _representative(rows: list[Row], datasets: Sequence[str]) -> Row | None:
    """Of the rows of one model: measured and complete, published, measured with holes; variants come last."""

    def order(row: Row) -> tuple[bool, ...]:
        complete = row.cells.keys() >= {*datasets}
        published = row.origin == PUBLISHED
        return (published or row.is_usual or row.origin == RULE, complete, not published, len(row.cells) > 0)

    return max(rows, key=lambda row: (*order(row), sum(name in row.cells for name in datasets)), default=None)


def shading(values: dict[str, float]) -> dict[str, int]:
    """The paper's shading: from the value in the middle of the order, exclusive (0), to the best (100).

    >>> shading({"a": 88.06, "b": 87.72, "c": 84.70, "d": 80.0})
    {'a': 100}
    >>> shading({"a": 100.0, "b": 75.0, "c": 60.0, "d": 50.0, "e": 20.0, "f": 10.0})
    {'a': 100, 'b': 38}
    """
    ordered = sorted(values.values(), reverse=True)
    if len(ordered) < 2:
        return {}
    middle, best = ordered[len(ordered) // 2 - 1], ordered[0]
    if best == middle:
        return {name: 100 for name, value in values.items() if value == best}
    found = {name: round(100 * (value - middle) / (best - middle)) for name, value in values.items()}
    return {name: shade for name, shade in found.items() if shade > 0}


def link_table(numbers: Iterable[Number], view: View) -> LinkTable:
    """The table of one view; models first, then rules, published rows and ceilings."""
    grouped: dict[tuple[str, str, str], dict[str, list[Number]]] = {}
    for each in numbers:
        if view.shows(each):
            row = grouped.setdefault((each.origin, each.row, each.base), {})
            row.setdefault(each.dataset, []).append(each)
    order = (MODEL, RULE, PUBLISHED, CEILING)
    rows = [
        Row(name, base, origin, {dataset: Cell(tuple(found)) for dataset, found in cells.items()})
        for (origin, name, base), cells in sorted(
            grouped.items(), key=lambda item: (order.index(item[0][0]), item)
        )
    ]
    measured = {name for row in rows if row.origin != PUBLISHED for name in row.cells}
    return LinkTable(view, in_order(measured), rows)


def views(numbers: Sequence[Number]) -> list[View]:
    """The views for which there are measured numbers."""
    there = {
        (each.protocol, each.reading, each.setting, each.negatives, each.metric, is_benchmark(each.dataset))
        for each in numbers
        if each.origin in (MODEL, RULE)
    }
    return [
        View(protocol, reading, setting, negatives, metric, benchmarks)
        for benchmarks in (True, False)
        for protocol in PROTOCOLS
        for reading in READINGS
        for metric in METRICS
        for setting in SETTINGS
        for negatives in KINDS
        if (protocol, reading, setting, negatives, metric, benchmarks) in there
    ]


def shown(cell: Cell | None) -> str:
    """A cell as text: mean, and deviation where it is known."""
    if cell is None or not math.isfinite(cell.mean):
        return ""
    return f"{cell.mean:.2f}" if cell.std is None else f"{cell.mean:.2f} ± {cell.std:.2f}"
