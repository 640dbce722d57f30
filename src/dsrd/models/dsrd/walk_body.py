"""The network on the default state, walks in time: from state reads to the vectors that the heads score.

The equations are in the package's docstring; the state is in `walk_state` and its queries are in `walk_queries`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import gelu

from dsrd.events import Events, Query, as_tensor
from dsrd.history.past import Past
from dsrd.models.base import GraphSpec, with_null_partner
from dsrd.models.dsrd import walk_queries, walk_state
from dsrd.models.dsrd.content import Content
from dsrd.models.dsrd.overlay import Queries, queries_of, unobserved
from dsrd.models.dsrd.retention import Block, Body, Decays, cosine, signed_log, six_digits
from dsrd.models.dsrd.settings import DSRDConfig
from dsrd.models.dsrd.kernels import Kernels, read_at
from dsrd.models.dsrd.walk_queries import COUNTS, MEETINGS, PRODUCTS, Latest, Pending, Reading, View
from dsrd.models.dsrd.walk_state import (
    ACT_KINDS,
    Arrivals,
    Decay,
    NodeRows,
    PairRows,
    WalkState,
    empty_table,
    with_room,
)
from dsrd.models.dsrd.windows import WINDOW
from dsrd.nn.time import TICKS, span
from dsrd.state import State

PAIR_FIELDS = ("key", "met", "count", "met_last", "size")  # of the state, in the order of `PairRows`
FOLLOW_FIELDS = tuple(f"follow_{name}" for name in PAIR_FIELDS)
LATEST = 4  # latest events of a node that its activity is read from
FIRST_SLOTS = 1024  # of an empty table of pairs
PRECISIONS = {"float32": torch.float32, "bfloat16": torch.bfloat16}


@dataclass(frozen=True)
class Window:
    """The latest events of each endpoint, as the layers read them."""

    token: Tensor  # [B, k, dim]
    z: Tensor  # [B, k, pair]: state read of each partner with the other endpoint
    x: Tensor  # [B, k]: ages
    mask: Tensor  # [B, k]

    @cached_property
    def square(self) -> Tensor:
        """Squared length of each token, which all layers and heads share.  # [B, 1, k]"""
        return self.token.square().sum(-1).unsqueeze(1)


