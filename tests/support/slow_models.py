"""Parts that slow versions of models share: a small stream, a model in double precision, a comparison."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from dsrd.config import overridden
from dsrd.data.dataset import Dataset
from dsrd.events import Query
from dsrd.history.past import Past
from dsrd.models import GraphSpec, TemporalModel, create, model_class


def stream(events: int = 60, nodes: int = 9) -> Dataset:
    generator = torch.Generator().manual_seed(5)
    src, dst = (torch.randint(1, nodes, (events,), generator=generator).numpy() for _ in range(2))
    time = torch.randint(0, 40, (events,), generator=generator).sort().values.double().numpy() * 50
    edge_x, node_x = torch.randn(events + 1, 3, generator=generator), torch.randn(nodes, 2, generator=generator)
    edge_x[0], node_x[0] = 0, 0
    return Dataset.from_arrays("toy", src, dst, time, edge_x=edge_x, node_x=node_x)


def build(name: str, data: Dataset, **settings: Any) -> TemporalModel:
    cls = model_class(name)
    torch.manual_seed(0)
    spec = GraphSpec(num_nodes=data.num_nodes, node_dim=data.node_dim, edge_dim=data.edge_dim)
    config = overridden(cls.Config(), {**cls.card.small, **settings})
    return create(name, spec, config).double().eval()


def history(data: Dataset, node: int, time: float) -> list[tuple[int, int, float]]:
    """(other endpoint, event id, time) of everything before `time`, oldest first."""
    found = []
    for src, dst, at, id in zip(*(column.tolist() for column in data.events.numpy()), strict=True):
        if at < time:
            found += [(dst, id, at)] * (src == node) + [(src, id, at)] * (dst == node)
    return found


def padded(x: Tensor, width: int) -> Tensor:
    return torch.cat([x.double(), torch.zeros(width - len(x)).double()])


def cosine(model: Any, dt: float) -> Tensor:
    return torch.cos(torch.tensor(dt).float() * model.time.rate + model.time.phase)


def head(model: Any, src: Tensor, dst: Tensor) -> Tensor:
    hidden = torch.relu(model.head.hidden.weight @ torch.cat([src, dst]) + model.head.hidden.bias)
    result: Tensor = model.head.out(hidden)[0]
    return result


def ask(model: TemporalModel, data: Dataset, past: Past) -> tuple[Query, Tensor]:
    rows = data.events[30:]
    query = Query.cat(rows.query(), Query(rows.src, rows.dst.flip(0), rows.time))
    return query, model.score(query, past)


def check(model: TemporalModel, found: Tensor, expected: Tensor) -> None:
    """Equal values and equal gradients of every parameter."""
    assert torch.allclose(found, expected, atol=1e-10)
    weights = [p for p in model.parameters() if p.requires_grad]
    ours = torch.autograd.grad(found.square().sum(), weights, retain_graph=True, allow_unused=True)
    theirs = torch.autograd.grad(expected.square().sum(), weights, allow_unused=True)
    for one, other in zip(ours, theirs, strict=True):
        assert (one is None) == (other is None)
        assert one is None or torch.allclose(one, other, atol=1e-8)
