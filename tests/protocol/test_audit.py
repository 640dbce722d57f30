"""The audit: published shares of true negatives and ceilings, and small streams counted by hand."""

from __future__ import annotations

import json
from functools import cache

import numpy as np
import pytest

from dsrd.evaluate.audit import audit, grouping
from dsrd.evaluate.true_edges import TrueEdges
from dsrd.evaluate.unlearned import LastSeen, UnlearnedRules
from dsrd.events import Events
from dsrd.negatives.sampling import filled_up


@pytest.fixture(scope="module")
def real_audit(real_data):
    return cache(lambda name: audit(name, real_data(name).events))


@pytest.mark.parametrize(
    ("name", "true_share", "ap", "auc"),
    [("USLegis", 29.8, 77.71, 85.23), ("enron", 5.3, 95.39, 97.35), ("CanParl", 6.6, 93.93, 96.73)],
)
def test_ceiling_of_random_negatives(name, true_share, ap, auc, real_audit):
    figures = real_audit(name)["negatives"]["transductive"]["random"]
    assert round(100 * figures["true_at_that_time"], 1) == true_share
    assert round(figures["ceiling_ap"], 2) == ap
    assert round(figures["ceiling_auc"], 2) == auc


@pytest.mark.parametrize(
    ("name", "grouped"), [("USLegis", True), ("CanParl", True), ("enron", False), ("uci", False)]
)
def test_grouping_by_node_is_detected(name, grouped, real_audit):
    report = real_audit(name)
    assert report["grouping"]["grouped"] == grouped
    if grouped:
        assert report["seen_timestamp_share"] == pytest.approx(0.96, abs=0.005)
    assert json.loads(json.dumps(report)) == report


def test_historical_negatives_are_never_true_unless_filled_up(real_audit):
    figures = real_audit("uci")["negatives"]["transductive"]["historical"]
    shares = {"filled_up": 0.0, "true_at_that_time": 0.0, "equal_to_positive": 0.0}
    assert figures == shares | {"ceiling_ap": 100.0, "ceiling_auc": 100.0}


def test_on_snapshots_most_negatives_of_new_nodes_are_random_pairs(real_audit):
    """The test of USLegis is one snapshot: no pair of new nodes occurs before it, and no pair since validation."""
    parliament, messages = real_audit("USLegis")["negatives"], real_audit("uci")["negatives"]
    assert parliament["transductive"]["random"]["filled_up"] is None
    assert parliament["transductive"]["historical"]["filled_up"] == 0
    assert parliament["transductive"]["inductive"]["filled_up"] == 1
    assert parliament["inductive"]["historical"]["filled_up"] == 1
    assert messages["inductive"]["historical"]["filled_up"] < 0.1


@pytest.mark.parametrize(
    ("name", "last_active", "strangers_first", "inductive", "given_away"),
    [
        ("uci", 95.62, 98.44, 92.14, 0.4213),
        ("enron", 87.08, 89.52, 71.03, 0.1188),
        ("wikipedia", 92.84, 95.99, 89.26, 0.1618),
        ("CanParl", 79.16, 90.63, 71.33, 0.5437),
        ("USLegis", 72.07, 88.08, 58.57, 0.3398),
    ],
)
def test_rules_that_learn_nothing(name, last_active, strangers_first, inductive, given_away, real_audit):
    """Against historical negatives AP is above the best published one on uci, enron, wikipedia and CanParl."""
    report = real_audit(name)["unlearned"]
    assert report["historical"]["last_active_ap"] == pytest.approx(last_active, abs=0.006)
    assert report["historical"]["strangers_first_ap"] == pytest.approx(strangers_first, abs=0.006)
    assert report["inductive"]["strangers_first_ap"] == pytest.approx(inductive, abs=0.006)
    assert report["historical"]["given_away"] == pytest.approx(given_away, abs=6e-5)
    assert report["random"]["given_away"] == 0


