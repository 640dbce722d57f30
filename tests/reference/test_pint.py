"""PINT against walks enumerated one by one and sums written out; and the compiled walk counts."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_models import NaiveTGN
from torch import Tensor

from dsrd.data.dataset import Dataset
from dsrd.events import Query
from dsrd.history.past import Past
from dsrd.models.pint import walk_counts
from dsrd.models.pint.faded_sum import NeighborTerms, faded_sum
from dsrd.models.pint.walk_counts import WalkTable
from support.slow_models import build, check, head, history, padded, stream

Pairs = list[tuple[int, int]]


def count_walks(events: Pairs, start: int, end: int, steps: int) -> int:
    """Walks back in time over these events, oldest first, each step over an earlier event than the one before."""
    if steps == 0:
        return int(start == end)
    total = 0
    for number, (src, dst) in enumerate(events):
        if start in (src, dst):
            there = dst if start == src else src
            total += count_walks(events[:number], there, end, steps - 1)
    return total


def empty_table(nodes: int, steps: int) -> WalkTable:
    rows = (np.zeros(nodes, np.int64) for _ in range(3))
    return WalkTable(*rows, np.zeros(2, np.int32), np.zeros((2, steps), np.float32), np.zeros(1, np.int64))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 6), st.integers(1, 6)), max_size=14), st.integers(0, 14))
def test_walk_counts(events: Pairs, cut: int) -> None:
    table = empty_table(7, 3)
    for part in (events[:cut], events[cut:]):
        src, dst = (np.array([pair[end] for pair in part], dtype=np.int64) for end in (0, 1))
        table = walk_counts.observe(table, src, dst)
    root, node = (grid.ravel() for grid in np.meshgrid(np.arange(1, 9), np.arange(1, 9), indexing="ij"))
    found = np.full((len(root), 4), np.nan, np.float32)
    walk_counts.read(table, root, node, found)  # nodes 7 and 8 nobody has met
    expected = [[count_walks(events, u, x, k) for k in range(4)] for u, x in zip(root, node, strict=True)]
    assert found.tolist() == expected


def test_rows_move_and_are_packed() -> None:
    """A star's centre outgrows every room it was given; what is kept grows with pairs, not with nodes."""
    leaves, table = 300, empty_table(5000, 2)
    src, dst = np.ones(leaves, np.int64), np.arange(2, leaves + 2)
    for start in range(0, leaves, 7):
        table = walk_counts.observe(table, src[start : start + 7], dst[start : start + 7])
    found = np.zeros((leaves, 3), np.float32)
    walk_counts.read(table, src, dst, found)
    assert found.tolist() == [[0.0, 1.0, 0.0]] * leaves
    walk_counts.read(
        table, dst, np.full(leaves, 2), found
    )  # every later leaf reaches the first through the centre
    assert found[1:].tolist() == [[0.0, 0.0, 1.0]] * (leaves - 1)
    assert len(table.node) < 4 * int(table.length.sum())


class NaivePINT(NaiveTGN):
    """TGN's memory, one event at a time; positions and sums as the paper writes them."""

    def __init__(self, model: Any, data: Dataset) -> None:
        parts = {"time": model.time.cosine, "dim": model.dim, "config": model.config, "memory": model.memory}
        super().__init__(SimpleNamespace(**parts), data)
        self.pint, self.seen = model, []

    def observe(self, rows: Any, last_message: str) -> None:
        super().observe(rows, last_message)
        self.seen += list(zip(rows.src.tolist(), rows.dst.tolist(), strict=True))

    def place(self, root: int, node: int) -> Tensor:
        hops = range(self.pint.config.hops + 1)
        if self.pint.config.positions == "published":
            counts = [float(root == node and k == 0) for k in hops]
        else:
            counts = [float(count_walks(self.seen, root, node, k)) for k in hops]
        return torch.tensor(counts).double() / (sum(counts) + 1e-4)

    def start(self, node: int) -> Tensor:
        x = self.data.node_x[node if node < len(self.data.node_x) else 0]
        return self.read(node) + padded(x, self.dim)

    def embed_beside(self, node: int, time: float, root: int, target: int, layer: int) -> Tensor:
        if layer == 0:
            return self.start(node)
        part = self.pint.layers[layer - 1]
        near = history(self.data, node, time)[-self.pint.config.neighbors :]
        total = torch.zeros(self.dim).double()
        for other, event, at in near:
            below = self.embed_beside(other, at, root, target, layer - 1)
            edge = padded(self.data.edge_x[event], self.dim)
            seen = torch.cat([below, edge, self.place(root, other), self.place(target, other)])
            met = part.there_out(torch.relu(part.there.weight @ seen + part.there.bias))
            total = total + met * 2 ** (-self.pint.config.beta * (time - at) / math.sqrt(len(near) + 1e-4))
        own = torch.cat([total, self.start(node), self.place(root, node), self.place(target, node)])
        result: Tensor = part.own_out(torch.relu(part.own.weight @ own + part.own.bias))
        return result

    def score(self, src: int, dst: int, time: float) -> Tensor:
        layers = self.pint.config.layers
        ends = (
            self.embed_beside(src, time, src, dst, layers),
            self.embed_beside(dst, time, dst, src, layers),
        )
        return head(self.pint, *ends)


