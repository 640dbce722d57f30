"""JODIE: a recurrent memory per node, projected to the time of the query.

Kumar, Zhang, Leskovec: Predicting Dynamic Embedding Trajectory in Temporal Interaction Networks, KDD 2019.
The version of the published tables, which keeps the paper's projection inside the memory framework of TGN:

    mail(u)  = [ s(u) || s(v) || cos(w (t - last(u)) + b) || x(e) ]      left at u by an event e = (u, v, t)
    s(u)     = tanh( W mail(u) + U s(u) )                               the last mail since u was updated
    h(u, t)  = s(u) * (1 + a d + c),   d = (t - last(u) - mean) / std    of a role's gaps in training

Fidelity
--------
* The paper has one recurrent unit for users and one for items, adds static embeddings, and learns to predict the
  item's embedding. The published tables use one unit for all nodes and the common link head, as here.
* Of several messages in one batch the last in *time* is kept. `last_message="role"` keeps the public code's order:
  all source-role messages, then all target-role ones, the last of that list.
* The time encoding is used inside mail only, which carries no gradient: in the public code its weights are listed
  as parameters and never change, here they are fixed.
* A node's first gap is counted from the first training event. `first_gap="clock"` counts it from time 0, as the
  public code does; the two differ on streams whose clock does not begin at 0.
* Node features are not used, as in the public code.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from dsrd.events import Events, Query
from dsrd.history.past import Past
from dsrd.models.base import GraphSpec, TemporalModel
from dsrd.models.card import ModelCard
from dsrd.nn.linear import Merge
from dsrd.nn.memory import RNN, LastMessage, MessageMemory
from dsrd.nn.time import CosineTime
from dsrd.ranges import Chance, Width, WidthOrNone

SOURCE, TARGET = 0, 1


@dataclass(frozen=True, kw_only=True)
class JODIEConfig:
    dim: Width = 172  # width of memory and embeddings; edge features are padded to it
    time_dim: WidthOrNone = 100  # cosines in mail
    last_message: LastMessage = "time"  # see Fidelity
    first_gap: Literal["stream", "clock"] = "stream"  # see Fidelity
    dropout: Chance = 0.1


class JODIE(TemporalModel):
    """Memory by a plain recurrent unit, projected in time by a learned drift."""

    Config = JODIEConfig
    card = ModelCard(
        paper="Kumar et al., KDD 2019",
        reads="memory of each endpoint and its age",
        keeps={"node": "4 * (3 * max(dim, edge_dim, node_dim) + time_dim + edge_dim) + 17"},
        cost="memory only, no links",
        small={"dim": 16, "time_dim": 8, "dropout": 0.0},
    )

    def __init__(self, config: JODIEConfig, graph: GraphSpec) -> None:
        super().__init__(config, graph)
        dim = max(config.dim, graph.edge_dim)
        self.time = CosineTime(config.time_dim, trainable=False)
        cell = RNN([2 * dim + config.time_dim + dim], dim)  # dim columns are kept for edge features, as published
        self.memory = MessageMemory(self.state, cell, dim, 2 * dim + config.time_dim + graph.edge_dim)
        self.drift = nn.Linear(1, dim)
        self.dropout = nn.Dropout(config.dropout)
        self.head = Merge([dim, dim], dim, 1)
        self.register_buffer("gap_mean", torch.zeros(2, dtype=torch.float64))  # by role
        self.register_buffer("gap_std", torch.ones(2, dtype=torch.float64))

    def calibrate(self, train: Events) -> None:
        if not len(train):
            return
        src, dst, time, _ = train.numpy()
        start = float(time[0]) if self.config.first_gap == "stream" else 0.0
        for role, node in ((SOURCE, src), (TARGET, dst)):
            gap = gaps(node, time, start)
            self.get_buffer("gap_mean")[role] = float(gap.mean())
            self.get_buffer("gap_std")[role] = float(gap.std()) or 1.0  # all gaps equal: nothing to scale

    def score(self, query: Query, past: Past, head: str = "") -> Tensor:
        node, where = torch.unique(torch.cat([query.src, query.dst]), return_inverse=True)
        memory, last = self.memory.read(self.state, node)
        src, dst = where.chunk(2)
        logits: Tensor = self.head(
            self._project(memory[src], query.time - last[src], SOURCE),
            self._project(memory[dst], query.time - last[dst], TARGET),
        )  # [Q, 1]
        return logits.squeeze(-1)

    def embed(self, node: Tensor, time: Tensor, past: Past) -> Tensor:
        """Nodes in the role of sources, to which labels and scores by node refer."""
        memory, last = self.memory.read(self.state, node)
        return self._project(memory, time - last, SOURCE)

    def _project(self, memory: Tensor, age: Tensor, role: int) -> Tensor:
        scaled = (age - self.get_buffer("gap_mean")[role]) / self.get_buffer("gap_std")[role]  # [Q]
        drift = self.drift(scaled.to(memory.dtype).unsqueeze(1))  # [Q, dim]
        projected: Tensor = self.dropout(memory * (1 + drift))
        return projected

    def observe(self, events: Events, past: Past) -> None:
        self.memory.exchange(self.state, events, past, self.config.last_message, self.time)


def gaps(node: NDArray[np.int64], time: NDArray[np.float64], start: float) -> NDArray[np.float64]:
    """Time since each node's previous event in the same role, since `start` for its first; grouped by node.

    >>> gaps(np.array([7, 5, 7]), np.array([1.0, 2.0, 4.0]), start=0.0).tolist()
    [2.0, 1.0, 3.0]
    """
    order = np.argsort(node, kind="stable")
    node, time = node[order], time[order]
    previous = np.concatenate([[start], time[:-1]])
    previous[1:][node[1:] != node[:-1]] = start
    gap: NDArray[np.float64] = time - previous
    return gap
