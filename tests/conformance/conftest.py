"""What every model is checked on: a small stream with features, repeated timestamps, self-loops, new nodes."""

from __future__ import annotations

import pytest
import torch

from dsrd.data.dataset import Dataset
from dsrd.evaluate.task import Task
from dsrd.models import GraphSpec, TemporalModel, create, model_class, names, settings
from support.random_heads import with_random_heads


def make_stream(seed: int = 0, events: int = 400, nodes: int = 30, moments: int = 250) -> Dataset:
    generator = torch.Generator().manual_seed(seed)

    def pick(high: int) -> torch.Tensor:
        return torch.randint(1, high, (events,), generator=generator)

    src = pick(nodes)
    dst = torch.where(torch.rand(events, generator=generator) < 0.5, 1 + (src * 7) % (nodes - 1), pick(nodes))
    time = pick(moments).double().sort().values * 1000.0
    edge_x = torch.randn(events + 1, 3, generator=generator)
    node_x = torch.randn(nodes, 2, generator=generator)
    edge_x[0], node_x[0] = 0, 0
    return Dataset.from_arrays("toy", src.numpy(), dst.numpy(), time.numpy(), edge_x=edge_x, node_x=node_x)


@pytest.fixture(scope="session")
def stream() -> Dataset:
    return make_stream()


@pytest.fixture(scope="session")
def task(stream: Dataset) -> Task:
    return Task.of(stream)


def variants() -> list[str]:
    """Every model with its own defaults, and `model:preset` for each preset it declares."""
    return [
        variant for name in names() for variant in (name, *(f"{name}:{p}" for p in model_class(name).card.presets))
    ]


def parted(variant: str) -> tuple[str, str]:
    """(model, preset)"""
    name, _, preset = variant.partition(":")
    return name, preset or "default"


def build(variant: str, stream: Dataset, seed: int = 0, whole_moments: bool = False) -> TemporalModel:
    name, preset = parted(variant)
    torch.manual_seed(seed)
    spec = GraphSpec(
        num_nodes=stream.num_nodes,
        node_dim=stream.node_dim,
        edge_dim=stream.edge_dim,
        whole_moments=whole_moments,
    )
    model = create(name, spec, settings(name, stream.name, preset, model_class(name).card.small))
    model.calibrate(stream.events[:200])
    return with_random_heads(model)


@pytest.fixture(params=variants())
def name(request: pytest.FixtureRequest) -> str:
    variant = str(request.param)
    check = request.node.originalname.removeprefix("test_")
    reason = model_class(parted(variant)[0]).card.skips.get(check)
    if reason:
        pytest.skip(f"{variant}: {reason}")
    return variant


@pytest.fixture
def model(name: str, stream: Dataset) -> TemporalModel:
    return build(name, stream)
