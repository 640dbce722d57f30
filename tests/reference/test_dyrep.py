"""DyRep against dictionaries: one node, one event at a time."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from test_models import NaiveTGN
from torch import Tensor

from dsrd.data.dataset import Dataset
from dsrd.events import Query
from dsrd.history.past import Past
from support.slow_models import build, check, cosine, head, padded, stream

UNMET = 50


class NaiveDyRep(NaiveTGN):
    """The attention is TGN's; the unit, the message and the embedding are not."""

    def __init__(self, model: Any, data: Dataset) -> None:
        self.model, self.data, self.dim = model, data, model.head.out.in_features
        self.memory: dict[int, Tensor] = {}
        self.last: dict[int, float] = {}
        self.mail: dict[int, tuple[Tensor, float]] = {}

    def read(self, node: int) -> Tensor:
        memory = self.memory.get(node, torch.zeros(self.dim).double())
        if node not in self.mail:
            return memory
        cell = self.model.memory.cell
        return torch.tanh(cell.input.weight @ self.mail[node][0] + cell.input.bias + cell.hidden(memory))

    def observe(self, rows: Any, last_message: str) -> None:
        events = list(zip(*(column.tolist() for column in rows.numpy()), strict=True))
        sent, received = events, [(dst, src, t, id) for src, dst, t, id in events]
        mixed = [message for both in zip(sent, received, strict=True) for message in both]
        messages = sent + received if last_message == "role" else mixed
        with torch.no_grad():
            heard = [self.embed(other, t, self.model.config.layers) for _, other, t, _ in messages]
            for node in {message[0] for message in messages}:
                self.memory[node] = self.read(node)
                if node in self.mail:
                    self.last[node] = self.mail.pop(node)[1]
            for (node, _, t, id), other in zip(messages, heard, strict=True):
                time = cosine(self.model, t - self.last.get(node, 0.0))
                edge = padded(self.data.edge_x[id], self.dim)
                self.mail[node] = (torch.cat([self.memory[node], other, time, edge]), t)

    def score(self, src: int, dst: int, time: float) -> Tensor:
        return head(self.model, self.read(src), self.read(dst))


@pytest.mark.parametrize("last_message", ["time", "role"])
@pytest.mark.parametrize("layers", [1, 2])
def test_dyrep(last_message: str, layers: int) -> None:
    data = stream()
    model = build("dyrep", data, last_message=last_message, layers=layers, neighbors=3)
    past = Past(data.events, edge_x=data.edge_x.double(), node_x=data.node_x.double())
    naive = NaiveDyRep(model, data)
    for batch in data.events[:30].batches(7):
        model.observe(batch, past)
        naive.observe(batch, last_message)
    rows = data.events[30:]
    unmet = Query(torch.tensor([UNMET, 1]), torch.tensor([2, UNMET]), rows.time[-2:])
    query = Query.cat(rows.query(), Query(rows.src, rows.dst.flip(0), rows.time), unmet)
    asked = zip(query.src.tolist(), query.dst.tolist(), query.time.tolist(), strict=True)
    check(model, model.score(query, past), torch.stack([naive.score(*each) for each in asked]))


def test_what_no_gradient_reaches_is_fixed() -> None:
    model = build("dyrep", stream())
    fixed = {name.partition(".")[0] for name, p in model.named_parameters() if not p.requires_grad}
    learned = {name.partition(".")[0] for name, p in model.named_parameters() if p.requires_grad}
    assert fixed == {"time", "reader"}
    assert learned == {"head", "memory"}
