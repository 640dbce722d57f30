"""TGAT against the recursion written out: one node, one time, one head at a time."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from dsrd.data.dataset import Dataset
from dsrd.events import Query
from dsrd.history.past import Past
from support.slow_models import build, check, cosine, head, history, padded, stream


def double_past(data: Dataset) -> Past:
    return Past(data.events, edge_x=data.edge_x.double(), node_x=data.node_x.double())


def neighbours(model: Any, data: Dataset, past: Past, node: int, time: float) -> list[tuple[int, int, float]]:
    """(other endpoint, event id, time): the newest, or what the past draws when asked about this node alone."""
    k = model.config.neighbors
    if model.config.sampling == "recent":
        return history(data, node, time)[-k:]
    drawn = past.uniform(torch.tensor([node]), torch.tensor([time]).double(), k)
    rows = zip(drawn.node[0].tolist(), drawn.event[0].tolist(), drawn.time[0].tolist(), strict=True)
    return [row for row in rows if row[1]]


def attended(attention: Any, own: Tensor, met: list[Tensor]) -> Tensor:
    """Weighted sum of the neighbours' values, head after head; zero without neighbours."""
    width = attention.head_dim
    if not met:
        return own.new_zeros(attention.heads * width)
    query, parts = attention.query(own), []
    for h in range(attention.heads):
        span = slice(h * width, (h + 1) * width)
        keys = [attention.key.weight[span] @ x for x in met]
        weight = torch.stack([query[span] @ key / math.sqrt(width) for key in keys]).exp()
        values = [attention.value.weight[span] @ x for x in met]
        parts.append(sum(w * value for w, value in zip(weight / weight.sum(), values, strict=True)))
    return torch.cat([part for part in parts if isinstance(part, Tensor)])


def embed(model: Any, data: Dataset, past: Past, node: int, time: float, layer: int) -> Tensor:
    x = padded(data.node_x[node] if node < len(data.node_x) else data.node_x[0], model.dim)
    if layer == 0:
        return x
    attention, merge = model.attention[layer - 1], model.merge[layer - 1]
    own = torch.cat([embed(model, data, past, node, time, layer - 1), cosine(model, 0.0)])
    links = neighbours(model, data, past, node, time)
    if not links and model.config.attend_padding:
        links = [(0, 0, 0.0)] * model.config.neighbors
    met = []
    for other, event, at in links:
        if model.config.hop_time == "float32":
            at = float(torch.tensor(at).float())
        below = embed(model, data, past, other, at, layer - 1)
        met.append(torch.cat([below, cosine(model, time - at), padded(data.edge_x[event], model.dim)]))
    read = attention.norm(attention.mix(attended(attention, own, met)) + own)
    hidden = torch.relu(merge.hidden.weight @ torch.cat([read, x]) + merge.hidden.bias)
    result: Tensor = merge.out(hidden)
    return result


@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("sampling", ["recent", "uniform"])
@pytest.mark.parametrize("attend_padding", [False, True])
def test_tgat(layers: int, sampling: str, attend_padding: bool) -> None:
    data = stream()
    settings = {"layers": layers, "sampling": sampling, "attend_padding": attend_padding}
    model = build("tgat", data, neighbors=2 if layers == 3 else 3, **settings)
    past = double_past(data)
    rows = data.events[54:]
    late = Query.cat(rows.query(), Query(rows.src, rows.dst.flip(0), rows.time))
    early = Query(torch.tensor([1, 7, 99]), torch.tensor([2, 7, 3]), torch.tensor([0.0, 50.0, 100.0]).double())
    query = Query.cat(late, early)  # also: empty histories, a node paired with itself, a node nobody has met
    found = model.score(query, past)
    expected = [
        head(model, embed(model, data, past, s, t, layers), embed(model, data, past, d, t, layers))
        for s, d, t in zip(query.src.tolist(), query.dst.tolist(), query.time.tolist(), strict=True)
    ]
    check(model, found, torch.stack(expected))


def test_rounded_hops_look_up_at_the_rounded_time() -> None:
    """Seconds since 1970 differ by less than float32 can tell: a second hop is asked about another moment."""
    data = stream()
    data = Dataset.from_arrays(
        "late", data.events.src.numpy(), data.events.dst.numpy(), data.events.time.numpy() / 50 + 1.1e9
    )
    found = {}
    for hop_time in ("exact", "float32"):
        model, past = build("tgat", data, neighbors=3, hop_time=hop_time), double_past(data)
        query = data.events[55:].query()
        found[hop_time] = model.score(query, past)
        expected = [
            head(model, embed(model, data, past, s, t, 2), embed(model, data, past, d, t, 2))
            for s, d, t in zip(query.src.tolist(), query.dst.tolist(), query.time.tolist(), strict=True)
        ]
        check(model, found[hop_time], torch.stack(expected))
    assert not torch.allclose(found["exact"], found["float32"])
