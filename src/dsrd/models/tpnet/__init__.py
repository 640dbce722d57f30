"""TPNet: random projections of temporal walk matrices, read for a pair and for its recent partners.

Lu, Sun, Zhu, Lv: Improving Temporal Link Prediction via Temporal Walk Matrix Projection, NeurIPS 2024.

Every node keeps projections P0..PL of the matrices of decayed temporal walks of 0..L steps
(`projections.py`).
For a pair (u, v) at time t, and each of the k most recent links (w, e, age) of either endpoint:

    r(a, b) = mlp( log(1 + relu( all products among P0..PL of a and P0..PL of b )) )
    token   = mlp( [ x(w) || cos(w log(1 + age) + b) || x(e) || r(w, u) || r(w, v) ] )
    h       = mean over tokens of mixers(tokens)
    logit   = mlp( [ h_u || h_v || r(u, v) ] )

Fidelity
--------
* Missing links are zero tokens, mixed and averaged like the others, as the public code means them to be. It
  computes the masked tokens and throws them away; `mask_padding=false` does the same: a missing link is then a
  link with nobody, whose age is the clock itself.
* State is read as of the last event observed, not of the query's time, and events of one batch do not see each
  other: as published. Decay over the query's own waiting time therefore does not show.
* P0 is hashed from the node's id: it needs no seed, and is the same after every reset. The public code draws it
  anew at every epoch.
* The public code replaces the times of data sets that come in snapshots by their rank times a step in seconds.
  `clock` is that step (part of the published settings; 0: times as they are). The rank of t is the number of
  distinct times before t in `past`, so nothing is read from the future.
* The published width of projections is 10 times log(2 E) rounded down, at most the number of nodes: it needs the
  length of the stream to come, so it is a setting, `code_dim`, given for each published data set.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from dsrd.events import Events, Neighbors, Query, as_tensor
from dsrd.history.past import Past, Sampling
from dsrd.models.base import GraphSpec, TemporalModel, with_null_partner
from dsrd.models.card import ModelCard
from dsrd.models.ranges import Chance, Positive
from dsrd.models.tpnet import projections
from dsrd.nn.linear import BlockLinear, Merge
from dsrd.nn.mixer import MixerBlock
from dsrd.nn.time import CosineTime


@dataclass(frozen=True, kw_only=True)
class TPNetConfig:
    steps: int = 3  # longest walk
    code_dim: int = 120  # width of projections; see Fidelity
    decay: float = 1e-6  # of a walk's step, per unit of the clock
    clock: float = 0.0  # units per distinct time, if times are to be replaced by ranks; see Fidelity
    neighbors: int = 20  # links read per node
    sampling: Sampling = "recent"  # which links
    layers: Positive = 2  # mixer blocks
    dim: int = 172  # width of tokens and embeddings; features are padded to it
    time_dim: int = 100  # cosines per age
    mask_padding: bool = True  # see Fidelity
    dropout: Chance = 0.1


class TPNet(TemporalModel):
    """Walk projections as state; recent links, seen from both endpoints, through an MLP-mixer."""

    Config = TPNetConfig
    card = ModelCard(
        paper="Lu et al., NeurIPS 2024",
        reads="walk state of the pair and of recent partners",
        cost="k links, walk states of each, 2 mixer blocks",
        small={
            "steps": 2,
            "code_dim": 16,
            "decay": 1e-5,
            "neighbors": 5,
            "dim": 16,
            "time_dim": 8,
            "dropout": 0.0,
        },
    )

    def __init__(self, config: TPNetConfig, graph: GraphSpec) -> None:
        super().__init__(config, graph)
        dim, width = max(config.dim, graph.edge_dim, graph.node_dim), (2 * config.steps + 2) ** 2
        self.dim = dim
        self.time = CosineTime(config.time_dim)
        self.relation = nn.Sequential(nn.Linear(width, 4 * width), nn.ReLU(), nn.Linear(4 * width, width))
        self.token_in = BlockLinear([dim, config.time_dim, dim, 2 * width], 2 * dim)
        self.token_out = nn.Linear(2 * dim, dim)
        self.mixers = nn.ModuleList(
            MixerBlock(config.neighbors, dim, dropout=config.dropout) for _ in range(config.layers)
        )
        self.head = Merge([2 * dim, width], dim, 1)
        declare = partial(self.state.declare, compiled=True)
        declare("walks", partial(_at_rest, config.steps, config.code_dim), per_node=True)
        declare("last", lambda rows: torch.zeros(rows, dtype=torch.float64), per_node=True)
        declare("now", lambda _: torch.zeros(1, dtype=torch.float64))
        self._moments: tuple[Any, int, NDArray[np.float64]] | None = None

    def score(self, query: Query, past: Past, head: str = "") -> Tensor:
        src, dst, relation = self._ends(query, past)
        logits: Tensor = self.head(torch.cat([src, dst], dim=-1), relation)  # [Q, 1]
        return logits.squeeze(-1)

    def embed(self, node: Tensor, time: Tensor, past: Past) -> Tensor:
        """The node's links, seen from itself and from nobody."""
        return self._ends(with_null_partner(node, time), past)[0]

    def _ends(self, query: Query, past: Past) -> tuple[Tensor, Tensor, Tensor]:
        """Either end, and what their walks say of each other.  # [Q, dim] twice, [Q, width]"""
        node, time = torch.cat([query.src, query.dst]), query.time.repeat(2)  # [2Q]
        links = past.sample(self.config.sampling, node, time, self.config.neighbors)  # [2Q, k]
        used = links.mask if self.config.mask_padding else torch.ones_like(links.mask)
        there, side = links.node[used], used.nonzero()[:, 0]  # [T]
        src, dst = query.src.repeat(2)[side], query.dst.repeat(2)[side]  # [T]
        relation = self._relations(torch.cat([there, there, query.src]), torch.cat([src, dst, query.dst]))
        count = len(there)
        seen_from = torch.cat([relation[:count], relation[count : 2 * count]], dim=-1)  # [T, 2 * width]
        tokens = self._tokens(links, used, time, seen_from, past)  # [T, dim]
        left, right = self._mixed(tokens, used).chunk(2)
        return left, right, relation[2 * count :]

    def _tokens(self, links: Neighbors, used: Tensor, time: Tensor, seen_from: Tensor, past: Past) -> Tensor:
        age = self._ticks(time, past).unsqueeze(1) - self._ticks(links.time, past)  # [2Q, k]
        token = self.token_in(
            past.node_x(links.node[used]),
            self.time(torch.log1p(age[used])),
            past.edge_x(links.event[used]),
            seen_from,
        )
        projected: Tensor = self.token_out(torch.relu(token))
        return projected

    def _mixed(self, tokens: Tensor, used: Tensor) -> Tensor:
        """[T, dim] -> [2Q, dim]. Nodes without any link are all alike: one row stands for them."""
        some = used.any(dim=1)  # [2Q]
        row = torch.where(some, some.cumsum(0) - 1, some.sum())
        slots = nn.functional.pad(used[some], (0, 0, 0, 1))  # [R + 1, k]
        place = slots.view(-1).nonzero().squeeze(1)
        x = tokens.new_zeros(slots.numel(), self.dim).index_copy(0, place, tokens).view(*slots.shape, self.dim)
        for mixer in self.mixers[:-1]:
            x = mixer(x)
        last = self.mixers[-1]
        assert isinstance(last, MixerBlock)
        return last.mean(x)[row]

    def _relations(self, first: Tensor, second: Tensor) -> Tensor:
        """What the walks of two nodes say of each other, of each pair once.  # [n], [n] -> [n, width]"""
        node, place = torch.unique(torch.cat([first, second]), return_inverse=True)
        a, b = place.chunk(2)
        pair, where = torch.unique(a * len(node) + b, return_inverse=True)
        a, b = pair.div(len(node), rounding_mode="floor"), pair % len(node)
        walks, last, now = (self.state[name].numpy() for name in ("walks", "last", "now"))
        rows = projections.read(walks, last, node.cpu().numpy(), float(now[0]), self.config.decay)
        found = as_tensor(projections.products(rows, a.cpu().numpy(), b.cpu().numpy())).to(first.device)
        scaled = torch.log1p(found.clamp(min=0)).flatten(1)  # [pairs, width]
        relation: Tensor = self.relation(scaled)
        return relation.index_select(0, where)

    def _ticks(self, time: Tensor, past: Past) -> Tensor:
        """Times, or the ranks of times in seconds."""
        if not self.config.clock:
            return time
        start, length, when = past.index[0], past.index[1], past.index[4]
        known = self._moments
        if known is None or known[0] is not when or known[1] != length.sum():
            known = self._moments = (when, int(length.sum()), projections.moments(start, length, when))
        rank = np.searchsorted(known[2], time.cpu().numpy())
        return as_tensor(rank * self.config.clock).to(time.device)

    def observe(self, events: Events, past: Past) -> None:
        if not len(events):
            return
        self.state.rows_for(torch.cat([events.src, events.dst]))
        src, dst, time = (part.cpu().numpy() for part in (events.src, events.dst, self._ticks(events.time, past)))
        walks, last = (self.state[name].numpy() for name in ("walks", "last"))
        projections.observe(walks, last, src, dst, time, self.config.decay)
        self.state["now"] = torch.full((1,), float(time[-1]), dtype=torch.float64)


def _at_rest(steps: int, width: int, rows: int) -> Tensor:
    return as_tensor(projections.at_rest(rows, steps, width))
