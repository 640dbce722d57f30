"""PINT: a memory per node, injective sums over neighbours, and counts of walks to both endpoints.

Souza, Mesquita, Kaski, Garg: Provably expressive temporal graph networks, NeurIPS 2022.

    mail, s(u)    as in TGN: [ s(u) || s(v) || cos(w (t - last(u))) || x(e) ], added to the memory by a GRU
    r(a, x)       = (n_0, n_1, ..) / (sum + 1e-4),  n_k = walks of k steps from a back in time to x
    p(x)          = [ r(u, x) || r(v, x) ]          for a pair (u, v), while u is embedded; u and v swapped for v
    h_0(x, t)     = s(x) + x(x)
    a_l(x, t)     = sum over neighbours (y, e, t_y) of  2^(-beta (t - t_y) / sqrt(count))
                                                         W relu( W' [ h_{l-1}(y, t_y) || x(e) || p(y) ] )
    h_l(x, t)     = W relu( W' [ a_l(x, t) || h_0(x) || p(x) ] )

and a link head reads h(u) and h(v).

Fidelity
--------
* Walks are counted event by event, exactly, for the pairs that a walk connects (`walk_counts`), and a reset clears
  them. The public code behind the published rows keeps a matrix of all pairs and shifts walk counts the wrong way:
  what it adds to n_k is the partner's n_{k+1}, zero from the start. So its matrix only ever holds n_0, "x is the
  root itself", and that it is never reset changes nothing. `positions="published"` is that: r(a, x) =
  (1 / 1.0001, 0, 0, ..) if a = x, else zero; no walks are kept.
* With its shift corrected, the public code would count the walks of a whole batch from the matrix before it. Here
  events are counted one after the other, as in the paper, so counts do not depend on batches. An event of a node
  with itself is one step, not two.
* Of several messages in one batch the last in *time* is kept; `last_message="role"` as in the public code, where
  messages received as a target override those sent as a source.
* The time encoding in mail is fixed: mail carries no gradient. In the public code its weights are listed as
  parameters and never change.
* On data sets that come in snapshots the public code replaces times by rank times a step in seconds. Here ages are
  scaled so that the smallest gap between training snapshots is `step` seconds: the same where snapshots are evenly
  spaced. The published settings give `step`; 0 leaves times as they are.
* The authors' own code reads a neighbour's neighbours before the query's time; the code behind the published rows,
  and this one, before the time of the meeting.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from dsrd.events import NULL, Events, Query, as_tensor
from dsrd.history.past import Past
from dsrd.models.base import GraphSpec, PairEncoder
from dsrd.models.card import ModelCard
from dsrd.models.pint import walk_counts
from dsrd.models.pint.faded_sum import NeighborTerms, faded_sum
from dsrd.models.pint.walk_counts import WalkTable
from dsrd.nn.attention import links_of_layers
from dsrd.nn.distinct import distinct
from dsrd.nn.linear import BlockLinear
from dsrd.nn.memory import GRU, LastMessage, MessageMemory
from dsrd.nn.time import CosineTime
from dsrd.ranges import Layers, LinksOrNone, Steps, Width, WidthOrNone

WALK_FIELDS = ("walk_start", "walk_length", "walk_room", "walk_node", "walk_count", "walk_used")
"""The fields of the state that make up a `WalkTable`, in its order."""


@dataclass(frozen=True, kw_only=True)
class PINTConfig:
    neighbors: LinksOrNone = 20  # most recent interactions read per node and layer
    layers: Layers = 2  # sums over neighbours: neighbours, their neighbours, ..
    hops: Steps = 3  # longest walk that is counted
    beta: float = 1e-5  # how fast a neighbour fades, per second
    step: float = 0.0  # seconds between snapshots, if times are to be scaled; see Fidelity
    dim: Width = 172  # width of memory and embeddings; features are padded to it
    time_dim: WidthOrNone = 100  # cosines in mail
    positions: Literal["walks", "published"] = "walks"  # see Fidelity
    last_message: LastMessage = "time"  # see Fidelity


class Seconds(nn.Module):
    """The time encoding of mail: cosines of seconds, for a stream in any unit of time."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.cosine = CosineTime(dim, trainable=False)
        self.unit: Tensor
        self.register_buffer("unit", torch.ones((), dtype=torch.float64))

    def forward(self, dt: Tensor) -> Tensor:
        cosines: Tensor = self.cosine(dt * self.unit)
        return cosines


