"""DSRD's compiled passes against the same equations in plain torch: loss and every gradient."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from dsrd.compiled import compiled
from dsrd.config import overridden
from dsrd.data.dataset import Dataset
from dsrd.history.past import Past
from dsrd.models import GraphSpec, create, model_class
from dsrd.models.dsrd import encoder, vector_math, walk_body
from dsrd.models.dsrd.head import Head
from dsrd.negatives.sampling import TrainingNegatives

SETTINGS: list[dict[str, Any]] = [
    {},
    {"dim": 12, "heads": 3, "layers": 3, "time_dim": 7, "neighbors": 4},
    {"layers": 1, "dropout": 0.3, "stretch": 1.0},
    {"scales": (0.1,), "count_scales": (0.01, 1.0)},
    *(
        {"ablate": name}
        for name in ("no_block", "no_temporal_decay", "no_age_features", "no_diffusion", "no_state")
    ),
]


def stream(edge_dim: int, events: int = 300, nodes: int = 30) -> Dataset:
    """Bursts at one timestamp, self-loops, nodes without a past."""
    generator = torch.Generator().manual_seed(3)
    src = torch.randint(1, nodes, (events,), generator=generator)
    dst = torch.where(torch.arange(events) % 9 == 0, src, torch.randint(1, nodes, (events,), generator=generator))
    time = torch.randint(0, events // 2, (events,), generator=generator).sort().values.double()
    edge_x = torch.randn(events + 1, edge_dim, generator=generator)
    node_x = torch.randn(nodes + 3, 1, generator=generator)
    edge_x[0], node_x[0] = 0, 0
    return Dataset.from_arrays("toy", src, dst, time, edge_x=edge_x, node_x=node_x)


def loss_and_gradients(model: Any, data: Dataset) -> tuple[Tensor, dict[str, Tensor | None]]:
    """Of a batch after most events; dropout and the factor on ages are the same at every call."""
    model.zero_grad()
    torch.manual_seed(7)
    past = Past(data.events, edge_x=data.edge_x, node_x=data.node_x)
    batch = data.events[200:]
    loss = model.loss(batch, TrainingNegatives(data.events, seed=1), past.during(batch))
    loss.backward()
    return loss.detach(), {name: weight.grad for name, weight in model.named_parameters()}


def make_model(data: Dataset, **settings: Any) -> Any:
    """Calibrated, in training, with most events observed, and no weight at a special value."""
    cls = model_class("dsrd")
    torch.manual_seed(1)
    spec = GraphSpec(num_nodes=data.num_nodes, node_dim=data.node_dim, edge_dim=data.edge_dim)
    model: Any = create("dsrd", spec, overridden(cls.Config(), {**cls.card.small, **settings}))
    model.calibrate(data.events[:200])
    for weight in model.parameters():
        weight.data += 0.1 * torch.randn(weight.shape)
    model.observe(data.events[:200], Past(data.events, edge_x=data.edge_x, node_x=data.node_x))
    return model.train()


@pytest.mark.parametrize("edge_dim", [0, 3])
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_loss_and_gradients_equal_plain_torch(
    settings: dict[str, Any], edge_dim: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = stream(edge_dim)
    model = make_model(data, **settings)
    loss, gradients = loss_and_gradients(model, data)
    monkeypatch.setattr(walk_body, "encode", encoder.encode_plainly)
    monkeypatch.setattr(Head, "forward", Head.plainly)
    expected_loss, expected = loss_and_gradients(model, data)
    assert torch.allclose(loss, expected_loss, rtol=1e-5)
    for name, wanted in expected.items():
        gradient = gradients[name]
        assert (gradient is None) == (wanted is None), name
        if wanted is not None and gradient is not None:
            assert (gradient - wanted).abs().max() <= 1e-5 * max(1, wanted.abs().max()), name
    reached = sum(wanted is not None and bool(wanted.any()) for wanted in expected.values())
    assert reached > len(expected) // (4 if settings.get("ablate") == "no_block" else 2)


def test_gradients_are_those_of_differences() -> None:
    """Along a random direction of all weights together: independent of both forms' formulas."""
    data = stream(edge_dim=3)
    model = make_model(data)
    _, gradients = loss_and_gradients(model, data)
    generator = torch.Generator().manual_seed(5)
    along = {name: torch.randn(weight.shape, generator=generator) for name, weight in model.named_parameters()}
    slope = sum(float((along[name] * grad).sum()) for name, grad in gradients.items() if grad is not None)
    losses = []
    for step in (-1e-3, 1e-3):
        for name, weight in model.named_parameters():
            weight.data += step * along[name]
        losses.append(float(loss_and_gradients(model, data)[0]))
        for name, weight in model.named_parameters():
            weight.data -= step * along[name]
    assert (losses[1] - losses[0]) / 2e-3 == pytest.approx(slope, rel=2e-2)


@compiled
def values(x: Any, out: Any) -> None:
    for i in range(len(x)):
        out[0, i] = vector_math.exp(x[i])
        out[1, i] = vector_math.log(max(x[i], -x[i]) + np.float32(1e-6))
        out[2, i] = vector_math.log1p(max(x[i], -x[i]))
        out[3, i], out[4, i] = vector_math.sine_and_cosine(x[i])
        out[5, i] = vector_math.sigmoid(x[i])
        out[6, i], out[7, i] = vector_math.gelu_and_slope(x[i])


@pytest.mark.parametrize("size", [1e-3, 1.0, 30.0])
def test_elementary_functions(size: float) -> None:
    x = torch.linspace(-size, size, 2001)
    out = np.empty((8, len(x)), np.float32)
    values(x.numpy(), out)
    wide = x.double().requires_grad_()
    gelu = torch.nn.functional.gelu(wide)
    (slope,) = torch.autograd.grad(gelu.sum(), wide)
    log = torch.log(x.abs() + 1e-6).double()  # of the rounded sum
    wanted = [wide.exp(), log, wide.abs().log1p(), wide.sin(), wide.cos(), wide.sigmoid(), gelu, slope]
    for got, expected in zip(torch.from_numpy(out).double(), wanted, strict=True):
        assert torch.allclose(got, expected.detach(), rtol=1e-6, atol=5e-7)


def test_elementary_functions_keep_nan() -> None:
    x = np.array([np.nan], np.float32)
    out = np.empty((8, 1), np.float32)
    values(x, out)
    assert np.isnan(out[[3, 4, 6, 7]]).all()  # factors of what the model computes
