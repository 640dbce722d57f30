"""Whether probabilities are true, how surprising events were, and what the data give away."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from dsrd.errors import DsrdError
from dsrd.report.figures import style
from dsrd.report.measured import in_order
from dsrd.report.records import Records, kind_of, of_kind

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FACTORS = ("partner", "activity")


def calibrations(records: Records) -> dict[str, Mapping[str, Any]]:
    """Measured calibration by a name for model and stream; records of learned decays hold some too."""
    found = {}
    models = {record["model"] for record in of_kind(records, "calibration")}
    for record in records:
        measured = record.get("calibration")
        if isinstance(measured, Mapping) and "skipped" not in measured:
            if kind_of(record) == "calibration":
                model = f"{style.model_title(record['model'])}, " if len(models) > 1 else ""
                found[f"{model}{style.title(record['dataset'])}"] = measured
            else:
                taus = "/".join(f"{each:g}" for each in record.get("taus", []))
                found[f"τ {taus}, seed {record.get('seed', 0)}"] = measured
    return found


def calibration(records: Records) -> Figure:
    """Observed against expected frequency of a sample of test events; the line is perfect calibration.

    `partner`: which target, given that the source acts; `activity`: which source acts. Marks are bins of equal
    counts, hollow ones below are bins in which nothing happened, as far as they lie on the axis. Without bins, the
    calibration errors are drawn.
    """
    found = calibrations(records)
    if not found:
        raise DsrdError("no record of calibration; measure a run's and write it to a file")
    curves = {
        factor: {name: each[factor]["curve"] for name, each in found.items() if each.get(factor, {}).get("curve")}
        for factor in FACTORS
    }
    curves = {factor: each for factor, each in curves.items() if each}
    with style.styled():
        if not curves:
            return _calibration_errors(found)
        figure, axes = style.new_figure(style.PAGE, 2.7, 1, len(curves))
        for panel, (factor, by_name) in zip(axes, curves.items(), strict=True):
            observed = [each["observed"] for bins in by_name.values() for each in bins if each["observed"]]
            floor = min(observed, default=1e-3) / 2
            expected = [each["expected"] for bins in by_name.values() for each in bins if each["observed"]]
            for number, (name, bins) in enumerate(by_name.items()):
                kept = [each for each in bins if each["expected"] and each["observed"]]
                x, y = [each["expected"] for each in kept], [each["observed"] for each in kept]
                panel.plot(x, y, label=name, **style.look(number))
                never = [each["expected"] for each in bins if each["expected"] and not each["observed"]]
                hollow = {**style.look(number), "linestyle": "none", "markerfacecolor": "none"}
                panel.plot(never, [floor] * len(never), **hollow)
            panel.axline((1e-3, 1e-3), (1e-2, 1e-2), color=style.INK, linewidth=0.6)
            panel.set(xscale="log", yscale="log", xlabel="expected frequency", ylabel="observed frequency")
            panel.set_xlim(left=min([*filter(None, expected), floor]) / 3)
            panel.set_title(factor)
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return figure


def _calibration_errors(found: Mapping[str, Mapping[str, Any]]) -> Figure:
    """Share of probability that is misplaced, and excess over the true law where that is known."""
    factors = [factor for factor in FACTORS if any(factor in each for each in found.values())]
    figure, axes = style.new_figure(style.PAGE, 0.8 + 0.16 * len(found), 1, 2, sharey=True)
    for number, factor in enumerate(factors):
        for panel, key in zip(axes, ("misplaced", "excess"), strict=True):
            values = [each.get(factor, {}).get(key, np.nan) for each in found.values()]
            errors = [each.get(factor, {}).get(f"{key}_se", 0.0) for each in found.values()]
            look = {**style.look(number), "linestyle": "none"}
            panel.errorbar(values, np.arange(len(found)) + 0.2 * number, xerr=errors, label=factor, **look)
    axes[0].set_yticks(range(len(found)), list(found), fontsize=6)
    axes[0].set_xlabel("probability misplaced")
    axes[1].set_xlabel("excess over the true law, nats per event")
    axes[0].invert_yaxis()
    axes[1].legend()
    return figure


def surprise_over_time(records: Records) -> Figure:
    """Surprise of events in bits over time: the median and the middle half of equal parts of the events.

    Drawn from what was measured with calibration, a panel for each factor; and from tables of surprises, a panel
    for each.
    """
    panels = _measured_surprise(records)
    for number, table in enumerate(of_kind(records, "surprise"), start=1):
        bits = np.array([each["surprise"] for each in table["events"]], dtype=float)
        parts = np.array_split(bits, min(20, len(bits)))
        title = f"table {number} of surprises"
        panels[title] = {title: [np.nanquantile(part, [0.25, 0.5, 0.75]).tolist() for part in parts]}
    if not panels:
        raise DsrdError(
            "no surprises of events; measure the calibration of a run, or the surprise of a file as JSON"
        )
    with style.styled():
        figure, axes = style.new_figure(style.PAGE, 2.2 * len(panels) + 0.2, len(panels), 1)
        for panel, (title, streams) in zip(axes, panels.items(), strict=True):
            for number, (name, quartiles) in enumerate(streams.items()):
                low, median, high = np.array(quartiles).T
                middle = (np.arange(len(median)) + 0.5) / len(median)
                color = style.look(number)["color"]
                panel.fill_between(middle, low, high, color=color, alpha=0.12, linewidth=0)
                panel.plot(middle, median, label=name, **style.line(number))
            panel.set(title=title, xlabel="share of the events, in order of time", ylabel="surprise, bits")
            if len(streams) > 1:
                panel.legend(ncols=3)
    return figure


def _measured_surprise(records: Records) -> dict[str, dict[str, list[list[float]]]]:
    """Quartiles over time by factor and stream; of models that know both factors, if there are any."""
    panels: dict[str, dict[str, list[list[float]]]] = {}
    records = of_kind(records, "calibration")
    whole = [each for each in records if all(factor in each["calibration"] for factor in FACTORS)]
    measured = calibrations(whole or records)
    for factor in FACTORS:
        streams = {
            name: each[factor]["bits_over_time"]
            for name, each in measured.items()
            if each.get(factor, {}).get("bits_over_time")
        }
        if streams:
            panels[factor] = streams
    return panels


SHARES = {
    "pair was in training": ("repetition", "pair_in_train"),
    "pair happened before": ("repetition", "pair_before"),
    "a new node": ("new_nodes", "one_or_both"),
    "timestamp seen before": ("seen_timestamp_share",),
    "random negatives that are true": ("negatives", "transductive", "random", "true_at_that_time"),
    "given away, historical": ("unlearned", "historical", "given_away"),
    "given away, inductive": ("unlearned", "inductive", "given_away"),
}
"""Rows of the figure of the audit, and where an audit has them."""


def audit(records: Records) -> Figure:
    """What the audit says of each data set, in percent of its test events or negatives.

    `Given away` are events of pairs that negatives of this kind cannot be.
    """
    audits = {each["dataset"]: each for each in of_kind(records, "audit")}
    if not audits:
        raise DsrdError("no audit of a data set among the records")
    names = in_order(set(audits))
    values = np.array([[100 * _at(audits[name], path) for name in names] for path in SHARES.values()])
    with style.styled():
        figure, (axes,) = style.new_figure(style.PAGE, 2.6)
        axes.imshow(values, cmap="Blues", vmin=0, vmax=100, aspect="auto")
        for (row, column), value in np.ndenumerate(values):
            if np.isfinite(value):
                color = "#ffffff" if value > 55 else "#000000"
                axes.text(column, row, f"{value:.1f}", ha="center", va="center", color=color, fontsize=8)
        axes.set_xticks(range(len(names)), [style.title(name) for name in names])
        axes.set_yticks(range(len(SHARES)), list(SHARES))
        axes.grid(visible=False)
        axes.tick_params(length=0)
        axes.set_title("percent")
    return figure


def _at(audit: Any, path: tuple[str, ...]) -> float:
    for key in path:
        audit = audit.get(key, {}) if isinstance(audit, Mapping) else {}
    return float(audit) if isinstance(audit, int | float) else float("nan")
