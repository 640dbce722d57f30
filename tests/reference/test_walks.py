"""The retentive walk state against its definition: sums over all events before t, written out."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dsrd.compiled import compiled
from dsrd.config import overridden
from dsrd.errors import DsrdError
from dsrd.events import Events, Query
from dsrd.history.past import Past
from dsrd.models import GraphSpec, create, model_class
from dsrd.models.dsrd import DSRDConfig, walk_state
from dsrd.models.dsrd.bfloat16 import narrowed, widened, widened_row
from dsrd.models.dsrd.walk_body import FOLLOW_FIELDS, PAIR_FIELDS
from dsrd.models.dsrd.walk_queries import MEETINGS
from dsrd.train import checkpoint

RATES, SCALES = (1.0, 0.1), (1.0, 10.0)  # of walks; a scale is the inverse of a rate
FINE, COUNT_SCALES = (1.0, 0.25, 0.1), (1.0, 4.0, 10.0)  # of exact counts
WIDTH = 16


def sign_code(node: int) -> np.ndarray:
    code = np.empty(WIDTH, np.float32)
    walk_state.write_code(node, code)
    return code.astype(np.float64)


@dataclass
class NaiveState:
    """All events in a list; every quantity is computed as the sum over them.

    The age of an event is the number of events from its timestamp on, without the newest timestamp if moments are
    whole.
    """

    events: list[tuple[int, int, float]]
    whole_moments: bool = False

    def before(self, t: float) -> list[tuple[int, int, float]]:
        return [event for event in self.events if event[2] < t]

    def reading(self, time: float) -> int:
        """The clock at an event's time."""
        return len(self.before(time))

    def now(self, t: float) -> int:
        """The clock for a query at time t."""
        known = self.before(t)
        return self.reading(known[-1][2]) if known and self.whole_moments else len(known)

    def partners(self, node: int, events: list[tuple[int, int, float]]) -> list[tuple[int, float, int]]:
        """(partner, time, number of earlier events) of each event of a node; a self-loop counts once."""
        return [
            (dst if node == src else src, time, place)
            for place, (src, dst, time) in enumerate(events)
            if node in (src, dst)
        ]

    def step1(self, node: int, now: int, rate: float, events: list[tuple[int, int, float]]) -> np.ndarray:
        total = np.zeros(WIDTH)
        for partner, time, _ in self.partners(node, events):
            total += math.exp(-rate * (now - self.reading(time))) * sign_code(partner)
        return total

    def step2(self, node: int, now: int, rate: float, events: list[tuple[int, int, float]]) -> np.ndarray:
        total = np.zeros(WIDTH)
        for partner, time, place in self.partners(node, events):
            then = self.reading(time)
            total += math.exp(-2 * rate * (now - then)) * self.step1(partner, then, rate, events[:place])
        return total

    def pair(self, a: int, b: int, t: float) -> list[float]:
        events, now, values = self.before(t), self.now(t), []
        for rate in RATES:
            one, two = ([step(n, now, rate, events) for n in (a, b)] for step in (self.step1, self.step2))
            r = sign_code(a), sign_code(b)
            values += [
                r[0] @ two[1],
                two[0] @ r[1],
                one[0] @ one[1],
                one[0] @ two[1],
                two[0] @ one[1],
                two[0] @ two[1],
            ]
        forth, back = ([time for src, dst, time in events if (src, dst) == pair] for pair in ((a, b), (b, a)))
        of_first = [time for src, dst, time in events for end in (src, dst) if end == a]  # twice in a self-loop
        follows = self.follow(a, b, events)
        for rate in FINE:
            values += [self.decayed(times, rate, now) for times in (forth, back, follows, of_first)]
        return [*values, len(forth), len(back)]

    def decayed(self, times: list[float], rate: float, now: int) -> float:
        """Events at these times, counted with decay."""
        return sum(math.exp(-rate * (now - self.reading(time))) for time in times)

    def follow(self, w: int, v: int, events: list[tuple[int, int, float]]) -> list[float]:
        """When v came right after w among the partners of some node, whoever was the source."""
        times = []
        for node in {end for src, dst, _ in events for end in (src, dst)}:
            met = self.partners(node, events)
            times += [time for (a, *_), (b, time, _) in pairwise(met) if (a, b) == (w, v)]
        return times

    def node(self, node: int, t: float) -> list[float]:
        events, now, values = self.before(t), self.now(t), []
        for rate in RATES:
            values += [float(np.linalg.norm(step(node, now, rate, events))) for step in (self.step1, self.step2)]
        pairs = [{src, dst} for src, dst, _ in events]
        strangers = [pair not in pairs[:place] for place, pair in enumerate(pairs)]
        for rate in FINE:
            for among in ([True] * len(events), strangers):
                for role in (0, 1):
                    times = [e[2] for e, counts in zip(events, among, strict=True) if counts and e[role] == node]
                    values.append(self.decayed(times, rate, now))
        return values

    def window(self, node: int, t: float, k: int) -> list[tuple[int, bool, float]]:
        """(partner, whether the node was the source, time) of the latest events, newest first; a self-loop has one
        entry per role."""
        roles = [((dst, True, src, time), (src, False, dst, time)) for src, dst, time in self.before(t)]
        entries = [(partner, sent, time) for ends in roles for partner, sent, end, time in ends if end == node]
        return entries[::-1][:k]


