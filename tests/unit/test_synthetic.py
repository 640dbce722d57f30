"""Synthetic streams: their shape, their statistics, and that the oracle's probabilities are true."""

from __future__ import annotations

import doctest
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from math import sqrt

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.metrics import average_precision_score

from dsrd.data.dataset import Dataset
from dsrd.errors import DsrdError
from dsrd.synthetic import drawing, oracle, settings
from dsrd.synthetic.drawing import synth
from dsrd.synthetic.law import FRIENDS, PARTNERS, friend, is_bursty, law_of, slot_of
from dsrd.synthetic.oracle import true_probability
from dsrd.synthetic.settings import SynthConfig

MODES = {
    "continuous": {},
    "snapshots": {"snapshots": 40},
    "bipartite": {"bipartite": True},
    "bipartite-snapshots": {"bipartite": True, "snapshots": 40},
}
PINNED = ["efab1d1cb70ad55f", "d7f146ee45c0adcd", "1cb75254ed550c73", "7484488c7dd7d795"]
every_mode = pytest.mark.parametrize("mode", MODES.values(), ids=MODES)


def arrays(data: Dataset) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    return data.events.numpy()[:3]


# --- Shape -------------------------------------------------------------------------------------------------------


def test_settings_load_without_numba():
    script = "import sys, dsrd.synthetic.settings; print('numba' in sys.modules, 'torch' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert result.stdout.split() == ["False", "False"]


@every_mode
def test_equal_configs_draw_equal_streams(mode):
    config = SynthConfig(events=2000, edge_dim=3, **mode)
    assert synth(config).digest == synth(config).digest
    assert synth(config).digest != synth(SynthConfig(events=2000, edge_dim=3, seed=1, **mode)).digest


@pytest.mark.parametrize(("mode", "digest"), [*zip(MODES.values(), PINNED, strict=True)], ids=MODES)
def test_the_stream_is_the_same_on_every_machine(mode, digest):
    assert synth(SynthConfig(events=1000, edge_dim=2, **mode)).digest == digest


def test_continuous_times_increase_strictly_within_the_span():
    for days in (0.3, 30.0):
        _, _, time = arrays(synth(SynthConfig(events=50_000, days=days)))
        assert time[0] == 0
        assert (np.diff(time) > 0).all()
        assert 0.99 * days * 86_400 < time[-1] < days * 86_400


def test_snapshot_times_are_the_numbers_of_the_snapshots():
    _, _, time = arrays(synth(SynthConfig(events=5000, snapshots=30)))
    assert np.array_equal(np.unique(time), np.arange(30))


def test_evenings_are_busier_than_nights():
    _, _, time = arrays(synth(SynthConfig()))
    hour = (time / 3600 % 24).astype(int)
    assert np.isin(hour, [18, 19, 20]).sum() > 4 * np.isin(hour, [2, 3, 4]).sum()


@every_mode
@pytest.mark.parametrize("nodes", [0, 10, 1000])
def test_nodes_arrive_in_the_order_of_their_ids(mode, nodes):
    config = SynthConfig(events=1000, nodes=nodes, **mode)
    src, dst, _ = arrays(synth(config))
    ends = [src, dst] if config.bipartite else [np.stack([src, dst], axis=1).ravel()]
    first = 1
    for end in ends:
        ids, seen_at = np.unique(end, return_index=True)
        assert np.array_equal(ids, np.arange(first, first + len(ids)))
        assert (np.diff(seen_at) > 0).all()
        first += len(ids)
    assert first - 1 == config.num_nodes
    assert (src != dst).all()


def test_labels_mark_bursts_and_features_differ_in_them():
    data = synth(SynthConfig(edge_dim=8))
    assert data.label is not None
    burst = data.label.numpy() == 1  # [E]
    assert 0.2 < burst.mean() < 0.3
    features = data.edge_x.numpy()[1:]  # [E, 8]
    assert np.abs(features[burst].mean(axis=0) - features[~burst].mean(axis=0)).max() > 0.5


