"""Scores of the learned models against straightforward computations, node by node and event by event."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from dsrd.data.dataset import Dataset
from dsrd.errors import DsrdError
from dsrd.history.past import Past
from dsrd.nn.linear import BlockLinear
from dsrd.nn.memory import GRU
from dsrd.nn.time import CosineTime
from support.slow_models import ask, build, check, cosine, head, history, padded, stream


def mixer_node(model: Any, data: Dataset, node: int, time: float) -> Tensor:
    config, dim = model.config, model.out.widths[0]
    last = history(data, node, time)[-config.neighbors :]
    tokens = [torch.zeros(dim + config.time_dim).double()] * (config.neighbors - len(last))
    tokens += [torch.cat([padded(data.edge_x[id], dim), cosine(model, time - at)]) for _, id, at in last]
    h = torch.stack(tokens) @ model.token.weight.T + model.token.bias  # [k, dim]
    for block in model.mixers:
        h = h + block.token_mix(block.token_norm(h.T)).T
        h = h + block.channel_mix(block.channel_norm(h))
    near = history(data, node, time)[-config.history :]
    x = padded(data.node_x[node], dim)
    if near:
        mean = torch.stack([padded(data.node_x[other], dim) for other, _, _ in near]).mean(0)
        x = x + (mean / config.history if config.node_mean == "published" else mean)
    result: Tensor = model.out.weight @ torch.cat([h.mean(0), x]) + model.out.bias
    return result


@pytest.mark.parametrize("node_mean", ["once", "published"])
def test_graphmixer(node_mean: str) -> None:
    data = stream()
    model = build("graphmixer", data, node_mean=node_mean, history=7)
    past = Past(data.events, edge_x=data.edge_x.double(), node_x=data.node_x.double())
    query, found = ask(model, data, past)
    expected = [
        head(model, mixer_node(model, data, s, t), mixer_node(model, data, d, t))
        for s, d, t in zip(query.src.tolist(), query.dst.tolist(), query.time.tolist(), strict=True)
    ]
    check(model, found, torch.stack(expected))


class NaiveTGN:
    """Memory and mail in dictionaries, one event at a time inside each batch."""

    def __init__(self, model: Any, data: Dataset) -> None:
        self.model, self.data, self.dim = model, data, model.dim
        self.memory: dict[int, Tensor] = {}
        self.last: dict[int, float] = {}
        self.mail: dict[int, tuple[Tensor, float]] = {}
        self.cell = torch.nn.GRUCell(2 * self.dim + model.config.time_dim + self.dim, self.dim).double()
        cell = model.memory.cell  # the very same tensors, so that gradients can be compared
        del self.cell.weight_ih, self.cell.weight_hh, self.cell.bias_ih, self.cell.bias_hh
        self.cell.weight_ih, self.cell.bias_ih = cell.input.weight, cell.input.bias
        self.cell.weight_hh, self.cell.bias_hh = cell.hidden.weight, cell.hidden.bias

    def read(self, node: int) -> Tensor:
        memory = self.memory.get(node, torch.zeros(self.dim).double())
        if node in self.mail:
            memory = self.cell(self.mail[node][0][None], memory[None])[0]
        return memory

    def observe(self, rows: Any, last_message: str) -> None:
        events = list(zip(*(column.tolist() for column in rows.numpy()), strict=True))
        with torch.no_grad():
            for node in {node for event in events for node in event[:2]}:
                self.memory[node] = self.read(node)
                if node in self.mail:
                    self.last[node] = self.mail.pop(node)[1]
            sent = [(src, dst, t, id) for src, dst, t, id in events]
            received = [(dst, src, t, id) for src, dst, t, id in events]
            mixed = [message for both in zip(sent, received, strict=True) for message in both]
            for node, other, t, id in sent + received if last_message == "role" else mixed:
                time = cosine(self.model, t - self.last.get(node, 0.0))
                edge = padded(self.data.edge_x[id], self.dim)
                self.mail[node] = (torch.cat([self.memory[node], self.memory[other], time, edge]), t)

    def start(self, node: int) -> Tensor:
        return self.read(node) + padded(self.data.node_x[node], self.dim)

    def embed(self, node: int, time: float, layer: int) -> Tensor:
        if layer == 0:
            return self.start(node)
        attention, merge = self.model.reader.attention[layer - 1], self.model.reader.merge[layer - 1]
        own = torch.cat([self.embed(node, time, layer - 1), cosine(self.model, 0.0)])
        near = history(self.data, node, time)[-self.model.config.neighbors :]
        read = torch.zeros_like(attention.mix.bias[: attention.heads * attention.head_dim])
        if near:
            x = [
                torch.cat(
                    [
                        self.embed(v, t, layer - 1),
                        cosine(self.model, time - t),
                        padded(self.data.edge_x[e], self.dim),
                    ]
                )
                for v, e, t in near
            ]
            key, value = (torch.stack(x) @ part.weight.T for part in (attention.key, attention.value))
            query, width = attention.query(own), attention.head_dim
            parts = []
            for h in range(attention.heads):
                span = slice(h * width, (h + 1) * width)
                weight = torch.softmax(key[:, span] @ query[span] / math.sqrt(width), 0)
                parts.append(weight @ value[:, span])
            read = torch.cat(parts)
        attended = attention.norm(attention.mix(read) + own)
        hidden = torch.relu(merge.hidden.weight @ torch.cat([attended, self.start(node)]) + merge.hidden.bias)
        result: Tensor = merge.out(hidden)
        return result

    def score(self, src: int, dst: int, time: float) -> Tensor:
        layers = self.model.config.layers
        return head(self.model, self.embed(src, time, layers), self.embed(dst, time, layers))


@pytest.mark.parametrize("last_message", ["time", "role"])
@pytest.mark.parametrize("layers", [1, 2])
def test_tgn(last_message: str, layers: int) -> None:
    data = stream()
    model = build("tgn", data, last_message=last_message, layers=layers, neighbors=3)
    model.state["memory"], model.state["mail"] = model.state["memory"].double(), model.state["mail"].double()
    past = Past(data.events, edge_x=data.edge_x.double(), node_x=data.node_x.double())
    naive = NaiveTGN(model, data)
    for batch in data.events[:30].batches(7):
        model.observe(batch, past)
        naive.observe(batch, last_message)
    query, found = ask(model, data, past)
    asked = zip(query.src.tolist(), query.dst.tolist(), query.time.tolist(), strict=True)
    check(model, found, torch.stack([naive.score(*each) for each in asked]))


def test_gru_is_torchs() -> None:
    ours, theirs = GRU([5, 4], 3), torch.nn.GRUCell(9, 3)
    theirs.load_state_dict(
        {
            "weight_ih": ours.input.weight,
            "bias_ih": ours.input.bias,
            "weight_hh": ours.hidden.weight,
            "bias_hh": ours.hidden.bias,
        }
    )
    x, h = torch.randn(6, 9), torch.randn(6, 3)
    assert torch.allclose(ours(x[:, :5], x[:, 5:], h=h), theirs(x, h), atol=1e-6)


def test_block_linear_skips_only_zeros() -> None:
    linear = BlockLinear([4, 3], 5)
    a, b = torch.randn(6, 2), torch.randn(6, 3)
    whole = torch.cat([a, torch.zeros(6, 2), b], dim=1)
    assert torch.allclose(linear(a, b), whole @ linear.weight.T + linear.bias, atol=1e-6)


def test_cosine_time_spans_nine_decades() -> None:
    time = CosineTime(10, trainable=False)
    assert torch.allclose(time.rate, 10.0 ** -torch.arange(10.0))
    assert not any(p.requires_grad for p in time.parameters())


@pytest.mark.parametrize("name", ["dygformer", "pint", "tcl", "tgat", "tpnet"])
def test_a_model_that_needs_a_layer_says_so(name: str) -> None:
    with pytest.raises(DsrdError, match=r"model\.layers=0: give 1 to 64"):
        build(name, stream(nodes=14), layers=0)
