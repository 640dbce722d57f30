"""TPNet: projections of temporal walk matrices, read for a pair and for its recent partners.

Lu, Sun, Zhu, Lv: Improving Temporal Link Prediction via Temporal Walk Matrix Projection, NeurIPS 2024.

Every node keeps projections P0..PL of the matrices of decayed temporal walks of 0..L steps (`projections.py`).
For a pair (u, v) at time t, and each of the k most recent links (w, e, age) of either endpoint:

    r(a, b) = mlp( log(1 + relu( all products among P0..PL of a and P0..PL of b )) )
    token   = mlp( [ x(w) || cos(w log(1 + age) + b) || x(e) || r(w, u) || r(w, v) ] )
    h       = mean over tokens of mixers(tokens)
    logit   = mlp( [ h_u || h_v || r(u, v) ] )

Fidelity
--------
* Missing links are zero tokens, mixed and averaged like the others, as the public code intends. That code computes
  the masked tokens and then discards them. `mask_padding=false` does the same: a missing link is then a link with
  the null node, whose age is the clock itself.
* State is read as of the last observed event, not as of the query's time, and events of one batch do not see each
  other: as published. So the time a pair has waited since the last event has no effect.
* P0 is a hash of the node's id: it needs no seed and is the same after every reset. The public code draws it anew
  in every epoch.
* On data sets that come in snapshots, the public code replaces times by their rank times a step in seconds.
  `clock` is that step (part of the published settings; 0: times are not replaced). The rank of t is the number of
  distinct times before t in `past`, so nothing is read from the future.
* The published width of projections is 10 times log(2 E) rounded down, at most the number of nodes. It needs the
  length of the stream to come, so it is a setting, `code_dim`, given for each published data set.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from dsrd.events import Events, Neighbors, Query, as_tensor
from dsrd.history.past import Past, Sampling
from dsrd.models.base import GraphSpec, TemporalModel, with_null_partner
from dsrd.models.card import ModelCard
from dsrd.models.tpnet import projections
from dsrd.nn.linear import BlockLinear, Merge
from dsrd.nn.mixer import MixerBlock
from dsrd.nn.products import Linear
from dsrd.nn.time import CosineTime
from dsrd.ranges import Chance, Layers, Links, Steps, Width, WidthOrNone


@dataclass(frozen=True, kw_only=True)
class TPNetConfig:
    steps: Steps = 3  # longest walk
    code_dim: WidthOrNone = 120  # width of projections; see Fidelity
    decay: float = 1e-6  # of a walk's step, per unit of the clock
    clock: float = 0.0  # units per distinct time, if times are to be replaced by ranks; see Fidelity
    neighbors: Links = 20  # links read per node
    sampling: Sampling = "recent"  # which links
    layers: Layers = 2  # mixer blocks
    dim: Width = 172  # width of tokens and embeddings; features are padded to it
    time_dim: WidthOrNone = 100  # cosines per age
    mask_padding: bool = True  # see Fidelity
    dropout: Chance = 0.1


class Times(NamedTuple):
    """The distinct times of a history, and the history they were computed from."""

    column: NDArray[np.float64]  # the history's own array: another array is another history
    num_entries: int  # entries it had; a history that goes on has more
    distinct: NDArray[np.float64]


class TPNet(TemporalModel):
    """Walk projections as state; recent links, related to both endpoints, through an MLP-mixer."""

    Config = TPNetConfig
    card = ModelCard(
        paper="Lu et al., NeurIPS 2024",
        reads="walk state of the pair and of recent partners",
        keeps={"node": "4 * (steps + 1) * code_dim + 8", "rest": "8"},
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
        self.relation = nn.Sequential(Linear(width, 4 * width), nn.ReLU(), Linear(4 * width, width))
        self.token_in = BlockLinear([dim, config.time_dim, dim, 2 * width], 2 * dim)
        self.token_out = Linear(2 * dim, dim)
        self.mixers = nn.ModuleList(
            MixerBlock(config.neighbors, dim, dropout=config.dropout) for _ in range(config.layers)
        )
        self.head = Merge([2 * dim, width], dim, 1)
        declare = partial(self.state.declare, compiled=True)
        declare("walks", partial(_initial_rows, config.steps, config.code_dim), per_node=True)
        declare("last", lambda rows: torch.zeros(rows, dtype=torch.float64), per_node=True)
        declare("now", lambda _: torch.zeros(1, dtype=torch.float64))
        self._times: Times | None = None

    def score(self, query: Query, past: Past, head: str = "") -> Tensor:
        src, dst, relation = self._ends(query, past)
        logits: Tensor = self.head(torch.cat([src, dst], dim=-1), relation)  # [Q, 1]
        return logits.squeeze(-1)

    def embed(self, node: Tensor, time: Tensor, past: Past) -> Tensor:
        """The node's links, related to the node and to the null node."""
        return self._ends(with_null_partner(node, time), past)[0]

    def _ends(self, query: Query, past: Past) -> tuple[Tensor, Tensor, Tensor]:
        """Both endpoints of each pair, and the relation between them.  # [Q, dim] twice, [Q, width]"""
        node, time = torch.cat([query.src, query.dst]), query.time.repeat(2)  # [2Q]
        links = past.sample(self.config.sampling, node, time, self.config.neighbors)  # [2Q, k]
        used = links.mask if self.config.mask_padding else torch.ones_like(links.mask)
        partner, side = links.node[used], used.nonzero()[:, 0]  # [T]
        src, dst = query.src.repeat(2)[side], query.dst.repeat(2)[side]  # [T]
        relation = self._relations(torch.cat([partner, partner, query.src]), torch.cat([src, dst, query.dst]))
        count = len(partner)
        to_ends = torch.cat([relation[:count], relation[count : 2 * count]], dim=-1)  # [T, 2 * width]
        tokens = self._tokens(links, used, time, to_ends, past)  # [T, dim]
        src_h, dst_h = self._mixed(tokens, used).chunk(2)
        return src_h, dst_h, relation[2 * count :]

    def _tokens(self, links: Neighbors, used: Tensor, time: Tensor, to_ends: Tensor, past: Past) -> Tensor:
        """One token per link, with the relations of its partner to both endpoints.  # [T, dim]"""
        age = self._clock(time, past).unsqueeze(1) - self._clock(links.time, past)  # [2Q, k]
        token = self.token_in(
            past.node_x(links.node[used]),
            self.time(torch.log1p(age[used])),
            past.edge_x(links.event[used]),
            to_ends,
        )
        projected: Tensor = self.token_out(torch.relu(token))
        return projected

    def _mixed(self, tokens: Tensor, used: Tensor) -> Tensor:
        """The mean mixed token of each endpoint; those without links share one row.  # [T, dim] -> [2Q, dim]"""
        has_links = used.any(dim=1)  # [2Q]
        row = torch.where(has_links, has_links.cumsum(0) - 1, has_links.sum())
        slots = nn.functional.pad(used[has_links], (0, 0, 0, 1))  # [R + 1, k]
        slot = slots.view(-1).nonzero().squeeze(1)
        x = tokens.new_zeros(slots.numel(), self.dim).index_copy(0, slot, tokens).view(*slots.shape, self.dim)
        for mixer in self.mixers[:-1]:
            x = mixer(x)
        last = self.mixers[-1]
        assert isinstance(last, MixerBlock)
        return last.mean(x)[row]

    def _relations(self, first: Tensor, second: Tensor) -> Tensor:
        """r of pairs of nodes, each distinct pair computed once.  # [n], [n] -> [n, width]"""
        node, index = torch.unique(torch.cat([first, second]), return_inverse=True)
        a, b = index.chunk(2)
        pair, where = torch.unique(a * len(node) + b, return_inverse=True)
        a, b = pair.div(len(node), rounding_mode="floor"), pair % len(node)
        rows = projections.read(self._projections(), node.cpu().numpy(), float(self.state["now"]))
        products = as_tensor(projections.products(rows, a.cpu().numpy(), b.cpu().numpy())).to(first.device)
        scaled = torch.log1p(products.clamp(min=0)).flatten(1)  # [pairs, width]
        relation: Tensor = self.relation(scaled)
        return relation.index_select(0, where)

    def _projections(self) -> projections.Projections:
        rows, last = self.state["walks"].numpy(), self.state["last"].numpy()
        return projections.Projections(rows, last, self.config.decay)

    def _clock(self, time: Tensor, past: Past) -> Tensor:
        """Times, or with the setting `clock` the ranks of times in seconds."""
        if not self.config.clock:
            return time
        column, known, num_entries = past.index.time, self._times, int(past.index.length.sum())
        if known is None or known.column is not column or known.num_entries != num_entries:
            distinct = projections.distinct_times(past.index)
            known = self._times = Times(column, num_entries, distinct)
        rank = np.searchsorted(known.distinct, time.cpu().numpy())
        return as_tensor(rank * self.config.clock).to(time.device)

    def observe(self, events: Events, past: Past) -> None:
        if not len(events):
            return
        self.state.rows_for(torch.cat([events.src, events.dst]))
        columns = (events.src, events.dst, self._clock(events.time, past))
        batch = projections.EventBatch(*(column.cpu().numpy() for column in columns))
        projections.observe(self._projections(), batch)
        self.state["now"] = torch.full((1,), float(batch.time[-1]), dtype=torch.float64)


def _initial_rows(steps: int, width: int, rows: int) -> Tensor:
    return as_tensor(projections.initial_rows(rows, steps, width))
