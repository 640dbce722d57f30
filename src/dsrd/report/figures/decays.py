"""What training has learned about forgetting: gamma, omega, psi and the retention kernels, by data set."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dsrd.data import catalog
from dsrd.errors import DsrdError
from dsrd.experiments.labels import is_earlier
from dsrd.report.figures import style
from dsrd.report.measured import NO_ABLATION, in_order, is_benchmark
from dsrd.report.records import Record, Records, kind_of
from dsrd.report.statistics import Interval, rank_correlation

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Array = NDArray[np.float64]
Learned = Mapping[str, Any]
HOP_AGE = 100.0
"""The time difference at which the paper shows the decay over hops."""
KINDS = ("repeat", "reply", "follow")


def learned_by_dataset(records: Records) -> dict[str, list[Learned]]:
    """What each seed learned, by data set: from records of runs, and from records of learned decays alone.

    A data set with records of runs is shown from these; ablations, other presets and earlier versions are not.
    Streams outside the catalogue are shown only where there are no others.
    """
    runs: dict[str, dict[Any, Learned]] = {}
    alone: dict[str, dict[Any, Learned]] = {}
    for record in records:
        kind = kind_of(record)
        if kind == "link" and record.get("learned") and _is_default(record):
            runs.setdefault(record["dataset"], {})[record["seed"]] = record["learned"]
        elif kind == "learned":
            alone.setdefault(record["dataset"], {})[record.get("seed", 0)] = record["learned"]
    found = {name: list((runs.get(name) or alone[name]).values()) for name in {*runs, *alone}}
    listed = {name for name in found if is_benchmark(name)} or set(found)
    return {name: found[name] for name in in_order(listed)}


def _is_default(record: Record) -> bool:
    ablated = record["config"]["model_args"].get("ablate", NO_ABLATION) != NO_ABLATION
    return not ablated and not is_earlier(record) and record["preset"] in ("default", "published")


def constants(learned: Learned, layer: int, name: str) -> Array:
    """A learned constant of every head of a layer; empty where the layer has none.  # [heads]"""
    return np.array(learned.get(f"layer_{layer}", {}).get(name, []), dtype=float)


def retention_steps(records: Records) -> Figure:
    """Long-term retention gamma^m over m update steps, first layer: mean over heads, the band spans the seeds."""
    steps = np.linspace(0, 20, 81)

    def curve(learned: Learned) -> Array | None:
        gamma = constants(learned, 1, "gamma")
        return (gamma[:, None] ** steps).mean(0) if len(gamma) else None

    return _curves(records, steps, curve, ("update steps m", "retention $\\gamma^m$"), "gamma")


def temporal_decay(records: Records) -> Figure:
    """Short-term decay exp(-lambda dt^alpha) over dt, first layer: mean over heads, the band spans the seeds."""
    age = np.geomspace(0.01, 1e4, 121)

    def curve(learned: Learned) -> Array | None:
        rate, power = constants(learned, 1, "lambda"), constants(learned, 1, "alpha")
        if not len(rate):
            return None
        return np.asarray(np.exp(-rate[:, None] * age ** power[:, None]).mean(0), dtype=float)

    labels = (
        "time difference $\\Delta t$, in the model's unit",
        "weight $\\exp(-\\lambda\\,\\Delta t^{\\alpha})$",
    )
    return _curves(records, age, curve, labels, "lambda", logarithmic=True)


def hop_decay(records: Records) -> Figure:
    """Decay over hops psi = exp(-l delta dt) at dt = 100 and, beside it, at a hundredth of that."""
    found = learned_by_dataset(records)
    layers = max((_depth(each) for seeds in found.values() for each in seeds), default=0)
    if not layers:
        raise _missing("delta")
    hops = np.arange(layers + 1, dtype=float)
    with style.styled():
        figure, axes = style.new_figure(style.PAGE, 2.9, 1, 2, sharey=True)
        for panel, age in zip(axes, (HOP_AGE, HOP_AGE / 100), strict=True):
            for number, (dataset, seeds) in enumerate(found.items()):
                curves = [_psi(each, layers, age) for each in seeds if _depth(each) == layers]
                if curves:
                    _band(panel, hops, np.array(curves), style.look(number), dataset)
            panel.set_title(f"$\\Delta t$ = {age:g}")
            panel.set_xlabel("hops $\\ell$")
            panel.set_xticks(hops)
        axes[0].set_ylabel("weight $\\psi = \\exp(-\\ell\\,\\delta\\,\\Delta t)$")
        style.legend_below(figure, *axes[0].get_legend_handles_labels())
    return figure


