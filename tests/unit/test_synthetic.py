"""Synthetic streams: their shape, their statistics, and that the oracle tells the truth about them."""

from __future__ import annotations

import doctest
from collections import Counter, deque
from math import sqrt

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.metrics import average_precision_score

from dsrd.data import oracle, synthetic
from dsrd.data.dataset import Dataset
from dsrd.data.oracle import Truth, true_probability
from dsrd.data.synthetic import SynthConfig, law_of, synth
from dsrd.data.synthetic_law import FRIENDS, PARTNERS, Law, friend, is_bursty, slot_of
from dsrd.errors import DsrdError

MODES = {
    "continuous": {},
    "snapshots": {"snapshots": 40},
    "bipartite": {"bipartite": True},
    "bipartite-snapshots": {"bipartite": True, "snapshots": 40},
}
every_mode = pytest.mark.parametrize("mode", MODES.values(), ids=MODES)


def arrays(data: Dataset) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    return data.events.numpy()[:3]


# --- Shape -------------------------------------------------------------------------------------------------------


@every_mode
def test_equal_configs_draw_equal_streams(mode):
    config = SynthConfig(events=2000, edge_dim=3, **mode)
    assert synth(config).digest == synth(config).digest
    assert synth(config).digest != synth(SynthConfig(events=2000, edge_dim=3, seed=1, **mode)).digest


@pytest.mark.parametrize(("mode", "digest"), zip(MODES.values(), PINNED, strict=True), ids=MODES)
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


def test_days_have_a_rhythm():
    _, _, time = arrays(synth(SynthConfig()))
    hour = (time / 3600 % 24).astype(int)
    assert np.isin(hour, [18, 19, 20]).sum() > 4 * np.isin(hour, [2, 3, 4]).sum()


@every_mode
@pytest.mark.parametrize("nodes", [0, 10, 1000])
def test_every_node_arrives_in_the_order_of_its_number(mode, nodes):
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


def test_labels_and_features_tell_bursts():
    data = synth(SynthConfig(edge_dim=8))
    assert data.label is not None
    burst = data.label.numpy() == 1  # [E]
    assert 0.2 < burst.mean() < 0.3
    features = data.edge_x.numpy()[1:]  # [E, 8]
    assert np.abs(features[burst].mean(axis=0) - features[~burst].mean(axis=0)).max() > 0.5


@pytest.mark.parametrize(
    ("field", "settings"),
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
def test_bad_settings_are_named(field, settings):
    with pytest.raises(DsrdError, match=rf"^synth: {field} is .*; \S.*$"):
        SynthConfig(**settings)


# --- Truth -------------------------------------------------------------------------------------------------------


class Table:
    """A small stream with the true probability of every pair before every event."""

    def __init__(self, **mode: object) -> None:
        self.config = SynthConfig(events=800, nodes=20, seed=3, **mode)
        self.data = synth(self.config)
        shape = (800, 22, 22)  # [row, src, dst]: also asks for nobody, and for a node that never arrives
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


def test_events_are_as_likely_as_they_claim(table):
    """Among the pairs that claim about the same probability, that share comes true; four sigmas of room."""
    for claimed, came_true in (
        (table.pair, table.came_true),
        (table.partner[table.came_true.any(axis=2)], table.came_true[table.came_true.any(axis=2)]),
    ):
        edges = np.array([0, 1e-9, 1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3, 0.999, 1.1])
        box = np.digitize(claimed, edges)
        for each in np.unique(box):
            p, hits = claimed[box == each], came_true[box == each].sum()
            assert abs(hits - p.sum()) <= 4 * sqrt((p * (1 - p)).sum()) + 1e-6


def test_log_likelihood_is_the_entropy(table):
    information = -np.log(table.pair, where=table.pair > 0, out=np.zeros_like(table.pair))
    entropy = (table.pair * information).sum(axis=(1, 2))  # [row]
    variance = (table.pair * information**2).sum(axis=(1, 2)) - entropy**2
    surprise = information[table.came_true] - entropy
    assert (table.pair[table.came_true] > 0).all()
    assert abs(surprise.sum()) < 4 * sqrt(variance.sum())


def slow_probability(law: Law, events: list[tuple[int, int]], horizon: int, row: int) -> Truth:
    """The specification: p(source, target) before event `row`, drawn from the first `horizon` events; [N, N]."""
    size = law.first_target + law.targets
    past, shared = events[:horizon], not law.bipartite
    offset = law.first_target - 1

    def arrived(until: int) -> tuple[int, int]:
        newest = [max((pair[end] for pair in events[:until]), default=0) for end in (0, 1)]
        return (max(newest), max(newest)) if shared else (newest[0], max(newest[1] - offset, 0))

    def hazard(count: int, total: int) -> float:
        share = (sqrt(row + 1) - sqrt(row)) / (sqrt(law.events) - sqrt(row))
        return min(1.0, (total - count) * share)
