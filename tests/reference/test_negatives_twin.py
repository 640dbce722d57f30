"""Historical and inductive negatives against a slow twin with real Python sets, batch by batch."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from py37_pairs import pairs

from dsrd.events import Events
from dsrd.negatives.sampling import NoNegativeError, TrainingNegatives, draw_negatives


def slow_negatives(strategy, events, pool, seed, last_observed, batch_size, python):
    """The published protocol on Python sets; None if a batch contains every pair."""
    src, dst, time, _ = pool.numpy()
    rng = np.random.RandomState(seed)
    grid = set(
        pairs(np.repeat(np.unique(src), len(np.unique(dst))), np.tile(np.unique(dst), len(np.unique(src))), python)
    )

    def between(start, end):
        rows = (time >= start) & (time <= end)
        return set(pairs(src[rows], dst[rows], python))

    drawn = []
    for batch in events.batches(batch_size):
        first, last = float(batch.time[0]), float(batch.time[-1])
        seen, present = between(time[0], first), between(first, last)
        if strategy == "historical":
            candidates = list(seen - present)
        else:
            candidates = list(seen - between(time[0], last_observed) - present)
        missing = len(batch) - len(candidates)
        if missing > 0:
            others = list(grid - set(pairs(batch.src.numpy(), batch.dst.numpy(), python)))
            if not others:
                return None
            chosen = rng.choice(len(others), size=missing, replace=len(others) < missing)
            drawn += [others[position] for position in chosen] + candidates
        else:
            chosen = rng.choice(len(candidates), size=len(batch), replace=False)
            drawn += [candidates[position] for position in chosen]
    return [tuple(pair) for pair in drawn]


@settings(max_examples=300, deadline=None)
@given(
    count=st.integers(2, 150),
    nodes=st.sampled_from([1, 2, 4, 9, 40]),
    instants=st.sampled_from([3, 20, 10**6]),
    begin=st.floats(0, 0.95),
    events_are_pool=st.booleans(),
    batch_size=st.sampled_from([1, 3, 10, 40]),
    strategy=st.sampled_from(["historical", "inductive"]),
    python=st.sampled_from(["py37", "py38"]),
    seed=st.integers(0, 1000),
)
def test_negatives_equal_the_slow_twin(
    count, nodes, instants, begin, events_are_pool, batch_size, strategy, python, seed
):
    rng = np.random.default_rng(seed)
    src, dst = rng.integers(1, nodes + 1, count), rng.integers(1, 2 * nodes + 1, count)
    stream = Events.from_numpy(src, dst, np.sort(rng.integers(0, instants, count)))
    events = stream[int(begin * count) :]
    pool = events if events_are_pool else stream
    last_observed = float(rng.choice(stream.time.numpy())) - rng.integers(0, 2)
    arguments = (strategy, events, pool)
    expected = slow_negatives(*arguments, seed, last_observed, batch_size, python)
    try:
        query = draw_negatives(
            *arguments, seed=seed, last_observed=last_observed, batch_size=batch_size, order=python
        )
    except NoNegativeError:
        assert expected is None
        return
    assert list(zip(query.src.tolist(), query.dst.tolist(), strict=True)) == expected
    assert query.time.tolist() == events.time.tolist()


def test_met_targets_are_those_that_the_source_met_before_the_batch() -> None:
    rng = np.random.default_rng(0)
    src, dst, time = rng.integers(1, 9, 600), rng.integers(1, 9, 600), np.sort(rng.integers(0, 300, 600))
    events = Events.from_numpy(src, dst, time)
    sampler = TrainingNegatives(events, seed=0)
    assert len(sampler.met(events[:20])) == 0  # nobody has met before
    batch = events[60:80]
    before = {(u, v) for u, v, t in zip(src, dst, time, strict=True) if t < float(batch.time[0])}
    asked = set(zip(batch.src.tolist(), batch.time.tolist(), strict=True))
    drawn, rounds, pairs = 0, 500, set()
    for _ in range(rounds):
        query = sampler.met(batch)
        drawn += len(query)
        pairs |= set(zip(query.src.tolist(), query.dst.tolist(), strict=True))
        assert set(zip(query.src.tolist(), query.time.tolist(), strict=True)) <= asked
    sources = set(batch.src.tolist())
    assert pairs == {(u, v) for u, v in before if u in sources}
    assert abs(drawn / rounds / len(batch) - 0.5) < 0.03
