"""CAWN: walks back in time from both endpoints, told apart only by how often each node turns up in them.

Wang, Chang, Liu, Leskovec, Li: Inductive Representation Learning in Temporal Networks via Causal Anonymous Walks,
ICLR 2021.

For a pair (u, v) at t, walks w = (w_0 = u, w_1, ...) of falling times are drawn from u, and others from v:

    hits_u(x)  = share of u's walks that are at x after 0, 1, ... steps                       names are lost here
    p(x)       = mlp(hits_u(x)) + mlp(hits_v(x))
    walk(w)    = [ bilstm{ x(w_i), cos(age of w_i), x(edge of w_i), p(w_i) } || bilstm{ p(w_i) } ]   at w's end
    h(u)       = W' mean over u's walks of transformer( W walk(w) )

and likewise for v; a link head reads h(u) and h(v). Walks form a tree: `neighbors` branches at every step.

Fidelity
--------
* Branches are drawn with weight exp(-rate age), as in the paper. The public code behind the published rows turns
  these weights e_i into e_i / (e_1 + ... + e_i), chances meant to be tried one after the other from the newest
  on, and hands them to a softmax: nearly uniform, the oldest interaction the likeliest. `sampling="published"`
  draws like that. (There, weights that underflow because the node's *last* event, be it in the future, is 745 /
  rate away become zero as well; not reproduced.)
* Branches are drawn with replacement. Copies of a walk are encoded once and counted, which changes nothing but
  that in training they share their dropout; `merge_copies=false` gives each its own, as in the public code.
  Equal (node, time) pairs also draw equal branches here, in one tree or in two.
* At a walk's end the backward half of a bidirectional LSTM has made a single step from rest: its recurrent weights
  never act. They are left out; the public code carries them along.
* Walks cut short by an empty history are encoded up to where they came, as in the public code; with
  `sampling="recent"` a short history leaves walks that consist of their start alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import reduce
from itertools import accumulate
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from dsrd.compiled import compiled
from dsrd.errors import DsrdError
from dsrd.events import NULL, Neighbors, Query, as_tensor
from dsrd.history import index as index_kernels
from dsrd.history.past import Past
from dsrd.models.base import GraphSpec, PairEncoder
from dsrd.models.card import ModelCard
from dsrd.models.ranges import Chance, Positive
from dsrd.nn.distinct import distinct
from dsrd.nn.time import CosineTime
from dsrd.nn.transformer import Layout, PostNormBlock, spans

PART = 4096  # walks encoded at a time


@dataclass(frozen=True, kw_only=True)
class CAWNConfig:
    neighbors: int = 32  # branches at every step of the walks
    walk_length: int = 1  # steps of a walk
    sampling: Literal["decayed", "uniform", "recent", "published"] = "decayed"  # of branches; see Fidelity
    rate: float = 1e-6  # decay of their weights, per unit of the stream's clock
    heads: Positive = 8  # of the attention between walks
    dim: int = 172  # width of embeddings; features are padded to it
    time_dim: int = 100
    position_dim: int = 172  # width of what a node's hits become
    merge_copies: bool = True  # see Fidelity
    dropout: Chance = 0.1

    def check(self) -> None:
        # `Hits` packs the counts of walks, one per step, into 62 bits
        if self.walk_length > 60 or (self.neighbors**self.walk_length + 1) ** (self.walk_length + 1) >= 2**62:
            raise DsrdError(
                f"{self.neighbors}^{self.walk_length} walks are too many to count; "
                "lower model.neighbors or model.walk_length"
            )


@dataclass(frozen=True)
class Walks:
    """Different walks of every start, those of one start side by side; step 0 is the start itself."""

    start: Tensor  # [F] whose walk it is, in rising order
    node: Tensor  # [F, L + 1], NULL after a walk's end
    event: Tensor  # [F, L + 1], NULL at step 0
    age: Tensor  # [F, L + 1]
    copies: Tensor  # [F] how often it was drawn
    per_start: Tensor  # [E] walks of each start


@dataclass(frozen=True)
class Sides:
    """Endpoints to encode, those with few walks first, their walks end to end; of the partner they know hits."""

    walk: Tensor  # [D] rows of `Walks`
    length: Tensor  # [S] walks of each side
    trail: Tensor  # [D] rows of `hits`: all that a walk's nodes are known by
    hits: Tensor  # [T, L + 1, 2] rows of `shares`: of each node in its side's own walks, in the partner's
    shares: Tensor  # [C, L + 1] different hits: share of walks at a node after each number of steps


@dataclass(frozen=True)
class Input:
    """A part of what an LSTM reads along walks; walks that read the same may share a row."""

    values: Tensor  # [n, L + 1, width]
    steps: Tensor  # [n] how many are real
    row: Tensor | None = None  # [d] the row that each walk reads; None: its own

    def mapped(self, x: Tensor, weight: Tensor) -> Tensor:
        """A map of rows, then what each walk has of it.  # [n, width] -> [d, out]"""
        y = x @ weight.T
        return y if self.row is None else y.index_select(0, self.row)

    def first(self, walk: Tensor) -> Tensor:
        return self.values[walk if self.row is None else self.row[walk], 0]

    def last(self) -> Tensor:
        return self.values[torch.arange(len(self.steps), device=self.steps.device), self.steps - 1]


