"""TGN: a recurrent memory per node, read through attention over recent neighbours.

Rossi, Chamberlain, Frasca, Eynard, Monti, Bronstein: Temporal Graph Networks for Deep Learning on Dynamic Graphs,
ICML 2020 workshop on Graph Representation Learning.

    mail(u)   = [ s(u) || s(v) || cos(w (t - last(u)) + b) || x(e) ]      left at u by an event e = (u, v, t)
    s(u)      = GRU(mail(u), s(u))                                       the last mail since u was updated
    h_0(u, t) = s(u) + x(u)
    h_l(u, t) = merge( attention( h_{l-1}(u, t); { h_{l-1}(v, t_v), x(e), t - t_e } ), h_0(u, t) )

Fidelity
--------
* Of several messages in one batch the last in *time* is kept. `last_message="role"` keeps the public code's order:
  all source-role messages, then all target-role ones, the last of that list, so that an older message received
  as a target overrides a newer one sent as a source.
* The time encoding inside mail is made when the mail is written and carries no gradient, as in the public code.
* A node without history attends to nothing. With `attend_padding=true` it attends to its padding, whose "age" is
  the clock itself, as in the public code.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from dsrd.events import Events
from dsrd.graph.past import Past, Sampling
from dsrd.models.base import GraphSpec, NodeEncoder, by_dataset
from dsrd.nn.attention import Merge, TemporalAttention
from dsrd.nn.memory import GRU, MessageMemory, last_messages
from dsrd.nn.time import CosineTime


@dataclass(frozen=True, kw_only=True)
class TGNConfig:
    neighbors: int = 10  # interactions read per node and layer
    sampling: Sampling = "recent"  # which ones
    layers: int = 1  # attention layers
    heads: int = 2
    dim: int = 172  # width of memory and embeddings; features are padded to it
    time_dim: int = 100
    last_message: Literal["time", "role"] = "time"  # see Fidelity
    attend_padding: bool = False  # see Fidelity
    dropout: float = 0.1


def _published() -> dict[str, dict[str, Any]]:
    groups = {
        0.3: "lastfm CanParl",
        0.2: "mooc UNtrade",
        0.1: "wikipedia reddit uci Flights USLegis UNvote Contacts",
        0.0: "enron SocialEvo",
    }
    settings = by_dataset("dropout", groups)
    for name in ("CanParl", "UNvote"):
        settings[name]["sampling"] = "uniform"
    return settings


class TGN(NodeEncoder):
    """Memory by GRU, embedding by temporal attention."""

    Config = TGNConfig
    paper: ClassVar[str] = "Rossi et al., 2020"
    reads: ClassVar[str] = "memory and recent neighbours of each endpoint"
    published: ClassVar[Mapping[str, Mapping[str, Any]]] = _published()
    small: ClassVar[Mapping[str, Any]] = {"neighbors": 4, "dim": 16, "time_dim": 8, "dropout": 0.0}

    def __init__(self, config: TGNConfig, graph: GraphSpec) -> None:
        dim = max(config.dim, graph.edge_dim, graph.node_dim)
        super().__init__(config, graph, out_dim=dim)
        self.dim = dim
        self.time = CosineTime(config.time_dim)
        mail_dim = 2 * dim + config.time_dim + graph.edge_dim
        cell = GRU([2 * dim + config.time_dim + dim], dim)  # dim columns are kept for edge features, as published
        self.memory = MessageMemory(self.state, cell, dim, mail_dim)
        self.attention = nn.ModuleList(
            TemporalAttention(dim, dim, config.time_dim, config.heads, config.dropout, config.attend_padding)
            for _ in range(config.layers)
        )
        self.merge = nn.ModuleList(Merge([dim + config.time_dim, dim], dim, dim) for _ in range(config.layers))

    def encode(self, node: Tensor, time: Tensor, past: Past) -> Tensor:
        return self._embed(node, time, past, self.config.layers)

    def _embed(self, node: Tensor, time: Tensor, past: Past, layer: int) -> Tensor:
        if layer == 0:
            return self._start(node, past)
        links = past.sample(self.config.sampling, node, time, self.config.neighbors)
        shape = links.node.shape  # [Q, k]
        if layer == 1:
            # one read of the memory for the nodes and all their neighbours: a neighbour of many is read once
            both = self._start(torch.cat([node, links.node.reshape(-1)]), past)
            own, there = both[: len(node)], both[len(node) :].view(*shape, -1)
            start = own
        else:
            own = self._embed(node, time, past, layer - 1)
            there = self._embed(links.node.reshape(-1), links.time.reshape(-1), past, layer - 1).view(*shape, -1)
            start = self._start(node, past)
        now = self.time(torch.zeros_like(time))
        age = self.time(time.unsqueeze(1) - links.time)
        edge = past.edge_x(links.event)
        read = self.attention[layer - 1](own, now, there, age, edge, links.mask)
        embedded: Tensor = self.merge[layer - 1](read, start)
        return embedded

    def _start(self, node: Tensor, past: Past) -> Tensor:
        distinct, where = torch.unique(node, return_inverse=True)
        memory, _ = self.memory.read(self.state, distinct)
        x = past.node_x(distinct)
        if x.shape[-1]:
            memory = memory + nn.functional.pad(x, (0, self.dim - x.shape[-1]))
        return memory[where]

    @torch.no_grad()
    def observe(self, events: Events, past: Past) -> None:
        node, event, sent = last_messages(events.src, events.dst, by=self.config.last_message)
        memory, last = self.memory.read(self.state, node)
        self.memory.commit(self.state, node, memory, last)
        partner = torch.where(sent, events.dst[event], events.src[event])
        time = events.time[event]
        mail = torch.cat(
            [
                memory,
                memory[torch.searchsorted(node, partner)],
                self.time(time - last),
                past.edge_x(events.id[event]),
            ],
            dim=-1,
        )  # [n, mail_dim]
        self.memory.post(self.state, node, mail, time)