@pytest.mark.parametrize(
    ("field", "options"),
    [
        ("events", {"events": 99}),
        ("events", {"events": 1e4}),
        ("nodes", {"nodes": 9}),
        ("nodes", {"events": 100, "nodes": 101}),
        ("snapshots", {"snapshots": 1}),
        ("snapshots", {"events": 100, "snapshots": 101}),
        ("days", {"days": 0.0}),
        ("days", {"days": float("nan")}),
        ("seed", {"seed": -1}),
        ("edge_dim", {"edge_dim": -1}),
        ("gradual", {"gradual": -0.1}),
        ("closure", {"closure": 1.1}),
        ("explore", {"explore": 0.0}),
        ("burst", {"burst": 1.0, "gradual": 0.0, "closure": 0.0}),
        ("burst", {"burst": 0.5, "gradual": 0.4, "closure": 0.2}),
    ],
)
def test_a_bad_setting_is_named_in_the_error(field, options):
    with pytest.raises(DsrdError, match=rf"^synth\.{field}=.*: \S.*$"):
        SynthConfig(**options)


# --- Truth -------------------------------------------------------------------------------------------------------


class Table:
    """A small stream with the true probability of every pair before every event."""

    def __init__(self, **mode: object) -> None:
        self.config = SynthConfig(events=800, nodes=20, seed=3, **mode)
        self.data = synth(self.config)
        shape = (800, 22, 22)  # [row, src, dst]: with node 0, and with a node that never arrives
        row, src, dst = (index.ravel() for index in np.indices(shape))
        truth = true_probability(self.config, self.data.events, row, src, dst)
        self.partner, self.pair = truth.partner.reshape(shape), truth.pair.reshape(shape)
        self.came_true = np.zeros(shape, dtype=bool)
        self.came_true[np.arange(800), *arrays(self.data)[:2]] = True


@pytest.fixture(scope="module", params=MODES.values(), ids=MODES)
def table(request):
    return Table(**request.param)


def test_probabilities_sum_to_one(table):
    assert table.pair.min() >= 0
    np.testing.assert_allclose(table.pair.sum(axis=(1, 2)), 1, atol=1e-9)
    source = table.pair.sum(axis=2)  # [row, src]
    np.testing.assert_allclose(table.partner.sum(axis=2), source > 0, atol=1e-9)
    np.testing.assert_allclose(table.partner * source[..., None], table.pair, atol=1e-12)


def worst_deviation(claimed: NDArray[np.float64], came_true: NDArray[np.bool_]) -> float:
    """Group claims of similar size; the largest deviation of a group's hits from its claims, in sigmas."""
    group = np.digitize(claimed, [1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3])
    hits, expected = np.bincount(group, came_true), np.bincount(group, claimed)
    variance = np.bincount(group, claimed * (1 - claimed))
    tested = variance > 5  # a group with few expected hits is not normally distributed
    assert tested.sum() >= 3
    return float(np.abs((hits - expected)[tested] / np.sqrt(variance[tested])).max())


def test_events_occur_as_often_as_their_probability_says(table):
    met = table.came_true.any(axis=2)  # [row, src]
    assert not table.came_true[table.pair == 0].any()
    assert worst_deviation(table.pair.ravel(), table.came_true.ravel()) < 4
    assert worst_deviation(table.partner[met].ravel(), table.came_true[met].ravel()) < 4


def test_log_likelihood_equals_the_entropy_within_four_sigmas(table):
    information = -np.log(table.pair, where=table.pair > 0, out=np.zeros_like(table.pair))
    entropy = (table.pair * information).sum(axis=(1, 2))  # [row]
    variance = (table.pair * information**2).sum(axis=(1, 2)) - entropy**2
    assert abs((information[table.came_true] - entropy).sum()) < 4 * sqrt(variance.sum())


@every_mode
@pytest.mark.parametrize("share", ["burst", "gradual", "closure", "explore"])
def test_the_true_law_explains_the_stream_best(mode, share, monkeypatch):
    """An oracle that is wrong in one part would find a slightly different law more likely."""
    monkeypatch.setattr(oracle, "_check_stream", lambda *_: None)
    config = SynthConfig(seed=1, **mode)
    events = synth(config).events

    def likelihood(factor: float) -> float:
        other = replace(config, **{share: factor * getattr(config, share)})
        return float(np.log(true_probability(other, events).pair).sum())

    assert likelihood(1.0) > max(likelihood(0.8), likelihood(1.25)) + 10