class WalkLSTM(nn.Module):
    """A bidirectional LSTM read at the last step of each walk; equal to `nn.LSTM` there.

    Walks of one side begin alike: their first step is taken once.
    """

    def __init__(self, widths: list[int], hidden: int) -> None:
        super().__init__()
        self.widths = widths
        self.weight, self.weight_back = (nn.Parameter(torch.empty(4 * hidden, sum(widths))) for _ in range(2))
        self.bias, self.bias_back = (nn.Parameter(torch.empty(2, 4 * hidden)) for _ in range(2))
        self.recurrent = nn.Parameter(torch.empty(4 * hidden, hidden))
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -1 / math.sqrt(hidden), 1 / math.sqrt(hidden))

    def forward(self, inputs: list[Input], per_side: Tensor, steps: Tensor) -> Tensor:
        """Inputs of walks, walks of each side, how many steps of each are real.  # -> [d, 2 hidden]"""
        pairs, bias = self._read(inputs, self.weight), self.bias.sum(dim=0)
        begin = per_side.cumsum(0) - per_side  # [S]
        h, c = _from_rest(_sum(input.first(begin) @ w.T for input, w in pairs) + bias)
        carried, h, c = (x.repeat_interleave(per_side, dim=0) for x in (h @ self.recurrent.T + bias, h, c))
        for step in range(1, inputs[0].values.shape[1]):
            if step > 1:
                carried = h @ self.recurrent.T + bias
            after, cell = _step(_sum(input.mapped(input.values[:, step], w) for input, w in pairs) + carried, c)
            goes_on = (steps > step).unsqueeze(1)
            h, c = torch.where(goes_on, after, h), torch.where(goes_on, cell, c)
        return torch.cat([h, self._backward_half(inputs)], dim=-1)

    def _backward_half(self, inputs: list[Input]) -> Tensor:
        read = _sum(input.mapped(input.last(), w) for input, w in self._read(inputs, self.weight_back))
        return _from_rest(read + self.bias_back.sum(dim=0))[0]

    def _read(self, inputs: list[Input], weight: Tensor) -> list[tuple[Input, Tensor]]:
        """Inputs that have any columns, each with its part of the weights."""
        begin = [0, *accumulate(self.widths)]
        return [
            (input, weight[:, at : at + input.values.shape[-1]])  # features may be narrower than declared
            for input, at in zip(inputs, begin, strict=False)
            if input.values.shape[-1]
        ]


def _sum(parts: Iterable[Tensor]) -> Tensor:
    return reduce(torch.add, parts)


