"""What a model costs: seconds, throughput and size against its rank; cost against edges, events and nodes."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dsrd.config import model_label
from dsrd.errors import DsrdError
from dsrd.report.figures import style
from dsrd.report.figures.ranks import rankings
from dsrd.report.measured import numbers
from dsrd.report.records import Record, Records, of_kind
from dsrd.report.tables import View

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PAPER = {
    10_000: (93.75, 5.23, 4002.9),
    100_000: (1073.07, 101.84, 11062.2),
    1_000_000: (11718.24, 532.95, 85907.8),
}
"""The paper's table of one batch on synthetic graphs: edges to ms, their deviation, and MB (on a GPU)."""
MEASURES = ("seconds_per_epoch", "pairs_per_second", "weights_mb")
AXES = ("latency per epoch, s", "throughput, pairs / s", "model size (weights), MB")


def costs(records: Records) -> dict[str, dict[str, float]]:
    """Median cost of every model on the data set with most speed records, by model.

    `pairs_per_second` counts pairs of a positive and a negative event in training; weights have four bytes.
    """
    dataset, grouped = timed_on(records), dict[str, list[Record]]()
    for each in of_kind(records, "speed"):
        if each["dataset"] == dataset:
            grouped.setdefault(model_label(each["model"], each.get("preset", "default")), []).append(each)
    return {name: _cost(_latest(found)) for name, found in grouped.items()}


def timed_on(records: Records) -> str:
    """The data set with most speed records; empty without any."""
    return next(iter(statistics.multimode(each["dataset"] for each in of_kind(records, "speed"))), "")


def _latest(found: list[Record]) -> list[Record]:
    """Those made with the same settings as the last one: models change between versions."""
    newest = found[-1]
    return [each for each in found if each.get("parameters") == newest.get("parameters")]


def _cost(found: list[Record]) -> dict[str, float]:
    def middle(key: str) -> float:
        return statistics.median(float(each["timing"][key]) for each in found)

    return {
        "seconds_per_epoch": middle("seconds_per_epoch"),
        "pairs_per_second": middle("events_per_second"),
        "seconds_per_1000_pairs": middle("seconds_per_1000_pairs"),
        "weights_mb": 4 * found[-1].get("parameters", 0) / 2**20,
        "state_mb": float(found[-1].get("state_mb", 0)),
        "peak_mb": max(float(each.get("peak_rss_mb", 0)) for each in found),
    }


def cost_against_rank(records: Records, metric: str = "ap") -> Figure:
    """Latency per epoch, throughput and model size, each against the average rank over all settings.

    Cost is that of the models here, on one thread and the data set that is named; a dagger marks the rank of a
    published row.
    """
    found = costs(records)
    if not found:
        raise DsrdError("no record of speed; measure it with the benchmark of speed")
    rows = mean_ranks(records, metric)
    named = {name.partition(",")[0]: name for name in rows}
    shared = sorted(found.keys() & named.keys(), key=lambda name: rows[named[name]])
    if len(shared) < 2:
        raise DsrdError("fewer than two models have both a record of speed and an average rank")
    with style.styled():
        figure, axes = style.new_figure(style.PAGE, 2.9, 1, 3, sharey=True)
        looks = style.looks([named[name] for name in shared])
        for panel, measure, label in zip(axes, MEASURES, AXES, strict=True):
            for name in shared:
                row = named[name]
                look = {**looks[row], "linestyle": "none"}
                panel.plot([found[name][measure]], [rows[row]], label=style.short_title(row), **look)
            panel.set_xscale("log")
            panel.set_xlabel(label)
            panel.margins(0.08)
        axes[0].invert_yaxis()
        axes[0].set_title(f"measured on {style.title(timed_on(records))}, one thread", loc="left")
        axes[0].set_ylabel("average rank (best on top)")
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=6)
    return figure


def mean_ranks(records: Records, metric: str) -> dict[str, float]:
    """Average rank of every model over the six rankings, plain reading, published protocol.

    A model of which a published row was ranked has the name of that row.
    """
    found = rankings(numbers(records), View(metric=metric))
    collected: dict[str, dict[str, list[float]]] = {}
    for ranking in found:
        for name, average in zip(ranking.names, ranking.average, strict=True):
            collected.setdefault(name.partition(",")[0], {}).setdefault(name, []).append(average)
    return {
        max(by_row, key=lambda name: name.endswith(", published")): statistics.fmean(
            itertools.chain(*by_row.values())
        )
        for by_row in collected.values()
    }


