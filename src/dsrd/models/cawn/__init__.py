"""CAWN: walks back in time from both endpoints, whose nodes are known only by how often walks visit them.

Wang, Chang, Liu, Leskovec, Li: Inductive Representation Learning in Temporal Networks via Causal Anonymous Walks,
ICLR 2021.

For a pair (u, v) at t, walks w = (w_0 = u, w_1, ...) of falling times are drawn from u, and others from v:

    hits_u(x)  = share of u's walks that are at x after 0, 1, ... steps              this makes nodes anonymous
    p(x)       = mlp(hits_u(x)) + mlp(hits_v(x))
    walk(w)    = [ bilstm{ x(w_i), cos(age of w_i), x(edge of w_i), p(w_i) } || bilstm{ p(w_i) } ]   at w's end
    h(u)       = W' mean over u's walks of transformer( W walk(w) )

and likewise for v; a link head reads h(u) and h(v). Walks form a tree: `neighbors` branches at every step.

Fidelity
--------
* Branches are drawn with weight exp(-rate age), as in the paper. The public code behind the published rows turns
  these weights e_i into e_i / (e_1 + ... + e_i), meant as chances to be tried one after the other from the newest
  on, and applies a softmax to them: nearly uniform, the oldest interaction the likeliest. `sampling="published"`
  draws like that. (There, weights also become zero where they underflow because the node's *last* event, which may
  be in the future, is 745 / rate away; not reproduced.)
* Branches are drawn with replacement. Copies of a walk are encoded once and counted. The only effect is that they
  share their dropout in training; with `merge_copies=false` each has its own, as in the public code. Equal
  (node, time) pairs also draw equal branches here, in one tree or in two.
* At a walk's end the backward half of a bidirectional LSTM has made a single step from its initial state: its
  recurrent weights have no effect. They are left out; the public code has them as unused parameters.
* Walks cut short by an empty history are encoded up to their end, as in the public code; with `sampling="recent"`
  a short history leaves walks that consist of their start alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from torch import Tensor, nn

from dsrd.errors import DsrdError
from dsrd.events import NULL, Neighbors, Query
from dsrd.history.past import Past
from dsrd.models.base import GraphSpec, PairEncoder
from dsrd.models.card import ModelCard
from dsrd.models.cawn.branches import published_branches
from dsrd.models.cawn.walk_lstm import Input, WalkLSTM
from dsrd.models.cawn.walks import Hits, Sides, Walks, grouped, sides_of
from dsrd.nn.distinct import distinct
from dsrd.nn.ragged import Layout
from dsrd.nn.time import CosineTime
from dsrd.nn.transformer import PostNormBlock
from dsrd.ranges import Chance, Heads, Links, Range, Steps, Width, WidthOrNone


@dataclass(frozen=True, kw_only=True)
class CAWNConfig:
    neighbors: Links = 32  # branches at every step of the walks
    walk_length: Steps = 1  # steps of a walk
    sampling: Literal["decayed", "uniform", "recent", "published"] = "decayed"  # of branches; see Fidelity
    rate: float = 1e-6  # decay of their weights, per unit of the stream's clock
    heads: Heads = 8  # of the attention between walks
    dim: Width = 172  # width of embeddings; features are padded to it
    time_dim: WidthOrNone = 100
    position_dim: Annotated[int, Range(2, 1 << 16)] = 172  # width of p(x)
    merge_copies: bool = True  # see Fidelity
    dropout: Chance = 0.1

    def check(self) -> None:
        # `Hits` packs the counts of walks, one per step, into 62 bits
        if self.walk_length > 60 or (self.neighbors**self.walk_length + 1) ** (self.walk_length + 1) >= 2**62:
            raise DsrdError(
                f"{self.neighbors}^{self.walk_length} walks are too many to count; "
                "lower model.neighbors or model.walk_length"
            )


class CAWN(PairEncoder):
    """Anonymous walks from both endpoints; keeps no state."""

    Config = CAWNConfig
    card = ModelCard(
        paper="Wang et al., ICLR 2021",
        reads="walks from both endpoints, and where they cross",
        cost="a tree of walks per endpoint, an LSTM along them",
        small={
            "neighbors": 4,
            "walk_length": 2,
            "heads": 2,
            "dim": 16,
            "time_dim": 8,
            "position_dim": 8,
            "dropout": 0.0,
        },
    )

    def __init__(self, config: CAWNConfig, graph: GraphSpec) -> None:
        dim = max(config.dim, graph.edge_dim, graph.node_dim)
        super().__init__(config, graph, out_dim=dim)
        widths = [dim, config.time_dim, dim, config.position_dim]
        attended = math.ceil(sum(widths) // 2 / config.heads) * config.heads
        self.time = CosineTime(config.time_dim)
        self.position = nn.Sequential(
            nn.Linear(config.walk_length + 1, config.position_dim),
            nn.ReLU(),
            nn.Linear(config.position_dim, config.position_dim),
        )
        self.feature_walk = WalkLSTM(widths, sum(widths) // 2)
        self.position_walk = WalkLSTM([config.position_dim], config.position_dim // 2)
        self.token = nn.Linear(2 * (sum(widths) // 2) + 2 * (config.position_dim // 2), attended)
        self.mix = PostNormBlock(attended, config.heads, config.dropout)
        self.out = nn.Linear(attended, dim)

    @property
    def links_read(self) -> int:
        return int(self.config.neighbors**self.config.walk_length * (self.config.walk_length + 1))

    def ends(self, query: Query, past: Past) -> tuple[Tensor, Tensor]:
        ends = torch.cat([query.src, query.dst])
        node, time, start = distinct(ends, torch.cat([query.time, query.time]))  # walks are drawn once per start
        walks = self._walks(node, time, past)
        src, dst = start.chunk(2)
        hits = Hits(walks, self.config.neighbors**self.config.walk_length)
        sides, where = sides_of(walks, hits, endpoint=start, partner=torch.cat([dst, src]))
        src_h, dst_h = self._encode(walks, sides, past)[where].chunk(2)
        return src_h, dst_h

    def _walks(self, node: Tensor, time: Tensor, past: Past) -> Walks:
        """The walks of each start: a tree with k branches at every step.  # [E], [E]"""
        k, length, starts = self.config.neighbors, self.config.walk_length, len(node)
        count = k**length
        steps = [(node, torch.zeros_like(node), time)]
        for _ in range(length):
            last_node, _, last_time = steps[-1]
            links = self._branches(last_node, last_time, past)
            steps.append((links.node.flatten(), links.event.flatten(), links.time.flatten()))
        per_walk = [
            [column.view(starts, -1).repeat_interleave(count // k**step, dim=1).flatten() for column in columns]
            for step, columns in enumerate(steps)
        ]
        nodes, events, times = (
            torch.stack(by_step, dim=1) for by_step in zip(*per_walk, strict=True)
        )  # [E W, L + 1]
        start = torch.arange(starts, device=node.device).repeat_interleave(count)
        rows, copies = torch.arange(len(start), device=node.device), torch.ones_like(start)
        if self.config.merge_copies:
            rows, kind = grouped([start, *events.T])
            copies = torch.bincount(kind)
        age = time[start[rows]].unsqueeze(1) - times[rows]
        per_start = torch.bincount(start[rows], minlength=starts)
        return Walks(start[rows], nodes[rows], events[rows], age, copies, per_start)

    def _branches(self, node: Tensor, time: Tensor, past: Past) -> Neighbors:
        config = self.config
        if config.sampling == "published":
            return published_branches(node, time, past, config.neighbors, config.rate)
        return past.sample(config.sampling, node, time, config.neighbors, config.rate)

    def _encode(self, walks: Walks, sides: Sides, past: Past) -> Tensor:  # [S, dim]
        share = self.position(sides.shares.to(self.out.weight.dtype))  # [C, p]
        position = share[sides.hits[..., 0]] + share[sides.hits[..., 1]]  # [T, L + 1, p]
        steps = (walks.node != NULL).sum(dim=1).clamp(min=1)  # [F]
        trail_steps = torch.ones_like(sides.hits[:, 0, 0]).scatter_(0, sides.trail, steps[sides.walk])  # [T]
        by_position = self.position_walk([Input(position, trail_steps)], torch.ones_like(trail_steps), trail_steps)
        time = self.time(walks.age)  # [F, L + 1, time_dim]
        encoded = []
        for length, walk, trail in sides.batches():
            features = [past.node_x(walks.node[walk]), time[walk], past.edge_x(walks.event[walk])]
            inputs = [Input(x, steps[walk]) for x in features] + [Input(position, trail_steps, trail)]
            by_features = self.feature_walk(inputs, length, steps[walk])  # [d, .]
            token = self.token(torch.cat([by_features, by_position[trail]], dim=-1))
            layout = Layout(length, walks.copies[walk])
            encoded.append(self.out(layout.pool(token.dtype).mean(self.mix(token, layout))))
        return torch.cat(encoded)
