"""PINT: a memory per node, sums over neighbours that keep them apart, and counts of walks to both endpoints.

Souza, Mesquita, Kaski, Garg: Provably expressive temporal graph networks, NeurIPS 2022.

    mail, s(u)    as in TGN: [ s(u) || s(v) || cos(w (t - last(u))) || x(e) ], folded in by a GRU
    r(a, x)       = (n_0, n_1, ..) / (sum + 1e-4),  n_k = walks of k steps from a back in time to x
    p(x)          = [ r(u, x) || r(v, x) ]          for a pair (u, v), while u is embedded; u and v swapped for v
    h_0(x, t)     = s(x) + x(x)
    a_l(x, t)     = sum over neighbours (y, e, t_y) of  2^(-beta (t - t_y) / sqrt(count))
                                                         W relu( W' [ h_{l-1}(y, t_y) || x(e) || p(y) ] )
    h_l(x, t)     = W relu( W' [ a_l(x, t) || h_0(x) || p(x) ] )

and a link head reads h(u) and h(v).

Fidelity
--------
* Walks are counted event by event, exactly, for the pairs that a walk joins (`walk_counts`), and a
  reset empties them. The public code behind the published rows holds a matrix of all pairs and shifts walk counts
  the wrong way: what is added to n_k is the partner's n_{k+1}, zero from the start, so that n_0, "x is the root
  itself", is all its matrix ever says, and never resetting it changes nothing. `positions="published"` is that:
  r(a, x) = (1 / 1.0001, 0, 0, ..) if a = x, else zero; no walks are kept.
* Where the public code, its shift mended, would count the walks of a whole batch from the matrix before it, events
  are counted here one after the other, as in the paper, however the stream is cut into batches. An event of a node
  with itself is one step, not two.
* Of several messages in one batch the last in *time* is kept; `last_message="role"` as in the public code, where
  messages received as a target override those sent as a source.
* Time in mail is fixed: mail carries no gradient; in the public code these weights are listed and never change.
* On data sets that come in snapshots the public code replaces times by rank times a step in seconds. Here ages are
  scaled so that the smallest gap between training snapshots is `step` seconds: the same where snapshots are evenly
  spaced. The published settings give `step`; 0 leaves times alone.
* The authors' own code asks for a neighbour's neighbours before the query's time; the code behind the published
  rows, and this one, before the time it was met.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from dsrd.compiled import vectorised
from dsrd.events import NULL, Events, Query, as_tensor
from dsrd.history.past import Past
from dsrd.models.base import GraphSpec, PairEncoder
from dsrd.models.card import ModelCard
from dsrd.models.pint import walk_counts
from dsrd.models.ranges import Positive
from dsrd.nn.distinct import distinct
from dsrd.nn.linear import BlockLinear
from dsrd.nn.memory import GRU, LastMessage, MessageMemory
from dsrd.nn.time import CosineTime

ROWS = ("walk_start", "walk_length", "walk_room")
FIELDS = (*ROWS, "walk_node", "walk_count", "walk_used")  # in the order of `walk_counts`


@dataclass(frozen=True, kw_only=True)
class PINTConfig:
    neighbors: int = 20  # most recent interactions read per node and layer
    layers: Positive = 2  # sums over neighbours, one upon the other
    hops: int = 3  # longest walk that is counted
    beta: float = 1e-5  # how fast a neighbour fades, per second
    step: float = 0.0  # seconds between snapshots, if times are to be scaled; see Fidelity
    dim: int = 172  # width of memory and embeddings; features are padded to it
    time_dim: int = 100  # cosines in mail
    positions: Literal["walks", "published"] = "walks"  # see Fidelity
    last_message: LastMessage = "time"  # see Fidelity


class Seconds(nn.Module):
    """Time in mail: cosines of seconds, whatever unit the stream's clock has."""

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
    """Nodes that take part in embedding pairs: the endpoints, or the neighbours of the level above, end to end."""

    node: Tensor  # [n]
    time: Tensor  # [n]
    pair: Tensor  # [n] for which pair
    event: Tensor  # [n] by which they were met, NULL for endpoints
    above: Tensor  # [n] whose neighbour
    fade: Tensor  # [n] weight in the sum


# What `FadedSum` works on, as arrays: above, fade, base, row, x, x_row, place, w.