def figures_of(records: Records, benchmark: str, part: str) -> list[Mapping[str, Any]]:
    """The measured points of a benchmark, of the last record that has them."""
    found = [
        each["figures"][part]
        for each in of_kind(records, "benchmark")
        if each["benchmark"] == benchmark and part in each.get("figures", {})
    ]
    return list(found[-1]) if found else []


def one_batch(records: Records) -> Figure:
    """Time and memory of a batch against its number of edges, beside the paper's table (measured on a GPU)."""
    points = figures_of(records, "scaling", "by_batch")
    if not points:
        raise DsrdError("no record of batches of many edges; run benchmarks/scaling.py")
    edges = [each["events"] for each in points]
    with style.styled():
        figure, axes = style.new_figure(style.PAGE, 2.4, 1, 2)
        here, paper = style.look(0), style.look(1)
        axes[0].plot(edges, [1000 * each["seconds"] for each in points], label="here, one CPU thread", **here)
        times = [each[0] for each in PAPER.values()]
        spread = [each[1] for each in PAPER.values()]
        axes[0].errorbar(list(PAPER), times, yerr=spread, label="paper, GPU", capsize=2, **paper)
        axes[0].set_ylabel("forward and backward, ms")
        axes[1].plot(edges, [each["peak_rss_mb"] for each in points], label="here, whole process on a CPU", **here)
        axes[1].plot(list(PAPER), [each[2] for each in PAPER.values()], label="paper, GPU", **paper)
        axes[1].set_ylabel("memory, MB")
        for panel in axes:
            panel.set(xscale="log", yscale="log", xlabel="edges in one batch")
            panel.legend()
    return figure


def cost_of_growth(records: Records) -> Figure:
    """Time per event and memory against the number of events and of nodes."""
    parts = [("by_events", "events"), ("by_nodes", "nodes")]
    parts = [(part, key) for part, key in parts if figures_of(records, "scaling", part)]
    if not parts:
        raise DsrdError("no record of longer and larger streams; run benchmarks/scaling.py")
    with style.styled():
        figure, axes = style.new_figure(style.PAGE, 2.2 * len(parts) + 0.2, len(parts), 2)
        for row, (part, key) in enumerate(parts):
            points = figures_of(records, "scaling", part)
            x = [each[key] for each in points]
            time, memory = axes[2 * row : 2 * row + 2]
            time.plot(x, [each["observe_us"] for each in points], label="observe", **style.look(0))
            time.plot(
                x, [each["score_and_observe_us"] for each in points], label="score, observe", **style.look(1)
            )
            time.set_ylabel("µs per event")
            memory.plot(x, [each["state_mb"] for each in points], label="state", **style.look(0))
            memory.plot(x, [each["peak_rss_mb"] for each in points], label="whole process", **style.look(1))
            memory.set_ylabel("MB")
            for panel in (time, memory):
                panel.set(xscale="log", yscale="log", xlabel=f"number of {key}")
                panel.legend()
    return figure


BEYOND = {"nodes": "new nodes, rows and history on disk", "events": "old nodes, history on disk"}
"""The streams of benchmarks/beyond_memory.py."""


def beyond_memory(records: Records) -> Figure:
    """Time of an event (append and observe) and memory while a stream goes on that does not fit in memory."""
    found = {
        each["stream"]: each["figures"]
        for each in of_kind(records, "benchmark")
        if each["benchmark"] == "beyond_memory"
    }
    if not found:
        raise DsrdError("no record of streams beyond memory; run benchmarks/beyond_memory.py")
    with style.styled():
        figure, (time, memory) = style.new_figure(style.PAGE, 3.0, 1, 2)
        for number, (stream, label) in enumerate(BEYOND.items()):
            parts = found.get(stream, {}).get("parts", [])
            events, look = [each["events"] / 1e6 for each in parts], style.look(number)
            time.plot(events, [each["append_us"] + each["observe_us"] for each in parts], label=label, **look)
            memory.plot(events, [each["rss_mb"] for each in parts], label=label, **look)
            in_memory = [each["rss_mb"] - each["of_files_mb"] for each in parts]
            memory.plot(events, in_memory, label=f"{label}: without mapped files", **style.look(number + 2))
        time.set_ylabel("time of an event, µs")
        memory.set_ylabel("resident memory, MB")
        for panel in (time, memory):
            panel.set(xlabel="events so far, millions", ylim=(0, None))
        figure.legend(*memory.get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return figure
