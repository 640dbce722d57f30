"""ROC-AUC and AUPRC of classes over a whole split, with bootstrap intervals, in percent.

With few positives a metric is uncertain, however many events there are: an AUC from 44 positives has a standard
error of more than a point. Each metric therefore has an interval: events are resampled with replacement, and the
middle 95 % of the resulting values is the interval. Events are resampled one by one. Those of the same node are
similar, so the true interval is somewhat wider.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dsrd.evaluate.metrics import Floats, average_precision, roc_auc, tied_metrics

DRAWS = 1000
INTERVAL = (2.5, 97.5)  # percentiles: 95 % lie between
METRICS = ("auc", "auprc", "auprc_factor")
MOST_AT_ONCE = 4_000_000  # entries of a table of bootstrap counts


@dataclass(frozen=True)
class Ranking:
    """One class against the rest, best score first: sorted once, weighted for every bootstrap draw."""

    order: NDArray[np.int64]  # [n]
    label: NDArray[np.bool_]  # [n] in that order
    end: NDArray[np.int64]  # [steps] the last position of each step of equal scores

    @classmethod
    def of(cls, label: NDArray[np.bool_], score: Floats) -> Ranking:
        order = np.argsort(-score, kind="stable")
        return cls(order, label[order], np.append(np.flatnonzero(np.diff(score[order])), len(score) - 1))

    def weighted(self, count: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """(AUC, AP) if each event occurs `count` times; nan without positives or negatives.  # [B, n] -> [B]"""
        count = count[:, self.order]
        true = np.cumsum(count * self.label, axis=1)[:, self.end].astype(np.float64)  # [B, steps] up to each step
        both = np.cumsum(count, axis=1)[:, self.end].astype(np.float64)
        wrong = both - true
        wrong_before = np.concatenate([np.zeros((len(wrong), 1)), wrong[:, :-1]], axis=1)
        ap, auc = tied_metrics(np.diff(true, axis=1, prepend=0), true, wrong, wrong_before)
        return auc, ap


def measure(
    target: NDArray[np.int64], score: Floats, names: list[str], *, seed: int = 0, draws: int = DRAWS
) -> dict[str, Any]:
    """Metrics of a part in percent: of the positive class, or the mean over all classes.

    `target` [n] contains class numbers. `score` is [n, 1] for two classes (the score of class 1) and [n, C] for
    more: each class against the rest. A class that does not occur has no metrics and is left out of the mean.
    The intervals of the classes and of the mean use the same draws. `auprc_factor` is AUPRC divided by the share
    of positives, which is the AUPRC of random scores; for several classes it is the mean of theirs.

    >>> metrics = measure(np.array([0, 1, 0, 1]), np.array([[0.1], [0.9], [0.8], [0.8]]), ["0", "1"])
    >>> metrics["auc"], metrics["auprc"], metrics["auprc_factor"], metrics["positives"]
    (87.5, 83.3333, 1.6667, 2)
    """
    ranked = [1] if score.shape[1] == 1 else list(range(score.shape[1]))
    sides = {number: (target == number, score[:, column]) for column, number in enumerate(ranked)}
    classes = {number: _metrics(*side) for number, side in sides.items()}
    resampled = bootstrap([Ranking.of(*side) for side in sides.values()], seed, draws)  # [C, 2, B]
    if len(ranked) == 1:
        return {**_with_intervals(classes[1], resampled[0]), "asked": len(target)}
    mean = {name: _mean([each[name] for each in classes.values()]) for name in METRICS}
    by_class = {names[number]: _with_intervals(classes[number], resampled[number]) for number in ranked}
    return {**_with_intervals(mean, _mean(resampled)), "asked": len(target), "classes": by_class}


def bootstrap(rankings: list[Ranking], seed: int, draws: int = DRAWS) -> NDArray[np.float64]:
    """(AUC, AP) of each ranking in bootstrap draws; a draw has the same events for all rankings.  # [C, 2, B]"""
    events, rng = len(rankings[0].order), np.random.default_rng(seed)
    metrics: list[NDArray[np.float64]] = []
    done = 0
    while done < draws:
        rows = min(draws - done, max(1, MOST_AT_ONCE // max(events, 1)))
        event = rng.integers(0, events, (rows, events)) + events * np.arange(rows)[:, None]
        count = np.bincount(event.reshape(-1), minlength=rows * events).reshape(rows, events)
        metrics.append(np.array([ranking.weighted(count) for ranking in rankings]))
        done += rows
    return np.concatenate(metrics, axis=2)


def _interval(values: NDArray[np.float64]) -> tuple[float, float]:
    values = values[~np.isnan(values)]  # a draw may have no positive
    if not len(values):
        return float("nan"), float("nan")
    low, high = np.percentile(values, INTERVAL).tolist()
    return low, high


def _mean(values: Any) -> Any:
    """Mean over the first axis without nan; nan where all values are nan."""
    values = np.asarray(values, dtype=np.float64)
    defined = ~np.isnan(values)
    with np.errstate(invalid="ignore"):
        return np.where(defined, values, 0.0).sum(axis=0) / defined.sum(axis=0)


def _metrics(label: NDArray[np.bool_], score: Floats) -> dict[str, float]:
    auprc, ratio = average_precision(label, score), float(label.mean()) if len(label) else 0.0
    return {
        "auc": roc_auc(label, score),
        "auprc": auprc,
        "auprc_factor": auprc / ratio if ratio else float("nan"),
        "positives": int(label.sum()),
        "positive_ratio": ratio,
    }


def _with_intervals(metrics: dict[str, Any], resampled: NDArray[np.float64]) -> dict[str, Any]:
    """Metrics in percent with their intervals; also the number of positives of a single class."""
    entries: dict[str, Any] = {}
    for name, values in zip(("auc", "auprc"), resampled, strict=True):
        low, high = _interval(values)
        entries |= {name: _percent(metrics[name]), f"{name}_low": _percent(low), f"{name}_high": _percent(high)}
    entries["auprc_factor"] = round(float(metrics["auprc_factor"]), 4)
    if "positives" in metrics:
        entries |= {"positives": metrics["positives"], "positive_ratio": _percent(metrics["positive_ratio"])}
    return entries


def _percent(value: float) -> float:
    return round(100 * float(value), 4)
