"""Metrics against scikit-learn, plain loops and values by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, roc_auc_score

from dsrd.evaluate.metrics import average_precision, batch_means, hits, mrr, over_split, ranks, roc_auc


@settings(max_examples=200, deadline=None)
@given(
    count=st.integers(2, 500),
    levels=st.sampled_from([1, 2, 5, 100, 10**9]),
    dtype=st.sampled_from([np.float32, np.float64]),
    seed=st.integers(0, 10**6),
)
def test_equal_to_sklearn_with_ties(count, levels, dtype, seed):
    rng = np.random.default_rng(seed)
    label = rng.integers(0, 2, count)
    label[:2] = 0, 1
    score = (rng.integers(0, levels, count) / 7 - 3).astype(dtype)
    assert abs(average_precision(label, score) - average_precision_score(label, score)) < 1e-12
    assert abs(roc_auc(label, score) - roc_auc_score(label, score)) < 1e-12


@pytest.mark.parametrize("count", [1, 3, 199, 200, 201, 1000, 1013])
@pytest.mark.parametrize("levels", [2, 10**9])
def test_batch_means_equal_a_loop_over_batches(count, levels):
    rng = np.random.default_rng(count)
    positive, negative = (rng.integers(0, levels, (2, count)) / 7).astype(np.float32)
    each = []
    for start in range(0, count, 200):
        batch = positive[start : start + 200], negative[start : start + 200]
        label = np.repeat([1, 0], len(batch[0]))
        score = np.concatenate(batch)
        each.append((average_precision_score(label, score), roc_auc_score(label, score)))
    assert batch_means(positive, negative, 200) == pytest.approx(tuple(np.mean(each, axis=0)), abs=1e-12)


def test_over_split_is_one_large_batch():
    positive, negative = np.random.default_rng(0).random((2, 777))
    assert over_split(positive, negative) == batch_means(positive, negative, 777)


@pytest.mark.parametrize("label", [[1, 1, 1], [0, 0, 0], []])
def test_metrics_of_one_class_are_nan(label):
    label = np.array(label)
    assert math.isnan(average_precision(label, np.arange(len(label)) / 2))
    assert math.isnan(roc_auc(label, np.arange(len(label)) / 2))
    assert all(math.isnan(value) for value in batch_means(np.zeros(0), np.zeros(0), 200))
    assert math.isnan(mrr(np.zeros(0)))
    assert math.isnan(hits(np.zeros(0), 10))


def test_metrics_of_nan_scores_are_nan():
    positive, negative = np.array([np.nan, 0.5]), np.array([0.1, 0.2])
    assert all(math.isnan(value) for value in batch_means(positive, negative, 2))
    rank = ranks(positive, np.array([[0.1, 0.2], [0.1, np.nan]]))
    assert np.isnan(rank).all()
    assert math.isnan(mrr(rank))
    assert math.isnan(hits(rank, 1))


def test_ranks_are_the_mean_of_best_and_worst_rank_among_ties():
    rng = np.random.default_rng(0)
    positive, negative = rng.integers(0, 5, 100) / 4, rng.integers(0, 5, (100, 20)) / 4
    rank = ranks(positive, negative)
    for true, wrong, middle in zip(positive, negative, rank, strict=True):
        optimistic, pessimistic = 1 + sum(wrong > true), 1 + sum(wrong >= true)
        assert middle == (optimistic + pessimistic) / 2
    assert mrr(rank) == pytest.approx(np.mean(1 / rank))
    assert hits(rank, 10) == np.mean(rank <= 10)
