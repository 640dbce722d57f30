"""AP, AUC, MRR, Hits@k: arrays in, floats from 0 to 1 out.

A metric without a value (one class only, no scores, scores that are not numbers) is nan.
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
    """The probability that a positive scores above a negative; equal scores count half.

    >>> roc_auc(np.array([1, 0, 1, 0]), np.array([0.9, 0.8, 0.8, 0.1]))
    0.875
    """
    return float(_row_metrics(label[None], score[None])[1][0])


def batch_means(positive: Floats, negative: Floats, batch_size: int) -> tuple[float, float]:
    """(AP, AUC) as published: computed for each batch, then averaged; a short last batch counts like the others.

    >>> batch_means(np.array([0.9, 0.2, 0.7]), np.array([0.1, 0.3, 0.8]), batch_size=2)
    (0.6666666666666666, 0.375)
    """
    full_batches = len(positive) // batch_size
    stop = full_batches * batch_size
    results = []
    if full_batches:
        shape = (full_batches, batch_size)
        results.append(_against(positive[:stop].reshape(shape), negative[:stop].reshape(shape)))
    if len(positive) > stop:
        results.append(_against(positive[None, stop:], negative[None, stop:]))
    if not results:
        return float("nan"), float("nan")
    ap, auc = (np.concatenate(values) for values in zip(*results, strict=True))
    return float(ap.mean()), float(auc.mean())


def over_split(positive: Floats, negative: Floats) -> tuple[float, float]:
    """(AP, AUC) of all scores together.

    >>> over_split(np.array([0.9, 0.7]), np.array([0.1, 0.8]))
    (0.8333333333333333, 0.75)
    """
    ap, auc = _against(positive[None], negative[None])
    return float(ap[0]), float(auc[0])


def ranks(positive: Floats, negative: Floats) -> NDArray[np.float64]:
    """Rank of each positive [E] among its negatives [E, m], from 1 to m + 1; the middle rank among equal scores.

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
    """AP [B] and AUC [B] of each row of labels and scores [B, n]; all rows are ranked at once."""
    rows, columns = score.shape
    if not columns:
        return np.full(rows, np.nan), np.full(rows, np.nan)
    best_first = np.argsort(-score, axis=1)
    label = np.take_along_axis(label.astype(np.bool_), best_first, axis=1)
    score = np.take_along_axis(score, best_first, axis=1)

    is_end = np.ones((rows, columns), dtype=np.bool_)  # whether an entry is the last one of its score
    is_end[:, :-1] = score[:, 1:] != score[:, :-1]
    place = np.where(is_end, np.arange(columns), columns)
    end = np.minimum.accumulate(place[:, ::-1], axis=1)[:, ::-1]  # [B, n] where equal scores end
    is_start = np.ones_like(is_end)
    is_start[:, 1:] = is_end[:, :-1]
    start = np.maximum.accumulate(np.where(is_start, np.arange(columns), 0), axis=1)  # [B, n] where they start

    positives = np.cumsum(label, axis=1)  # [B, n] up to each entry
    positives_to_end = np.take_along_axis(positives, end, axis=1)
    negatives_before = start - np.take_along_axis(positives - label, start, axis=1)
    ap, auc = tied_metrics(label, positives_to_end, end + 1 - positives_to_end, negatives_before)
    undefined = np.isnan(score).any(axis=1)
    return np.where(undefined, np.nan, ap), np.where(undefined, np.nan, auc)


def tied_metrics(
    positives: NDArray[Any],
    positives_to_end: NDArray[Any],
    negatives_to_end: NDArray[Any],
    negatives_before: NDArray[Any],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """AP [B] and AUC [B] of B rankings, best score first; nan where all entries are of one class.

    A column stands for an entry, or for all entries of one score. The arrays [B, n] hold the positives in it, the
    positives and negatives up to the end of its score, and the negatives before that score. So equal scores share
    one precision, and count half in the AUC.
    """
    all_positives, all_negatives = positives_to_end[:, -1], negatives_to_end[:, -1]
    with np.errstate(invalid="ignore", divide="ignore"):
        precision = positives_to_end / np.maximum(positives_to_end + negatives_to_end, 1)
        ap = (positives * precision).sum(axis=1) / all_positives
        below = all_negatives[:, None] - (negatives_to_end + negatives_before) / 2
        auc = (positives * below).sum(axis=1) / (all_positives * all_negatives)
    undefined = (all_positives == 0) | (all_negatives == 0)
    return np.where(undefined, np.nan, ap), np.where(undefined, np.nan, auc)
