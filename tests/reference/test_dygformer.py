"""Scores of DyGFormer against one pair at a time: lists, dictionaries of counts, torch's own transformer layer."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from dsrd.data.dataset import Dataset
from dsrd.errors import DsrdError
from dsrd.events import Query
from dsrd.history.past import Past
from dsrd.models.dygformer.cooccurrence import SequencePairs, appearances
from support.slow_models import ask, build, check, cosine, head, history, padded, stream

Entry = tuple[int, int, float] | None  # node, event, age; None where the padding is


def sequence(model: Any, data: Dataset, node: int, time: float) -> list[Entry]:
    last = history(data, node, time)[-(model.config.length - 1) :]
    return [(node, 0, 0.0), *((other, id, time - at) for other, id, at in last)]


def filled(entries: list[Entry], size: int) -> list[Entry]:
    return entries + [None] * (size - len(entries))


def whole_patches(entries: list[Entry], patch: int) -> int:
    return -(-len(entries) // patch) * patch


def tokens(model: Any, data: Dataset, own: list[Entry], other: list[Entry]) -> Tensor:
    dim, patch = model.out.out_features, model.config.patch
    counts = [Counter(entry[0] for entry in side if entry) for side in (own, other)]
    found = []
    for start in range(0, len(own), patch):
        node, edge, time, shared = [], [], [], []
        for entry in own[start : start + patch]:
            node.append(padded(data.node_x[entry[0]] if entry else torch.zeros(0), dim))
            edge.append(padded(data.edge_x[entry[1]] if entry else torch.zeros(0), dim))
            time.append(cosine(model, entry[2]) if entry else torch.zeros(model.config.time_dim).double())
            seen = [count[entry[0]] if entry else 0 for count in counts]
            shared.append(sum(model.count(torch.tensor([float(n)]).double()) for n in seen))
        channels = ((model.node_channel, node), (model.edge_channel, edge))
        parts = [part.weight @ torch.cat(values) + part.bias for part, values in channels]
        parts += [model.time_channel(torch.cat(time)), model.shared_channel(torch.cat(shared))]
        found.append(torch.cat(parts))
    return torch.stack(found)


def attended(block: Any, x: Tensor) -> Tensor:
    theirs = nn.MultiheadAttention(x.shape[1], block.attention.heads).double()
    del theirs.in_proj_weight, theirs.in_proj_bias, theirs.out_proj.weight, theirs.out_proj.bias
    theirs.in_proj_weight, theirs.in_proj_bias = block.attention.weight, block.attention.bias
    theirs.out_proj.weight, theirs.out_proj.bias = block.attention.mix.weight, block.attention.mix.bias
    normed = block.norm_in(x)
    x = x + theirs(normed, normed, normed)[0]
    return x + block.feed[3](nn.functional.gelu(block.feed[0](block.norm_mid(x))))


def score(model: Any, data: Dataset, src: list[Entry], dst: list[Entry]) -> Tensor:
    x = torch.cat([tokens(model, data, src, dst), tokens(model, data, dst, src)])
    for block in model.blocks:
        x = attended(block, x)
    split = len(src) // model.config.patch
    return head(model, model.out(x[:split].mean(0)), model.out(x[split:].mean(0)))


def expected_scores(model: Any, data: Dataset, query: Query) -> Tensor:
    asked = list(zip(query.src.tolist(), query.dst.tolist(), query.time.tolist(), strict=True))
    sides = [[sequence(model, data, pair[role], pair[2]) for pair in asked] for role in range(2)]
    patch = model.config.patch
    longest = [max(whole_patches(each, patch) for each in side) for side in sides]
    found = []
    for src, dst in zip(*sides, strict=True):
        own = [whole_patches(each, patch) for each in (src, dst)]
        size = longest if model.config.padding == "call" else own
        found.append(score(model, data, filled(src, size[0]), filled(dst, size[1])))
    return torch.stack(found)


@pytest.mark.parametrize("padding", ["none", "call"])
@pytest.mark.parametrize(("length", "patch"), [(6, 2), (5, 1), (24, 8)])
def test_dygformer(padding: str, length: int, patch: int) -> None:
    data = stream(nodes=14)
    model = build("dygformer", data, padding=padding, length=length, patch=patch)
    past = Past(data.events, edge_x=data.edge_x.double(), node_x=data.node_x.double())
    early = Query(torch.tensor([1, 2, 3]), torch.tensor([1, 13, 2]), torch.tensor([0.0, 50.0, 100.0]).double())
    query = Query.cat(early, ask(model, data, past)[0])
    check(model, model.score(query, past), expected_scores(model, data, query))


def test_default_does_not_depend_on_the_call() -> None:
    data = stream(nodes=14)
    past = Past(data.events, edge_x=data.edge_x.double(), node_x=data.node_x.double())
    difference = {}
    for padding in ("none", "call"):
        model = build("dygformer", data, padding=padding)
        query = data.events[3:50].query()
        together = model.score(query, past)
        alone = torch.cat([model.score(query[row : row + 1], past) for row in range(len(query))])
        difference[padding] = float((together - alone).detach().abs().max())
    assert difference["none"] < 1e-12
    assert difference["call"] > 1e-4  # what the option is for


def test_appearances_are_counted() -> None:
    node = np.array([[5, 7, 5, 0], [7, 9, 0, 0], [5, 5, 5, 7]])
    ends, begin = np.array([[0, 1], [2, 0], [1, 1]]), np.array([[0, 4], [6, 10], [13, 15]])
    counts = appearances(SequencePairs(node, np.array([3, 2, 4]), ends, begin), 17)
    expected = [[2, 0], [1, 1], [2, 0], [0, 0], [1, 1], [0, 1]]
    expected += [[3, 2], [3, 2], [3, 2], [1, 1], [3, 2], [1, 1], [3, 2], [1, 1], [1, 1], [1, 1], [1, 1]]
    assert counts.tolist() == expected


def test_lengths_that_patches_do_not_fill_are_refused() -> None:
    with pytest.raises(DsrdError, match=r"model\.length=7, model\.patch=2: give a length"):
        build("dygformer", stream(), length=7)