def _step(gates: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """One step of an LSTM.  # [n, 4 hidden], [n, hidden] -> [n, hidden] twice"""
    admit, forget, new, show = gates.chunk(4, dim=-1)
    c = torch.sigmoid(forget) * c + torch.sigmoid(admit) * torch.tanh(new)
    return torch.sigmoid(show) * torch.tanh(c), c


def _from_rest(gates: Tensor) -> tuple[Tensor, Tensor]:
    """The same from an empty cell, where there is nothing to forget."""
    admit, _, new, show = gates.chunk(4, dim=-1)
    c = torch.sigmoid(admit) * torch.tanh(new)
    return torch.sigmoid(show) * torch.tanh(c), c


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

    def ends(self, query: Query, past: Past) -> tuple[Tensor, Tensor]:
        ends = torch.cat([query.src, query.dst])
        node, time, start = distinct(ends, torch.cat([query.time, query.time]))  # walks are drawn once per start
        walks = self._walks(node, time, past)
        src, dst = start.chunk(2)
        sides, where = self._sides(walks, own=start, other=torch.cat([dst, src]))
        src_h, dst_h = self._encode(walks, sides, past)[where].chunk(2)
        return src_h, dst_h

    def _walks(self, node: Tensor, time: Tensor, past: Past) -> Walks:
        k, length, starts = self.config.neighbors, self.config.walk_length, len(node)
        count = k**length
        at, when, columns = node, time, [(node, torch.zeros_like(node), time)]
        for _ in range(length):
            links = self._branches(at, when, past)
            at, when = links.node.flatten(), links.time.flatten()
            columns.append((at, links.event.flatten(), when))
        spread = [
            [part.view(starts, -1).repeat_interleave(count // k**step, dim=1).flatten() for part in parts]
            for step, parts in enumerate(columns)
        ]
        nodes, events, times = (torch.stack(parts, dim=1) for parts in zip(*spread, strict=True))  # [E W, L + 1]
        start = torch.arange(starts, device=node.device).repeat_interleave(count)
        rows, copies = torch.arange(len(start), device=node.device), torch.ones_like(start)
        if self.config.merge_copies:
            rows, kind = _grouped([start, *events.T])
            copies = torch.bincount(kind)
        age = time[start[rows]].unsqueeze(1) - times[rows]
        per_start = torch.bincount(start[rows], minlength=starts)
        return Walks(start[rows], nodes[rows], events[rows], age, copies, per_start)

    def _branches(self, node: Tensor, time: Tensor, past: Past) -> Neighbors:
        config = self.config
        if config.sampling == "published":
            return _published_branches(node, time, past, config.neighbors, config.rate)
        return past.sample(config.sampling, node, time, config.neighbors, config.rate)

    def _sides(self, walks: Walks, own: Tensor, other: Tensor) -> tuple[Sides, Tensor]:
        """What there is to encode, and where each endpoint's encoding is.  # [2 Q], [2 Q] -> [2 Q]"""
        first = walks.per_start.cumsum(0) - walks.per_start  # [E]
        hits = Hits(walks, self.config.neighbors**self.config.walk_length)
        of = torch.arange(len(own), device=own.device).repeat_interleave(walks.per_start[own])
        crossing = hits.of(other[of], walks.node[spans(first[own], walks.per_start[own])])  # [., L + 1]
        touched = torch.zeros_like(own).index_add_(0, of, (crossing > 0).any(dim=1).long()) > 0
        # beside partners that its walks never meet, an endpoint looks always the same
        key = own * (len(first) + 1) + torch.where(touched, other + 1, 0)
        keys, where = torch.unique(key, return_inverse=True)
        one = torch.empty_like(keys).scatter_(0, where, torch.arange(len(key), device=key.device))  # [S]
        length, order = walks.per_start[own[one]].sort(stable=True)
        one, where = one[order], torch.argsort(order)[where]
        walk = spans(first[own[one]], length)
        begin = walks.per_start[own].cumsum(0) - walks.per_start[own]
        codes = torch.stack([hits.own[walk], crossing[spans(begin[one], length)]], dim=-1)  # [D, L + 1, 2]
        code, row = torch.unique(codes, return_inverse=True)
        one_of, trail = _grouped(row.flatten(1).T)
        return Sides(walk, length, trail, row[one_of], hits.shares(code)), where

    def _encode(self, walks: Walks, sides: Sides, past: Past) -> Tensor:  # [S, dim]
        share = self.position(sides.shares.to(self.out.weight.dtype))  # [C, p]
        position = share[sides.hits[..., 0]] + share[sides.hits[..., 1]]  # [T, L + 1, p]
        steps = (walks.node != NULL).sum(dim=1).clamp(min=1)  # [F]
        taken = torch.ones_like(sides.hits[:, 0, 0]).scatter_(0, sides.trail, steps[sides.walk])  # [T]
        crossed = self.position_walk([Input(position, taken)], torch.ones_like(taken), taken)  # [T, p]
        time = self.time(walks.age)  # [F, L + 1, time_dim]
        encoded = []
        for length, walk, trail in _parts(sides):
            seen = [past.node_x(walks.node[walk]), time[walk], past.edge_x(walks.event[walk])]
            inputs = [Input(x, steps[walk]) for x in seen] + [Input(position, taken, trail)]
            features = self.feature_walk(inputs, length, steps[walk])  # [d, .]
            token = self.token(torch.cat([features, crossed[trail]], dim=-1))
            layout = Layout.of(length, walks.copies[walk])
            encoded.append(self.out(layout.mean(self.mix(token, layout))))
        return torch.cat(encoded)


def _parts(sides: Sides) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """(length, walk, trail) of a few sides at a time, of like length: little padding, and memory is used again."""
    stop = sides.length.cumsum(0)  # [S]
    side = walk = 0
    while side < len(stop):
        last = max(int(torch.searchsorted(stop, walk + PART, right=True)), side + 1)
        end = int(stop[last - 1])
        yield sides.length[side:last], sides.walk[walk:end], sides.trail[walk:end]
        side, walk = last, end


class Hits:
    """How often the walks of each start are at each node, by number of steps, packed into one integer."""

    def __init__(self, walks: Walks, count: int) -> None:
        steps = walks.node.shape[1]
        self.count = count
        self.unit = (count + 1) ** torch.arange(steps, device=walks.node.device)  # [L + 1]
        self.nodes = int(walks.node.max()) + 1
        key = walks.start.unsqueeze(1) * self.nodes + walks.node  # [F, L + 1]
        self.key, where = torch.unique(key, return_inverse=True)
        hits = walks.copies.unsqueeze(1) * self.unit * (walks.node != NULL)
        self.code = torch.zeros_like(self.key).index_add_(0, where.flatten(), hits.flatten())
        self.own = self.code[where]  # [F, L + 1]

    def of(self, start: Tensor, node: Tensor) -> Tensor:
        """Hits of nodes in the walks of other starts.  # [n], [n, L + 1] -> [n, L + 1]"""
        key = start.unsqueeze(1) * self.nodes + node
        at = torch.searchsorted(self.key, key).clamp(max=len(self.key) - 1)
        return torch.where(self.key[at] == key, self.code[at], 0)

    def shares(self, code: Tensor) -> Tensor:
        """[C] -> [C, L + 1]"""
        return (code.unsqueeze(1) // self.unit % (self.count + 1)).double() / self.count


def _grouped(columns: Iterable[Tensor]) -> tuple[Tensor, Tensor]:
    """One row of each kind, kinds in the order of their columns, and every row's kind.  # [n] each -> [m], [n]"""
    kind: Tensor | None = None
    for column in columns:
        key = column if kind is None else kind * (int(column.max()) + 1) + column
        kind = torch.unique(key, return_inverse=True)[1]
    assert kind is not None
    one = torch.empty_like(kind[: int(kind.max()) + 1])
    return one.scatter_(0, kind, torch.arange(len(kind), device=kind.device)), kind


def _published_branches(node: Tensor, time: Tensor, past: Past, k: int, rate: float) -> Neighbors:
    """`Past.decayed` with the chances of the public code."""
    asked, at = node.cpu().numpy(), time.cpu().numpy()
    position = _drawn(past.index, asked, at, at.view(np.uint64), k, rate, np.uint64(past.seed))
    parts = index_kernels.entries(past.index, position.reshape(-1))
    there, event, when, outgoing = (as_tensor(part).view(len(asked), k).to(node.device) for part in parts)
    return Neighbors(there, event, when, outgoing, mask=event != NULL)


@compiled
def _drawn(index: Any, asked: Any, at: Any, bits: Any, k: int, rate: float, seed: Any) -> Any:
    """Positions of k entries before each time, entry i weighing exp(e_i / (e_1 + ... + e_i))."""
    time = index[4]
    weights = np.empty(max(1, index[1].max()), np.float64)
    found = np.full((len(asked), k), -1, np.int64)  # [Q, k]
    for q in range(len(asked)):
        first, stop = index_kernels.history(index, asked[q], at[q])
        if stop == first:
            continue
        earlier, total = 0.0, 0.0  # (e_1 + ... + e_i) / e_i, and the running sum of weights
        for i in range(first, stop):
            earlier = 1.0 + (earlier * np.exp(-rate * (time[i] - time[i - 1])) if i > first else 0.0)
            total += np.exp(1.0 / earlier)
            weights[i - first] = total
        for j in range(k):
            chance = index_kernels.unit(seed, asked[q], bits[q], j)
            found[q, j] = first + index_kernels.drawn(weights, stop - first, chance)
        found[q].sort()
    return found
