"""How training went: learning curves, and quality against time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dsrd.config import model_label
from dsrd.errors import DsrdError
from dsrd.experiments.labels import is_earlier, record_label
from dsrd.report.figures import style
from dsrd.report.figures.ablations import result
from dsrd.report.measured import NO_ABLATION, PROTOCOLS, cut_by_time, in_order, is_benchmark, preferred
from dsrd.report.records import Record, Records, of_kind

if TYPE_CHECKING:
    from matplotlib.figure import Figure


Runs = dict[str, dict[str, dict[int, Record]]]  # by data set, label and seed


def trained_runs(records: Records, protocol: str = "") -> Runs:
    """Runs that learned, under one protocol: the given one, or that of most of them.

    Benchmarks where there are any. Of each model its usual settings, or else its present version, or else all.
    """
    links = [record for record in of_kind(records, "link") if record.get("parameters")]
    whole = [each for each in links if each["config"]["model_args"].get("ablate", NO_ABLATION) == NO_ABLATION]
    protocol = protocol or max(PROTOCOLS, key=[each["protocol"] for each in whole].count)
    runs: Runs = {}
    for record in whole:
        if record["protocol"] == protocol:
            seeds = runs.setdefault(record["dataset"], {}).setdefault(record_label(record), {})
            seeds[record["seed"]] = preferred(record, seeds.get(record["seed"]))
    listed = {name for name in runs if is_benchmark(name)} or set(runs)
    return {name: _usual(runs[name]) for name in in_order(listed)}


def _usual(by_label: dict[str, dict[int, Record]]) -> dict[str, dict[int, Record]]:
    """Of the labels of each model those to show."""
    grouped: dict[str, list[str]] = {}
    for label, seeds in by_label.items():
        first = next(iter(seeds.values()))
        grouped.setdefault(model_label(first["model"], first["preset"]), []).append(label)
    kept: list[str] = []
    for base, labels in grouped.items():
        present = [label for label in labels if not is_earlier(next(iter(by_label[label].values())))]
        kept += [base] if base in labels else present or labels
    return {label: by_label[label] for label in kept}


def learning_curves(records: Records, protocol: str = "") -> Figure:
    """Validation AP after every epoch, by data set: mean over seeds, as far as all of them were trained.

    A mark stands at the end of a line.
    """
    found = {
        dataset: {
            label: [seed["curve"]["val_ap"] for seed in seeds.values() if seed.get("curve", {}).get("val_ap")]
            for label, seeds in by_label.items()
        }
        for dataset, by_label in trained_runs(records, protocol).items()
    }
    found = {name: {label: curves for label, curves in each.items() if curves} for name, each in found.items()}
    found = {name: each for name, each in found.items() if each}
    if not found:
        raise DsrdError("no learning curves; the records have none")
    looks = style.looks(sorted({label for each in found.values() for label in each}))
    with style.styled():
        rows = -(-len(found) // 3)
        figure, axes = style.new_figure(style.PAGE, 1.8 * rows + 0.5, rows, min(3, len(found)))
        for panel, (dataset, by_label) in zip(axes, found.items(), strict=False):
            for label, curves in by_label.items():
                length = min(map(len, curves))
                mean = np.mean([np.array(curve[:length], dtype=float) for curve in curves], axis=0)
                look = {**looks[label], "marker": ""}
                panel.plot(range(1, length + 1), mean, **look)
                panel.plot([length], mean[-1:], color=look["color"], marker=looks[label]["marker"], markersize=3)
            panel.set_title(style.title(dataset))
            panel.set_xlabel("epoch")
            style.whole_ticks(panel)
        for panel in axes[len(found) :]:
            panel.set_axis_off()
        axes[0].set_ylabel("validation AP, %")
        handles = [
            axes[0].plot([], [], label=style.short_title(label), **look)[0] for label, look in looks.items()
        ]
        style.legend_below(figure, handles, [style.short_title(label) for label in looks])
    return figure


def quality_against_time(records: Records, protocol: str = "", metric: str = "ap") -> Figure:
    """Test result against the time of training until the best epoch, by data set; the line joins the best trades.

    Transductive, random negatives, mean over seeds; times are those of the machine of each run. Hollow marks:
    training was cut by time.
    """
    found = {name: each for name, each in trained_runs(records, protocol).items() if len(each) > 1}
    if not found:
        raise DsrdError("no data set on which two models were trained under one protocol")
    looks = style.looks(sorted({label for each in found.values() for label in each}))
    with style.styled():
        rows = -(-len(found) // 3)
        figure, axes = style.new_figure(style.PAGE, 1.9 * rows + 0.6, rows, min(3, len(found)))
        for panel, (dataset, by_label) in zip(axes, found.items(), strict=False):
            points = []
            for label, seeds in by_label.items():
                minutes = float(np.mean([_minutes(each) for each in seeds.values()]))
                value = float(np.mean([result(each, "transductive", "random", metric) for each in seeds.values()]))
                look = {**looks[label], "linestyle": "none"}
                if any(cut_by_time(each) for each in seeds.values()):
                    look |= {"markerfacecolor": "none"}
                panel.plot([minutes], [value], **look)
                points.append((minutes, value))
            best = pareto(points)
            panel.plot(*zip(*best, strict=True), color=style.INK, linewidth=0.6, zorder=1, drawstyle="steps-post")
            panel.margins(0.12)
            style.log_ticks(panel)
            panel.set_title(style.title(dataset))
            panel.set_xlabel("minutes to the best epoch")
        for panel in axes[len(found) :]:
            panel.set_axis_off()
        axes[0].set_ylabel(f"test {metric.upper()}, %")
        handles = [
            axes[0].plot([], [], label=style.short_title(label), **{**look, "linestyle": "none"})[0]
            for label, look in looks.items()
        ]
        style.legend_below(figure, handles, [style.short_title(label) for label in looks])
    return figure


def _minutes(record: Record) -> float:
    """Minutes until the best epoch: what somebody who knows when to stop would need."""
    timing = record["timing"]
    seconds = timing.get("train_seconds") or timing["seconds_per_epoch"] * timing["epochs"]
    share = (timing.get("best_epoch") or timing["epochs"]) / max(timing["epochs"], 1)
    return max(float(seconds) * float(share) / 60, 1e-3)


def pareto(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """The points that no other one beats in both time and quality, by time.

    >>> pareto([(1.0, 90.0), (2.0, 80.0), (3.0, 95.0)])
    [(1.0, 90.0), (3.0, 95.0)]
    """
    best: list[tuple[float, float]] = []
    for time, value in sorted(points, key=lambda point: (point[0], -point[1])):
        if not best or value > best[-1][1]:
            best.append((time, value))
    return best