@dataclass(frozen=True)
class Level:
    """Nodes that take part in embedding pairs: the endpoints, or all neighbours of the level above."""

    node: Tensor  # [n]
    time: Tensor  # [n]
    pair: Tensor  # [n] index of the pair they are read for
    event: Tensor  # [n] in which the node above met them, NULL for endpoints
    parent: Tensor  # [n] index of the node above
    fade: Tensor  # [n] weight in the sum of the node above


@dataclass(frozen=True)
class Nodes:
    """What a layer reads of the nodes of one level."""

    start: Tensor  # [n, dim] h_0
    position: Tensor  # [n, 2 (hops + 1)] p


@dataclass(frozen=True)
class Embedded:
    """The nodes of a level after the layers below."""

    level: Level
    h: Tensor  # [m, dim] of distinct nodes
    row: Tensor  # [n] each node's row of `h`
    position: Tensor  # [n, 2 (hops + 1)] p


class Aggregate(nn.Module):
    """One layer: a faded sum over neighbours, merged with the node's own h_0 and p."""

    def __init__(self, dim: int, positions: int) -> None:
        super().__init__()
        self.there, self.there_out = BlockLinear([dim, dim, 2 * positions], dim), nn.Linear(dim, dim)
        self.own, self.own_out = BlockLinear([dim, dim, 2 * positions], dim), nn.Linear(dim, dim)

    def forward(self, nodes: Nodes, neighbors: Embedded, past: Past) -> Tensor:  # [n, dim]
        count, dim = nodes.start.shape
        level, weight = neighbors.level, self.there.weight
        node_w, edge_w, position_w = weight[:, :dim], weight[:, dim : 2 * dim], weight[:, 2 * dim :]
        node_part = nn.functional.linear(neighbors.h, node_w, self.there.bias)  # once per distinct neighbour
        events, event = torch.unique(level.event, return_inverse=True)
        edge_x = past.edge_x(events)  # [., edge_dim]
        event_part = edge_x @ edge_w[:, : edge_x.shape[1]].T if edge_x.shape[1] else node_part[:0]
        terms = NeighborTerms(level.parent, level.fade, neighbors.row, event, neighbors.position)
        summed = faded_sum(terms, node_part, event_part, position_w.T, count)
        # the outer map is linear: applied after the sum, it is computed once per node instead of per neighbour
        total = summed.new_zeros(count).index_add(0, level.parent, level.fade)
        summed = summed @ self.there_out.weight.T + total.unsqueeze(1) * self.there_out.bias
        embedded: Tensor = self.own_out(torch.relu(self.own(summed, nodes.start, nodes.position)))
        return embedded


