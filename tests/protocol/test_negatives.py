"""Evaluation negatives: the published ones bit for bit, the rules of order `fast`, and training negatives."""

from __future__ import annotations

import hashlib
import json
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch

from dsrd.data.split import split
from dsrd.errors import DsrdError
from dsrd.events import Events
from dsrd.negatives.sampling import NoNegativeError, TrainingNegatives, candidates, draw_negatives

GOLDEN = json.loads((Path(__file__).parent / "golden_negatives.json").read_text())
"""Sizes and hashes computed by a slow script with real Python sets; no data."""
STREAMS = [(name, stream) for name, known in GOLDEN.items() for stream in known["neg_sha1"]]


@pytest.fixture(scope="module")
def real_split(real_data):
    return cache(lambda name: split(real_data(name).events))


@pytest.mark.parametrize(("name", "stream"), STREAMS, ids=["-".join(each) for each in STREAMS])
def test_negatives_equal_the_published_ones(name, stream, real_split):
    parts = real_split(name)
    part, strategy, order = stream.split("/")
    events, pool, before, seed = {
        "val": (parts.val, parts.full, parts.train, 0),
        "new_node_val": (parts.val_new, parts.val_new, parts.train, 1),
        "test": (parts.test, parts.full, parts.val, 2),
        "new_node_test": (parts.test_new, parts.test_new, parts.val, 3),
    }[part]
    drawn = draw_negatives(
        strategy,
        events,
        pool,
        seed=seed,
        last_observed=float(before.time[-1]),
        order="py37" if order == "any" else order,
    )
    digest = hashlib.sha1()
    for start in range(0, len(drawn), 200):
        batch = drawn[slice(start, start + 200)]
        digest.update(batch.src.numpy().tobytes())
        digest.update(batch.dst.numpy().tobytes())
    assert digest.hexdigest()[:16] == GOLDEN[name]["neg_sha1"][stream]
    assert torch.equal(drawn.time, events.time)


def small_stream(seed=0, count=400, nodes=12, instants=10**6):
    rng = np.random.default_rng(seed)
    src, dst = rng.integers(1, nodes + 1, (2, count))
    return Events.from_numpy(src, dst + nodes, np.sort(rng.integers(0, instants, count)))


def pairs_of(events):
    return set(zip(events.src.tolist(), events.dst.tolist(), strict=True))


@pytest.mark.parametrize("instants", [10**6, 40, 6])
@pytest.mark.parametrize("strategy", ["historical", "inductive"])
def test_fast_draws_from_the_same_candidates_by_the_same_rules(strategy, instants):
    stream = small_stream(instants=instants)
    events, last_observed, size = stream[300:], float(stream.time[250]), 23
    drawn = draw_negatives(
        strategy, events, stream, seed=1, last_observed=last_observed, batch_size=size, order="fast"
    )
    grid = {(a, b) for a in stream.src.tolist() for b in stream.dst.tolist()}
    for start, batch in zip(range(0, 100, size), events.batches(size), strict=True):
        query = drawn[slice(start, start + size)]
        pairs = list(zip(query.src.tolist(), query.dst.tolist(), strict=True))
        first, last = batch.time[0], batch.time[-1]
        allowed = pairs_of(stream[stream.time <= first])
        allowed -= pairs_of(stream[(stream.time >= first) & (stream.time <= last)])
        if strategy == "inductive":
            allowed -= pairs_of(stream[stream.time <= last_observed])
        missing = max(0, len(batch) - len(allowed))
        assert set(pairs[:missing]) <= grid - pairs_of(batch)
        assert len(set(pairs[:missing])) == missing
        assert set(pairs[missing:]) <= allowed
        assert len(set(pairs[missing:])) == len(batch) - missing


