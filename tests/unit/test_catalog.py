from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dsrd.data import catalog
from dsrd.data.dataset import Dataset
from dsrd.data.describe import describe
from dsrd.data.read import load
from dsrd.errors import DsrdError


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("wikipedia", "wikipedia"),
        ("Wikipedia", "wikipedia"),
        ("us_legis", "USLegis"),
        ("uslegis", "USLegis"),
        ("Can. Parl.", "CanParl"),
        ("un-vote", "UNvote"),
        ("Social Evo.", "SocialEvo"),
        ("contact", "Contacts"),
        ("contacts", "Contacts"),
    ],
)
def test_find_ignores_case_and_punctuation(spelling, name):
    assert catalog.find(spelling).name == name


def test_an_unknown_name_gets_a_suggestion():
    with pytest.raises(DsrdError, match="did you mean 'wikipedia'"):
        catalog.find("wikipeda")


def test_the_catalogue_has_fourteen_benchmarks_and_pubmed():
    assert len(catalog.SPECS) == 15
    assert {spec.bipartite for spec in catalog.SPECS.values() if spec.step} == {False}
    assert [spec.name for spec in catalog.SPECS.values() if spec.url is None] == ["pubmed"]


@pytest.mark.parametrize("name", ["uci", "enron", "USLegis", "CanParl", "pubmed"])
def test_real_data_match_the_catalogue(real_data, name):
    dataset = real_data(name)
    assert catalog.check(dataset, catalog.find(name)) == []
    summary = describe(dataset)
    assert summary["bipartite"] is False
    assert summary["edge_dim"] == catalog.find(name).edge_dim


def test_real_wikipedia_matches_the_catalogue_except_for_its_features(real_data):
    dataset = real_data("wikipedia")
    assert [line for line in catalog.check(dataset, catalog.find("wikipedia")) if "features" not in line] == []
    assert describe(dataset)["labels"] == {"0": 157257, "1": 217}
    assert dataset.names is None
    assert int(dataset.events.dst.min()) == 8228


def test_check_describes_differences():
    dataset = Dataset.from_arrays("reddit", [1, 2], [2, 3], [0.0, 0.0])
    assert catalog.check(dataset, catalog.find("reddit")) == [
        "nodes: this copy has 3, the published one 10,984",
        "events: this copy has 2, the published one 672,447",
        "different timestamps: this copy has 1, the published one 669,065",
        "edge features: this copy has 0, the published one 172",
        "kind: this copy has one kind of nodes, the published one separate sources and targets",
    ]


ABSENT_HERE = ["reddit", "mooc", "lastfm", "myket", "SocialEvo", "Flights", "UNtrade", "UNvote", "Contacts"]


@pytest.mark.parametrize("name", ABSENT_HERE)
def test_raw_files_of_the_published_shape_are_read(name: str, tmp_path: Path):
    """Small files like the originals: one header name for all features, a column of zeros if there are none."""
    spec = catalog.find(name)
    rng = np.random.default_rng(0)
    users, items, events = 5, 4 if spec.bipartite else 5, 40
    src, dst = rng.integers(0, users, events), rng.integers(0, items, events)
    time = np.sort(rng.integers(0, 30, events)) * (spec.step or 1.0)
    features = rng.normal(size=(events, spec.edge_dim)) if spec.edge_dim else np.zeros((events, 1))
    lines = ["user_id,item_id,timestamp,state_label,comma_separated_list_of_features"]
    lines += [
        f"{s},{d},{t},0,{','.join(map(str, x))}" for s, d, t, x in zip(src, dst, time, features, strict=True)
    ]
    (tmp_path / name).mkdir()
    (tmp_path / name / f"{name}.csv").write_text("\n".join(lines) + "\n")

    dataset = load(spec.title, data_dir=tmp_path)

    assert dataset.name == name
    assert (dataset.bipartite, dataset.edge_dim, len(dataset.events)) == (spec.bipartite, spec.edge_dim, events)
    np.testing.assert_array_equal(dataset.events.src, src + 1)
    np.testing.assert_array_equal(dataset.events.dst, dst + 1 + (src.max() + 1 if spec.bipartite else 0))
    np.testing.assert_array_equal(dataset.events.time, time)
    if spec.edge_dim:
        np.testing.assert_array_equal(dataset.edge_x[1:], features.astype(np.float32))
    assert describe(dataset)["bipartite"] == spec.bipartite


def test_describe_counts_what_a_loop_counts():
    rng = np.random.default_rng(1)
    src, dst = rng.integers(1, 8, 60), rng.integers(1, 8, 60)
    time = np.sort(rng.integers(0, 20, 60)).astype(float)
    summary = describe(Dataset.from_arrays("loop", src, dst, time, label=rng.integers(0, 2, 60)))
    seen: set[tuple[int, int]] = set()
    repeats = 0
    for pair in zip(src.tolist(), dst.tolist(), strict=True):
        repeats += pair in seen
        seen.add(pair)
    assert summary["repeat_ratio"] == repeats / 60
    assert summary["self_loops"] == sum(a == b for a, b in zip(src, dst, strict=True))
    assert summary["timestamps"] == len(set(time))
    assert summary["nodes"] == len(set(src) | set(dst))
    assert sum(summary["labels"].values()) == 60
    assert summary["events_per_node"]["max"] == max(np.bincount(np.concatenate([src, dst])))
