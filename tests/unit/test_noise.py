"""Noise of a known law against plain loops: its intensities, and how often each node is drawn."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsrd.events import NULL, Events
from dsrd.negatives.noise import MET_SHARE, Noise, with_times
from dsrd.negatives.sampling import TrainingNegatives


@st.composite
def streams(draw: st.DrawFn) -> Events:
    count = draw(st.integers(2, 30))
    src, dst = (draw(st.lists(st.integers(1, 5), min_size=count, max_size=count)) for _ in range(2))
    time = sorted(draw(st.lists(st.integers(0, 9), min_size=count, max_size=count)))
    return Events.from_numpy(src, dst, time)


def earlier_pairs(events: Events, time: float) -> list[tuple[int, int]]:
    rows = zip(events.src.tolist(), events.dst.tolist(), events.time.tolist(), strict=True)
    return [(src, dst) for src, dst, when in rows if when < time]


@settings(deadline=None, max_examples=60)
@given(streams(), st.integers(0, 29))
def test_intensities_are_those_of_a_plain_loop(events: Events, first: int) -> None:
    batch, noise = events[min(first, len(events) - 1) :], Noise(events)
    earlier, start = earlier_pairs(events, float(batch.time[0])), noise.start(batch)
    assert start == len(earlier)
    num_sources, num_targets = len(set(events.src.tolist())), len(set(events.dst.tolist()))
    nodes = [1, 2, 3, 4, 5, 9]  # 9 has no events, and others may not be sources or targets
    pairs = [(u, v) for u in nodes for v in nodes]
    by_source = [1 + (num_sources * sum(src == u for src, _ in earlier) / start if start else 0) for u in nodes]
    by_target = []
    for u, v in pairs:
        partners = {dst for src, dst in earlier if src == u}
        by_target.append(1 + 0.5 * num_targets * (1 / len(partners) if v in partners else 0))
    src, dst = np.array(pairs).T
    assert noise.source_intensity(np.array(nodes), start).tolist() == pytest.approx(by_source)
    assert noise.target_intensity(src, dst, start).tolist() == pytest.approx(by_target)


@settings(deadline=None, max_examples=30)
@given(streams(), st.integers(0, 29))
def test_intensities_add_up_to_the_number_of_draws(events: Events, first: int) -> None:
    """Sources: two draws per event. Targets: one, and half a draw where the source has met anybody."""
    noise, start = Noise(events), Noise(events).start(events[min(first, len(events) - 1) :])
    earlier = {src for src, _ in zip(events.src[:start].tolist(), range(start), strict=True)}
    assert noise.source_intensity(noise.sources, start).mean() == pytest.approx(2 if start else 1)
    for u in noise.sources.tolist():
        total = noise.target_intensity(np.full(len(noise.targets), u), noise.targets, start).mean()
        assert total == pytest.approx(1 + MET_SHARE * (u in earlier))


def near(counts: Counter[int], chance: dict[int, float], draws: int) -> bool:
    """Whether every count is within five standard deviations of what the chances say, and nothing else occurs."""
    spread = {node: 5 * math.sqrt(draws * p * (1 - p)) + 1e-9 for node, p in chance.items()}
    return set(counts) <= set(chance) and all(
        abs(counts[node] - draws * p) <= spread[node] for node, p in chance.items()
    )


STREAM = Events.from_numpy([1, 1, 1, 2, 2, 3, 1, 4], [5, 5, 6, 5, 7, 7, 8, 9], [0, 0, 1, 2, 3, 3, 4, 5])
START = 6  # events before time 4


def test_draws_follow_the_law() -> None:
    noise, rng, draws = Noise(STREAM), np.random.RandomState(0), 40_000
    uniform = Counter(noise.uniform_sources(draws, rng).tolist())
    assert near(uniform, dict.fromkeys((1, 2, 3, 4), 1 / 4), draws)
    active = Counter(noise.active_sources(draws, START, rng).tolist())
    assert near(active, {1: 3 / 6, 2: 2 / 6, 3: 1 / 6}, draws)
    for u, partners in ((1, (5, 6)), (2, (5, 7)), (3, (7,)), (4, (-1,)), (9, (-1,))):  # 1 meets 8 only later
        met = Counter(noise.met_targets(np.full(draws, u), START, rng).tolist())
        assert near(met, dict.fromkeys(partners, 1 / len(partners)), draws)


def test_before_the_first_event_noise_is_uniform() -> None:
    noise, rng = Noise(STREAM), np.random.RandomState(0)
    assert len(noise.active_sources(10, 0, rng)) == 0
    assert noise.met_targets(np.array([1, 2]), 0, rng).tolist() == [-1, -1]
    assert noise.source_intensity(np.array([1, 2]), 0).tolist() == [1, 1]
    assert noise.target_intensity(np.array([1, 2]), np.array([5, 5]), 0).tolist() == [1, 1]


def test_training_draws_have_the_intensities_that_the_loss_assumes() -> None:
    """Per event of a batch, a node is drawn n times on average: S n(u) / S, and D n(v | u) / D."""
    batch, negatives, rounds = STREAM[START:], TrainingNegatives(STREAM, seed=0), 20_000
    sources, targets = Counter[int](), {1: Counter[int](), 4: Counter[int]()}
    for _ in range(rounds):
        drawn = negatives.sources(batch)
        assert (drawn.dst == NULL).all()
        sources.update(drawn.src.tolist())
        for query in (negatives.sample(batch), negatives.met(batch)):
            for src, dst in zip(query.src.tolist(), query.dst.tolist(), strict=True):
                targets[src][dst] += 1
    noise = negatives.noise
    expected = noise.source_intensity(noise.sources, START) / len(noise.sources)
    assert [sources[u] / rounds / len(batch) for u in noise.sources.tolist()] == pytest.approx(expected, abs=0.02)
    for u, counts in targets.items():
        expected = noise.target_intensity(np.full(len(noise.targets), u), noise.targets, START)
        per_event = [counts[v] / rounds for v in noise.targets.tolist()]
        assert per_event == pytest.approx(expected / len(noise.targets), abs=0.02)


def test_times_are_spread_over_the_batch() -> None:
    batch = STREAM[:4]
    query = with_times(np.arange(1, 9), np.zeros(8, np.int64), batch)
    assert query.time.tolist() == [0, 0, 0, 0, 1, 1, 2, 2]
    assert with_times(np.array([3, 4]), np.zeros(2, np.int64), batch).time.tolist() == [0, 1]
    assert len(with_times(np.zeros(0, np.int64), np.zeros(0, np.int64), batch)) == 0
