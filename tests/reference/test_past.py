"""`Past` and `Live` against a slow twin that filters a list."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from dsrd.errors import DsrdError
from dsrd.events import Events, Neighbors
from dsrd.history.live import Live
from dsrd.history.past import Past


class NaivePast:
    """The slow twin: goes through all events for every query."""

    def __init__(self, events: Events) -> None:
        self.rows = list(
            zip(*(column.tolist() for column in (events.src, events.dst, events.time, events.id)), strict=True)
        )

    def before(self, node: int, time: float) -> list[tuple[int, int, float, bool]]:
        """(other endpoint, event, time, outgoing), oldest first; a self-loop counts once in each direction."""
        entries = []
        for src, dst, at, id in self.rows:
            if at < time:
                entries += [(dst, id, at, True)] * (src == node) + [(src, id, at, False)] * (dst == node)
        return entries

    def recent(self, node: int, time: float, k: int) -> list[tuple[int, int, float, bool]]:
        entries = self.before(node, time)[-k:]
        return [(0, 0, 0.0, False)] * (k - len(entries)) + entries


@st.composite
def streams(draw: st.DrawFn) -> Events:
    count = draw(st.integers(0, 40))
    node = st.integers(1, 6)
    src = draw(st.lists(node, min_size=count, max_size=count))
    dst = draw(st.lists(node, min_size=count, max_size=count))
    # Few distinct times, some of them large: repeated timestamps, and differences that float32 would lose.
    moment = st.sampled_from([0.0, 1.0, 1.5, 2.0, 3.0, 1e9, 1e9 + 1, 1e9 + 2])
    return Events.from_numpy(src, dst, sorted(draw(st.lists(moment, min_size=count, max_size=count))))


def queries(events: Events) -> tuple[Tensor, Tensor]:
    moments = sorted({0.0, 0.5, 1.75, 1e9 + 0.5, 2e9, *events.time.tolist()})
    node, time = zip(*((n, t) for n in range(9) for t in moments), strict=True)
    return torch.tensor(node), torch.tensor(time, dtype=torch.float64)


def rows(neighbors: Neighbors) -> list[list[tuple[int, int, float, bool]]]:
    columns = (neighbors.node, neighbors.event, neighbors.time, neighbors.outgoing)
    return [list(zip(*entry, strict=True)) for entry in zip(*(c.tolist() for c in columns), strict=True)]


def grown(events: Events, size: int) -> Live:
    live = Live()
    for batch in events.batches(size):
        live.append(batch)
    return live


@settings(deadline=None, max_examples=60)
@given(streams(), st.integers(1, 7), st.integers(1, 9))
def test_recent_equals_the_naive_twin(events: Events, k: int, size: int) -> None:
    naive, (node, time) = NaivePast(events), queries(events)
    expected = [naive.recent(n, t, k) for n, t in zip(node.tolist(), time.tolist(), strict=True)]
    for past in (Past(events), grown(events, size)):
        neighbors = past.recent(node, time, k)
        assert rows(neighbors) == expected
        assert torch.equal(neighbors.mask, neighbors.event > 0)
        degrees = [len(naive.before(n, t)) for n, t in zip(node.tolist(), time.tolist(), strict=True)]
        assert past.degree(node, time).tolist() == degrees


@settings(deadline=None, max_examples=60)
@given(streams(), st.integers(1, 5), st.sampled_from([0.0, 0.7, 1e-9]), st.integers(0, 3))
def test_sampled_events_are_earlier_and_in_time_order(events: Events, k: int, rate: float, seed: int) -> None:
    naive, (node, time) = NaivePast(events), queries(events)
    past, live = Past(events, seed=seed), Live(events, seed=seed)
    from_past = past.decayed(node, time, k, rate) if rate else past.uniform(node, time, k)
    from_live = live.decayed(node, time, k, rate) if rate else live.uniform(node, time, k)
    assert rows(from_past) == rows(from_live)
    for n, t, drawn in zip(node.tolist(), time.tolist(), rows(from_past), strict=True):
        earlier = naive.before(n, t)
        assert all(entry in earlier for entry in drawn) if earlier else drawn == [(0, 0, 0.0, False)] * k
        assert [entry[2] for entry in drawn] == sorted(entry[2] for entry in drawn)


@settings(deadline=None, max_examples=40)
@given(streams(), st.integers(1, 3), st.integers(1, 3))
def test_walks_and_hops_go_back_in_time(events: Events, count: int, length: int) -> None:
    naive, (node, time) = NaivePast(events), queries(events)
    past = Past(events)
    walks = past.walks(node, time, count, length, rate=0.3)
    for q in range(len(node)):
        for w in range(count):
            at_node, before, ended = int(node[q]), float(time[q]), False
            for step in range(length):
                entry = tuple(
                    column[q, w, step].item() for column in (walks.node, walks.event, walks.time, walks.outgoing)
                )
                earlier = naive.before(at_node, before)
                ended = ended or not earlier
                assert entry == (0, 0, 0.0, False) if ended else entry in earlier
                at_node, before = int(entry[0]), float(entry[2])
    first, second = past.hops(node, time, (2, 3))
    neighbors = zip(first.node.reshape(-1).tolist(), first.time.reshape(-1).tolist(), strict=True)
    assert rows(second) == [naive.recent(n, t, 3) for n, t in neighbors]


def test_draws_follow_their_weights() -> None:
    """20,000 queries that differ only in the last bits of their times: frequencies follow the weights."""
    times = np.array([0.0, 1.0, 2.0, 4.0])
    past = Past(Events.from_numpy([1] * 4, [2, 3, 4, 5], times))
    node, time = torch.ones(20_000, dtype=torch.int64), 5 + torch.arange(20_000, dtype=torch.float64) * 1e-9
    for neighbors, weight in (
        (past.uniform(node, time, 1), np.ones(4)),
        (past.decayed(node, time, 1, rate=0.5), np.exp(0.5 * times)),
        (past.walks(node, time, 1, 1, rate=0.5), np.exp(0.5 * times)),
    ):
        share = np.bincount(neighbors.node.reshape(-1).numpy(), minlength=6)[2:] / 20_000
        assert np.allclose(share, weight / weight.sum(), atol=0.015)


def test_answers_do_not_depend_on_other_rows_or_earlier_calls() -> None:
    events = Events.from_numpy([1] * 50, [2] * 50, range(50))
    past = Past(events, seed=3)
    node, time = torch.ones(30, dtype=torch.int64), torch.arange(20.0, 50.0, dtype=torch.float64)
    together = past.uniform(node, time, 4).event
    past.uniform(node, time, 9)
    assert torch.equal(together[7:8], past.uniform(node[7:8], time[7:8], 4).event)
    assert torch.equal(together.flip(0), past.uniform(node, time.flip(0), 4).event)
    assert not torch.equal(together, past.redrawn(4).uniform(node, time, 4).event)


def test_features_grow_with_a_live_past() -> None:
    live = Live()
    for row in range(1, 20):
        live.append(Events.from_numpy([1], [2], [float(row)], id=[row]), torch.full((1, 2), float(row)))
    neighbors = live.recent(torch.tensor([2]), torch.tensor([100.0]), 25)
    assert live.edge_x(neighbors.event)[0, :, 0].tolist() == [0.0] * 6 + [float(row) for row in range(1, 20)]
    assert live.node_x(torch.tensor([5000])).shape == (1, 0)


def test_a_live_past_refuses_older_events() -> None:
    live = Live(Events.from_numpy([1], [2], [5.0]))
    with pytest.raises(DsrdError, match=r"event at time 4\.0 is older than the newest one \(5\.0\)"):
        live.append(Events.from_numpy([1], [2], [4.0]))


def test_an_unknown_sampling_is_refused_with_a_suggestion() -> None:
    with pytest.raises(DsrdError, match="did you mean 'uniform'"):
        Past(Events.from_numpy([1], [2], [1.0])).sample("unifrom", torch.tensor([1]), torch.tensor([2.0]), 1)  # type: ignore[arg-type]


def test_features_of_a_live_past_keep_their_width() -> None:
    live = Live()
    live.append(Events.from_numpy([1], [2], [1.0], id=[1]), torch.ones(1, 2))
    live.append(Events.from_numpy([1], [2], [2.0], id=[2]))
    assert live.edge_x(torch.tensor([0, 1, 2])).tolist() == [[0, 0], [1, 1], [0, 0]]
    with pytest.raises(DsrdError, match="the same columns throughout"):
        live.append(Events.from_numpy([1], [2], [3.0], id=[3]), torch.ones(1, 3))