@vectorised
def _mapped(parts: Any, e: int, z: Any) -> None:
    """z = what neighbour e is before the relu."""
    _, _, base, row, x, x_row, place, w = parts
    for j in range(len(z)):
        z[j] = base[row[e], j]
    if len(x):
        for j in range(len(z)):
            z[j] += x[x_row[e], j]
    for k in range(place.shape[1]):
        share = place[e, k]
        if share != 0:  # most positions are zero, or of one length of walk
            for j in range(len(z)):
                z[j] += share * w[k, j]


@vectorised
def _sum_forth(parts: Any, out: Any) -> None:
    above, fade = parts[0], parts[1]
    z = np.empty(out.shape[1], out.dtype)
    for e in range(len(above)):
        _mapped(parts, e, z)
        for j in range(len(z)):
            out[above[e], j] += fade[e] * max(z[j], 0)


@vectorised
def _sum_back(parts: Any, grad: Any, to_base: Any, to_x: Any, to_w: Any) -> None:
    above, fade, _, row, x, x_row, place, _ = parts
    z = np.empty(grad.shape[1], grad.dtype)
    for e in range(len(above)):
        _mapped(parts, e, z)
        for j in range(len(z)):
            z[j] = fade[e] * grad[above[e], j] if z[j] > 0 else 0
            to_base[row[e], j] += z[j]
        if len(x):
            for j in range(len(z)):
                to_x[x_row[e], j] += z[j]
        for k in range(place.shape[1]):
            share = place[e, k]
            if share != 0:
                for j in range(len(z)):
                    to_w[k, j] += share * z[j]


