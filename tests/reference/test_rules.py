"""The rules that learn nothing, and the look-ups behind them, against loops over a list of events."""

from __future__ import annotations

import math
from itertools import pairwise, product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from dsrd.errors import DsrdError
from dsrd.events import Events, Query
from dsrd.history.live import Live
from dsrd.history.past import Past
from dsrd.models import GraphSpec, TemporalModel, create, model_class, rules

NEVER = -math.inf
Rows = list[tuple[int, int, float]]


@st.composite
def streams(draw: st.DrawFn) -> Events:
    """Few nodes and few distinct times: repeated timestamps, repeated pairs, self-loops."""
    count = draw(st.integers(1, 40))
    node = st.integers(1, 6)
    src, dst = (draw(st.lists(node, min_size=count, max_size=count)) for _ in range(2))
    moment = st.sampled_from([0.0, 1.0, 1.5, 2.0, 3.0, 50.0, 51.0, 1000.0])
    return Events.from_numpy(src, dst, sorted(draw(st.lists(moment, min_size=count, max_size=count))))


def rows_of(events: Events) -> Rows:
    return list(zip(events.src.tolist(), events.dst.tolist(), events.time.tolist(), strict=True))


def questions(events: Events) -> Query:
    """Every pair of nodes, some unknown (0, 7, 99), at and between the times of events."""
    moments = sorted({-1.0, 1.25, 50.5, 2000.0, *events.time.tolist()})
    src, dst, time = zip(*product((0, 1, 2, 3, 4, 5, 6, 7, 99), (0, 1, 2, 3, 6, 99), moments), strict=True)
    return Query(torch.tensor(src), torch.tensor(dst), torch.tensor(time, dtype=torch.float64))


def asked(query: Query) -> Rows:
    return list(zip(query.src.tolist(), query.dst.tolist(), query.time.tolist(), strict=True))


def grown(events: Events, size: int) -> Live:
    live = Live()
    for batch in events.batches(size):
        live.append(batch)
    return live


def last_met(rows: Rows, src: int, dst: int, time: float) -> float:
    return max((t for u, v, t in rows if (u, v) == (src, dst) and t < time), default=NEVER)


def last_as_target(rows: Rows, node: int, time: float) -> float:
    return max((t for _, v, t in rows if v == node and t < time), default=NEVER)


def last_active(rows: Rows, node: int, time: float) -> float:
    return max((t for u, v, t in rows if node in (u, v) and t < time), default=NEVER)


def log_decayed_in_degree(rows: Rows, node: int, time: float, tau: float) -> float:
    """Relative to the newest event, whose own weight may be too small for a float."""
    ages = [time - t for _, v, t in rows if v == node and t < time]
    if not ages:
        return NEVER
    return math.log(sum(math.exp((min(ages) - age) / tau) for age in ages)) - min(ages) / tau


def calibrated(name: str, events: Events) -> TemporalModel:
    model = create(name, GraphSpec())
    model.calibrate(events)
    return model.eval()


@settings(deadline=None, max_examples=60)
@given(streams(), st.integers(1, 9), st.sampled_from([0.3, 5.0, 1e4]))
def test_look_ups_equal_loops_over_events(events: Events, size: int, tau: float) -> None:
    query, rows = questions(events), rows_of(events)
    met = [last_met(rows, *each) for each in asked(query)]
    targeted = [last_as_target(rows, dst, time) for _, dst, time in asked(query)]
    counts = [log_decayed_in_degree(rows, dst, time, tau) for _, dst, time in asked(query)]
    for past in (Past(events), grown(events, size)):
        assert past.last_met(query.src, query.dst, query.time).tolist() == met
        assert past.last_as_target(query.dst, query.time).tolist() == targeted
        counted = past.log_decayed_in_degree(query.dst, query.time, tau)
        # up to forty events of 1e-8 each are left out
        assert torch.allclose(counted, torch.tensor(counts, dtype=torch.float64), rtol=1e-12, atol=1e-6)