@st.composite
def streams(draw: st.DrawFn) -> Events:
    count = draw(st.integers(1, 25))
    node = st.integers(1, 5)
    src, dst = (draw(st.lists(node, min_size=count, max_size=count)) for _ in range(2))
    time = sorted(draw(st.lists(st.integers(0, 12), min_size=count, max_size=count)))
    return Events.from_numpy(src, dst, time)


def make_model(precision: str = "float32", whole_moments: bool = False) -> object:
    cls = model_class("dsrd")
    sizes = {"code_dim": WIDTH, "neighbors": 4, "count_scales": COUNT_SCALES, "scales": SCALES}
    config = overridden(cls.Config(), {**cls.card.small, **sizes, "precision": precision})
    model = create("dsrd", GraphSpec(num_nodes=3, whole_moments=whole_moments), config)
    model.body.rate = torch.tensor(RATES, dtype=torch.float64)
    model.body.fine = torch.tensor(FINE, dtype=torch.float64)
    return model.eval()


def close(values: torch.Tensor, expected: list[float]) -> bool:
    """Equal up to the rounding of float32 sums, whose terms are as large as the largest entry."""
    wanted = torch.tensor(expected, dtype=torch.float64)
    return bool(((values.double() - wanted).abs() <= 2e-5 * (1 + wanted.abs().max())).all())


