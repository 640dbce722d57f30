"""The retentive walk state against its definition: sums over all events before t, written out."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dsrd.config import overridden
from dsrd.events import Events, Query
from dsrd.graph import walks
from dsrd.graph.past import Past
from dsrd.models import GraphSpec, create, model_class

RATES = (1.0, 0.1)
FINE = (1.0, 0.3, 0.1)
WIDTH = 16


def sign_code(node: int) -> np.ndarray:
    code = np.empty(WIDTH, np.float32)
    walks.write_code(node, code)
    return code.astype(np.float64)


@dataclass
class NaiveState:
    """Every event in a list; each quantity is its sum, computed from the first event on."""

    events: list[tuple[int, int, float]]

    def before(self, t: float) -> list[tuple[int, int, float]]:
        return [event for event in self.events if event[2] < t]

    def partners(self, node: int, events: list[tuple[int, int, float]]) -> list[tuple[int, float, int]]:
        """(partner, time, events that came before this one) of each event of a node; a self-loop counts once."""
        found = []
        for place, (src, dst, time) in enumerate(events):
            if node in (src, dst):
                found.append((dst if node == src else src, time, place))
        return found

    def step1(self, node: int, t: float, rate: float, events: list[tuple[int, int, float]]) -> np.ndarray:
        total = np.zeros(WIDTH)
        for partner, time, _ in self.partners(node, events):
            total += math.exp(-rate * (t - time)) * sign_code(partner)
        return total

    def step2(self, node: int, t: float, rate: float, events: list[tuple[int, int, float]]) -> np.ndarray:
        total = np.zeros(WIDTH)
        for partner, time, place in self.partners(node, events):
            total += math.exp(-2 * rate * (t - time)) * self.step1(partner, time, rate, events[:place])
        return total

    def pair(self, a: int, b: int, t: float) -> list[float]:
        events, found = self.before(t), []
        for rate in RATES:
            one, two = ([step(n, t, rate, events) for n in (a, b)] for step in (self.step1, self.step2))
            r = sign_code(a), sign_code(b)
            found += [
                r[0] @ two[1],
                two[0] @ r[1],
                one[0] @ one[1],
                one[0] @ two[1],
                two[0] @ one[1],
                two[0] @ two[1],
            ]
        for pair in ((a, b), (b, a)):
            times = [time for src, dst, time in events if (src, dst) == pair]
            found += [sum(math.exp(-rate * (t - time)) for time in times) for rate in FINE] + [len(times)]
        return found

    def node(self, node: int, t: float) -> list[float]:
        events, found = self.before(t), []
        for rate in RATES:
            found += [float(np.linalg.norm(step(node, t, rate, events))) for step in (self.step1, self.step2)]
        pairs = [{src, dst} for src, dst, _ in events]
        strangers = [pair not in pairs[:place] for place, pair in enumerate(pairs)]
        for rate in FINE:
            for among in ([True] * len(events), strangers):
                for role in (0, 1):
                    own = [e[2] for e, counts in zip(events, among, strict=True) if counts and e[role] == node]
                    found.append(sum(math.exp(-rate * (t - time)) for time in own))
        return found

    def window(self, node: int, t: float, k: int) -> list[tuple[int, bool]]:
        """Partners of the latest events, newest first, and whether the node was the source; a self-loop stands
        twice, once for each role."""
        roles = [((dst, True, src), (src, False, dst)) for src, dst, _ in self.before(t)]
        both = [(partner, sent) for ends in roles for partner, sent, own in ends if own == node]
        return both[::-1][:k]


@st.composite
def streams(draw: st.DrawFn) -> Events:
    count = draw(st.integers(1, 25))
    node = st.integers(1, 5)
    src, dst = (draw(st.lists(node, min_size=count, max_size=count)) for _ in range(2))
    time = sorted(draw(st.lists(st.integers(0, 12), min_size=count, max_size=count)))
    return Events.from_numpy(src, dst, time)


def make_model() -> object:
    cls = model_class("dsrd")
    config = overridden(
        cls.Config(), {**cls.small, "code_dim": WIDTH, "neighbors": 4, "count_scales": FINE, "scales": RATES}
    )
    model = create("dsrd", GraphSpec(num_nodes=3), config)
    model.body.rate = torch.tensor(RATES, dtype=torch.float64)
    model.body.fine = torch.tensor(FINE, dtype=torch.float64)
    return model.eval()


def close(found: torch.Tensor, expected: list[float]) -> bool:
    """Equal up to the rounding of float32 sums, whose terms are as large as the largest entry."""
    wanted = torch.tensor(expected, dtype=torch.float64)
    return bool(((found.double() - wanted).abs() <= 2e-5 * (1 + wanted.abs().max())).all())


@settings(deadline=None, max_examples=40)
@given(streams(), st.integers(0, 25))
def test_readings_are_the_sums_over_earlier_events(events: Events, observed: int) -> None:
    """Some events observed (up to a timestamp's end), the rest folded in: every number is as defined."""
    times, observed = events.time.tolist(), min(observed, len(events))
    while 0 < observed < len(events) and times[observed - 1] == times[observed]:
        observed += 1
    model, past = make_model(), Past(events)
    model.observe(events[:observed], past)
    start = times[observed - 1] if observed else 0.0
    asked = [(a, b, t) for t in (start + 0.5, start + 2.0, 13.0) for a in (1, 2, 9) for b in (2, 3, 5)]
    src, dst, time = (torch.tensor(column) for column in zip(*reversed(asked), strict=True))
    before = model.state.snapshot()
    reading = model.body.read(Query(src, dst, time.double()), past.during(events[observed:]), model.state)
    assert all(torch.equal(before[name], model.state[name]) for name in before)

    naive = NaiveState(list(zip(*(column.tolist() for column in events.numpy()[:3]), strict=True)))
    for q, (a, b, t) in enumerate(reversed(asked)):
        assert close(reading.pair[q], naive.pair(a, b, t))
        for side, (node, other) in enumerate(((a, b), (b, a))):
            assert close(reading.node[side, q], naive.node(node, t))
            window, across = naive.window(node, t, 4), naive.window(other, t, 4)
            assert int((reading.event[side, q] > 0).sum()) == len(window)
            here, there = ([partner for partner, _ in each] for each in (window, across))
            for j, (partner, sent) in enumerate(window):
                expected = naive.pair(partner, other, t)
                expected += [float(partner == other), here.count(partner), there.count(partner), j / 4, sent]
                assert close(reading.tokens[side, q, j], expected)


def test_codes_are_signs_of_length_one_and_nearly_orthogonal() -> None:
    codes = np.empty((400, 256), np.float32)
    for node in range(400):
        walks.write_code(node, codes[node])
    products = codes @ codes.T
    assert np.allclose(np.diag(products), 1, atol=1e-5)
    off = products[~np.eye(400, dtype=bool)]
    assert abs(off.mean()) < 0.002
    assert off.std() == pytest.approx(1 / 16, rel=0.05)


def test_the_table_grows_and_keeps_every_pair() -> None:
    rng = np.random.default_rng(0)
    events = Events.from_numpy(rng.integers(1, 200, 20_000), rng.integers(1, 200, 20_000), np.arange(20_000) / 100)
    model, past = make_model(), Past(events)
    for batch in events.batches(1_000):
        model.observe(batch, past)
    pairs, counts = np.unique(np.stack(events.numpy()[:2]), axis=1, return_counts=True)
    assert int(model.state["size"]) == pairs.shape[1]
    query = Query(torch.tensor(pairs[0]), torch.tensor(pairs[1]), torch.full((pairs.shape[1],), 1e3).double())
    assert model.body.read(query, past, model.state).pair[:, 12 + 3].tolist() == counts.tolist()
