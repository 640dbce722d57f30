"""CAWN against torch's own LSTM and attention, one endpoint at a time, every walk with all its copies."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call

from dsrd.data.dataset import Dataset
from dsrd.events import Query
from dsrd.hashing import hashed_uniform
from dsrd.history.past import Past
from support.slow_models import build, check, cosine, head, padded, stream

Step = tuple[int, int, float]  # node, event, time


def branches(model: Any, past: Past, node: int, time: float) -> list[Step]:
    """What the past draws when asked about this node alone; padding included."""
    config = model.config
    if config.sampling == "published":
        return published_branches(past, node, time, config.neighbors, config.rate)
    asked = torch.tensor([node]), torch.tensor([time]).double()
    found = past.sample(config.sampling, *asked, config.neighbors, config.rate)
    return list(zip(found.node[0].tolist(), found.event[0].tolist(), found.time[0].tolist(), strict=True))


def published_branches(past: Past, node: int, time: float, k: int, rate: float) -> list[Step]:
    everything = past.recent(torch.tensor([node]), torch.tensor([time]).double(), 200)
    known = everything.mask[0]
    columns = (everything.node[0][known], everything.event[0][known], everything.time[0][known])
    entries = list(zip(*(column.tolist() for column in columns), strict=True))
    if not entries:
        return [(0, 0, 0.0)] * k
    when = np.array([at for _, _, at in entries])
    decayed = np.exp(rate * (when - when.max()))
    weight = np.exp(decayed / decayed.cumsum())
    quantile = weight.cumsum() / weight.sum()
    bits = np.array([time]).view(np.uint64)[0]
    chances = [hashed_uniform(np.uint64(past.seed), node, bits, draw) for draw in range(k)]
    return [entries[place] for place in sorted(int(np.searchsorted(quantile, chance)) for chance in chances)]


def walks(model: Any, past: Past, node: int, time: float) -> list[list[Step]]:
    found = [[(node, 0, time)]]
    for _ in range(model.config.walk_length):
        found = [[*walk, step] for walk in found for step in branches(model, past, walk[-1][0], walk[-1][2])]
    return found


def shares(found: list[list[Step]], node: int) -> Tensor:
    """Share of walks that are at the node, by number of steps."""
    steps = range(len(found[0]))
    return torch.tensor([sum(walk[i][0] == node for walk in found) / len(found) for i in steps]).double()


def at_the_end(lstm: Any, inputs: Tensor) -> Tensor:
    """torch's bidirectional LSTM; the reverse recurrence, which a last step cannot see, gets arbitrary weights."""
    hidden = lstm.recurrent.shape[1]
    torchs = nn.LSTM(inputs.shape[1], hidden, batch_first=True, bidirectional=True).double()
    weights = {
        "weight_ih_l0": lstm.weight,
        "weight_hh_l0": lstm.recurrent,
        "bias_ih_l0": lstm.bias[0],
        "bias_hh_l0": lstm.bias[1],
        "weight_ih_l0_reverse": lstm.weight_back,
        "weight_hh_l0_reverse": torch.randn(4 * hidden, hidden).double(),
        "bias_ih_l0_reverse": lstm.bias_back[0],
        "bias_hh_l0_reverse": lstm.bias_back[1],
    }
    result: Tensor = functional_call(torchs, weights, (inputs[None],))[0][0, -1]
    return result


def attended(attention: Any, x: Tensor) -> Tensor:
    torchs = nn.MultiheadAttention(x.shape[1], attention.heads, batch_first=True).double()
    weights = {
        "in_proj_weight": attention.weight,
        "in_proj_bias": attention.bias,
        "out_proj.weight": attention.mix.weight,
        "out_proj.bias": attention.mix.bias,
    }
    result: Tensor = functional_call(torchs, weights, (x[None], x[None], x[None]))[0][0]
    return result


def embed(model: Any, data: Dataset, past: Past, node: int, partner: int, time: float) -> Tensor:
    own, other = walks(model, past, node, time), walks(model, past, partner, time)
    dim, tokens = model.out.out_features, []
    for walk in own:
        inputs, positions = [], []
        for at, event, when in walk:
            if at == 0:
                continue
            position = model.position(shares(own, at)) + model.position(shares(other, at))
            x = data.node_x[at] if at < len(data.node_x) else data.node_x[0]
            parts = [padded(x, dim), cosine(model, time - when), padded(data.edge_x[event], dim), position]
            inputs.append(torch.cat(parts))
            positions.append(position)
        encoded = at_the_end(model.feature_walk, torch.stack(inputs))
        tokens.append(model.token(torch.cat([encoded, at_the_end(model.position_walk, torch.stack(positions))])))
    x = torch.stack(tokens)  # [W, d]
    x = model.mix.norm_mid(x + attended(model.mix.attention, x))
    x = model.mix.norm_out(x + model.mix.feed(x))
    result: Tensor = model.out(x.mean(dim=0))
    return result


@pytest.mark.parametrize(
    "settings",
    [
        {"walk_length": 1, "neighbors": 5, "rate": 1e-3},
        {"walk_length": 2, "neighbors": 3, "rate": 1e-3},
        {"walk_length": 1, "neighbors": 5, "sampling": "published", "rate": 1e-3},
        {"walk_length": 2, "neighbors": 3, "sampling": "recent"},
        {"walk_length": 2, "neighbors": 2, "sampling": "uniform", "merge_copies": False},
    ],
    ids=lambda settings: "-".join(map(str, settings.values())),
)
def test_cawn(settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dsrd.models.cawn.walks.WALKS_AT_ONCE", 20)  # several batches: their order is tested
    data = stream()
    model = build("cawn", data, **settings)
    past = Past(data.events, edge_x=data.edge_x.double(), node_x=data.node_x.double(), seed=3)
    rows = data.events[48:]
    late = Query.cat(rows.query(), Query(rows.src, rows.dst.flip(0), rows.time))
    early = Query(torch.tensor([1, 7, 99]), torch.tensor([2, 7, 3]), torch.tensor([0.0, 500.0, 900.0]).double())
    query = Query.cat(late, early)  # also: empty histories, a node paired with itself, a node nobody has met
    expected = [
        head(model, embed(model, data, past, s, d, t), embed(model, data, past, d, s, t))
        for s, d, t in zip(query.src.tolist(), query.dst.tolist(), query.time.tolist(), strict=True)
    ]
    check(model, model.score(query, past), torch.stack(expected))


def test_copies_of_a_walk_change_nothing() -> None:
    data = stream()
    past = Past(data.events, edge_x=data.edge_x.double(), node_x=data.node_x.double())
    merged, apart = (build("cawn", data, rate=1e-3, merge_copies=merge) for merge in (True, False))
    query = data.events[20:].query()
    assert torch.allclose(merged.score(query, past), apart.score(query, past), atol=1e-10)
    with torch.no_grad():  # the fused attention of evaluation
        assert torch.allclose(merged.score(query, past), apart.score(query, past), atol=1e-10)
