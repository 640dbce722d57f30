"""Scores of TPNet against walks summed in dictionaries and pairs read one at a time."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from dsrd.data.dataset import Dataset
from dsrd.events import Events, Query
from dsrd.history.live import Live
from dsrd.history.past import Past
from dsrd.models.tpnet import projections
from support.slow_models import ask, build, check, cosine, history, padded, stream


class NaiveTPNet:
    """Every matrix of walks as a dictionary, decayed for all nodes at every batch, as the public code does."""

    def __init__(self, model: Any, data: Dataset) -> None:
        self.model, self.data, self.now = model, data, 0.0
        self.walks: dict[int, list[Tensor]] = {}
        self.times = sorted(set(data.events.time.tolist()))

    def of(self, node: int) -> list[Tensor]:
        if node not in self.walks:
            code = np.zeros(self.model.config.code_dim)
            projections.write_code(node, code)
            zeros = [torch.zeros(len(code)).double() for _ in range(self.model.config.steps)]
            self.walks[node] = [torch.from_numpy(code), *zeros]
        return self.walks[node]

    def tick(self, time: float) -> float:
        clock = self.model.config.clock
        return clock * sum(moment < time for moment in self.times) if clock else time

    def observe(self, rows: Events) -> None:
        events = [(s, d, self.tick(t)) for s, d, t, _ in zip(*(c.tolist() for c in rows.numpy()), strict=True)]
        rate, now = self.model.config.decay, events[-1][2]
        for walk in self.walks.values():
            for step in range(1, len(walk)):
                walk[step] = walk[step] * math.exp(-rate * step * (now - self.now))
        before = {node: list(self.of(node)) for event in events for node in event[:2]}
        for src, dst, time in events:
            weight = math.exp(-rate * (now - time))
            for step in range(1, self.model.config.steps + 1):
                self.walks[src][step] = self.walks[src][step] + weight * before[dst][step - 1]
                self.walks[dst][step] = self.walks[dst][step] + weight * before[src][step - 1]
        self.now = now

    def relation(self, first: int, second: int) -> Tensor:
        rows = torch.stack(self.of(first) + self.of(second))
        found: Tensor = self.model.relation(torch.log(torch.relu(rows @ rows.T) + 1).flatten())
        return found

    def embed(self, node: int, src: int, dst: int, time: float) -> Tensor:
        model, config = self.model, self.model.config
        last = history(self.data, node, time)[-config.neighbors :]
        missing = [None] * (config.neighbors - len(last))
        tokens = []
        for link in [*missing, *last]:
            if link is None and config.mask_padding:
                tokens.append(torch.zeros(model.dim).double())
                continue
            other, event, at = link or (0, 0, 0.0)
            age = math.log(self.tick(time) - (self.tick(at) if link else 0.0) + 1)
            parts = [padded(self.data.node_x[other], model.dim), cosine(model, age)]
            parts += [
                padded(self.data.edge_x[event], model.dim),
                self.relation(other, src),
                self.relation(other, dst),
            ]
            hidden = model.token_in.weight @ torch.cat(parts) + model.token_in.bias
            tokens.append(model.token_out(torch.relu(hidden)))
        h = torch.stack(tokens)
        for block in model.mixers:
            h = h + block.token_mix(block.token_norm(h.T)).T
            h = h + block.channel_mix(block.channel_norm(h))
        return h.mean(0)

    def score(self, src: int, dst: int, time: float) -> Tensor:
        both = [self.embed(node, src, dst, time) for node in (src, dst)]
        whole, first = torch.cat([*both, self.relation(src, dst)]), self.model.head.hidden
        hidden = torch.relu(first.weight @ whole + first.bias)
        result: Tensor = self.model.head.out(hidden)[0]
        return result


@pytest.mark.parametrize(
    "settings", [{}, {"mask_padding": False}, {"clock": 300.0, "decay": 1e-3}, {"layers": 1, "steps": 3}]
)
def test_tpnet(settings: dict[str, Any]) -> None:
    data = stream(nodes=14)
    model = build("tpnet", data, **{"decay": 1e-3, "neighbors": 4, **settings})
    model.state.rows_for(torch.arange(data.num_nodes))
    model.state["walks"] = model.state["walks"].double()
    for node in range(data.num_nodes):
        projections.write_code(node, model.state["walks"][node, 0].numpy())
    past = Past(data.events, edge_x=data.edge_x.double(), node_x=data.node_x.double())
    naive = NaiveTPNet(model, data)
    early = Query(torch.tensor([1, 2, 3]), torch.tensor([1, 13, 2]), torch.tensor([0.0, 50.0, 100.0]).double())
    for batch in data.events[:30].batches(7):
        model.observe(batch, past)
        naive.observe(batch)
    query = Query.cat(early, ask(model, data, past)[0])
    asked = zip(query.src.tolist(), query.dst.tolist(), query.time.tolist(), strict=True)
    check(model, model.score(query, past), torch.stack([naive.score(*each) for each in asked]))


def test_codes_are_normal_and_belong_to_nodes() -> None:
    rows = projections.initial_rows(400, 1, 50)[:, 0]
    assert abs(rows.mean()) < 0.005
    assert np.allclose(rows.std(), 1 / math.sqrt(50), rtol=0.02)
    gram = rows @ rows.T
    assert np.allclose(gram[~np.eye(400, dtype=bool)].std(), 1 / math.sqrt(50), rtol=0.05)
    assert np.array_equal(projections.initial_rows(10, 1, 50), projections.initial_rows(400, 1, 50)[:10])


def test_a_node_beyond_the_table_reads_as_one_nothing_has_happened_to() -> None:
    data = stream()
    small, large = build("tpnet", data), build("tpnet", data)
    past = Past(data.events, edge_x=data.edge_x.double(), node_x=data.node_x.double())
    large.state.rows_for(torch.tensor([500]))
    query = Query(torch.tensor([1, 500]), torch.tensor([500, 2]), torch.tensor([9e9, 9e9]).double())
    assert torch.allclose(small.score(query, past), large.score(query, past), atol=1e-12)


def test_ranks_of_times_know_only_the_past() -> None:
    """A growing past gives the ranks that the whole stream gives, so nothing later is counted."""
    data = stream()
    model, other = (build("tpnet", data, clock=10.0) for _ in range(2))
    whole, growing = Past(data.events), Live()
    for batch in data.events.batches(5):
        growing.append(batch)
        assert torch.equal(model._clock(batch.time, growing), other._clock(batch.time, whole))