class PINT(PairEncoder):
    """Memory, injective sums over neighbours, positions relative to both endpoints."""

    Config = PINTConfig
    card = ModelCard(
        paper="Souza et al., NeurIPS 2022",
        reads="memory and recent neighbours, placed by walks to both endpoints",
        keeps={
            "node": "4 * (3 * max(dim, edge_dim, node_dim) + time_dim + edge_dim) + 17 + 24",
            "slot of pool": "4 * hops + 4",
            "rest": "8",
        },
        cost="k + k^2 links in 2 layers, walk counts of each",
        small={"neighbors": 4, "dim": 16, "time_dim": 8},
    )

    def __init__(self, config: PINTConfig, graph: GraphSpec) -> None:
        dim = max(config.dim, graph.edge_dim, graph.node_dim)
        super().__init__(config, graph, out_dim=dim)
        self.dim = dim
        self.time = Seconds(config.time_dim)
        mail_dim = 2 * dim + config.time_dim + graph.edge_dim
        cell = GRU([2 * dim + config.time_dim + dim], dim)  # dim columns are kept for edge features, as published
        self.memory = MessageMemory(self.state, cell, dim, mail_dim)
        self.layers = nn.ModuleList(Aggregate(dim, config.hops + 1) for _ in range(config.layers))
        if config.positions == "walks":
            declare = partial(self.state.declare, compiled=True)
            for name in WALK_FIELDS[:3]:
                declare(name, lambda rows: torch.zeros(rows, dtype=torch.int64), per_node=True)
            declare("walk_node", lambda _: torch.zeros(64, dtype=torch.int32), table="pool")
            declare("walk_count", lambda _: torch.zeros(64, config.hops), table="pool")
            declare("walk_used", lambda _: torch.zeros(1, dtype=torch.int64))
            self.state.require(lambda fields: walk_counts.fault(_walk_table(fields)))

    @property
    def links_read(self) -> int:
        return links_of_layers(self.config.neighbors, self.config.layers)

    def calibrate(self, train: Events) -> None:
        """Measure how many seconds a unit of time is, if snapshots are `step` seconds apart."""
        gaps = torch.unique(train.time).diff()
        if self.config.step and len(gaps):
            self.time.unit = self.config.step / gaps.min()

    def ends(self, query: Query, past: Past) -> tuple[Tensor, Tensor]:
        root, target = torch.cat([query.src, query.dst]), torch.cat([query.dst, query.src])
        base = int(root.max()) + 1 if len(root) else 1
        pair, time, where = distinct(root * base + target, query.time.repeat(2))
        src, dst = self._encode(pair.div(base, rounding_mode="floor"), pair % base, time, past)[where].chunk(2)
        return src, dst

    def _encode(self, root: Tensor, target: Tensor, time: Tensor, past: Past) -> Tensor:
        """Each root in its pair with the target.  # [P] -> [P, dim]"""
        levels = self._levels(root, time, past)
        nodes, where = torch.unique(torch.cat([level.node for level in levels]), return_inverse=True)
        start = self.memory.recall(self.state, nodes, past)  # [N, dim]: the memory of each node is read once
        row = where.tensor_split(torch.tensor([len(level.node) for level in levels]).cumsum(0)[:-1])
        position = [self._position(root[level.pair], target[level.pair], level.node) for level in levels]
        below = Embedded(levels[-1], start, row[-1], position[-1])
        for depth, layer in zip(reversed(range(len(levels) - 1)), self.layers, strict=True):
            h = layer(Nodes(start.index_select(0, row[depth]), position[depth]), below, past)
            below = Embedded(levels[depth], h, torch.arange(len(h), device=h.device), position[depth])
        return below.h

    def _position(self, root: Tensor, target: Tensor, node: Tensor) -> Tensor:
        """p of nodes.  # [n] -> [n, 2 (hops + 1)]"""
        return torch.cat([self._walk_shares(root, node), self._walk_shares(target, node)], dim=1)

    def _levels(self, node: Tensor, time: Tensor, past: Past) -> list[Level]:
        """The endpoints, their neighbours, the neighbours' neighbours, ..: a level of neighbours per layer."""
        index, no_event = torch.arange(len(node), device=node.device), torch.zeros_like(node)
        levels = [Level(node, time, index, no_event, index, torch.ones_like(time, dtype=torch.float32))]
        for _ in range(self.config.layers):
            above = levels[-1]
            links = past.recent(above.node, above.time, self.config.neighbors)
            parent, slot = links.mask.nonzero(as_tuple=True)
            time = links.time[parent, slot]
            age = (above.time[parent] - time) * self.time.unit
            count = links.mask.sum(dim=1)[parent] + 1e-4
            fade = torch.exp2(-self.config.beta * age / count.sqrt()).to(self.head.out.weight.dtype)
            node, event = links.node[parent, slot], links.event[parent, slot]
            levels.append(Level(node, time, above.pair[parent], event, parent, fade))
        return levels

    def _walk_shares(self, root: Tensor, node: Tensor) -> Tensor:
        """r: shares of walks from root to node, by number of steps.  # [n] -> [n, hops + 1]"""
        if self.config.positions == "published":
            count = torch.zeros(len(root), self.config.hops + 1, device=root.device)
            count[:, 0] = (root == node) & (root != NULL)
        else:
            out = np.empty((len(root), self.config.hops + 1), np.float32)
            walk_counts.read(self._walk_table(), root.cpu().numpy(), node.cpu().numpy(), out)
            count = as_tensor(out).to(root.device)
        count = count.to(self.head.out.weight.dtype)
        return count / (count.sum(dim=1, keepdim=True) + 1e-4)

    def _walk_table(self) -> WalkTable:
        return _walk_table({name: self.state[name] for name in WALK_FIELDS})

    def observe(self, events: Events, past: Past) -> None:
        if not len(events):
            return
        self.memory.exchange(self.state, events, past, self.config.last_message, self.time)
        if self.config.positions == "walks":
            src, dst = (self.state.rows_for(end).cpu().numpy() for end in (events.src, events.dst))
            table: tuple[NDArray[Any], ...] = walk_counts.observe(self._walk_table(), src, dst)
            for name, array in zip(WALK_FIELDS, table, strict=True):
                self.state[name] = as_tensor(array)


def _walk_table(fields: Mapping[str, Tensor]) -> WalkTable:
    return WalkTable(*(fields[name].numpy() for name in WALK_FIELDS))