class AgeFeatures(nn.Module):
    """Cosines and soft steps of log(1 + age)."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.rate = nn.Parameter(2 * torch.randn(dim // 2))
        self.phase = nn.Parameter(2 * math.pi * torch.rand(dim // 2))
        self.step: Tensor
        self.register_buffer("step", torch.linspace(0, 16, dim - dim // 2))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:  # [...] -> [..., dim / 2] each
        # tanh(x - c) = 1 - 2 / (1 + exp(2x) exp(-2c)): one exponential per age instead of one per step
        growth = torch.exp(2 * x).unsqueeze(-1) * torch.exp(-2 * self.step)
        steps = growth.add_(1).reciprocal_().mul_(-2).add_(1)  # ages are data, no gradient passes here
        return torch.cos(x.unsqueeze(-1) * self.rate + self.phase), steps


class WalkLayer(nn.Module):
    """One retentive layer: injection, retention and diffusion, in a block.

    Keys are the tokens themselves: a key projection could be merged into the query's.
    """

    def __init__(self, config: DSRDConfig, depth: int, pair_dim: int) -> None:
        super().__init__()
        self.kernels = Kernels(config)
        dim, self.heads, self.ablate = config.dim, config.heads, config.ablate
        self.query = nn.Linear(dim, self.heads * dim)
        self.value = nn.Parameter(torch.randn(self.heads, dim, dim // self.heads) / math.sqrt(dim))
        self.retain = nn.Linear(pair_dim, dim)
        self.diffuse = nn.Parameter(torch.randn(self.heads, pair_dim, dim // self.heads) / math.sqrt(pair_dim))
        self.decays = Decays(config, depth)
        self.block = Block(dim, config.dropout)

    def forward(self, h: Tensor, window: Window, s: Tensor) -> Tensor:
        if self.ablate == "no_block":
            return h
        gamma = self.decays.gate().unsqueeze(-1)  # [H, 1]
        out = self._injection(h, window) * (1 - gamma)  # [B, H, d]
        if self.ablate != "no_state":
            out = out + self._retained(window, s) * gamma
        updated: Tensor = self.block(h, out)
        return updated

    def _injection(self, h: Tensor, window: Window) -> Tensor:
        query, token = self.query(h).unflatten(-1, (self.heads, -1)), window.token  # [B, H, dim], [B, k, dim]
        product = torch.bmm(query, token.transpose(1, 2))  # [B, H, k]
        weight = self.decays.omega(cosine(product, query, window.square), window.x, window.mask)
        # values are linear in tokens: project the sum once instead of every token
        summed = torch.bmm(weight * product / math.sqrt(token.shape[-1]), token)  # [B, H, dim]
        return torch.einsum("bhe,hed->bhd", summed, self.value)

    def _retained(self, window: Window, s: Tensor) -> Tensor:
        retained: Tensor = self.retain(s).unflatten(-1, (self.heads, -1))  # [B, H, d]
        if self.ablate == "no_diffusion":
            return retained
        diffused = torch.bmm(self.decays.psi(window.x, window.mask), window.z)  # [B, H, pair]
        return retained + torch.einsum("bhp,hpd->bhd", diffused, self.diffuse)


class Walks(Body):
    """Walk states, queried by the partner's identity, and the layers that read them."""

    heads = ("partner", "pair")
    any_clock = True

    def __init__(self, config: DSRDConfig, graph: GraphSpec, state: State) -> None:
        super().__init__()
        self.config, self.whole_moments = config, graph.whole_moments
        rates, dim, heads = len(config.scales), config.dim, config.heads
        self.content = Content(graph.edge_dim, rates, graph.whole_moments, state) if graph.edge_dim else None
        pair_dim = walk_queries.pair_width(heads, heads)
        node_dim = walk_queries.node_width(heads, heads) * max(config.layers, 1)
        node_dim += 0 if self.content is None else self.content.width
        self.width = 2 * dim + max(config.layers, 1) * pair_dim + 2 * node_dim
        self.age = AgeFeatures(config.time_dim)
        token_dim = config.time_dim + pair_dim + WINDOW + graph.edge_dim
        self.token = nn.Linear(token_dim, dim)
        self.start = nn.Linear(config.time_dim + 2 + node_dim + graph.node_dim, dim)
        self.layers = nn.ModuleList(WalkLayer(config, depth + 1, pair_dim) for depth in range(config.layers))
        self.source_width = node_dim + graph.node_dim + 3 * LATEST
        self.rate: Tensor  # [rates]: decay of walks, per event of the stream
        self.register_buffer("rate", torch.ones(rates, dtype=torch.float64))
        self.tick: Tensor  # unit of the ages in windows
        self.register_buffer("tick", torch.ones(()))
        self.fine: Tensor  # [fine]: decay of exact counts, per event of the stream
        self.register_buffer("fine", torch.ones(len(config.count_scales), dtype=torch.float64))
        _declare(state, config)

    def calibrate(self, train: Events) -> None:
        """Measure the training stream's time span, the unit of ages in windows, and its events, that of decays.

        Scores then do not depend on the unit of time.
        """
        self.tick = torch.tensor(span(train) / TICKS)
        self.rate = 1.0 / (len(train) * torch.tensor(self.config.scales, dtype=torch.float64))
        self.fine = 1.0 / (len(train) * torch.tensor(self.config.count_scales, dtype=torch.float64))

    def learned(self) -> dict[str, Any]:
        """Decays per layer and head, and the number of events after which the state has decayed to 1 / e."""
        log_scales = torch.tensor(self.config.count_scales).log()
        constant = [layer.kernels.log_scale(log_scales).exp() / self.fine[-1] for layer in self.layers]
        return super().learned() | {"retention": {"time_constant_in_events": [six_digits(c) for c in constant]}}

    def embed(self, node: Tensor, time: Tensor, past: Past, state: State) -> Tensor:
        """h with the NULL node as partner, the node's activity, and the directions of its walks.

        With NULL as partner, h depends on the node's own past and the noise of codes only. The node's partners are
        in the directions.  # [n] -> [n, dim + node + 2 code_dim]
        """
        h, _, activity = self._endpoints(with_null_partner(node, time), past, state)
        directions = self._directions(node, time, past, state)
        if self.config.ablate == "no_state":
            directions = torch.zeros_like(directions)
        return torch.cat([h[0], activity[0], directions], dim=-1)

    def represent(self, query: Query, past: Past, state: State) -> Tensor:
        """The input of both heads.  # [Q, width]"""
        (src, dst), pair, node = self._endpoints(query, past, state)
        return torch.cat([src, dst, pair, node[0], node[1]], dim=-1)

    def _endpoints(self, query: Query, past: Past, state: State) -> tuple[Tensor, Tensor, Tensor]:
        """h of both endpoints, s, and the endpoints' activity.  # [2, Q, dim], [Q, pair], [2, Q, node]"""
        reading = self.read(query, past, state)
        x = self._ages(reading.age)  # [2, Q, k]
        mask = (reading.event > 0).float()
        compared = torch.log1p(reading.tokens[..., -WINDOW:])  # [2, Q, k, WINDOW]
        grid, pair_grid, node_grid = (
            part.clamp(min=0) for part in (reading.tokens[..., :-WINDOW], reading.pair, reading.node)
        )
        if self.config.ablate == "no_state":
            grid, pair_grid, node_grid = (torch.zeros_like(part) for part in (grid, pair_grid, node_grid))
        mixes = self._mixes()
        z, s = self._at(grid, mixes[0]), [self._at(pair_grid, mix) for mix in mixes]
        node = self._nodes(node_grid, mixes, query, past, state)
        tokens = self._tokens(reading, x, (z, compared), past)
        window = Window(*(part.flatten(0, 1) for part in (tokens, z, x, mask)))  # [2Q, k, ...]
        h = self._start(query, x, mask, node, past).flatten(0, 1)  # [2Q, dim]
        for layer, s_at in zip(self.layers, s, strict=True):
            h = layer(h, window, s_at.repeat(2, 1))
        return h.view(2, len(query), -1), torch.cat(s, dim=-1), node

    def _mixes(self) -> list[tuple[Tensor, Tensor]]:
        """Per layer, the weights of the grid's rates in the heads' kernels: of walks, of counts."""
        walks, counts = (torch.tensor(scales).log() for scales in (self.config.scales, self.config.count_scales))
        range_ = counts if len(counts) > 1 else walks
        return [(layer.kernels.weights(walks, range_), layer.kernels.weights(counts, range_)) for layer in self.layers]

    def _at(self, grid: Tensor, mix: tuple[Tensor, Tensor]) -> Tensor:
        """State reads at the learned rates, log(1 + .).  # [..., grid] -> [..., pair]"""
        walks, counts = PRODUCTS * len(self.rate), COUNTS * len(self.fine)
        parts = grid.split([walks, counts, MEETINGS], dim=-1)
        return torch.log1p(torch.cat([read_at(parts[0], mix[0]), read_at(parts[1], mix[1]), parts[2]], dim=-1))

    def _nodes(
        self, grid: Tensor, mixes: list[tuple[Tensor, Tensor]], query: Query, past: Past, state: State
    ) -> Tensor:
        """What the state says about the endpoints alone.  # [2, Q, grid] -> [2, Q, node]"""
        parts = [torch.log1p(self._node_at(grid, mix)) for mix in mixes]
        if self.content is not None:
            compared = self.content.read(query, past, state, self._decay().rate)
            parts.append(signed_log(compared[: len(grid)]))
            if self.config.ablate == "no_state":
                parts[-1] = torch.zeros_like(parts[-1])
        return torch.cat(parts, dim=-1)

    def _node_at(self, grid: Tensor, mix: tuple[Tensor, Tensor]) -> Tensor:
        lengths, acts = grid.split([2 * len(self.rate), ACT_KINDS * len(self.fine)], dim=-1)
        return torch.cat([read_at(lengths, mix[0]), read_at(acts, mix[1])], dim=-1)

    def sources(self, query: Query, past: Past, state: State) -> Tensor:
        """What is known about the source of each query alone, for p(source | t).  # [Q, source_width]"""
        count, widths = len(query), (len(self.rate), len(self.fine))
        out = Latest[NDArray[Any]](
            np.zeros((count, walk_queries.node_width(*widths)), np.float32),
            *(np.zeros((count, LATEST), np.float32) for _ in range(3)),
        )
        queries = queries_of(query)
        walk_queries.read_sources(*self._view(queries, past, state), past.index, queries, out)
        latest = Latest(*(as_tensor(array).to(query.src.device) for array in out))
        grid = latest.node.clamp(min=0).unsqueeze(0)
        if self.config.ablate == "no_state":
            grid = torch.zeros_like(grid)
        node = self._nodes(grid, self._mixes(), query, past, state)[0]
        x = self._ages(latest.age) * latest.exists
        return torch.cat([node, signed_log(past.node_x(query.src)), x, latest.exists, latest.outgoing], dim=-1)

    def _ages(self, age: Tensor) -> Tensor:
        if self.config.ablate == "no_temporal_decay":
            return torch.zeros_like(age)
        return torch.log1p(age * self._age_factor() / self.tick)

    def _age_factor(self) -> float:
        """Factor on ages. Random in training, so that the model also works when a stream changes its pace."""
        return math.exp(self.config.stretch * torch.randn(()).item()) if self.training else 1.0

    def _tokens(self, reading: Reading[Tensor], x: Tensor, counts: tuple[Tensor, Tensor], past: Past) -> Tensor:
        edge_x = signed_log(past.edge_x(reading.event))
        return gelu(linear_of_parts(self.token, *self.age(x), *counts, edge_x))

    def _start(self, query: Query, x: Tensor, mask: Tensor, node: Tensor, past: Past) -> Tensor:
        """h before the first layer.  # [2, Q, dim]"""
        has_history = mask[..., :1]  # [2, Q, 1]
        length = torch.log1p(mask.sum(-1, keepdim=True))
        node_x = signed_log(past.node_x(torch.stack([query.src, query.dst])))
        age = torch.cat(self.age(x[..., 0]), dim=-1) * has_history
        start: Tensor = self.start(torch.cat([age, has_history, length, node, node_x], dim=-1))
        return start

    def read(self, query: Query, past: Past, state: State) -> Reading[Tensor]:
        """Look up every pair in state and windows, at its own time."""
        k, count, widths = self.config.neighbors, len(query), (len(self.rate), len(self.fine))
        pair_dim, node_dim = walk_queries.pair_width(*widths), walk_queries.node_width(*widths)
        out = Reading[NDArray[Any]](
            tokens=np.zeros((2, count, k, pair_dim + WINDOW), np.float32),
            age=np.zeros((2, count, k), np.float32),
            event=np.zeros((2, count, k), np.int64),
            pair=np.zeros((count, pair_dim), np.float32),
            node=np.zeros((2, count, node_dim), np.float32),
        )
        queries = queries_of(query)
        view, pending = self._view(queries, past, state)
        walk_queries.read(view, pending, past.index, queries, out)
        return Reading(*(as_tensor(array).to(query.src.device) for array in out))

    def _directions(self, node: Tensor, time: Tensor, past: Past, state: State) -> Tensor:
        """The directions of each node's walk vectors, in the space of codes.  # [n] -> [n, 2 code_dim]"""
        queries = queries_of(with_null_partner(node, time))
        out = np.zeros((len(node), 2, self.config.code_dim), np.float32)
        view, pending = self._view(queries, past, state)
        walk_queries.directions(view, pending, queries, out)
        return as_tensor(out).flatten(1).to(node.device)

    def _view(self, queries: Queries, past: Past, state: State) -> tuple[View, Pending]:
        new = unobserved(past.unobserved, queries.time)
        return walk_queries.view_of(_arrays(state), new, self._decay(), self.whole_moments)

    def observe(self, events: Events, past: Past, state: State) -> None:
        state.rows_for(torch.cat([events.src, events.dst]))
        walks = _arrays(state)
        walks = walks._replace(
            pairs=with_room(walks.pairs, len(events)), follows=with_room(walks.follows, 2 * len(events))
        )
        src, dst, time = (column.cpu().numpy() for column in (events.src, events.dst, events.time))
        walk_state.observe(walks, Arrivals(src, dst, time, src_row=src, dst_row=dst), self._decay())
        columns: tuple[NDArray[Any], ...] = walks.pairs + walks.follows
        for name, array in zip(PAIR_FIELDS + FOLLOW_FIELDS, columns, strict=True):  # `with_room` may enlarge them
            state[name] = as_tensor(array)
        if self.content is not None:
            self.content.observe(events, past, state, self._decay().rate)

    def _decay(self) -> Decay:
        return Decay(self.rate.cpu().numpy(), self.fine.cpu().numpy())


