"""JODIE against dictionaries: one node, one event at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from dsrd.data.dataset import Dataset
from dsrd.events import Events, Query
from dsrd.history.past import Past
from dsrd.models.jodie import SOURCE, TARGET
from dsrd.nn.memory import RNN
from support.slow_models import build, check, cosine, head, padded, stream

UNMET = 50


class NaiveJODIE:
    """Memory and mail in dictionaries; gaps by walking through the stream."""

    def __init__(self, model: Any, data: Dataset) -> None:
        self.model, self.data, self.dim = model, data, model.head.out.in_features
        self.memory: dict[int, Tensor] = {}
        self.last: dict[int, float] = {}
        self.mail: dict[int, tuple[Tensor, float]] = {}
        self.gap: dict[int, tuple[float, float]] = {}

    def calibrate(self, events: Events, began: float) -> None:
        for role, nodes in ((SOURCE, events.src.tolist()), (TARGET, events.dst.tolist())):
            met: dict[int, float] = {}
            found = []
            for node, time in zip(nodes, events.time.tolist(), strict=True):
                found.append(time - met.get(node, began))
                met[node] = time
            self.gap[role] = (float(np.mean(found)), float(np.std(found)))

    def read(self, node: int) -> tuple[Tensor, float]:
        memory, last = self.memory.get(node, torch.zeros(self.dim).double()), self.last.get(node, 0.0)
        if node not in self.mail:
            return memory, last
        mail, time = self.mail[node]
        cell = self.model.memory.cell
        return torch.tanh(cell.input.weight @ mail + cell.input.bias + cell.hidden(memory)), time

    def observe(self, rows: Events, last_message: str) -> None:
        events = list(zip(*(column.tolist() for column in rows.numpy()), strict=True))
        with torch.no_grad():
            for node in {node for event in events for node in event[:2]}:
                self.memory[node], self.last[node] = self.read(node)
                self.mail.pop(node, None)
            sent, received = events, [(dst, src, t, id) for src, dst, t, id in events]
            mixed = [message for both in zip(sent, received, strict=True) for message in both]
            for node, other, t, id in sent + received if last_message == "role" else mixed:
                parts = [self.memory[node], self.memory[other], cosine(self.model, t - self.last[node])]
                self.mail[node] = (torch.cat([*parts, padded(self.data.edge_x[id], self.dim)]), t)

    def embed(self, node: int, time: float, role: int) -> Tensor:
        memory, last = self.read(node)
        mean, std = self.gap[role]
        age = torch.tensor([(time - last - mean) / std], dtype=torch.float64)
        moved: Tensor = memory * (1 + self.model.drift(age))
        return moved

    def score(self, src: int, dst: int, time: float) -> Tensor:
        return head(self.model, self.embed(src, time, SOURCE), self.embed(dst, time, TARGET))


@pytest.mark.parametrize("last_message", ["time", "role"])
@pytest.mark.parametrize("first_gap", ["stream", "clock"])
def test_jodie(last_message: str, first_gap: str) -> None:
    data = stream()
    model = build("jodie", data, last_message=last_message, first_gap=first_gap)
    past = Past(data.events, edge_x=data.edge_x.double(), node_x=data.node_x.double())
    naive, train = NaiveJODIE(model, data), data.events[5:40]
    model.calibrate(train)
    naive.calibrate(train, float(train.time[0]) if first_gap == "stream" else 0.0)
    for batch in data.events[:30].batches(7):
        model.observe(batch, past)
        naive.observe(batch, last_message)
    rows = data.events[30:]
    unmet = Query(torch.tensor([UNMET, 1]), torch.tensor([2, UNMET]), rows.time[-2:])
    query = Query.cat(rows.query(), Query(rows.src, rows.dst.flip(0), rows.time), unmet)
    asked = list(zip(query.src.tolist(), query.dst.tolist(), query.time.tolist(), strict=True))
    check(model, model.score(query, past), torch.stack([naive.score(*each) for each in asked]))
    embedded = torch.stack([naive.embed(node, time, SOURCE) for node, _, time in asked])
    assert torch.allclose(model.embed(query.src, query.time, past), embedded, atol=1e-10)


def test_gaps_without_spread_scale_nothing() -> None:
    model = build("jodie", stream())
    model.calibrate(Events.from_numpy([1, 1], [2, 3], [5.0, 5.0]))
    assert model.get_buffer("gap_std").tolist() == [1.0, 1.0]


def test_rnn_is_torchs() -> None:
    ours, theirs = RNN([5, 4], 3), torch.nn.RNNCell(9, 3)
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
