"""NAT against dictionaries of slots: one node, one key, one event at a time."""

from __future__ import annotations

from collections import defaultdict
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor

from dsrd.data.dataset import Dataset
from dsrd.events import Events, Query
from dsrd.history.past import Past
from dsrd.models import TemporalModel
from dsrd.models.nat.caches import Rule, accepts, slot_of
from dsrd.models.nat.dropped_sum import dropped_sum, places
from support.slow_models import build, check, cosine, padded, stream

UNMET = 50
HARDLY = 1e-12  # a dropout that takes the way of dropout and drops nothing


def mixed(value: int) -> int:
    z = (value + 0x9E3779B97F4A7C15) % 2**64
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB % 2**64
    return z ^ (z >> 31)


def chance(seed: int, owner: int, event: int, key: int) -> float:
    return (mixed(mixed(mixed(seed ^ owner) ^ event) ^ key) >> 11) / 2**53


class Slot(NamedTuple):
    key: int
    event: int
    time: float
    value: Tensor


class NaiveNAT:
    """A dictionary of slots by (hop, place) for each node."""

    def __init__(self, model: Any, data: Dataset) -> None:
        self.model, self.data, self.config = model, data, model.config
        self.own: dict[int, Tensor] = defaultdict(lambda: torch.zeros(model.dim).double())
        self.last: dict[int, tuple[int, int, float]] = defaultdict(lambda: (0, 0, 0.0))
        self.cache: dict[int, dict[tuple[int, int], Slot]] = defaultdict(dict)

    def gru(self, cell: Any, x: Tensor, h: Tensor) -> Tensor:
        given, kept = cell.input(x[None])[0].chunk(3), cell.hidden(h).chunk(3)
        reset, update = torch.sigmoid(given[0] + kept[0]), torch.sigmoid(given[1] + kept[1])
        return (1 - update) * torch.tanh(given[2] + reset * kept[2]) + update * h

    def message(self, linear: Any, node: int, event: int, time: float) -> Tensor:
        edge = padded(self.data.edge_x[event], self.model.dim)
        result: Tensor = linear.weight @ torch.cat([self.own[node], edge, cosine(self.model, time)])
        return result

    def own_now(self, node: int) -> Tensor:
        return self.gru(self.model.own_cell, self.message(self.model.own_input, *self.last[node]), self.own[node])

    def slots_now(self, node: int) -> dict[tuple[int, int], Slot]:
        nothing = torch.zeros(self.config.slot_dim).double()
        slots = {(0, 0): Slot(node, 0, 0.0, nothing), **self.cache[node]}
        for at, (key, event, time, value) in slots.items():
            empty = time == 0 if self.config.time_zero_is_empty else event == 0
            new = self.gru(self.model.slot_cell, self.message(self.model.slot_input, key, event, time), value)
            slots[at] = Slot(key, event, time, nothing if empty else new)
        return slots

    def score(self, src: int, dst: int) -> Tensor:
        model = self.model
        found: dict[int, tuple[int, Any]] = {}
        for side, node in enumerate((src, dst)):
            for (hop, _), slot in self.slots_now(node).items():
                x = self.data.node_x[slot.key] if slot.key < len(self.data.node_x) else torch.zeros(0)
                place, summed = found.get(slot.key, (0, 0))
                entry = torch.cat([padded(x, model.dim), slot.value])
                found[slot.key] = (place + 2 ** (hop + 3 * side), summed + entry)
        joint = 0
        for place, summed in found.values():
            mapped = model.joint.weight @ torch.cat([summed, model.place.weight[place]])
            joint = joint + mapped.view(self.config.heads, -1).mean(0)
        whole = torch.cat([joint + model.joint_bias, self.own_now(src), self.own_now(dst)])
        hidden = torch.relu(model.head.hidden.weight @ whole + model.head.hidden.bias)
        result: Tensor = model.head.out(hidden)[0]
        return result

    def place(self, key: int, size: int) -> int:
        seed: int = self.config.seed
        if self.config.hashing == "quadratic":
            return (seed % 100 * key + (seed % 100 + 1) * key**2) % size
        return mixed(mixed(seed) ^ key) % size

    def observe(self, rows: Events) -> None:
        events = list(zip(*(column.tolist() for column in rows.numpy()), strict=True))
        sent, received = events, [(dst, src, t, id) for src, dst, t, id in events]
        in_turn = [message for both in zip(sent, received, strict=True) for message in both]
        messages = sent + received if self.config.last_message == "role" else in_turn
        with torch.no_grad():
            nodes = {message[0] for message in messages}
            own, slots = {n: self.own_now(n) for n in nodes}, {n: self.slots_now(n) for n in nodes}
        before = {node: dict(self.cache[node]) for node in nodes}

        def put(owner: int, hop: int, slot: Slot, id: int) -> None:
            at = (hop, self.place(slot.key, (1, self.config.near, self.config.far)[hop]))
            held = before[owner].get(at)
            rival = held is not None and held.key != slot.key
            if not rival or chance(3 * self.config.seed + hop, owner, id, slot.key) < self.config.replace:
                self.cache[owner][at] = slot

        for node, other, t, id in messages:
            for (hop, _), slot in sorted(slots[node].items(), key=lambda item: item[0]):
                if hop == 1:
                    put(other, 2, slot, id)
            same = slots[node].get((1, self.place(other, self.config.near)))
            fresh = torch.zeros(self.config.slot_dim).double()
            put(node, 1, Slot(other, id, t, same.value if same and same.key == other else fresh), id)
            self.cache[node][0, 0] = Slot(node, id, t, slots[node][0, 0].value)
            self.last[node] = (other, id, t)
        self.own.update(own)