@pytest.mark.parametrize("positions", ["walks", "published"])
@pytest.mark.parametrize("layers", [1, 2])
def test_pint(positions: str, layers: int) -> None:
    data = stream()
    model = build("pint", data, positions=positions, layers=layers, neighbors=3, beta=1e-3, hops=2)
    model.state["memory"], model.state["mail"] = model.state["memory"].double(), model.state["mail"].double()
    past = Past(data.events, edge_x=data.edge_x.double(), node_x=data.node_x.double())
    naive = NaivePINT(model, data)
    for batch in data.events[:30].batches(7):
        model.observe(batch, past)
        naive.observe(batch, "time")
    rows = data.events[50:]
    odd = Query(torch.tensor([1, 7, 99]), torch.tensor([2, 7, 3]), torch.tensor([0.0, 1500.0, 1900.0]).double())
    query = Query.cat(rows.query(), Query(rows.src, rows.dst.flip(0), rows.time), odd)
    asked = zip(query.src.tolist(), query.dst.tolist(), query.time.tolist(), strict=True)
    check(model, model.score(query, past), torch.stack([naive.score(*each) for each in asked]))


def test_the_compiled_sum_is_the_one_written_out() -> None:
    generator = torch.Generator().manual_seed(0)
    draw = {"generator": generator, "dtype": torch.float64}
    base, x, w = (torch.randn(n, 5, **draw).requires_grad_() for n in (4, 3, 6))
    above, row, x_row = (torch.randint(n, (20,), generator=generator) for n in (7, 4, 3))
    place, fade = torch.randn(20, 6, **draw).relu(), torch.rand(20, **draw)
    found = faded_sum(NeighborTerms(above, fade, row, x_row, place), base, x, w, 7)
    met = torch.relu(base[row] + x[x_row] + place @ w) * fade.unsqueeze(1)
    expected = torch.stack([met[above == node].sum(dim=0) for node in range(7)])
    assert torch.allclose(found, expected)
    ours, theirs = (torch.autograd.grad(y.square().sum(), (base, x, w)) for y in (found, expected))
    assert all(torch.allclose(one, other) for one, other in zip(ours, theirs, strict=True))


def test_snapshots_are_read_as_seconds() -> None:
    """Times 0, 1, 2, .. with a step of a year give what years in seconds give."""
    data, year = stream(), 365 * 86_400.0
    snapshots, seconds = (
        Dataset.from_arrays(
            "toy", data.events.src.numpy(), data.events.dst.numpy(), data.events.time.numpy() / 50 * unit,
        )
        for unit in (1.0, year)
    )  # fmt: skip
    scores = []
    for each, step in ((snapshots, year), (seconds, 0.0)):
        model, past = build("pint", each, beta=1e-7, step=step), Past(each.events)
        model.state["memory"], model.state["mail"] = model.state["memory"].double(), model.state["mail"].double()
        model.calibrate(each.events[:30])
        model.observe(each.events[:30], past)
        scores.append(model.score(each.events[30:].query(), past))
    assert torch.allclose(*scores, atol=1e-6)
