"""AP, AUC, MRR, Hits@k: arrays in, floats from 0 to 1 out.

A metric that has no value (one class only, no scores) or was asked of scores that are not numbers is nan.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]


def average_precision(label: NDArray[Any], score: Floats) -> float:
    """Mean over the positives of the precision at their score; equal scores share one precision.

    >>> round(average_precision(np.array([1, 0, 1, 0]), np.array([0.9, 0.8, 0.8, 0.1])), 4)
    0.8333
    """
    return float(_row_metrics(label[None], score[None])[0][0])


def roc_auc(label: NDArray[Any], score: Floats) -> float:
    """The chance that a positive scores above a negative; equal scores count half.

    >>> roc_auc(np.array([1, 0, 1, 0]), np.array([0.9, 0.8, 0.8, 0.1]))
    0.875
    """
    return float(_row_metrics(label[None], score[None])[1][0])


def batch_means(positive: Floats, negative: Floats, batch_size: int) -> tuple[float, float]:
    """(AP, AUC) as published: of each batch of scores, then their plain mean, a short last batch included.

    >>> batch_means(np.array([0.9, 0.2, 0.7]), np.array([0.1, 0.3, 0.8]), batch_size=2)
    (0.6666666666666666, 0.375)
    """
    whole = len(positive) // batch_size * batch_size
    pieces = [
        _against(some.reshape(rows, -1), others.reshape(rows, -1))
        for some, others, rows in (
            (positive[:whole], negative[:whole], whole // batch_size),
            (positive[whole:], negative[whole:], int(len(positive) > whole)),
        )
        if rows
    ]
    if not pieces:
        return float("nan"), float("nan")
    ap, auc = (np.concatenate(values) for values in zip(*pieces, strict=True))
    return float(ap.mean()), float(auc.mean())


def over_split(positive: Floats, negative: Floats) -> tuple[float, float]:
    """(AP, AUC) of all scores at once.

    >>> over_split(np.array([0.9, 0.7]), np.array([0.1, 0.8]))
    (0.8333333333333333, 0.75)
    """
    ap, auc = _against(positive[None], negative[None])
    return float(ap[0]), float(auc[0])


def ranks(positive: Floats, negative: Floats) -> NDArray[np.float64]:
    """Rank of each positive [E] among its negatives [E, m]: from 1 to m + 1, amid those with the same score.

    >>> ranks(np.array([0.5, 0.5]), np.array([[0.7, 0.1], [0.5, 0.5]])).tolist()
    [2.0, 2.0]
    """
    score = positive[:, None]
    rank = 1 + (negative > score).sum(axis=1) + 0.5 * (negative == score).sum(axis=1)
    return np.where(np.isnan(positive) | np.isnan(negative).any(axis=1), np.nan, rank)


def mrr(rank: Floats) -> float:
    """Mean of 1 / rank.

    >>> mrr(np.array([1.0, 4.0]))
    0.625
    """
    return float(np.mean(1 / rank)) if len(rank) else float("nan")


def hits(rank: Floats, k: int) -> float:
    """Share of ranks that are k or better.

    >>> hits(np.array([1.0, 4.0]), k=3)
    0.5
    """
    if not len(rank) or np.isnan(rank).any():
        return float("nan")
    return float(np.mean(rank <= k))


def _against(positive: Floats, negative: Floats) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """AP [B] and AUC [B] of each row of positives [B, p] against the same row of negatives [B, n]."""
    label = np.repeat([True, False], [positive.shape[1], negative.shape[1]])
    score = np.concatenate([positive, negative], axis=1)
    return _row_metrics(np.broadcast_to(label, score.shape), score)


def _row_metrics(label: NDArray[Any], score: Floats) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """AP [B] and AUC [B] of each row of labels and scores [B, n]; rows are ranked all at once."""
    rows, columns = score.shape
    if not columns:
        return np.full(rows, np.nan), np.full(rows, np.nan)
    best_first = np.argsort(-score, axis=1)
    label = np.take_along_axis(label.astype(np.bool_), best_first, axis=1)
    score = np.take_along_axis(score, best_first, axis=1)

    # Equal scores are one step: what counts is how many positives lie up to its end, and before its start.
    ends = np.ones((rows, columns), dtype=np.bool_)
    ends[:, :-1] = score[:, 1:] != score[:, :-1]
    place = np.where(ends, np.arange(columns), columns)
    end = np.minimum.accumulate(place[:, ::-1], axis=1)[:, ::-1]  # [B, n] where each entry's step ends
    starts = np.ones_like(ends)
    starts[:, 1:] = ends[:, :-1]
    start = np.maximum.accumulate(np.where(starts, np.arange(columns), 0), axis=1)  # [B, n] and where it starts

    found = np.cumsum(label, axis=1)  # [B, n] positives so far
    positives = found[:, -1]
    found_to_end = np.take_along_axis(found, end, axis=1)
    found_before = np.take_along_axis(found - label, start, axis=1)
    wrong_to_end, wrong_before = end + 1 - found_to_end, start - found_before
    with np.errstate(invalid="ignore"):
        ap = (label * (found_to_end / (end + 1))).sum(axis=1) / positives
        below = columns - positives[:, None] - (wrong_to_end + wrong_before) / 2  # ties count half
        auc = (label * below).sum(axis=1) / (positives * (columns - positives))
    undefined = (positives == 0) | (positives == columns) | np.isnan(score).any(axis=1)
    return np.where(undefined, np.nan, ap), np.where(undefined, np.nan, auc)