def walked(data: Dataset, **settings: Any) -> tuple[TemporalModel, NaiveNAT, Past]:
    model = build("nat", data, near=4, far=3, replace=0.6, **settings)  # crowded: keys compete for slots
    past = Past(data.events, edge_x=data.edge_x.double(), node_x=data.node_x.double())
    naive = NaiveNAT(model, data)
    for batch in data.events[:30].batches(7):
        model.observe(batch, past)
        naive.observe(batch)
    return model, naive, past


def asked(data: Dataset) -> Query:
    rows = data.events[30:]
    unmet = Query(torch.tensor([UNMET, 1]), torch.tensor([2, UNMET]), rows.time[-2:])
    alone = Query(torch.tensor([3, UNMET]), torch.tensor([3, UNMET]), rows.time[-2:])
    return Query.cat(rows.query(), Query(rows.src, rows.dst.flip(0), rows.time), unmet, alone)


@pytest.mark.parametrize("hashing", ["mixed", "quadratic"])
@pytest.mark.parametrize("last_message", ["time", "role"])
@pytest.mark.parametrize("dropout", [0.0, HARDLY])
def test_nat(hashing: str, last_message: str, dropout: float) -> None:
    data = stream()
    model, naive, past = walked(data, hashing=hashing, last_message=last_message, dropout=dropout, seed=3)
    query = asked(data)
    model.train(dropout > 0)
    expected = [naive.score(*pair) for pair in zip(query.src.tolist(), query.dst.tolist(), strict=True)]
    check(model, model.score(query, past), torch.stack(expected))


@pytest.mark.parametrize("time_zero_is_empty", [True, False])
def test_events_at_time_zero(time_zero_is_empty: bool) -> None:
    data = stream()
    src, dst, time, _ = data.events.numpy()
    late = np.maximum(time - 500, 0.0)
    data = Dataset.from_arrays("toy", src, dst, late, edge_x=data.edge_x, node_x=data.node_x)
    assert int((data.events.time == 0).sum()) > 5
    model, naive, past = walked(data, time_zero_is_empty=time_zero_is_empty)
    query = asked(data)
    expected = [naive.score(*pair) for pair in zip(query.src.tolist(), query.dst.tolist(), strict=True)]
    assert torch.allclose(model.score(query, past), torch.stack(expected), atol=1e-10)


def test_embedding_is_what_a_node_remembers() -> None:
    data = stream()
    model, naive, past = walked(data)
    node = torch.tensor([1, 5, UNMET])
    expected = torch.stack([naive.own_now(n) for n in node.tolist()])
    assert torch.allclose(model.embed(node, torch.zeros(3).double(), past), expected, atol=1e-10)


def test_slots_and_rivals() -> None:
    keys = range(1, 5000)
    rule = Rule(near=32, far=16, quadratic=False, replace=0.9, seed=0)
    assert len({slot_of(rule, key, 32) for key in keys}) == 32
    assert len({slot_of(rule._replace(quadratic=True), key, 32) for key in keys}) == 7
    accepted = [accepts(rule, 1, key, 1, 7, 3) for key in keys if key > 1]
    assert abs(np.mean(accepted) - 0.9) < 0.02
    never = rule._replace(replace=0.0)
    assert accepts(never, 0, 5, 1, 7, 3)
    assert accepts(never, 5, 5, 1, 7, 3)
    assert not accepts(never, 4, 5, 1, 7, 3)


def test_dropped_sum_is_dropout_of_the_products() -> None:
    generator = torch.Generator().manual_seed(1)

    def drawn(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64, requires_grad=True)

    x, weight, group = drawn(40, 5), drawn(7, 5), torch.randint(4, (40,), generator=generator)
    mask = dropped_sum(torch.ones(40, 1), torch.ones(7, 1), torch.arange(40), 40, 0.3, seed=2).double()  # [40, 7]
    found = dropped_sum(x, weight, group, 5, 0.3, seed=2)
    expected = torch.zeros(5, 7).double().index_add(0, group, mask * (x @ weight.T))
    assert torch.allclose(found, expected)
    given = torch.randn(5, 7, generator=generator, dtype=torch.float64)
    ours = torch.autograd.grad(found, (x, weight), given)
    theirs = torch.autograd.grad(expected, (x, weight), given)
    assert all(torch.allclose(one, other) for one, other in zip(ours, theirs, strict=True))


@pytest.mark.parametrize("p", [0.02, 0.1, 0.7])
def test_places_are_independent_coins(p: float) -> None:
    row, column = places(2000, 50, p, np.uint64(9))
    table = np.zeros((2000, 50))
    table[row, column] += 1
    assert table.max() == 1
    assert abs(table.mean() - p) < 5 * np.sqrt(p * (1 - p) / table.size)
    assert abs(np.corrcoef(table[:, :-1].ravel(), table[:, 1:].ravel())[0, 1]) < 5 / np.sqrt(table.size)
    assert np.abs(table.mean(0) - p).max() < 5 * np.sqrt(p * (1 - p) / 2000)