class SlowLaw:
    """The slow twin of the oracle: the law on lists and counters, from scratch for every event."""

    def __init__(self, config: SynthConfig, data: Dataset) -> None:
        src, dst, time = (values.tolist() for values in arrays(data))
        self.law, self.events = law_of(config), list(zip(src, dst, strict=True))
        event_by_event = [not config.snapshots or t == time[0] for t in time]
        self.history = [row if event_by_event[row] else time.index(t) for row, t in enumerate(time)]
        self.starts_burst: list[bool] = []
        for row, pair in enumerate(self.events):
            self.starts_burst.append(is_bursty(self.law, *pair) and pair not in self.active_bursts(row).values())

    def active_bursts(self, row: int) -> dict[int, tuple[int, int]]:
        past = zip(self.events[: self.history[row]], self.starts_burst, strict=False)
        return {slot_of(self.law, *pair): pair for pair, started in past if started}

    def sides(self, events: list[tuple[int, int]]) -> tuple[list[int], list[int]]:
        sources, targets = {u for u, _ in events}, {v for _, v in events}
        return (sorted(sources), sorted(targets)) if self.law.bipartite else (sorted(sources | targets),) * 2

    def arrivals(self, row: int) -> Counter[tuple[int | None, int | None]]:
        """Probabilities of (new source, new target), None for an end that has already arrived."""
        sources, targets = (len(side) for side in self.sides(self.events[:row]))
        share = (sqrt(row + 1) - sqrt(row)) / (sqrt(self.law.events) - sqrt(row))
        p, q = min(1, (self.law.sources - sources) * share), min(1, (self.law.targets - targets) * share)
        u, v = sources + 1, self.law.first_target + targets
        if row == 0:
            return Counter({(1, self.law.first_target if self.law.bipartite else 2): 1.0})
        if not self.law.bipartite:
            return Counter({(u, None): p / 2, (None, v): p / 2, (None, None): 1 - p})
        return Counter(
            {(u, v): p * q, (u, None): p * (1 - q), (None, v): (1 - p) * q, (None, None): (1 - p) * (1 - q)}
        )

    def recent(self, past: list[tuple[int, int]], end: int) -> dict[int, float]:
        known, window = self.sides(past)[end], [pair[end] for pair in past[-self.law.window :]]
        explore = self.law.explore
        return {v: explore / len(known) + (1 - explore) * window.count(v) / len(window) for v in known}

    def partners(self, past: list[tuple[int, int]], node: int) -> list[int]:
        met = [v if node == u else u for u, v in past if node in (u, v)]
        return [v for v, before in zip(met, [None, *met], strict=False) if v != before][-PARTNERS:]

    def targets(self, past: list[tuple[int, int]], source: int) -> Counter[int]:
        ends: Counter[int] = Counter()
        for which in range(FRIENDS):
            ends[friend(self.law, source, which)] += self.law.gradual / FRIENDS
        walks = {source: self.law.closure}
        for _ in range(3 if self.law.bipartite else 2):
            longer: Counter[int] = Counter()
            for node, chance in walks.items():
                for partner in self.partners(past, node):
                    longer[partner] += chance / len(self.partners(past, node))
            walks = longer
        ends.update(walks)
        popular = {v: p for v, p in self.recent(past, 1).items() if v != source}
        chances = Counter({v: p for v, p in ends.items() if v in popular})
        rest = 1 - sum(chances.values())
        chances.update({v: rest * p / sum(popular.values()) for v, p in popular.items()})
        return chances

    def pairs(self, row: int) -> Counter[tuple[int, int]]:
        """The probability of every pair to be event `row`."""
        past, chances = self.events[: self.history[row]], Counter()
        for (new_source, new_target), chance in self.arrivals(row).items():
            no_burst = chance
            if new_source is None and new_target is None:
                for pair in self.active_bursts(row).values():
                    chances[pair] += chance * self.law.burst / self.law.slots
                    no_burst -= chance * self.law.burst / self.law.slots
            sources = {new_source: 1.0} if new_source else self.recent(past, 0)
            for u, p in sources.items():
                for v, q in {new_target: 1.0}.items() if new_target else self.targets(past, u).items():
                    chances[u, v] += no_burst * p * q
        return chances


