"""TCL: two streams of recent links that attend to themselves and then to each other.

Wang, Chang, Li, Chu, Li, Zhang, He, Song, Zhou, Yang: TCL: Transformer-based Dynamic Graph Modelling via
Contrastive Learning, 2021.

For each endpoint u of a pair at time t, S_u is u itself (depth 0) and its last k links (w, e, t_e), the newest at
depth k:

    token  = x(w) W_n + x(e) W_e + cos(w (t - t_e) + b) W_t + D[depth]
    H_u    = block(H_u; H_u),  H_v = block(H_v; H_v)                 self-attention
    H_u'   = block(H_u; H_v),  H_v' = block(H_v; H_u)                attention to the other stream; both, per layer
    h_u    = (token of u itself in H_u) W

Fidelity
--------
* This is the model of the published tables (the one in DyGLib), not all of the paper's: it is trained like every
  other model there, without the contrastive loss, and reads direct links instead of a dependency graph searched
  breadth first.
* One block per layer serves both kinds of attention, with the same weights: as in that code.
* `crossing="last"` is that code as it first appeared: every layer continued from its own self-attention, so the
  attention to the other stream had an effect in the last layer only. It was corrected four months later
  (`crossing="every"`, the default, as in the paper).
* The rates of the cosines are learned, as published, which loses most information on long ages: rates start
  between 1 and 1e-9, and Adam's first steps move each by 1e-4. `rates="fixed"` keeps the initial rates.
* That code rounds the times of links to float32 before it takes differences, so on clocks of seconds since 1970
  ages are off by up to a minute; here differences are float64.
* Missing links are masked there; here they are left out, which is the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from dsrd.events import Query
from dsrd.history.past import Past, Sampling
from dsrd.models.base import GraphSpec, PairEncoder
from dsrd.models.card import ModelCard
from dsrd.nn.distinct import distinct
from dsrd.nn.linear import BlockLinear
from dsrd.nn.products import Linear
from dsrd.nn.ragged import Layout, spans
from dsrd.nn.time import CosineTime
from dsrd.nn.transformer import PostNormBlock
from dsrd.ranges import Chance, Heads, Layers, LinksOrNone, Width, WidthOrNone


@dataclass(frozen=True, kw_only=True)
class TCLConfig:
    neighbors: LinksOrNone = 20  # links read per node
    sampling: Sampling = "recent"  # which links
    layers: Layers = 2  # each of self-attention and attention to the other stream
    crossing: Literal["every", "last"] = "every"  # layers with attention to the other stream; see Fidelity
    heads: Heads = 2
    dim: Width = 172  # width of tokens and embeddings; features are padded to it
    time_dim: WidthOrNone = 100  # cosines per age
    rates: Literal["learned", "fixed"] = "learned"  # of the cosines; see Fidelity
    dropout: Chance = 0.1


class TCL(PairEncoder):
    """Two transformer streams with attention across; keeps no state."""

    Config = TCLConfig
    card = ModelCard(
        paper="Wang et al., 2021",
        reads="recent links of both endpoints, each beside the other's",
        cost="k links, 2 x 2 attention layers over both",
        small={"neighbors": 5, "dim": 16, "time_dim": 8, "dropout": 0.0},
    )

    def __init__(self, config: TCLConfig, graph: GraphSpec) -> None:
        dim = max(config.dim, graph.edge_dim, graph.node_dim)
        super().__init__(config, graph, out_dim=dim)
        self.time = CosineTime(config.time_dim, trainable=config.rates == "learned")
        self.node_in, self.edge_in = (BlockLinear([dim], dim) for _ in range(2))
        self.time_in = Linear(config.time_dim, dim)
        self.depth = nn.Parameter(torch.randn(config.neighbors + 1, dim))
        self.blocks = nn.ModuleList(PostNormBlock(dim, config.heads, config.dropout) for _ in range(config.layers))
        self.out = nn.Linear(dim, dim)

    def ends(self, query: Query, past: Past) -> tuple[Tensor, Tensor]:
        node, time, where = distinct(torch.cat([query.src, query.dst]), query.time.repeat(2))
        x, length = self._tokens(node, time, past)  # [N, dim], [S]
        first = len(self.blocks) - 1 if self.config.crossing == "last" else 0  # first layer that crosses streams
        layout = Layout(length)
        for block in self.blocks[: first + 1]:  # before that a stream is the same in every pair: computed once
            x = block(x, layout)
        pairs = where.view(2, -1)  # [2, Q]
        order = (length[pairs[0]] * (len(self.depth) + 1) + length[pairs[1]]).argsort()
        where = pairs[:, order].flatten()  # pairs of similar length are attended to together
        start, length = (length.cumsum(0) - length)[where], length[where]  # [2Q]
        x = x.index_select(0, spans(start, length))  # [T, dim] streams of all sources, then of all targets
        src, dst = self._crossed(x, length, self.blocks[first:]).view(2, len(query), -1)[:, order.argsort()]
        return src, dst

    def _crossed(self, x: Tensor, length: Tensor, blocks: nn.ModuleList) -> Tensor:
        """From streams that have just attended to themselves to embeddings.  # [T, dim], [2Q] -> [2Q, dim]"""
        count, half = len(length) // 2, int(length[: len(length) // 2].sum())
        layout, other_layout = Layout(length), Layout(length.roll(count))
        for depth, block in enumerate(blocks):
            if depth:
                x = block(x, layout)
            other = torch.cat([x[half:], x[:half]])  # the other stream of each pair
            if depth == len(blocks) - 1:  # of the last layer only the tokens of the nodes themselves are read
                x = x.index_select(0, length.cumsum(0) - length)
                layout = Layout(torch.ones_like(length))
            x = block(x, layout, other, other_layout)
        embedded: Tensor = self.out(x)
        return embedded

    def _tokens(self, node: Tensor, time: Tensor, past: Past) -> tuple[Tensor, Tensor]:
        """Tokens of each node and its links, end to end, and their number per node.  # [S] -> [N, dim], [S]"""
        links = past.sample(self.config.sampling, node, time, self.config.neighbors)
        used = nn.functional.pad(links.mask, (1, 0), value=True)  # [S, 1 + k]
        depth = used.nonzero()[:, 1]  # [N]
        nodes = torch.cat([node.unsqueeze(1), links.node], dim=1)[used]
        event = nn.functional.pad(links.event, (1, 0))[used]
        age = nn.functional.pad(time.unsqueeze(1) - links.time, (1, 0))[used]
        tokens = self.node_in(past.node_x(nodes)) + self.edge_in(past.edge_x(event)) + self.time_in(self.time(age))
        return tokens + self.depth.index_select(0, depth), used.sum(dim=1)