def _depth(learned: Learned) -> int:
    """Number of layers in a row, from the first, that have a delta."""
    depth = 0
    while len(constants(learned, depth + 1, "delta")):
        depth += 1
    return depth


def _psi(learned: Learned, layers: int, age: float) -> Array:
    weights = [np.exp(-hop * constants(learned, hop, "delta") * age).mean() for hop in range(1, layers + 1)]
    return np.array([1.0, *weights])


def retention_kernels(records: Records) -> Figure:
    """The learned kernels over the number of events: the state's by half-life, and those of the first guess."""
    found = learned_by_dataset(records)
    events = np.geomspace(0.1, 1e6, 141)
    panels = {"state": _state_kernel, **{kind: _memory_kernel(kind) for kind in KINDS}}
    drawn = {
        name: {
            dataset: [c for c in (kernel(each, events) for each in seeds) if c is not None]
            for dataset, seeds in found.items()
        }
        for name, kernel in panels.items()
    }
    drawn = {name: curves for name, curves in drawn.items() if any(curves.values())}
    if not drawn:
        raise _missing("retention")
    with style.styled():
        figure, axes = style.new_figure(
            style.PAGE, 2.1 * -(-len(drawn) // 2) + 0.5, -(-len(drawn) // 2), 2, sharey=True
        )
        for panel, (name, curves) in zip(axes, drawn.items(), strict=False):
            for number, (dataset, seeds) in enumerate(curves.items()):
                if seeds:
                    _band(panel, events, np.array(seeds), style.line(number), dataset)
            panel.set_xscale("log")
            panel.set_title("state" if name == "state" else f"first guess: {name}")
            panel.set_xlabel("events since")
            panel.set_ylabel("weight")
        for panel in axes[len(drawn) :]:
            panel.set_axis_off()
        handles: dict[str, Any] = {}
        for panel in axes:
            handles |= {name: handle for handle, name in zip(*panel.get_legend_handles_labels(), strict=True)}
        style.legend_below(figure, [*handles.values()], [*handles])
    return figure


def _state_kernel(learned: Learned, events: Array) -> Array | None:
    lives = learned.get("retention", {}).get("half_life_in_events", [])
    flat = np.array([life for layer in lives for life in layer], dtype=float)
    return np.asarray(2.0 ** (-events / flat[:, None]), dtype=float).mean(0) if len(flat) else None


def _memory_kernel(kind: str) -> Callable[[Learned, Array], Array | None]:
    def kernel(learned: Learned, events: Array) -> Array | None:
        memory = learned.get("memory", {})
        scales, weights = memory.get("scales_in_events"), memory.get(kind, {}).get("weights")
        if scales and weights:
            parts = np.array(weights)[:, None] * np.exp(-events / np.array(scales)[:, None])  # [rates, x]
            return np.asarray(parts.sum(0), dtype=float)
        life = memory.get(kind, {}).get("half_life_in_events")
        return np.asarray(2.0 ** (-events / life), dtype=float) if life else None

    return kernel


def _curves(
    records: Records,
    x: Array,
    curve: Callable[[Learned], Array | None],
    labels: tuple[str, str],
    name: str,
    logarithmic: bool = False,
) -> Figure:
    found = {
        dataset: [values for values in map(curve, seeds) if values is not None]
        for dataset, seeds in learned_by_dataset(records).items()
    }
    if not any(found.values()):
        raise _missing(name)
    with style.styled():
        figure, (axes,) = style.new_figure(style.COLUMN, 2.7)
        for number, (dataset, seeds) in enumerate(found.items()):
            if seeds:
                _band(axes, x, np.array(seeds), style.line(number), dataset)
        if logarithmic:
            axes.set_xscale("log")
        axes.set_xlabel(labels[0])
        axes.set_ylabel(labels[1])
        axes.set_ylim(-0.02, 1.02)
        style.legend_below(figure, *axes.get_legend_handles_labels())
    return figure


def _band(axes: Any, x: Array, seeds: Array, look: Mapping[str, Any], dataset: str) -> None:
    """The mean over seeds, and the span between the lowest and highest."""
    count = f" ({len(seeds)} seeds)" if len(seeds) > 1 else ""
    axes.plot(x, seeds.mean(0), label=style.title(dataset) + count, **look)
    if len(seeds) > 1:
        axes.fill_between(x, seeds.min(0), seeds.max(0), color=look["color"], alpha=0.2, linewidth=0)


def _missing(name: str) -> DsrdError:
    return DsrdError(f"no record says what a run learned ({name}); train with this version")


# --- Correlation with the data sets ------------------------------------------------------------------------------

LEARNED: dict[str, tuple[str, Callable[[Learned], Array]]] = {
    "gamma": ("retention $\\gamma$", lambda learned: constants(learned, 1, "gamma")),
    "lambda": ("decay $\\lambda$", lambda learned: constants(learned, 1, "lambda")),
    "delta": ("hop decay $\\delta$", lambda learned: constants(learned, 1, "delta")),
    "half-life": ("half-life, events", lambda learned: _half_lives(learned)),
}
PROPERTIES: dict[str, Callable[[catalog.DatasetSpec], float]] = {
    "density": lambda spec: spec.events / spec.nodes**2,
    "scale": lambda spec: spec.events / spec.timestamps,
}
"""As the paper defines them: links per pair of nodes, and links per distinct timestamp."""


def _half_lives(learned: Learned) -> Array:
    lives = learned.get("retention", {}).get("half_life_in_events", [])
    return np.asarray(np.log10([life for layer in lives for life in layer]), dtype=float)


def correlations(records: Records) -> dict[tuple[str, str], tuple[Interval, int]]:
    """Rank correlation of each learned constant with each property of the data sets, and their number."""
    found = {}
    for name in LEARNED:
        points = _points(records, name)
        for about in PROPERTIES:
            if len(points) >= 3:
                x = [PROPERTIES[about](catalog.SPECS[dataset]) for dataset in points]
                found[name, about] = rank_correlation(x, list(points.values())), len(points)
    return found


def _points(records: Records, name: str) -> dict[str, float]:
    """The constant of every data set in the catalogue, mean over heads and seeds."""
    points = {}
    for dataset, seeds in learned_by_dataset(records).items():
        values = [LEARNED[name][1](each) for each in seeds]
        values = [each for each in values if len(each)]
        if values and dataset in catalog.SPECS:
            points[dataset] = float(np.mean([each.mean() for each in values]))
    return points


def decay_correlations(records: Records) -> Figure:
    """Learned constants against density and scale of the data sets, with rank correlations and their intervals."""
    found = correlations(records)
    if not found:
        raise DsrdError("fewer than three benchmark data sets have records of what a run learned")
    names = list(dict.fromkeys(name for name, _ in found))
    with style.styled():
        figure, axes = style.new_figure(style.PAGE, 4.3, 2, len(names))
        for number, about in enumerate(PROPERTIES):
            for panel, name in zip(axes[number * len(names) :], names, strict=False):
                _scatter(panel, _points(records, name), about, found.get((name, about)))
                panel.set_ylabel(LEARNED[name][0] + (" ($\\log_{10}$)" if name == "half-life" else ""))
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=6)
    return figure


def _scatter(panel: Any, points: dict[str, float], about: str, found: tuple[Interval, int] | None) -> None:
    for number, (dataset, value) in enumerate(points.items()):
        x = PROPERTIES[about](catalog.SPECS[dataset])
        panel.plot([x], [value], label=style.title(dataset), **{**style.look(number), "linestyle": "none"})
    panel.set_xscale("log")
    panel.margins(x=0.25, y=0.15)
    panel.set_xlabel(about)
    if found is not None:
        each, count = found
        interval = f"[{each.low:.2f}, {each.high:.2f}]" if np.isfinite(each.low) else "no interval"
        panel.set_title(f"$\\rho$ = {each.mean:.2f}, n = {count}\n{interval}", fontsize=7.5)
