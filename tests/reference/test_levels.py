"""Feature levels against their definition: sums over all events before t."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dsrd.errors import DsrdError
from dsrd.events import Events, Query
from dsrd.history.past import Past
from dsrd.models.dsrd.content import WIDEST, Content
from dsrd.models.dsrd.feature_levels import LEAST_VARIANCE
from dsrd.state import State
from reference.test_walks import RATES, NaiveState, streams

RATE = np.array(RATES)


def compared(naive: NaiveState, x: np.ndarray, node: int, t: float) -> list[float]:
    """(C_u - n_u m) / ((n_u + 1) s) for each rate and feature; row e of x belongs to event e."""
    values, now = [], naive.now(t)
    for rate in RATES:
        known = naive.before(t)
        weight = np.array([math.exp(-rate * (now - naive.reading(time))) for _, _, time in known])
        has_node = np.array([float(node in (src, dst)) for src, dst, _ in known])
        for column in x.T:
            f = column[: len(known)]
            total = weight.sum() or 1.0
            mean = (weight * f).sum() / total
            deviation = math.sqrt((weight * f**2).sum() / total - mean**2 + LEAST_VARIANCE)
            count = (weight * has_node).sum()
            values.append(((weight * has_node * f).sum() - count * mean) / ((count + 1) * deviation))
    return values


def content_of(edge_dim: int, whole_moments: bool = False) -> tuple[Content, State]:
    state = State(num_nodes=3)
    return Content(edge_dim, len(RATES), whole_moments, state), state


def features(events: Events, dim: int = 2) -> torch.Tensor:
    x = torch.randn(len(events) + 1, dim, generator=torch.Generator().manual_seed(5))
    x[0] = 0
    return x


@settings(deadline=None, max_examples=40)
@given(streams(), st.integers(0, 25), st.booleans())
def test_readings_equal_their_definition(events: Events, observed: int, whole_moments: bool) -> None:
    """Some events observed (up to the end of a timestamp), the rest unobserved."""
    times, observed = events.time.tolist(), min(observed, len(events))
    while 0 < observed < len(events) and times[observed - 1] == times[observed]:
        observed += 1
    content, state = content_of(2, whole_moments)
    x = features(events)
    past = Past(events, edge_x=x)
    state.rows_for(torch.cat([events.src[:observed], events.dst[:observed]]))
    content.observe(events[:observed], past, state, RATE)
    start = times[observed - 1] if observed else 0.0
    pairs = [(a, b, t) for t in (13.0, start + 2.0, start + 0.5) for a, b in ((1, 2), (3, 99), (5, 4))]
    src, dst, time = (torch.tensor(column) for column in zip(*pairs, strict=True))
    before = state.snapshot()
    result = content.read(Query(src, dst, time.double()), past.during(events[observed:]), state, RATE)
    assert all(torch.equal(before[name], state[name]) for name in before)
    rows = list(zip(*(column.tolist() for column in events.numpy()[:3]), strict=True))
    naive, kept = NaiveState(rows, whole_moments), x[1:].double()
    kept = (kept.sign() * kept.abs().log1p()).numpy()
    for q, (a, b, t) in enumerate(pairs):
        for side, node in enumerate((a, b)):
            assert result[side, q].numpy() == pytest.approx(compared(naive, kept, node, t), abs=2e-3)


def test_a_change_of_all_weights_does_not_change_the_comparison() -> None:
    """All weights of the second snapshot are 50 times higher; the node above the mean stays above it."""
    rng = np.random.default_rng(0)
    src, dst = rng.integers(1, 6, 400), rng.integers(6, 11, 400)
    weight = np.exp(rng.normal(size=400) + (src == 3))
    results = []
    for level in (1.0, 50.0):
        events = Events.from_numpy(src, dst, np.repeat([0.0, 1.0], 200))
        grown = np.where(
            np.arange(400) < 200, weight, level * weight + (level > 1) * (level - 1)
        )  # log1p: + log 50
        past = Past(events, edge_x=torch.tensor(np.append(0, grown), dtype=torch.float32)[:, None])
        content, state = content_of(1, whole_moments=True)
        state.rows_for(torch.tensor([10]))
        content.observe(events, past, state, RATE)
        query = Query(torch.arange(1, 6), torch.arange(6, 11), torch.full((5,), 2.0).double())
        results.append(content.read(query, past, state, RATE))
    assert torch.allclose(results[0], results[1], atol=1e-3)
    assert results[0][0, :, 0].argmax() == 2


def test_a_constant_feature_gives_zero() -> None:
    events = Events.from_numpy([1, 2, 1, 3] * 50, [4, 5, 5, 4] * 50, np.arange(200))
    past = Past(events, edge_x=torch.full((201, 1), 7.0))
    content, state = content_of(1)
    state.rows_for(torch.tensor([5]))
    content.observe(events, past, state, RATE)
    query = Query(torch.tensor([1, 2]), torch.tensor([4, 9]), torch.tensor([300.0, 300.0]).double())
    assert content.read(query, past, state, RATE).abs().max() < 1e-2


def test_wide_features_are_projected_and_keep_their_length() -> None:
    """Random signs keep squared lengths on average; the state does not grow with the number of features."""
    content, state = content_of(172)
    assert state["content"].shape[2] == 1 + WIDEST
    x = torch.randn(2000, 172, generator=torch.Generator().manual_seed(1))
    ratio = (x @ content.fold).square().sum(1).mean() / x.square().sum(1).mean()
    assert ratio.item() == pytest.approx(WIDEST / 172, rel=0.1)


@pytest.mark.parametrize(("edge_dim", "per_node"), [(1, 32), (4, 68), (172, 212)])
def test_bytes_are_as_documented(edge_dim: int, per_node: int) -> None:
    """docs/explanation/dsrd.md: what features add to a node's bytes with the default three scales."""
    state = State(num_nodes=1000)
    Content(edge_dim, 3, False, state)
    stream_wide = 8 * 3 * (1 + 2 * min(edge_dim, WIDEST)) + 32
    assert state.nbytes() == per_node + stream_wide  # the row of NULL
    state.rows_for(torch.tensor([255]))
    assert state.nbytes() == 256 * per_node + stream_wide


def test_a_past_without_edge_features_is_refused() -> None:
    events = Events.from_numpy([1], [2], [0.0])
    content, state = content_of(3)
    with pytest.raises(DsrdError, match="events with 0 features, the model was built for 3; give the past"):
        content.observe(events, Past(events), state, RATE)