@settings(deadline=None, max_examples=40)
@given(streams(), st.integers(0, 25), st.booleans())
def test_readings_equal_the_sums_over_earlier_events(events: Events, observed: int, whole_moments: bool) -> None:
    """Some events observed (up to the end of a timestamp), the rest unobserved."""
    times, observed = events.time.tolist(), min(observed, len(events))
    while 0 < observed < len(events) and times[observed - 1] == times[observed]:
        observed += 1
    model, past = make_model(whole_moments=whole_moments), Past(events)
    model.observe(events[:observed], past)
    start = times[observed - 1] if observed else 0.0
    pairs = [(a, b, t) for t in (13.0, start + 2.0, start + 0.5) for a in (9, 2, 1) for b in (5, 3, 2)]
    src, dst, time = (torch.tensor(column) for column in zip(*pairs, strict=True))
    before = model.state.snapshot()
    reading = model.body.read(Query(src, dst, time.double()), past.during(events[observed:]), model.state)
    assert all(torch.equal(before[name], model.state[name]) for name in before)

    rows = list(zip(*(column.tolist() for column in events.numpy()[:3]), strict=True))
    naive = NaiveState(rows, whole_moments)
    for q, (a, b, t) in enumerate(pairs):
        assert close(reading.pair[q], naive.pair(a, b, t))
        for side, (node, other_node) in enumerate(((a, b), (b, a))):
            assert close(reading.node[side, q], naive.node(node, t))
            window, across = naive.window(node, t, 4), naive.window(other_node, t, 4)
            row = side * len(pairs) + q
            first, stop = reading.first[row : row + 2].tolist()
            assert stop - first == len(window)
            assert (reading.event[first:stop] > 0).all()
            distinct = reading.which[first:stop].unique().tolist()
            assert distinct == [*range(min(distinct, default=0), min(distinct, default=0) + len(distinct))]
            here, other = ([partner for partner, _, _ in each] for each in (window, across))
            for j, (partner, sent, moment) in enumerate(window):
                across_at_time = [(met, then) for met, _, then in across].count((partner, moment))
                at_time = [then for _, _, then in window].count(moment)
                assert close(reading.partner[reading.which[first + j]], naive.pair(partner, other_node, t))
                expected = [float(partner == other_node), here.count(partner), other.count(partner)]
                assert close(reading.counts[first + j], [*expected, across_at_time, at_time, j / 4, sent])


def test_the_state_does_not_depend_on_the_time_between_events() -> None:
    """Gaps between timestamps may be longer, shorter or very long: the state reads are the same."""
    rng = np.random.default_rng(3)
    src, dst, gap = rng.integers(1, 9, 200), rng.integers(1, 9, 200), rng.integers(0, 2, 200)
    readings = []
    for gaps in (gap, gap * 10.0 ** rng.integers(-3, 4, 200), np.where(np.arange(200) == 100, 1e9, gap)):
        gaps[100] = max(gaps[100], 1)
        events = Events.from_numpy(src, dst, np.cumsum(gaps))
        model, past = make_model(), Past(events)
        model.observe(events[:120], past)
        query = Query(events.src[:50], events.dst[50:100], events.time[150:].flip(0) + 0.5e-3)
        readings.append(model.body.read(query, past.during(events[120:]), model.state))
    for other in readings[1:]:
        assert torch.equal(readings[0].pair, other.pair)
        assert torch.equal(readings[0].node, other.node)
        assert not torch.equal(readings[0].age, other.age)


def test_with_whole_moments_the_newest_snapshot_has_not_decayed() -> None:
    """Two snapshots of fifty events: at the fastest rate only the newest one counts, and it counts fully."""
    rng = np.random.default_rng(4)
    src, dst = np.repeat([1, 3], 50), rng.integers(5, 9, 100)
    events = Events.from_numpy(src, dst, np.repeat([0.0, 1.0], 50))
    query = Query(torch.tensor([1, 3]), torch.tensor([2, 2]), torch.tensor([2.0, 2.0], dtype=torch.float64))
    sent = 2 * len(RATES)  # the column of events that a node sent, at the fastest rate
    counts = {}
    for whole in (False, True):
        model, past = make_model(whole_moments=whole), Past(events)
        model.observe(events, past)
        counts[whole] = model.body.read(query, past, model.state).node[0, :, sent]
    assert counts[True][1] == 50
    assert torch.cat([counts[True][:1], counts[False]]).max() < 1e-15


def test_codes_are_signs_of_length_one_and_nearly_orthogonal() -> None:
    codes = np.empty((400, 256), np.float32)
    for node in range(400):
        walk_state.write_code(node, codes[node])
    products = codes @ codes.T
    assert np.allclose(np.diag(products), 1, atol=1e-5)
    off = products[~np.eye(400, dtype=bool)]
    assert abs(off.mean()) < 0.002
    assert off.std() == pytest.approx(1 / 16, rel=0.05)


