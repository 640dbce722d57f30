"""Scores of TCL against one pair at a time, with torch's own attention and every token's answer worked out."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from dsrd.data.dataset import Dataset
from dsrd.events import Query
from dsrd.history.past import Past
from support.slow_models import ask, build, check, cosine, head, history, padded, stream


def stream_of(model: Any, data: Dataset, past: Past, node: int, time: float) -> Tensor:
    """Tokens of the node itself and of its links.  # [1 + links, dim]"""
    k, dim = model.config.neighbors, model.out.in_features
    found = [(node, 0, time, 0)]
    if model.config.sampling == "recent":
        last = history(data, node, time)[-k:]
        found += [(*link, k - len(last) + 1 + i) for i, link in enumerate(last)]
    else:
        drawn = past.uniform(torch.tensor([node]), torch.tensor([time]).double(), k)
        rows = zip(drawn.node[0].tolist(), drawn.event[0].tolist(), drawn.time[0].tolist(), strict=True)
        found += [(*row, 1 + i) for i, row in enumerate(rows) if row[1]]
    tokens = []
    for other, event, at, depth in found:
        token = model.node_in.weight @ padded(data.node_x[other], dim) + model.node_in.bias
        token = token + model.edge_in.weight @ padded(data.edge_x[event], dim) + model.edge_in.bias
        tokens.append(token + model.time_in(cosine(model, time - at)) + model.depth[depth])
    return torch.stack(tokens)


def attended(block: Any, x: Tensor, given: Tensor) -> Tensor:
    theirs = nn.MultiheadAttention(x.shape[1], block.attention.heads).double()
    del theirs.in_proj_weight, theirs.in_proj_bias, theirs.out_proj.weight, theirs.out_proj.bias
    theirs.in_proj_weight, theirs.in_proj_bias = block.attention.weight, block.attention.bias
    theirs.out_proj.weight, theirs.out_proj.bias = block.attention.mix.weight, block.attention.mix.bias
    x = block.norm_mid(x + theirs(x, given, given)[0])
    fed: Tensor = block.norm_out(x + block.feed[3](torch.relu(block.feed[0](x))))
    return fed


def score(model: Any, data: Dataset, past: Past, src: int, dst: int, time: float) -> Tensor:
    one, other = (stream_of(model, data, past, node, time) for node in (src, dst))
    for block in model.blocks:
        one, other = attended(block, one, one), attended(block, other, other)
        answers = attended(block, one, other), attended(block, other, one)
        if model.config.crossing == "every":
            one, other = answers
    return head(model, *(model.out(answer[0]) for answer in answers))


@pytest.mark.parametrize("sampling", ["recent", "uniform"])
@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("crossing", ["every", "last"])
def test_tcl(crossing: str, layers: int, sampling: str) -> None:
    data = stream(nodes=14)
    model = build("tcl", data, crossing=crossing, layers=layers, sampling=sampling)
    past = Past(data.events, edge_x=data.edge_x.double(), node_x=data.node_x.double())
    early = Query(torch.tensor([1, 2, 3]), torch.tensor([1, 13, 2]), torch.tensor([0.0, 50.0, 100.0]).double())
    query = Query.cat(early, ask(model, data, past)[0])
    asked = zip(query.src.tolist(), query.dst.tolist(), query.time.tolist(), strict=True)
    check(model, model.score(query, past), torch.stack([score(model, data, past, *each) for each in asked]))


@pytest.mark.parametrize(("rates", "trained"), [("learned", True), ("fixed", False)])
def test_a_step_moves_rates_only_if_they_are_learned(rates: str, trained: bool) -> None:
    data = stream(nodes=14)
    model = build("tcl", data, rates=rates)
    past = Past(data.events, edge_x=data.edge_x.double(), node_x=data.node_x.double())
    before = model.time.rate.detach().clone()
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad])
    ask(model, data, past)[1].sum().backward()
    optimizer.step()
    assert bool((model.time.rate != before).any()) == trained
