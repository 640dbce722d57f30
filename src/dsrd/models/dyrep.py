"""DyRep: a recurrent memory per node, updated with a summary of the partner's neighbourhood.

Trivedi, Farajtabar, Biswal, Zha: DyRep: Learning Representations over Dynamic Graphs, ICLR 2019.
The version of the published tables, which keeps the paper's attentive message inside the memory framework of TGN:

    mail(u) = [ s(u) || g(v, t) || cos(w (t - last(u)) + b) || x(e) ]    left at u by an event e = (u, v, t)
    g(v, t) = merge( attention( s(v) + x(v); { s(z) + x(z), x(e'), t - t' } ), s(v) + x(v) )    v's past events e'
    s(u)    = tanh( W mail(u) + U s(u) )                                the last mail since u was updated
    h(u, t) = s(u)

Fidelity
--------
* The paper models the rate of events (a point process, with association and communication) and attends over a
  learned adjacency. The published tables use recent neighbours and the common link head, as here.
* **The attention is not trained.** It is used inside mail only, which is detached from the gradient before it is
  read: in the public code its weights are listed as parameters and never change. Here they are marked as fixed.
  Its dropout is active in training, as published.
* Of several messages in one batch the last in *time* is kept. `last_message="role"` keeps the public code's order:
  all source-role messages, then all target-role ones, the last of that list.
* With several layers, a neighbour at the time it was met is embedded once for all nodes that read it, so in
  training they share its dropout. The public code embeds it again for each of them.
* A node without history attends to nothing. With `attend_padding=true` it attends to its padding, whose "age" is
  the clock itself, as in the public code.
* Node features enter the attention and not the embedding, as in the public code.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from dsrd.events import Events
from dsrd.history.past import Past, Sampling
from dsrd.models.base import GraphSpec, NodeEncoder
from dsrd.models.card import ModelCard
from dsrd.nn.attention import links_of_layers
from dsrd.nn.memory import RNN, LastMessage, MemoryAttention, MessageMemory
from dsrd.nn.time import CosineTime
from dsrd.ranges import Chance, Heads, LayersOrNone, LinksOrNone, Width, WidthOrNone


@dataclass(frozen=True, kw_only=True)
class DyRepConfig:
    neighbors: LinksOrNone = 10  # interactions of the partner read per message and layer
    sampling: Sampling = "recent"  # which ones
    layers: LayersOrNone = 1  # attention layers
    heads: Heads = 2
    dim: Width = 172  # width of memory and embeddings; features are padded to it
    time_dim: WidthOrNone = 100
    last_message: LastMessage = "time"  # see Fidelity
    attend_padding: bool = False  # see Fidelity
    dropout: Chance = 0.1  # inside the attention


class DyRep(NodeEncoder):
    """Memory by a plain recurrent unit; messages hold an attention over the partner's neighbours."""

    Config = DyRepConfig
    card = ModelCard(
        paper="Trivedi et al., ICLR 2019",
        reads="memory of each endpoint",
        keeps={"node": "4 * (3 * max(dim, edge_dim, node_dim) + time_dim + edge_dim) + 17"},
        cost="memory; per message k links, 1 attention layer",
        small={"neighbors": 4, "dim": 16, "time_dim": 8, "dropout": 0.0},
    )

    def __init__(self, config: DyRepConfig, graph: GraphSpec) -> None:
        dim = max(config.dim, graph.edge_dim, graph.node_dim)
        super().__init__(config, graph, out_dim=dim)
        self.time = CosineTime(config.time_dim, trainable=False)
        cell = RNN([2 * dim + config.time_dim + dim], dim)  # dim columns are kept for edge features, as published
        self.memory = MessageMemory(self.state, cell, dim, 2 * dim + config.time_dim + graph.edge_dim)
        self.reader = MemoryAttention(
            dim,
            config.time_dim,
            neighbors=config.neighbors,
            sampling=config.sampling,
            layers=config.layers,
            heads=config.heads,
            dropout=config.dropout,
            attend_padding=config.attend_padding,
        ).requires_grad_(False)

    @property
    def links_read(self) -> int:
        return links_of_layers(self.config.neighbors, self.config.layers)

    def encode(self, node: Tensor, time: Tensor, past: Past) -> Tensor:
        nodes, where = torch.unique(node, return_inverse=True)
        memory, _ = self.memory.read(self.state, nodes)
        return memory.index_select(0, where)

    def observe(self, events: Events, past: Past) -> None:
        def read_partner(partner: Tensor, time: Tensor) -> Tensor:
            embedded: Tensor = self.reader(
                partner, time, past, lambda node: self.memory.recall(self.state, node, past), self.time
            )
            return embedded

        self.memory.exchange(self.state, events, past, self.config.last_message, self.time, read_partner)