class FadedSum(torch.autograd.Function):
    """sum over neighbours e of fade[e] relu(base[row[e]] + x[x_row[e]] + place[e] w), by whose neighbour each is.

    There are hundreds of neighbours to a pair, and none of their vectors is written to memory here.
    """

    @staticmethod
    def forward(ctx: Any, base: Tensor, x: Tensor, w: Tensor, rest: tuple[Any, ...], size: int) -> Tensor:
        above, fade, row, x_row, place = rest
        ctx.parts = (above, fade, _array(base), row, _array(x), x_row, place, _array(w))
        out = base.new_zeros(size, base.shape[1])
        _sum_forth(ctx.parts, out.numpy())
        return out

    @staticmethod
    def backward(ctx: Any, *grad: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        into = [torch.zeros(ctx.parts[part].shape, dtype=grad[0].dtype) for part in (2, 4, 7)]  # base, x, w
        _sum_back(ctx.parts, _array(grad[0]), *(part.numpy() for part in into))
        return into[0], into[1], into[2], None, None


def _array(x: Tensor) -> NDArray[Any]:
    array: NDArray[Any] = x.detach().contiguous().numpy()
    return array


def faded_sum(
    below: Level, base: Tensor, row: Tensor, x: Tensor, x_row: Tensor, place: Tensor, w: Tensor, size: int
) -> Tensor:
    """See `FadedSum`; written out where that cannot be used."""
    if base.device.type == "cpu":
        rest = tuple(_array(part) for part in (below.above, below.fade, row, x_row, place))
        summed: Tensor = FadedSum.apply(base, x, w, rest, size)  # type: ignore[no-untyped-call]
        return summed
    met = base[row] + place @ w + (x[x_row] if len(x) else 0)
    met = torch.relu(met) * below.fade.unsqueeze(1)  # [m, dim]
    return met.new_zeros(size, met.shape[1]).index_add(0, below.above, met)


class Aggregate(nn.Module):
    """One layer: a faded sum over neighbours, then the node's own part."""

    def __init__(self, dim: int, places: int) -> None:
        super().__init__()
        self.there, self.there_out = BlockLinear([dim, dim, 2 * places], dim), nn.Linear(dim, dim)
        self.own, self.own_out = BlockLinear([dim, dim, 2 * places], dim), nn.Linear(dim, dim)

    def forward(
        self, start: Tensor, place: Tensor, below: Level, h: Tensor, row: Tensor, place_below: Tensor, past: Past
    ) -> Tensor:
        """h_0 and p of nodes; neighbours, of which e has h[row[e]].  # [n, dim]"""
        dim, weight = start.shape[1], self.there.weight
        node, edge, at = weight[:, :dim], weight[:, dim : 2 * dim], weight[:, 2 * dim :]
        base = nn.functional.linear(h, node, self.there.bias)  # once per different neighbour
        events, event = torch.unique(below.event, return_inverse=True)
        features = past.edge_x(events)  # [., edge_dim]
        x = features @ edge[:, : features.shape[1]].T if features.shape[1] else base[:0]
        summed = faded_sum(below, base, row, x, event, place_below, at.T, len(start))
        # the outer map is linear: after the sum it is taken once per node, not once per neighbour
        total = summed.new_zeros(len(start)).index_add(0, below.above, below.fade)
        summed = summed @ self.there_out.weight.T + total.unsqueeze(1) * self.there_out.bias
        embedded: Tensor = self.own_out(torch.relu(self.own(summed, start, place)))
        return embedded


class PINT(PairEncoder):
    """Memory, injective sums, relative positions."""

    Config = PINTConfig
    card = ModelCard(
        paper="Souza et al., NeurIPS 2022",
        reads="memory and recent neighbours, placed by walks to both endpoints",
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
            for name in ROWS:
                declare(name, lambda rows: torch.zeros(rows, dtype=torch.int64), per_node=True)
            declare("walk_node", lambda _: torch.zeros(64, dtype=torch.int32))
            declare("walk_count", lambda _: torch.zeros(64, config.hops))
            declare("walk_used", lambda _: torch.zeros(1, dtype=torch.int64))

    def calibrate(self, train: Events) -> None:
        """Snapshots are `step` seconds apart, whatever the file counts in."""
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
        """Each root beside its target.  # [P] -> [P, dim]"""
        levels = self._levels(root, time, past)
        nodes, where = torch.unique(torch.cat([level.node for level in levels]), return_inverse=True)
        start = self.memory.recall(self.state, nodes, past)  # [N, dim]: everybody's memory is read once
        at = where.tensor_split(torch.tensor([len(level.node) for level in levels]).cumsum(0)[:-1])
        place = [self._place(root[level.pair], target[level.pair], level.node) for level in levels]
        h, row = start, at[-1]
        for depth, layer in zip(reversed(range(len(levels) - 1)), self.layers, strict=True):
            own = start.index_select(0, at[depth])
            h = layer(own, place[depth], levels[depth + 1], h, row, place[depth + 1], past)
            row = torch.arange(len(h), device=h.device)
        return h

    def _place(self, root: Tensor, target: Tensor, node: Tensor) -> Tensor:
        """p of nodes.  # [n] -> [n, 2 (hops + 1)]"""
        return torch.cat([self._walks(root, node), self._walks(target, node)], dim=1)

    def _levels(self, node: Tensor, time: Tensor, past: Past) -> list[Level]:
        """The endpoints, their neighbours, the neighbours' neighbours, ..: as many as there are layers."""
        index, nobody = torch.arange(len(node), device=node.device), torch.zeros_like(node)
        levels = [Level(node, time, index, nobody, index, torch.ones_like(time, dtype=torch.float32))]
        for _ in range(self.config.layers):
            top = levels[-1]
            links = past.recent(top.node, top.time, self.config.neighbors)
            above, slot = links.mask.nonzero(as_tuple=True)
            met = links.time[above, slot]
            age = (top.time[above] - met) * self.time.unit
            count = links.mask.sum(dim=1)[above] + 1e-4
            fade = torch.exp2(-self.config.beta * age / count.sqrt()).to(self.head.out.weight.dtype)
            levels.append(
                Level(links.node[above, slot], met, top.pair[above], links.event[above, slot], above, fade)
            )
        return levels

    def _walks(self, root: Tensor, node: Tensor) -> Tensor:
        """Shares of walks from root to node, by steps.  # [n] -> [n, hops + 1]"""
        if self.config.positions == "published":
            found = torch.zeros(len(root), self.config.hops + 1, device=root.device)
            found[:, 0] = (root == node) & (root != NULL)
        else:
            out = np.empty((len(root), self.config.hops + 1), np.float32)
            walk_counts.read(self._table(), root.cpu().numpy(), node.cpu().numpy(), out)
            found = as_tensor(out).to(root.device)
        found = found.to(self.head.out.weight.dtype)
        return found / (found.sum(dim=1, keepdim=True) + 1e-4)

    def _table(self) -> tuple[Any, ...]:
        return tuple(self.state[name].numpy() for name in FIELDS)

    def observe(self, events: Events, past: Past) -> None:
        if not len(events):
            return
        self.memory.exchange(self.state, events, past, self.config.last_message, self.time)
        if self.config.positions == "walks":
            src, dst = (self.state.rows_for(end).cpu().numpy() for end in (events.src, events.dst))
            table = walk_counts.observe(self._table(), src, dst)
            for name, array in zip(FIELDS, table, strict=True):
                self.state[name] = as_tensor(array)