@every_mode
def test_oracle_agrees_with_the_slow_law(mode):
    config = SynthConfig(events=300, nodes=20, seed=11, **mode)
    data = synth(config)
    slow = SlowLaw(config, data)
    assert slow.active_bursts(299)
    for row in (0, 1, 2, 5, 20, 90, 150, 299):
        src, dst = (index.ravel() for index in np.indices((22, 22)))
        truth = true_probability(config, data.events, np.full(len(src), row), src, dst)
        chances = slow.pairs(row)
        expected = [chances[pair] for pair in zip(src.tolist(), dst.tolist(), strict=True)]
        np.testing.assert_allclose(truth.pair, expected, atol=1e-12)


def test_queries_come_in_any_order_and_need_only_the_past():
    config = SynthConfig(events=1000, snapshots=10)
    events = synth(config).events
    truth = true_probability(config, events)
    row = np.random.default_rng(0).permutation(500)
    shuffled = true_probability(config, events[:500], row)
    assert np.array_equal(shuffled.pair, truth.pair[row])
    assert np.array_equal(shuffled.partner, truth.partner[row])


@pytest.mark.parametrize(
    ("problem", "config", "queries"),
    [
        ("event 2 is not what seed 1 draws", SynthConfig(events=1000, seed=1), ()),
        ("1000 events, but the config draws 500", SynthConfig(events=500), ()),
        ("row is 1000", SynthConfig(events=1000), ([0, 1000],)),
        ("row is -1", SynthConfig(events=1000), ([-1],)),
        ("one entry per query", SynthConfig(events=1000), ([0, 1], [1])),
    ],
)
def test_a_bad_query_is_named_in_the_error(problem, config, queries):
    with pytest.raises(DsrdError, match=problem):
        true_probability(config, synth(SynthConfig(events=1000)).events, *queries)


# --- Statistics --------------------------------------------------------------------------------------------------


def seen_before(key: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether the key occurred before.  # [E]"""
    seen = np.ones(len(key), dtype=bool)
    seen[np.unique(key, return_index=True)[1]] = False
    return seen


@pytest.mark.parametrize("options", [{}, {"snapshots": 30}, {"events": 100_000}], ids=str)
def test_the_end_of_the_stream_can_be_predicted_but_not_by_memory_alone(options):
    config = SynthConfig(**options)
    data = synth(config)
    src, dst, _ = arrays(data)
    row = np.arange(int(0.85 * len(src)), len(src))  # [T]
    wrong = np.random.default_rng(0).integers(1, data.num_nodes, len(row))  # [T]
    queries = np.tile(row, 2), np.tile(src[row], 2), np.concatenate([dst[row], wrong])
    truth = np.repeat([1, 0], len(row))
    best = average_precision_score(truth, true_probability(config, data.events, *queries).partner)
    met = set(zip(src[: row[0]].tolist(), dst[: row[0]].tolist(), strict=True))
    memory = [pair in met for pair in zip(*(values.tolist() for values in queries[1:]), strict=True)]
    assert 0.93 < best < 0.99
    assert best > average_precision_score(truth, memory) + 0.15

    again = seen_before(src * data.num_nodes + dst)
    assert 0.4 < again[row].mean() < 0.7
    newest = np.maximum(src, dst)
    assert 0.03 < 1 - newest[: row[0]].max() / newest.max() < 0.15


def test_bursts_have_shorter_gaps_than_lifelong_friends():
    data = synth(SynthConfig())
    assert data.label is not None
    src, dst, time = arrays(data)
    gaps: dict[bool, list[float]] = {True: [], False: []}
    last: dict[tuple[int, int], float] = {}
    for u, v, t, label in zip(src.tolist(), dst.tolist(), time.tolist(), data.label.tolist(), strict=True):
        if (u, v) in last:
            gaps[label == 1].append(t - last[u, v])
        last[u, v] = t
    assert np.median(gaps[False]) > 8 * np.median(gaps[True])


@pytest.mark.parametrize("module", [settings, drawing, oracle])
def test_examples(module):
    assert doctest.testmod(module).failed == 0
