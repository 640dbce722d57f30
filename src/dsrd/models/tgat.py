"""TGAT: attention over past neighbours, layer upon layer, with time as cosines. No memory.

Xu, Ruan, Korpeoglu, Kumar, Achan: Inductive Representation Learning on Temporal Graphs, ICLR 2020.

    h_0(u, t) = x(u)
    h_l(u, t) = merge( attention( h_{l-1}(u, t), cos(b); { h_{l-1}(v, t_v), x(e), cos(w (t - t_v) + b) } ), x(u) )

over the interactions e = (u, v, t_v) of u that are picked among those before t.

Fidelity
--------
* A neighbour at the time it was met is embedded once however many ask for it, so in training those who ask share
  its dropout. In the public code every mention is embedded again.
* `hop_time="float32"` rounds the time of a neighbour to float32 as the public code does. Where clocks exceed 2^24
  (enron counts seconds for three years) the rounding can move it past the query's own time, and the next layer
  then sees the very event that is asked about: a leak. `"exact"`, the default, keeps times as they are.
* A node without history attends to nothing. With `attend_padding=true` it attends to its padding, whose "age" is
  the clock itself, as in the public code.
* The paper draws neighbours uniformly; the published rows take the most recent ones on most data sets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from dsrd.history.past import Past, Sampling
from dsrd.models.base import GraphSpec, NodeEncoder, at_least, by_dataset, distinct
from dsrd.nn.attention import Merge, TemporalAttention
from dsrd.nn.time import CosineTime


@dataclass(frozen=True, kw_only=True)
class TGATConfig:
    neighbors: int = 20  # interactions read per node and layer
    sampling: Sampling = "recent"  # which ones
    layers: int = 2  # attention layers
    heads: int = 2
    dim: int = 172  # width of embeddings; features are padded to it
    time_dim: int = 100
    hop_time: Literal["exact", "float32"] = "exact"  # see Fidelity
    attend_padding: bool = False  # see Fidelity
    dropout: float = 0.1

    def __post_init__(self) -> None:
        at_least(self, layers=1)


def _published() -> dict[str, dict[str, Any]]:
    groups = {
        0.2: "enron CanParl UNvote",
        0.1: "wikipedia reddit mooc lastfm myket SocialEvo uci Flights USLegis UNtrade Contacts",
    }
    settings = by_dataset("dropout", groups)
    for name in ("reddit", "CanParl", "UNtrade"):
        settings[name]["sampling"] = "uniform"
    return settings


class TGAT(NodeEncoder):
    """Stacked temporal attention; keeps no state."""

    Config = TGATConfig
    paper: ClassVar[str] = "Xu et al., ICLR 2020"
    reads: ClassVar[str] = "recent neighbours of each endpoint, and theirs"
    cost: ClassVar[str] = "k + k^2 links, 2 attention layers"
    published: ClassVar[Mapping[str, Mapping[str, Any]]] = _published()
    small: ClassVar[Mapping[str, Any]] = {"neighbors": 4, "dim": 16, "time_dim": 8, "dropout": 0.0}

    def __init__(self, config: TGATConfig, graph: GraphSpec) -> None:
        dim = max(config.dim, graph.edge_dim, graph.node_dim)
        super().__init__(config, graph, out_dim=dim)
        self.dim = dim
        self.time = CosineTime(config.time_dim)
        self.attention = nn.ModuleList(
            TemporalAttention(dim, dim, config.time_dim, config.heads, config.dropout, config.attend_padding)
            for _ in range(config.layers)
        )
        self.merge = nn.ModuleList(Merge([dim + config.time_dim, dim], dim, dim) for _ in range(config.layers))

    def encode(self, node: Tensor, time: Tensor, past: Past) -> Tensor:
        return self._embed(node, time, past, self.config.layers)

    def _embed(self, node: Tensor, time: Tensor, past: Past, layer: int) -> Tensor:
        start = past.node_x(node)  # [Q, node_dim]
        if layer == 0:
            return start
        links = past.sample(self.config.sampling, node, time, self.config.neighbors)
        met = links.time.float().double() if self.config.hop_time == "float32" else links.time  # [Q, k]
        # own and neighbours' lower layers in one call: whoever was met by several at one time is embedded once
        below, at, where = distinct(torch.cat([node, links.node.flatten()]), torch.cat([time, met.flatten()]))
        both = self._embed(below, at, past, layer - 1)[where]
        own, there = both[: len(node)], both[len(node) :].view(*met.shape, -1)
        own = nn.functional.pad(own, (0, self.dim - own.shape[-1]))  # features are narrower than embeddings
        now = self.time(torch.zeros_like(time))
        age = self.time(time.unsqueeze(1) - met)  # [Q, k, time_dim]
        edge = past.edge_x(links.event)
        read = self.attention[layer - 1](own, now, there, age, edge, links.mask)
        embedded: Tensor = self.merge[layer - 1](read, start)
        return embedded