def partners_of(node: int, events: Events) -> list[int]:
    """In the order of the stream; a self-loop counts once."""
    ends = zip(events.src.tolist(), events.dst.tolist(), strict=True)
    return [dst if src == node else src for src, dst in ends if node in (src, dst)]


def test_the_table_grows_and_keeps_every_pair() -> None:
    rng = np.random.default_rng(0)
    events = Events.from_numpy(rng.integers(1, 200, 20_000), rng.integers(1, 200, 20_000), np.arange(20_000) / 100)
    model, past = make_model(), Past(events)
    for batch in events.batches(1_000):
        model.observe(batch, past)
    pairs, counts = np.unique(np.stack(events.numpy()[:2]), axis=1, return_counts=True)
    assert int(model.state["size"]) == pairs.shape[1]
    query = Query(torch.tensor(pairs[0]), torch.tensor(pairs[1]), torch.full((pairs.shape[1],), 1e3).double())
    assert model.body.read(query, past, model.state).pair[:, -MEETINGS].tolist() == counts.tolist()
    follows = {pair for node in range(1, 200) for pair in pairwise(partners_of(node, events))}
    assert int(model.state["follow_size"]) == len(follows)


BFLOAT16 = 2.0**-7  # between a number and the next one, relative


def test_bfloat16_walks_are_right_up_to_rounding() -> None:
    """Each value of a row is rounded at each of its node's events, so errors add up to that many steps at most.
    The exact counts stay exact."""
    rng = np.random.default_rng(1)
    events = Events.from_numpy(rng.integers(1, 6, 60), rng.integers(1, 6, 60), np.sort(rng.uniform(0, 12, 60)))
    models = [make_model(precision) for precision in ("float32", "bfloat16")]
    past = Past(events)
    for model in models:
        model.observe(events, past)
    single, half = (model.state for model in models)
    assert half["step1"].dtype == half["step2"].dtype == torch.bfloat16
    rounded = torch.bincount(
        torch.cat([events.src, events.dst]), minlength=len(single["step1"])
    )  # times, per node
    for name in ("step1", "step2"):
        largest = single[name].abs().amax(dim=2, keepdim=True).clamp(min=1)
        error = (half[name].float() - single[name]).abs() / largest
        assert (error <= BFLOAT16 * 2 * rounded[:, None, None]).all()
        assert error.max() > 0
    for name in ("acts", "last", "previous", *PAIR_FIELDS, *FOLLOW_FIELDS, "clock"):
        assert torch.equal(single[name], half[name])


def test_bfloat16_is_unbiased() -> None:
    """Rows that decay by a part in a thousand from one of their thousand events to the next. Rounded to nearest,
    they would stop at 256, where half a step is as much as an event adds; here they scatter about the true 632.

    Above 512 a step is 4 (in units of the code), a rounding has a variance of at most 4, and about 500 of them are
    remembered: the scatter is below 45. The mean is right within four of its standard errors.
    """
    model = make_model("bfloat16")
    model.body.rate = torch.tensor([1e-3, 1e-3], dtype=torch.float64) / 40  # 40 rows take their turns
    source, steps = np.tile(np.arange(1, 41), 1000), np.repeat(np.arange(1000), 40)
    events = Events.from_numpy(source, source + 100, steps)
    model.observe(events, Past(events))
    code = torch.tensor(np.stack([sign_code(node) for node in range(101, 141)]))  # [40, WIDTH]
    wanted = sum(math.exp(-1e-3 * age) for age in range(1000))
    result = model.state["step1"][1:41, 0].double() / code  # [40, WIDTH]
    scatter = result.std().item()
    assert scatter < 45
    assert abs(result.mean().item() - wanted) < 4 * scatter / math.sqrt(result.numel())


