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
* With several layers, a neighbour at the time it was met is embedded once for all nodes that read it, so in
  training they share its dropout. The public code embeds it again for each of them.
* A node without history attends to nothing. With `attend_padding=true` it attends to its padding, whose "age" is
  the clock itself, as in the public code.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from dsrd.events import Events
from dsrd.history.past import Past, Sampling
from dsrd.models.base import GraphSpec, NodeEncoder
from dsrd.models.card import ModelCard
from dsrd.nn.attention import links_of_layers
from dsrd.nn.memory import GRU, LastMessage, MemoryAttention, MessageMemory
from dsrd.nn.time import CosineTime
from dsrd.ranges import Chance, Heads, LayersOrNone, LinksOrNone, Width, WidthOrNone


@dataclass(frozen=True, kw_only=True)
class TGNConfig:
    neighbors: LinksOrNone = 10  # interactions read per node and layer
    sampling: Sampling = "recent"  # which ones
    layers: LayersOrNone = 1  # attention layers
    heads: Heads = 2
    dim: Width = 172  # width of memory and embeddings; features are padded to it
    time_dim: WidthOrNone = 100
    last_message: LastMessage = "time"  # see Fidelity
    attend_padding: bool = False  # see Fidelity
    dropout: Chance = 0.1


class TGN(NodeEncoder):
    """Memory by GRU, embedding by temporal attention."""

    Config = TGNConfig
    card = ModelCard(
        paper="Rossi et al., 2020",
        reads="memory and recent neighbours of each endpoint",
        keeps={"node": "4 * (3 * max(dim, edge_dim, node_dim) + time_dim + edge_dim) + 17"},
        cost="memory, k links, 1 attention layer",
        small={"neighbors": 4, "dim": 16, "time_dim": 8, "dropout": 0.0},
    )

    def __init__(self, config: TGNConfig, graph: GraphSpec) -> None:
        dim = max(config.dim, graph.edge_dim, graph.node_dim)
        super().__init__(config, graph, out_dim=dim)
        self.dim = dim
        self.time = CosineTime(config.time_dim)
        mail_dim = 2 * dim + config.time_dim + graph.edge_dim
        cell = GRU([2 * dim + config.time_dim + dim], dim)  # dim columns are kept for edge features, as published
        self.memory = MessageMemory(self.state, cell, dim, mail_dim)
        self.reader = MemoryAttention(
            dim,
            config.time_dim,
            neighbors=config.neighbors,
            sampling=config.sampling,
            layers=config.layers,
            heads=config.heads,
            dropout=config.dropout,
            attend_padding=config.attend_padding,
        )

    @property
    def links_read(self) -> int:
        return links_of_layers(self.config.neighbors, self.config.layers)

    def encode(self, node: Tensor, time: Tensor, past: Past) -> Tensor:
        embedded: Tensor = self.reader(
            node, time, past, lambda node: self.memory.recall(self.state, node, past), self.time
        )
        return embedded

    def observe(self, events: Events, past: Past) -> None:
        self.memory.exchange(self.state, events, past, self.config.last_message, self.time)
