"""What each part of a model is worth: results without it, beside those of the whole model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from dsrd.config import COMMON_PRESETS
from dsrd.errors import DsrdError
from dsrd.evaluate.readings import HEADS_OF_LAW
from dsrd.experiments.labels import is_earlier
from dsrd.report.figures import style
from dsrd.report.measured import KINDS, NO_ABLATION, SETTINGS, heads_of, in_order, is_benchmark, preferred
from dsrd.report.records import Record, Records, of_kind

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLES = {
    "none": "full model",
    "no_block": "w/o block",
    "no_temporal_decay": "w/o temporal decay",
    "no_diffusion": "w/o diffusion",
    "no_state": "w/o state",
    "no_age_features": "w/o age features",
}
"""What is known of a variant; others are shown by their setting."""
Runs = dict[str, dict[str, dict[int, Record]]]  # by data set, ablation and seed


def ablated_runs(records: Records) -> Runs:
    """Runs by data set, ablation and seed, of data sets with an ablation; the last one finished of each counts.

    Only runs under one protocol and with equally many epochs are compared: those with most ablations. Other
    presets and earlier versions are left out.
    """
    groups: dict[tuple[str, str, int], dict[str, dict[int, Record]]] = {}
    for record in of_kind(records, "link"):
        config = record["config"]
        if "ablate" in config["model_args"] and record["preset"] in COMMON_PRESETS and not is_earlier(record):
            place = (record["dataset"], record["protocol"], config["train"].get("epochs", 0))
            by_seed = groups.setdefault(place, {}).setdefault(config["model_args"]["ablate"], {})
            by_seed[record["seed"]] = preferred(record, by_seed.get(record["seed"]))
    runs: Runs = {}
    for (dataset, _, _), found in sorted(groups.items()):
        if {*found} - {NO_ABLATION} and len(found) > len(runs.get(dataset, {})):
            runs[dataset] = found
    return {name: runs[name] for name in in_order(set(runs))}


def result(record: Record, setting: str, negatives: str, metric: str) -> float:
    """A test result read plainly, by the head that is asked about these negatives; NaN where there is none."""
    heads = heads_of(record)
    results = heads[HEADS_OF_LAW[negatives]] if HEADS_OF_LAW[negatives] in heads else record["results"]
    cell = results.get(setting, {}).get(negatives) or {}
    value = cell.get(metric)
    return float(value) if value is not None else np.nan


def ablations(records: Records, metric: str = "ap", benchmarks: bool = True) -> Figure:
    """Grouped bars: the whole model and each ablation, by kind of negatives, setting and data set.

    Axes start above zero. Whiskers are standard deviations over seeds; bars of a single seed have none. What was
    not measured has no bar. Benchmarks, or all other streams.
    """
    runs = {name: found for name, found in ablated_runs(records).items() if is_benchmark(name) == benchmarks}
    if not runs:
        where = "on a benchmark" if benchmarks else "on other streams"
        raise DsrdError(f"no run without a part of its model {where}; train with model.ablate set")
    there = {variant for found in runs.values() for variant in found}
    variants = [*(name for name in TITLES if name in there), *sorted(there - {*TITLES})]
    with style.styled():
        figure, axes = style.new_figure(style.PAGE, 1.45 * len(runs) + 0.6, len(runs), 2)
        for row, (dataset, found) in enumerate(runs.items()):
            lowest = 100.0
            for panel, setting in zip(axes[2 * row : 2 * row + 2], SETTINGS, strict=True):
                lowest = min(lowest, _bars(panel, found, variants, setting, metric))
                panel.set_title(f"{style.title(dataset)}, {setting}{_single(found)}")
            for panel in axes[2 * row : 2 * row + 2]:
                panel.set_ylim(max(0.0, lowest - 0.08 * (100 - lowest)), min(100.5, panel.get_ylim()[1]))
            axes[2 * row].set_ylabel(f"{metric.upper()}, %")
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure


def _single(found: Mapping[str, Mapping[int, Record]]) -> str:
    return ", one seed" if all(len(seeds) == 1 for seeds in found.values()) else ""


def _bars(
    panel: Any, found: Mapping[str, Mapping[int, Record]], variants: list[str], setting: str, metric: str
) -> float:
    """Draw the bars of one data set and setting; returns the lowest."""
    width, lowest = 0.8 / len(variants), 100.0
    every = [run for seeds in found.values() for run in seeds.values()]
    kinds = [kind for kind in KINDS if not all(np.isnan(result(run, setting, kind, metric)) for run in every)]
    for number, variant in enumerate(variants):
        seeds = list(found.get(variant, {}).values())
        values = np.array([[result(each, setting, kind, metric) for kind in kinds] for each in seeds])
        means = values.mean(0) if len(values) else np.full(len(kinds), np.nan)
        spread = values.std(0, ddof=1) if len(values) > 1 else None
        at = np.arange(len(kinds)) + (number - (len(variants) - 1) / 2) * width
        color = [*TITLES, variant].index(variant)  # the same in every figure
        look = {"color": style.COLORS[color], "error_kw": {"elinewidth": 0.8, "ecolor": style.INK}}
        panel.bar(at, means, 0.92 * width, yerr=spread, label=TITLES.get(variant, variant), **look)
        lowest = min(lowest, float(np.nanmin(means)) if np.isfinite(means).any() else lowest)
    panel.set_xticks(range(len(kinds)), kinds)
    panel.grid(axis="x", visible=False)
    return lowest
