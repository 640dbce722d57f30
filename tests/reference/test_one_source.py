"""One source with many targets: the compiled form against `score`, pair by pair; its parts against torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from dsrd.compiled import vectorised
from dsrd.estimator import first_score
from dsrd.evaluate.scoring import score_candidates
from dsrd.events import NULL, Query
from dsrd.history.past import Past
from dsrd.models.dsrd import first_features
from dsrd.models.dsrd.row_functions import cos_, exp_, gelu_row, log1p_row, sigmoid_
from reference.test_dsrd import make_model, stream


@vectorised
def each_exp(x: Any) -> None:
    for i in range(len(x)):
        x[i] = exp_(x[i])


@vectorised
def each_cos(x: Any) -> None:
    for i in range(len(x)):
        x[i] = cos_(x[i])


@vectorised
def each_sigmoid(x: Any) -> None:
    for i in range(len(x)):
        x[i] = sigmoid_(x[i])


@pytest.mark.parametrize(
    ("function", "plain", "low", "high"),
    [
        (each_exp, torch.exp, -80, 80),
        (each_cos, torch.cos, -200, 200),
        (each_sigmoid, torch.sigmoid, -90, 90),
        (gelu_row, torch.nn.functional.gelu, -30, 30),
        (log1p_row, lambda x: torch.log1p(x.clamp(min=0)), -1, 1e6),
    ],
)
def test_row_functions_round_as_float32_does(function: Any, plain: Any, low: float, high: float) -> None:
    x = np.concatenate([np.linspace(low, high, 20_001), np.linspace(-1, 1, 2_001)]).astype(np.float32)
    expected = plain(torch.from_numpy(x.copy()).double())
    function(x)
    error = (torch.from_numpy(x) - expected).abs() / expected.abs().clamp(min=1)
    assert float(error.max()) < 1e-6


def asked(model: Any, past: Past, source: int, time: float, targets: torch.Tensor, head: str = "") -> Any:
    """Scores of a source's pairs, and of the source with all targets."""
    ends = torch.full_like(targets, source), targets, torch.full(targets.shape, time, dtype=torch.float64)
    with torch.no_grad():
        return model.score(Query(*ends), past, head), model.score_many(source, targets, time, past, head)


TARGETS = torch.cat([torch.arange(1, 10).repeat(4), torch.tensor([500, 3])])


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"precision": "bfloat16"},
        {"neighbors": 3, "heads": 1, "layers": 1},
        {"scales": (1e-3, 1.0), "count_scales": (1e-2, 1e-1, 1.0)},
        {"scales": (0.1,), "count_scales": (0.1,)},
        {"code_dim": 8, "dim": 12, "layers": 3},
    ],
)
def test_scores_equal_those_of_pairs(settings: dict[str, Any]) -> None:
    data = stream(events=60)
    model = make_model(data, **settings)
    past = Past(data.events, edge_x=data.edge_x, node_x=data.node_x)
    model.observe(data.events[:30], past)
    for now in (past, past.during(data.events[30:])):
        for source, time, head in ((1, 40.0, ""), (2, float(data.events.time[45]), "pair"), (77, 40.0, "")):
            pairs, many = asked(model, now, source, time, TARGETS, head)
            assert torch.allclose(pairs, many, atol=2e-6)


def test_an_empty_past_and_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    data = stream(events=60)
    model = make_model(data)
    empty = Past(data.events[:0], edge_x=data.edge_x, node_x=data.node_x)
    assert torch.allclose(*asked(model, empty, 1, 3.0, TARGETS), atol=2e-6)
    past = Past(data.events, edge_x=data.edge_x, node_x=data.node_x)
    model.observe(data.events, past)
    whole, _ = asked(model, past, 1, 40.0, TARGETS)
    monkeypatch.setattr("dsrd.models.dsrd.many_targets.READ_AT_ONCE", 7)
    monkeypatch.setattr("dsrd.models.dsrd.many_targets.COMPUTED_AT_ONCE", 3)
    assert torch.allclose(model.score_many(1, TARGETS, 40.0, past), whole, atol=2e-6)


def test_what_cannot_be_shared_goes_pair_by_pair() -> None:
    """With a part left out, and in training, the compiled layers do not stand for the model."""
    data = stream()
    assert make_model(data).shares_source
    assert not make_model(data, ablate="no_diffusion").shares_source
    assert not make_model(data).train().shares_source


def test_rankings_of_an_evaluation_equal_those_of_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    data = stream()
    model, past = make_model(data), Past(data.events, edge_x=data.edge_x, node_x=data.node_x)
    model.observe(data.events[:30], past)
    wrong = torch.arange(1, 71).repeat(20, 1)
    wrong[3, 5:] = NULL
    now, true = past.during(data.events[30:]), data.events[30:].query()
    with torch.no_grad():
        shared = score_candidates(model, true, wrong, now, "")
        monkeypatch.setattr("dsrd.evaluate.scoring.MANY", 1_000)
        plain = score_candidates(model, true, wrong, now, "")
    assert torch.equal(shared.isneginf(), plain.isneginf())
    assert torch.allclose(shared[plain > -1e30], plain[plain > -1e30], atol=2e-6)


def test_first_features_are_what_the_state_says() -> None:
    """The first guess, the exact counts of the pair, and how long ago the target had an event."""
    data = stream(events=60)
    model = make_model(data)
    past = Past(data.events, edge_x=data.edge_x, node_x=data.node_x)
    model.observe(data.events[:30], past)
    now, source, targets = past.during(data.events[30:]), 2, torch.arange(1, 9)
    time = torch.full(targets.shape, 40.0, dtype=torch.float64)
    query = Query(torch.full_like(targets, source), targets, time)
    with torch.no_grad():
        reading = model.body.read(query, now, model.state)
        _, guess = model.body.represent(query, now, model.state)
    _, pieces = model.first_features(source, [targets], 40.0, now)
    features, fine = torch.cat(list(pieces)), len(model.body.fine)
    count, _ = model.body.reads.remembered(reading)  # [C, kinds, rates]
    start = first_features.ACT_KINDS * fine
    counts = features[:, start : start + first_features.KINDS * fine].view(len(targets), fine, -1)
    assert torch.allclose(counts, count.transpose(1, 2).log1p(), atol=1e-5)
    assert torch.allclose(features[:, -1], guess, atol=1e-5)
    acts = reading.node[1, :, 2 * len(model.body.rate) :]
    assert torch.allclose(features[:, :start], acts.log1p(), atol=1e-5)


def test_a_fitted_head_is_the_same_every_time_and_finds_the_best() -> None:
    data = stream(events=200, nodes=40)
    model = make_model(data, code_dim=32)
    past = Past(data.events, edge_x=data.edge_x, node_x=data.node_x)
    model.observe(data.events, past)
    sources, targets = torch.arange(1, 17), torch.arange(1, 40)
    first = first_score.fitted(model, sources, targets, 40.0, past)
    assert all(
        torch.equal(*pair)
        for pair in zip(
            vars(first).values(),
            vars(first_score.fitted(model, sources, targets, 40.0, past)).values(),
            strict=True,
        )
    )
    found = []
    for source in range(20, 30):
        exact = model.score_many(source, targets, 40.0, past)
        guess = first.guess(model, source, targets, 40.0, past)
        found.append(torch.isin(exact.topk(3).indices, guess.topk(15).indices).float().mean())
    assert float(torch.stack(found).mean()) > 0.8
