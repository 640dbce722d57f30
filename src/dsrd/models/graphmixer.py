"""GraphMixer: an MLP-mixer over a node's recent links, and the mean of its neighbours.

Cong, Zhang, Kang, Yuan, Wu, Zhou, Tong, Mahdavi: Do We Really Need Complicated Model Architectures For Temporal
Networks?, ICLR 2023.

For a node at time t, with its k most recent links e_1..e_k of ages a_1..a_k:

    H      = [ x(e_i) || cos(w a_i) ] W                       one token per link, w fixed
    H      = H + token_mlp(norm(H^T))^T,  H + channel_mlp(norm(H))         twice
    link   = mean over tokens of H
    node   = x(u) + mean of x(v) over the last `history` neighbours v
    h      = [ link || node ] W'

Fidelity
--------
* Missing links are tokens with zero features (time included), mixed and averaged like the others: as published.
* `node_mean="published"` divides the neighbours' mean once more by `history` (a softmax over the neighbours
  followed by a mean over the slots, in the public code); `"once"`, the default, is the paper's mean. On the
  benchmarks node features are zero and the two are the same; nothing is gathered then.
* The paper averages neighbours of the last T units of time; the public code, and this one, the last 2000 links.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from dsrd.history.past import Past, Sampling
from dsrd.models.base import GraphSpec, NodeEncoder
from dsrd.models.card import ModelCard
from dsrd.nn.linear import BlockLinear
from dsrd.nn.mixer import MixerBlock
from dsrd.nn.time import CosineTime
from dsrd.ranges import Chance, LayersOrNone, Links, LinksOrNone, Width, WidthOrNone


@dataclass(frozen=True, kw_only=True)
class GraphMixerConfig:
    neighbors: Links = 20  # links read per node
    sampling: Sampling = "recent"  # which links
    layers: LayersOrNone = 2  # mixer blocks
    dim: Width = 172  # width of tokens and embeddings; features are padded to it
    time_dim: WidthOrNone = 100  # cosines per age
    history: LinksOrNone = 2000  # neighbours in the mean of node features
    node_mean: Literal["once", "published"] = "once"  # see Fidelity
    dropout: Chance = 0.1


class GraphMixer(NodeEncoder):
    """Recent links through an MLP-mixer; keeps no state."""

    Config = GraphMixerConfig
    card = ModelCard(
        paper="Cong et al., ICLR 2023",
        reads="recent links of each endpoint",
        cost="k links, 2 mixer blocks",
        small={"neighbors": 5, "dim": 16, "time_dim": 8, "history": 20, "dropout": 0.0},
    )

    def __init__(self, config: GraphMixerConfig, graph: GraphSpec) -> None:
        dim = max(config.dim, graph.edge_dim, graph.node_dim)
        super().__init__(config, graph, out_dim=dim)
        self.time = CosineTime(config.time_dim, trainable=False)
        self.token = BlockLinear([dim, config.time_dim], dim)
        self.mixers = nn.Sequential(
            *(MixerBlock(config.neighbors, dim, dropout=config.dropout) for _ in range(config.layers))
        )
        self.out = BlockLinear([dim, dim], dim)

    def encode(self, node: Tensor, time: Tensor, past: Past) -> Tensor:
        links = past.sample(self.config.sampling, node, time, self.config.neighbors)
        age = self.time(time.unsqueeze(1) - links.time) * links.mask.unsqueeze(-1)  # [Q, k, time_dim]
        tokens = self.token(past.edge_x(links.event), age)  # [Q, k, dim]
        link = self.mixers(tokens).mean(dim=1)  # [Q, dim]
        embedded: Tensor = self.out(link, self._node(node, time, past))
        return embedded

    def _node(self, node: Tensor, time: Tensor, past: Past) -> Tensor:
        """x(u) plus the mean features of the node's neighbours.  # [Q] -> [Q, node_dim]"""
        own_x = past.node_x(node)
        if not own_x.shape[-1]:
            return own_x
        links = past.sample(self.config.sampling, node, time, self.config.history)
        count = links.mask.sum(dim=1, keepdim=True).clamp(min=1)  # [Q, 1]
        if self.config.node_mean == "published":
            count = count * self.config.history
        return own_x + torch.einsum("qkd,qk->qd", past.node_x(links.node), links.mask.to(own_x.dtype)) / count