def test_a_long_silence_is_still_counted() -> None:
    """exp(-2000) is 0 in float64, its logarithm is not."""
    past = Past(Events.from_numpy([1, 1], [2, 2], [0.0, 0.0]))
    counted = past.log_decayed_in_degree(torch.tensor([2]), torch.tensor([2000.0]), tau=1.0)
    assert counted.item() == pytest.approx(math.log(2) - 2000)


def freshness(age: float, span: float) -> float:
    """1 just now, 0.01 a thousand spans ago or more, 0 never."""
    return 0.0 if age == math.inf else max(0.01, 1 - math.log1p(age / span * 1e7) / math.log1p(1e10))


def keys(name: str, rows: Rows, query: Query, span: float) -> list[tuple[float, float]]:
    """What each rule sorts pairs by, best last: met or not, then a number."""
    found = []
    for src, dst, time in asked(query):
        met = last_met(rows, src, dst, time)
        if name == "popularity":
            found.append((0.0, log_decayed_in_degree(rows, dst, time, model_class(name).Config().tau * span)))
        elif met > NEVER:
            found.append((1.0, freshness(time - met, span)))
        elif name == "localglobal":
            found.append((0.0, freshness(time - last_as_target(rows, dst, time), span)))
        else:
            found.append((0.0, sum(freshness(time - last_active(rows, node, time), span) for node in (src, dst))))
    return found


def same_order(score: Tensor, key: list[tuple[float, float]]) -> bool:
    """Sorted by key, scores rise wherever keys differ by more than rounding, and are equal for equal keys."""
    order = sorted(range(len(key)), key=key.__getitem__)
    for low, high in pairwise(order):
        gap = key[high][1] - key[low][1] if key[high][0] == key[low][0] else math.inf
        distinct = gap > 1e-4 * max(1.0, abs(key[high][1]))
        if distinct and not score[low] < score[high]:
            return False
        if key[low] == key[high] and abs(float(score[low] - score[high])) > 1e-5:
            return False
    return True


@settings(deadline=None, max_examples=40)
@given(streams(), st.integers(1, 9), st.sampled_from(["recency", "popularity", "localglobal"]))
def test_scores_are_in_the_order_of_loops(events: Events, size: int, name: str) -> None:
    query, rows = questions(events), rows_of(events)
    span = float(events.time[-1] - events.time[0]) or 1.0
    model = calibrated(name, events)
    score = model.score(query, Past(events))
    assert torch.equal(score, model.score(query, grown(events, size)))
    for time in set(query.time.tolist()):  # pairs are compared at one time
        row = (query.time == time).nonzero().squeeze(1)
        at = Query(query.src[row], query.dst[row], query.time[row])
        probability = torch.sigmoid(score[row])
        assert same_order(score[row], keys(name, rows, at, span))
        # torch rounds the last few sigmoids of a tensor otherwise than the rest: equal scores may become two
        assert len(probability.unique()) >= len(score[row].unique()), "float32 sigmoids keep scores apart"


@pytest.mark.parametrize("name", ["recency", "popularity", "localglobal"])
def test_what_was_calibrated_is_saved(name: str) -> None:
    events = Events.from_numpy([1, 2, 3], [2, 3, 1], [0.0, 10.0, 1e6])
    model, other = calibrated(name, events), create(name, GraphSpec())
    other.load_state_dict(model.state_dict())
    query = questions(events)
    assert model.stateless
    assert torch.equal(model.score(query, Past(events)), other.score(query, Past(events)))


def test_rules_are_listed() -> None:
    assert rules() == sorted(rules())
    assert {"edgebank", "localglobal", "popularity", "recency"} <= set(rules())
    assert "dsrd" not in rules()


@pytest.mark.parametrize("tau", [0.0, -1.0, math.nan])
def test_a_tau_that_is_not_positive_is_refused(tau: float) -> None:
    with pytest.raises(DsrdError, match=r"model\.tau=\S+: give a number above 0"):
        create("popularity", GraphSpec(), model_class("popularity").Config(tau=tau))