@compiled
def _both_ways(values: np.ndarray, random: np.ndarray, like: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    kept, back = np.empty_like(like), np.empty_like(values)
    for i in range(len(values)):
        kept[i] = narrowed(values[i], random[i], like[i])
        back[i] = widened(kept[i])
    return kept, widened_row(kept, back)


@pytest.mark.parametrize("kind", [np.int16, np.float32])
def test_bfloat16_compiled_equals_bfloat16_in_python(kind: type) -> None:
    rng = np.random.default_rng(0)
    values = (rng.normal(size=300) * 10.0 ** rng.integers(-20, 20, 300)).astype(np.float32)
    random, like = rng.integers(0, 2**64, 300, dtype=np.uint64), np.zeros(300, kind)
    kept, back = _both_ways(values, random, like)
    expected = [narrowed(*each) for each in zip(values, random, like, strict=True)]
    assert np.array_equal(kept, np.array(expected, kind))
    assert np.array_equal(back, [widened(each) for each in kept])
    assert np.array_equal(back, widened_row(kept, np.empty(300, np.float32)))
    assert np.allclose(back, values, rtol=2**-7 if kind is np.int16 else 0)


def test_bfloat16_scores_do_not_depend_on_the_batch_size() -> None:
    """An event is rounded in the same way in the overlay and in the state: reads are equal bit for bit."""
    rng = np.random.default_rng(2)
    events = Events.from_numpy(rng.integers(1, 9, 200), rng.integers(1, 9, 200), np.arange(200) / 10)
    past = Past(events)
    results = []
    for size in (1, 7, 200):
        model, readings = make_model("bfloat16"), []
        for batch in events.batches(size):
            before = model.state.snapshot()
            with torch.no_grad():
                readings.append(model.body.read(batch.query(), past.during(batch), model.state).pair)
            assert all(torch.equal(before[name], model.state[name]) for name in before)
            model.observe(batch, past)
        results.append((torch.cat(readings), model.state.snapshot()))
    for pair, state in results[1:]:
        assert torch.equal(pair, results[0][0])
        assert all(
            torch.equal(state[name], results[0][1][name])
            for name in ("step1", "step2", "acts", "last", "previous")
        )


def test_bfloat16_round_trip(tmp_path: Path) -> None:
    events = Events.from_numpy([1, 2, 3, 1], [2, 3, 1, 2], [0.0, 1.0, 2.0, 2.5])
    model, other, past = make_model("bfloat16"), make_model("bfloat16"), Past(events)
    model.observe(events, past)
    checkpoint.save(tmp_path / "state.safetensors", {"state": model.state.snapshot()}, {})
    other.state.restore(checkpoint.load(tmp_path / "state.safetensors")[0]["state"])
    assert all(torch.equal(model.state[name], other.state[name]) for name in model.state.fields)
    for each in (model, other):
        each.observe(Events.from_numpy([3], [2], [4.0]), past)
    assert torch.equal(model.state["step2"], other.state["step2"])
    with pytest.raises(DsrdError, match="settings it was written with"):
        make_model("float32").state.restore(model.state.snapshot())


@pytest.mark.parametrize(("precision", "per_node"), [("float32", 6256), ("bfloat16", 3184)])
def test_bytes_are_as_documented(precision: str, per_node: int) -> None:
    """docs/explanation/dsrd.md: bytes per node and per slot of the default settings, rows made when ids arrive."""
    model = create("dsrd", GraphSpec(num_nodes=1_000_000), overridden(DSRDConfig(), {"precision": precision}))
    table, sizes = 1024 * 44, 8 + 8 + 24  # of both tables, and the clock
    assert model.state.nbytes() == per_node + 2 * table + sizes  # the row of NULL
    events = Events.from_numpy(range(1, 601), range(2, 602), range(600))  # ids below 1024
    model.observe(events, Past(events))  # 600 pairs: 2048 slots; up to 1200 successions: 4096 slots
    assert model.state.nbytes() == 1024 * per_node + (2 + 4) * table + sizes
