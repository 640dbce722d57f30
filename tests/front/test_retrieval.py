"""`partners` with a shortlist: what it finds, what probabilities add up to, when all targets are scored."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import dsrd
from dsrd.errors import DsrdError
from dsrd.estimator import first_score, ranking
from dsrd.estimator.ranking import drawn, is_retrieved, recent_sources
from dsrd.history.past import Past
from dsrd.live import Engine


@pytest.fixture(scope="module")
def model() -> dsrd.LinkPredictor:
    return dsrd.LinkPredictor(epochs=1, dim=8, seed=1).fit("synth:events=1500,nodes=300", progress=False)


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes at which a small stream needs retrieval."""
    for name, size in {"RETRIEVED_FROM": 60, "SHORTLIST": 40, "SAMPLED": 30}.items():
        monkeypatch.setattr(ranking, name, size)
    for name, size in {"SOURCES": 16, "SCORED": 64, "STEPS": 200}.items():
        monkeypatch.setattr(first_score, name, size)


def test_the_best_are_found_and_the_sum_of_the_rest_is_estimated(
    model: dsrd.LinkPredictor, capsys: pytest.CaptureFixture[str]
) -> None:
    sources = model.nodes[:8]
    found = model.partners(sources, k=5, progress=True)
    noted = capsys.readouterr().err
    exact = model.partners(sources, k=5, exact=True, progress=True)
    assert "first score" in noted
    assert "first score" not in capsys.readouterr().err
    assert found.columns == exact.columns
    both = {(row["source"], row["target"]): row for row in exact}
    common = [(row, both[row["source"], row["target"]]) for row in found if (row["source"], row["target"]) in both]
    assert len(common) >= 0.9 * len(exact)
    for one, other in common:
        assert one["probability"] == pytest.approx(other["probability"], rel=1e-4), "scored by the full model"
        assert one["partner"] == pytest.approx(other["partner"], rel=0.2)
        assert one["surprise"] - other["surprise"] == pytest.approx(
            np.log2(other["partner"] / one["partner"]), abs=1e-6
        )


def test_an_earlier_time_is_asked_with_the_same_first_score(model: dsrd.LinkPredictor) -> None:
    online = model.fitted.online
    early = float(online.stream.dataset().events.time[1200])
    found, exact = (model.partners(model.nodes[0], k=3, at=early, exact=way) for way in (False, True))
    assert len(set(found["target"]) & set(exact["target"])) >= 2


def test_when_the_best_are_retrieved(model: dsrd.LinkPredictor) -> None:
    assert is_retrieved(model.module, 100, k=5, exact=False)
    assert not is_retrieved(model.module, 100, k=5, exact=True)
    assert not is_retrieved(model.module, 59, k=5, exact=False)
    assert not is_retrieved(model.module, 100, k=20, exact=False), "a shortlist of most targets saves nothing"
    rule = dsrd.LinkPredictor("edgebank").fit("synth:events=600", progress=False)
    assert not is_retrieved(rule.module, 10_000, k=5, exact=False), "no cheap first score"


def test_the_first_score_is_fitted_once_until_the_stream_has_doubled(model: dsrd.LinkPredictor) -> None:
    online = model.fitted.online
    first = online.first_score()
    assert online.first_score() is first
    online._retrieval._fitted = (online.stream.num_events // 2, first)
    assert online.first_score() is not first


def test_sources_to_fit_to_are_new_ones_some_others_and_an_unknown_one(model: dsrd.LinkPredictor) -> None:
    index = model.fitted.online.past.index
    *known, unknown = recent_sources(index, 10).tolist()
    latest = index.time[index.start[known] + index.length[known] - 1]
    assert len(set(known)) == 9
    assert latest[:5].min() >= latest[5:].max()
    assert unknown == len(index.start)


def test_of_two_sides_only_sources_are_fitted_to() -> None:
    stream = dsrd.load("synth:events=600,bipartite=true")
    *known, _ = recent_sources(Past(stream.events).index, 16).tolist()
    assert set(known) <= set(stream.events.src.tolist())


def test_rows_are_drawn_in_proportion() -> None:
    logits = torch.tensor([0.0, 2.0, -torch.inf, 1.0]).double().log_softmax(0)
    counts = torch.bincount(drawn(logits), minlength=4)
    assert torch.allclose(counts / counts.sum(), logits.exp().float(), atol=0.05)
    assert int(counts[2]) == 0


def test_a_live_engine_retrieves_too(model: dsrd.LinkPredictor, tmp_path: Path) -> None:
    model.save(tmp_path / "run")
    with Engine(tmp_path / "live", tmp_path / "run") as engine:
        node = model.nodes[0]
        found, exact = engine.partners(node, 5), engine.partners(node, 5, exact=True)
        assert len(set(found.target) & set(exact.target)) >= 4
        offline = model.partners(node, k=5, exact=True)
        assert exact.target == offline["target"]
        assert exact.answer.partner == pytest.approx(offline["partner"], rel=1e-4)
        with pytest.raises(DsrdError, match="k=0"):
            engine.partners(node, 0)