def test_rules_on_a_stream_ranked_by_hand():
    """Source 1 was last seen as a source at time 1, node 2 in any role at time 2; 4 is a target seen at time 0."""
    stream = Events.from_numpy([3, 1, 2, 3], [4, 4, 5, 1], [0, 1, 2, 3])
    query = Events.from_numpy([1, 2, 1, 9], [4, 1, 1, 5], [2, 3, 3, 3]).query()
    # ages of sources: 1, 1, 2, never; of targets: 1 (node 4 at 1), 2 (node 1 at 1), 2, 1 (node 5 at 2)
    scores = UnlearnedRules(stream, TrueEdges(stream)).scores(query)
    assert scores["last_active"].tolist() == [2 + 1, 2 + 0, 1 + 0, 0 + 1]
    assert scores["strangers_first"].tolist() == [3, 2 + 4, 1 + 4, 1 + 4]  # only 1 and 4 had met


def test_last_event_before_a_time_is_that_of_a_plain_search():
    rng = np.random.default_rng(0)
    nodes, time = rng.integers(1, 9, 80), np.sort(rng.integers(0, 30, 80)).astype(float)
    asked, when = rng.integers(1, 12, 200), rng.integers(-1, 33, 200).astype(float)
    expected = [max(time[(nodes == n) & (time < t)], default=-np.inf) for n, t in zip(asked, when, strict=True)]
    assert LastSeen(nodes, time).before(asked, when).tolist() == expected


def test_events_are_given_away_if_their_pair_is_new_to_the_batch():
    """Of the six test events in batches of four, the last two are of new pairs; two old pairs can be drawn."""
    report = audit("toy", toy(), batch_size=2)["unlearned"]
    assert report["historical"]["given_away"] == pytest.approx(2 / 6)
    assert (
        audit("toy", toy(), batch_size=5)["unlearned"]["historical"]["given_away"] == 1 / 6
    )  # first batch filled up


def toy():
    """Forty events at forty times; the last six are the test."""
    pairs = [(1, 6), (2, 7), (3, 8), (4, 9)] * 9 + [(1, 6), (2, 7), (1, 9), (2, 6)]
    src, dst = np.array(pairs).T
    return Events.from_numpy(src, dst, np.arange(40))


def test_shares_counted_by_hand():
    report = audit("toy", toy(), batch_size=4)
    test = toy()[34:]
    trained = {(1, 6), (2, 7), (3, 8), (4, 9)}  # no node is withheld: a tenth of 8 nodes is none
    pairs = list(zip(test.src.tolist(), test.dst.tolist(), strict=True))
    assert pairs == [(3, 8), (4, 9), (1, 6), (2, 7), (1, 9), (2, 6)]
    assert report["repetition"]["pair_in_train"] == pytest.approx(sum(pair in trained for pair in pairs) / 6)
    assert report["repetition"]["pair_before"] == pytest.approx(4 / 6)
    assert report["repetition"]["surprise"] == pytest.approx(2 / 6)
    assert report["new_nodes"] == {"one_or_both": 0.0, "both": 0.0}
    assert report["seen_timestamp_share"] == 0.0
    assert report["grouping"] == {"grouped": False, "rows": 0, "observed": None, "expected": None}
    assert list(report["negatives"]) == ["transductive"]  # without new nodes there is no inductive pass


def test_random_pairs_that_fill_up_are_counted():
    """Three pairs meet at time 0, four at time 1, one of them again: two earlier pairs can be drawn."""
    stream = Events.from_numpy([1, 2, 3, 1, 1, 4, 4], [5, 6, 7, 6, 5, 7, 5], [0, 0, 0, 1, 1, 1, 1])
    assert filled_up(stream[:3], stream, batch_size=2) == 1
    assert filled_up(stream[3:], stream, batch_size=2) == 0
    assert filled_up(stream[3:], stream, batch_size=4) == 0.5
    assert filled_up(stream[3:], stream, last_observed=0.0, batch_size=2) == 1  # none is new since then


def test_expected_grouping_is_that_of_shuffled_rows():
    rng = np.random.default_rng(0)
    src, dst = rng.integers(1, 5, 60), rng.integers(5, 9, 60)
    time = np.sort(rng.integers(0, 4, 60))
    shares = []
    for _ in range(3000):
        order = np.lexsort((rng.random(60), time))
        shares.append(grouping(Events.from_numpy(src[order], dst[order], time))["observed"])
    expected = grouping(Events.from_numpy(src, dst, time))["expected"]
    assert np.mean(shares) == pytest.approx(expected, abs=5 * np.std(shares) / np.sqrt(3000))
