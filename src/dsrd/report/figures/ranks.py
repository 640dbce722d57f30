"""Rank diagrams as in the paper: six rows, one for each setting and kind of negatives; and paired differences."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dsrd.errors import DsrdError
from dsrd.report.figures import style
from dsrd.report.measured import KINDS, MODEL, PUBLISHED, SETTINGS, Number, is_benchmark, numbers
from dsrd.report.published import RUNS
from dsrd.report.records import Records
from dsrd.report.statistics import (
    FEWEST,
    Friedman,
    Interval,
    Sample,
    cliques,
    friedman,
    paired_bootstrap,
    pairwise,
    ranks,
)
from dsrd.report.tables import Cell, LinkTable, Row, View, link_table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Ranking:
    """One row of a rank diagram: the contenders of a view without holes, and what the tests say."""

    view: View
    names: list[str]
    datasets: list[str]
    average: list[float]
    test: Friedman
    groups: list[list[int]]  # of models that do not differ
    p: np.ndarray  # by pair, raw  # [models, models]
    adjusted: np.ndarray  # by Holm
    warnings: list[str]

    @property
    def label(self) -> str:
        """Negatives and setting, as the paper writes them."""
        return f"{self.view.negatives.title()} ({self.view.setting.title()})"


def rankings(found: Sequence[Number], view: View) -> list[Ranking]:
    """The six rankings of a protocol, reading and metric; those with fewer than three models or two sets lack.

    They are over the benchmark data sets, or over all others where no model was measured on a benchmark.
    """
    view = over_what_was_measured(found, view)
    tables = [
        link_table(found, replace(view, setting=setting, negatives=negatives))
        for setting in SETTINGS
        for negatives in KINDS
    ]
    return [ranking for ranking in map(_ranking, tables) if ranking is not None]


def over_what_was_measured(found: Sequence[Number], view: View) -> View:
    """The view over benchmarks if a model was measured on one, otherwise over other streams."""
    return replace(view, benchmarks=any(each.origin == MODEL and is_benchmark(each.dataset) for each in found))


def _ranking(table: LinkTable) -> Ranking | None:
    rows, datasets, values = table.block
    if len(rows) < 3 or len(datasets) < 2:
        return None
    raw, adjusted = pairwise(values)
    return Ranking(
        view=table.view,
        names=[row.name for row in rows],
        datasets=datasets,
        average=ranks(values).mean(0).tolist(),
        test=friedman(values),
        groups=cliques(values),
        p=raw,
        adjusted=adjusted,
        warnings=table.warnings(),
    )


def rank_diagram(records: Records, metric: str = "ap", protocol: str = "dyglib", reading: str = "plain") -> Figure:
    """Average ranks of all models, a row for each setting and negatives; bars join models that do not differ.

    A model takes part with its results here if they are complete, otherwise with its published row (†). p is that
    of Friedman's test; a star marks fewer than six data sets. Marks that would hide each other are raised.
    """
    found = rankings(numbers(records), View(protocol=protocol, reading=reading, metric=metric))
    if not found:
        raise DsrdError(f"no three models with results on two common data sets under {protocol}, read {reading}")
    names = sorted({name for each in found for name in each.names}, key=lambda name: _mean_rank(name, found))
    with style.styled():
        figure, (axes,) = style.new_figure(style.PAGE, 0.75 + 0.62 * len(found))
        looks = style.looks(names)
        for place, each in enumerate(found, start=1):
            _draw_row(axes, place, each, looks)
        axes.set_yticks(range(1, len(found) + 1), [_row_label(each) for each in found])
        axes.set_ylim(len(found) + 0.75, 0.6)
        axes.set_xlim(0.6, max(len(each.names) for each in found) + 0.4)
        style.whole_ticks(axes, most=14)
        axes.xaxis.tick_top()
        axes.tick_params(length=0)
        for side in axes.spines.values():
            side.set_visible(False)
        axes.set_xlabel(f"average rank by {metric.upper()}")
        axes.xaxis.set_label_position("top")
        handles = [
            axes.plot([], [], label=style.short_title(name), **{**looks[name], "linestyle": "none"})[0]
            for name in names
        ]
        figure.legend(handles=handles, loc="outside right upper", handletextpad=0.2)
    return figure


def _row_label(ranking: Ranking) -> str:
    few = "*" if len(ranking.datasets) < 6 else ""
    return f"{ranking.label}\n{len(ranking.datasets)} data sets{few}, p = {ranking.test.chi2_p:.1g}"


def _mean_rank(name: str, found: list[Ranking]) -> float:
    return float(np.mean([each.average[each.names.index(name)] for each in found if name in each.names]))


def _draw_row(axes: Axes, place: int, ranking: Ranking, looks: dict[str, dict[str, Any]]) -> None:
    for name, lift in zip(ranking.names, _lifts(ranking.average), strict=True):
        average = ranking.average[ranking.names.index(name)]
        look = {**looks[name], "linestyle": "none", "clip_on": False, "zorder": 3}
        axes.plot([average], [place - lift], **look)
    step = 0.55 / max(len(ranking.groups), 3)
    for level, group in enumerate(ranking.groups, start=1):
        ends = [ranking.average[group[0]], ranking.average[group[-1]]]
        y = place + 0.12 + step * level
        axes.plot([ends[0], ends[0], ends[1], ends[1]], [y - 0.05, y, y, y - 0.05], color=style.INK, linewidth=0.9)


def _lifts(averages: Sequence[float], near: float = 0.14, step: float = 0.14) -> list[float]:
    """How far each mark is raised, so that models of nearly the same rank do not hide each other.

    >>> _lifts([2.0, 5.0, 2.1])
    [0.0, 0.0, 0.14]
    """
    lifts = [0.0] * len(averages)
    order = sorted(range(len(averages)), key=lambda number: averages[number])
    for left, right in itertools.pairwise(order):
        if averages[right] - averages[left] < near:
            lifts[right] = lifts[left] + step
    return lifts


class Differences(NamedTuple):
    """The best measured model, its mean difference to each other one, and the data sets they have in common."""

    best: str
    intervals: dict[str, Interval]
    datasets: list[str]


def differences(found: Sequence[Number], view: View) -> Differences:
    """How far the best measured model is above each contender; nothing where there are no two."""
    rows, datasets, values = link_table(found, over_what_was_measured(found, view)).block
    measured = [number for number, row in enumerate(rows) if row.origin not in (PUBLISHED,)]
    if not measured or len(rows) < 2:
        return Differences("", {}, [])
    average = ranks(values).mean(0)
    best = rows[min(measured, key=lambda number: average[number])]
    samples = {row.name: [_sample(row, row.cells[name]) for name in datasets] for row in rows}
    others = {name: each for name, each in samples.items() if name != best.name}
    intervals = {name: paired_bootstrap(samples[best.name], each) for name, each in others.items()}
    return Differences(best.name, intervals, datasets)


def _sample(row: Row, cell: Cell) -> Sample:
    if row.origin == PUBLISHED:
        return Sample({}, (cell.mean, cell.std or 0.0, RUNS))
    return Sample({each.seed: each.value for each in cell.numbers})


def paired_differences(
    records: Records, metric: str = "ap", protocol: str = "dyglib", reading: str = "plain"
) -> Figure:
    """How far the best measured model is above each other one: means over data sets with 95 % intervals.

    The intervals come from resampling data sets and, within each, seeds; published rows have five runs whose mean
    and deviation are known. Below five data sets there are none.
    """
    found, view = numbers(records), View(protocol=protocol, reading=reading, metric=metric)
    panels = []
    for setting in SETTINGS:
        for negatives in KINDS:
            best, intervals, datasets = differences(found, replace(view, setting=setting, negatives=negatives))
            if intervals:
                few = f"\nonly {len(datasets)} data sets" if len(datasets) < FEWEST else ""
                panels.append((f"{negatives}, {setting}{few}", best, intervals))
    if not panels:
        raise DsrdError(f"no two models with results on common data sets under {protocol}, read {reading}")
    with style.styled():
        rows = -(-len(panels) // 3)
        names = [[style.wrapped_title(name) for name in intervals] for _, _, intervals in panels]
        lines = max(len(each) + sum(name.count("\n") for name in each) for each in names)
        figure, axes = style.new_figure(style.PAGE, rows * (1.0 + 0.16 * max(lines, 4)), rows, 3)
        for panel, (label, best, intervals) in zip(axes, panels, strict=False):
            _draw_differences(panel, intervals)
            panel.set_title(label)
            panel.set_xlabel(f"{style.wrapped_title(best, 24)} above it,\npoints of {metric.upper()}")
        for panel in axes[len(panels) :]:
            panel.set_axis_off()
    return figure


def _draw_differences(panel: Axes, intervals: dict[str, Interval]) -> None:
    shown = sorted(intervals.items(), key=lambda item: -item[1].mean)
    for place, (_, each) in enumerate(shown):
        panel.plot([each.low, each.high], [place, place], color=style.COLORS[0], linewidth=1.2)
        panel.plot([each.mean], [place], "o", color=style.COLORS[1], markersize=3)
    panel.axvline(0, color=style.INK, linewidth=0.6)
    panel.set_yticks(range(len(shown)), [style.wrapped_title(name) for name, _ in shown])
    panel.tick_params(axis="y", length=0)
    panel.grid(axis="y", visible=False)
    panel.set_ylim(len(shown) - 0.5, -0.5)
