"""ROC-AUC and AUPRC of classes over a whole split, with bootstrap intervals: arrays in, percent out.

Rare positives make a figure uncertain however many events there are: 44 positives leave an AUC a standard error of
more than a point. So every figure comes with an interval: events are drawn anew with replacement, by a seed, and
the middle 95 % of the figures they give is kept. Events are drawn one by one; those of one node resemble each
other, which makes the true interval somewhat wider.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dsrd.evaluate.metrics import Floats, average_precision, roc_auc

DRAWS = 1000
INTERVAL = (2.5, 97.5)  # percentiles: 95 % lie between
FIGURES = ("auc", "auprc", "auprc_factor")
MOST_AT_ONCE = 4_000_000  # entries of a table of draws


@dataclass(frozen=True)
class Ranking:
    """One class against the rest, best score first: sorted once, weighed for every draw."""

    order: NDArray[np.int64]  # [n]
    label: NDArray[np.bool_]  # [n] in that order
    end: NDArray[np.int64]  # [steps] the last place of each step of equal scores

    @classmethod
    def of(cls, label: NDArray[np.bool_], score: Floats) -> Ranking:
        order = np.argsort(-score, kind="stable")
        return cls(order, label[order], np.append(np.flatnonzero(np.diff(score[order])), len(score) - 1))

    def weighed(self, count: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """(AUC, AP) if each event had happened `count` times; nan where one side is empty.  # [B, n] -> [B]"""
        count = count[:, self.order]
        true = np.cumsum(count * self.label, axis=1)[:, self.end].astype(np.float64)  # [B, steps] up to each step
        both = np.cumsum(count, axis=1)[:, self.end].astype(np.float64)
        wrong = both - true
        found = np.diff(true, axis=1, prepend=0)  # [B, steps] positives of each step
        above = wrong - np.diff(wrong, axis=1, prepend=0) / 2  # negatives above it; equal scores count half
        positives, negatives = true[:, -1], wrong[:, -1]
        with np.errstate(invalid="ignore", divide="ignore"):
            auc = (found * (negatives[:, None] - above)).sum(axis=1) / (positives * negatives)
            ap = (found * true / np.maximum(both, 1)).sum(axis=1) / positives
        undefined = (positives == 0) | (negatives == 0)
        return np.where(undefined, np.nan, auc), np.where(undefined, np.nan, ap)


def measure(
    target: NDArray[np.int64], score: Floats, names: list[str], *, seed: int = 0, draws: int = DRAWS
) -> dict[str, Any]:
    """Figures of a part, AUC and AUPRC in percent: of the positive class, or of all classes in the plain mean.

    `target` [n] holds class numbers. `score` is [n, 1] for two classes (that of class 1) and [n, C] for more: each
    class against the rest. A class that a part lacks has no figures and does not count in the mean.
    Intervals of classes are of the same draws as that of the mean. `auprc_factor` is how many times the share of
    positives, which chance would reach, the AUPRC is; over several classes it is the mean of theirs.

    >>> found = measure(np.array([0, 1, 0, 1]), np.array([[0.1], [0.9], [0.8], [0.8]]), ["0", "1"])
    >>> found["auc"], found["auprc"], found["auprc_factor"], found["positives"]
    (87.5, 83.3333, 1.6667, 2)
    """
    ranked = [1] if score.shape[1] == 1 else list(range(score.shape[1]))
    sides = {number: (target == number, score[:, column]) for column, number in enumerate(ranked)}
    classes = {number: _figures(*side) for number, side in sides.items()}
    drawn = redrawn([Ranking.of(*side) for side in sides.values()], seed, draws)  # [C, 2, B]
    if len(ranked) == 1:
        return {**_shown(classes[1], drawn[0]), "asked": len(target)}
    mean = {name: _mean([each[name] for each in classes.values()]) for name in FIGURES}
    shown = {names[number]: _shown(classes[number], drawn[number]) for number in ranked}
    return {**_shown(mean, _mean(drawn)), "asked": len(target), "classes": shown}


def redrawn(rankings: list[Ranking], seed: int, draws: int = DRAWS) -> NDArray[np.float64]:
    """(AUC, AP) of each ranking in bootstrap draws; each draw takes the same events in all.  # [C, 2, B]"""
    events, rng = len(rankings[0].order), np.random.default_rng(seed)
    found: list[NDArray[np.float64]] = []
    done = 0
    while done < draws:
        rows = min(draws - done, max(1, MOST_AT_ONCE // max(events, 1)))
        drawn = rng.integers(0, events, (rows, events)) + events * np.arange(rows)[:, None]
        count = np.bincount(drawn.reshape(-1), minlength=rows * events).reshape(rows, events)
        found.append(np.array([ranking.weighed(count) for ranking in rankings]))
        done += rows
    return np.concatenate(found, axis=2)


def _ends(values: NDArray[np.float64]) -> tuple[float, float]:
    values = values[~np.isnan(values)]  # a draw can miss the last positive
    if not len(values):
        return float("nan"), float("nan")
    low, high = np.percentile(values, INTERVAL).tolist()
    return low, high


def _mean(values: Any) -> Any:
    """Over the first axis, leaving out what has no value; nan where nothing has one."""
    values = np.asarray(values, dtype=np.float64)
    there = ~np.isnan(values)
    with np.errstate(invalid="ignore"):
        return np.where(there, values, 0.0).sum(axis=0) / there.sum(axis=0)


def _figures(label: NDArray[np.bool_], score: Floats) -> dict[str, float]:
    auprc, ratio = average_precision(label, score), float(label.mean()) if len(label) else 0.0
    return {
        "auc": roc_auc(label, score),
        "auprc": auprc,
        "auprc_factor": auprc / ratio if ratio else float("nan"),
        "positives": int(label.sum()),
        "positive_ratio": ratio,
    }


def _shown(found: dict[str, Any], drawn: NDArray[np.float64]) -> dict[str, Any]:
    """Figures in percent with their intervals; positives where there is one class to count."""
    shown: dict[str, Any] = {}
    for name, values in zip(("auc", "auprc"), drawn, strict=True):
        low, high = _ends(values)
        shown |= {name: _percent(found[name]), f"{name}_low": _percent(low), f"{name}_high": _percent(high)}
    shown["auprc_factor"] = round(float(found["auprc_factor"]), 4)
    if "positives" in found:
        shown |= {"positives": found["positives"], "positive_ratio": _percent(found["positive_ratio"])}
    return shown


def _percent(value: float) -> float:
    return round(100 * float(value), 4)