def linear_of_parts(linear: nn.Linear, *parts: Tensor) -> Tensor:
    """`linear(torch.cat(parts, -1))` without the concatenation, which costs as much as the product."""
    shape, start = parts[0].shape[:-1], 0
    total: Tensor = linear.bias
    for part in parts:
        columns = linear.weight[:, start : start + part.shape[-1]]
        product = part.flatten(0, -2), columns.t()
        total = total.addmm_(*product) if start else torch.addmm(total, *product)  # in place: no copy of the sum
        start += part.shape[-1]
    return total.view(*shape, -1)


def _arrays(state: State) -> WalkState:
    """The state's fields as arrays over the same memory."""
    return WalkState(
        NodeRows(*(_array(state[name]) for name in NodeRows._fields)),
        PairRows(*(_array(state[name]) for name in PAIR_FIELDS)),
        PairRows(*(_array(state[name]) for name in FOLLOW_FIELDS)),
        _array(state["clock"]),
    )


def _array(field: Tensor) -> NDArray[Any]:
    """numpy has no bfloat16: such a field is viewed as 16-bit integers."""
    array: NDArray[Any] = (field.view(torch.int16) if field.dtype == torch.bfloat16 else field).numpy()
    return array


def _declare(state: State, config: DSRDConfig) -> None:
    rates, fine, precision = len(config.scales), len(config.count_scales), PRECISIONS[config.precision]
    declare = partial(state.declare, compiled=True)
    for name in ("step1", "step2"):
        declare(name, partial(_rows, (rates, config.code_dim), precision), per_node=True)
    declare("acts", partial(_rows, (ACT_KINDS, fine), torch.float32), per_node=True)
    declare("last", partial(_rows, (), torch.float64), per_node=True)
    declare("previous", partial(_rows, (), torch.int64), per_node=True)
    for names in (PAIR_FIELDS, FOLLOW_FIELDS):
        for name, column in zip(names, PairRows._fields, strict=True):
            declare(name, partial(_empty_column, column, fine))
    declare("clock", lambda _: torch.tensor([0.0, 0.0, -math.inf], dtype=torch.float64))


def _rows(shape: tuple[int, ...], dtype: torch.dtype, rows: int) -> Tensor:
    return torch.zeros(rows, *shape, dtype=dtype)


def _empty_column(column: str, fine: int, _: int) -> Tensor:
    return as_tensor(getattr(empty_table(FIRST_SLOTS, fine), column))
