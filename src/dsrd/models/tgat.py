"""TGAT: layers of attention over past neighbours, with time as cosines. No memory.

Xu, Ruan, Korpeoglu, Kumar, Achan: Inductive Representation Learning on Temporal Graphs, ICLR 2020.

    h_0(u, t) = x(u)
    h_l(u, t) = merge( attention( h_{l-1}(u, t), cos(b); { h_{l-1}(v, t_v), x(e), cos(w (t - t_v) + b) } ), x(u) )

over the interactions e = (u, v, t_v) of u that are picked among those before t.

Fidelity
--------
* A neighbour at the time it was met is embedded once for all nodes that read it, so in training they share its
  dropout. The public code embeds it again for each of them.
* `hop_time="float32"` rounds the time of a neighbour to float32 as the public code does. Where clocks exceed 2^24
  (enron counts seconds for three years) the rounding can move it past the query's own time, and the next layer
  then sees the very event that is to be predicted: a leak. `"exact"`, the default, keeps times as they are.
* A node without history attends to nothing. With `attend_padding=true` it attends to its padding, whose "age" is
  the clock itself, as in the public code.
* The paper draws neighbours uniformly; the published rows take the most recent ones on most data sets.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from torch import Tensor

from dsrd.events import Neighbors
from dsrd.history.past import Past, Sampling
from dsrd.models.base import GraphSpec, NodeEncoder
from dsrd.models.card import ModelCard
from dsrd.nn.attention import StackedAttention, attention_layers, links_of_layers
from dsrd.nn.time import CosineTime
from dsrd.ranges import Chance, Heads, Layers, LinksOrNone, Width, WidthOrNone


@dataclass(frozen=True, kw_only=True)
class TGATConfig:
    neighbors: LinksOrNone = 20  # interactions read per node and layer
    sampling: Sampling = "recent"  # which ones
    layers: Layers = 2  # attention layers
    heads: Heads = 2
    dim: Width = 172  # width of embeddings; features are padded to it
    time_dim: WidthOrNone = 100
    hop_time: Literal["exact", "float32"] = "exact"  # see Fidelity
    attend_padding: bool = False  # see Fidelity
    dropout: Chance = 0.1


class TGAT(NodeEncoder):
    """Layers of temporal attention; keeps no state."""

    Config = TGATConfig
    card = ModelCard(
        paper="Xu et al., ICLR 2020",
        reads="recent neighbours of each endpoint, and theirs",
        cost="k + k^2 links, 2 attention layers",
        small={"neighbors": 4, "dim": 16, "time_dim": 8, "dropout": 0.0},
    )

    def __init__(self, config: TGATConfig, graph: GraphSpec) -> None:
        dim = max(config.dim, graph.edge_dim, graph.node_dim)
        super().__init__(config, graph, out_dim=dim)
        self.dim = dim
        self.time = CosineTime(config.time_dim)
        self.attention, self.merge = attention_layers(
            dim, config.time_dim, config.layers, config.heads, config.dropout, config.attend_padding
        )

    @property
    def links_read(self) -> int:
        return links_of_layers(self.config.neighbors, self.config.layers)

    def encode(self, node: Tensor, time: Tensor, past: Past) -> Tensor:
        def neighbors(node: Tensor, time: Tensor) -> Neighbors:
            links = past.sample(self.config.sampling, node, time, self.config.neighbors)
            if self.config.hop_time == "exact":
                return links
            return replace(links, time=links.time.float().double())

        embed = StackedAttention(
            self.dim, self.attention, self.merge, self.time, past.node_x, neighbors, past.edge_x
        )
        return embed(node, time)