@pytest.mark.parametrize("strategy", ["historical", "inductive"])
def test_fast_negatives_are_uniform(strategy):
    """Over many seeds, each pair is drawn equally often within five standard deviations, also in the first row.

    All events count as observed, so all inductive negatives are random pairs.
    """
    stream = small_stream(count=200, nodes=6)
    events, repeats, size = stream[190:], 2000, 10
    options = {"last_observed": float(stream.time[-1]), "batch_size": size, "order": "fast"}
    drawn = [draw_negatives(strategy, events, stream, seed=seed, **options) for seed in range(repeats)]
    codes = np.concatenate([(each.src * 100 + each.dst).numpy() for each in drawn])
    values, counts = np.unique(codes, return_counts=True)
    expected_values = 36 - len(pairs_of(events))
    assert len(values) == expected_values
    share = size / expected_values
    assert np.abs(counts - repeats * share).max() < 5 * np.sqrt(repeats * share * (1 - share))
    first_row = np.array([(each.src[0] * 100 + each.dst[0]).item() for each in drawn])
    _, counts = np.unique(first_row, return_counts=True)
    assert np.abs(counts - repeats / expected_values).max() < 5 * np.sqrt(repeats / expected_values)


def test_random_negatives_keep_the_source_and_discard_one_draw():
    stream = small_stream()
    drawn = draw_negatives("random", stream[300:], stream, seed=5, batch_size=30, order="fast")
    rng = np.random.RandomState(5)
    sources, targets = np.unique(stream.src.numpy()), np.unique(stream.dst.numpy())
    expected = []
    for size in (30, 30, 30, 10):
        rng.randint(0, len(sources), size)
        expected += targets[rng.randint(0, len(targets), size)].tolist()
    assert drawn.dst.tolist() == expected
    assert torch.equal(drawn.src, stream.src[300:])


def test_training_negatives_continue_over_epochs_and_resume():
    stream = small_stream()
    sampler, rng = TrainingNegatives(stream, seed=3), np.random.RandomState(3)
    targets = np.unique(stream.dst.numpy())
    for _ in range(2):  # epochs
        for batch in stream.batches(150):
            rng.randint(0, len(stream.src.unique()), len(batch))
            expected = targets[rng.randint(0, len(targets), len(batch))]
            saved = sampler.state()
            assert sampler.sample(batch).dst.tolist() == expected.tolist()
    assert all(isinstance(value, torch.Tensor) for value in saved.values())
    resumed = TrainingNegatives(stream, seed=99)
    resumed.restore(saved)
    assert resumed.sample(batch).dst.tolist() == expected.tolist()
    assert torch.equal(resumed.sample(stream).dst, sampler.sample(stream).dst)


def test_candidates_are_uniform_over_the_wrong_targets():
    stream = small_stream(nodes=6)
    count = 6000
    wrong = candidates(stream[:20], stream, count=count, seed=0)
    assert wrong.shape == (20, count)
    assert not (wrong == stream.dst[:20, None]).any()
    for row in wrong:
        _, counts = row.unique(return_counts=True)
        assert len(counts) == 5
        assert (counts - count / 5).abs().max() < 5 * np.sqrt(count / 5)


def test_candidates_for_a_target_the_pool_does_not_have():
    pool = Events.from_numpy([1, 1], [2, 3], [0, 1])
    events = Events.from_numpy([1, 1], [9, 3], [2, 3])
    wrong = candidates(events, pool, count=50, seed=0)
    assert wrong[0].unique().tolist() == [2, 3]
    assert wrong[1].unique().tolist() == [2]
    with pytest.raises(DsrdError, match="one target only"):
        candidates(pool[:1], pool[:1], count=5, seed=0)


def test_no_events_give_no_negatives():
    stream = small_stream()
    for strategy in ("random", "historical", "inductive"):
        assert len(draw_negatives(strategy, stream[:0], stream[:0], seed=0, last_observed=0.0)) == 0


@pytest.mark.parametrize(
    ("strategy", "options", "message"),
    [
        ("historic", {}, "did you mean 'historical'"),
        ("historical", {"order": "py39"}, "did you mean 'py38'"),
        ("inductive", {}, "need `last_observed`"),
    ],
)
def test_wrong_arguments_are_refused(strategy, options, message):
    stream = small_stream()
    with pytest.raises(DsrdError, match=message):
        draw_negatives(strategy, stream, stream, seed=0, **options)


@pytest.mark.parametrize("order", ["py37", "fast"])
def test_a_stream_of_one_pair_has_no_negative(order):
    stream = Events.from_numpy([1, 1], [2, 2], [0, 1])
    with pytest.raises(NoNegativeError, match="longer stream"):
        draw_negatives("historical", stream, stream, seed=0, order=order)
    with pytest.raises(NoNegativeError, match="longer stream"):
        draw_negatives("random", stream, stream[:0], seed=0, order=order)
