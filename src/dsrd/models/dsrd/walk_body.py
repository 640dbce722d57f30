"""The network on the default state, walks in time: from state reads to the vectors that the heads score.

The equations are in the package's docstring; the state is in `walk_state` and its queries are in `walk_queries`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from dsrd.events import Events, Query, as_tensor
from dsrd.history import pair_table
from dsrd.history.past import Past
from dsrd.models.base import GraphSpec, with_null_partner
from dsrd.models.dsrd import node_queries, walk_queries, walk_state
from dsrd.models.dsrd.content import Content
from dsrd.models.dsrd.encoder import Known, Modules, encode
from dsrd.models.dsrd.learned_reads import LearnedReads
from dsrd.models.dsrd.memory import Memory
from dsrd.models.dsrd.node_queries import Latest
from dsrd.models.dsrd.overlay import Queries, queries_of, unobserved
from dsrd.models.dsrd.retention import Body, signed_log
from dsrd.models.dsrd.rows_on_disk import Sleepers, grown_rows, mapped_rows
from dsrd.models.dsrd.settings import DSRDConfig
from dsrd.models.dsrd.walk_layer import WalkLayer
from dsrd.models.dsrd.walk_queries import Pending, Reading, View
from dsrd.models.dsrd.walk_rows import row_size, step_fault
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
from dsrd.models.dsrd.window_tokens import AgeFeatures
from dsrd.models.dsrd.window_tokens import Events as WindowEvents
from dsrd.models.dsrd.windows import WINDOW
from dsrd.nn.time import TICKS, span
from dsrd.state import State

PAIR_FIELDS = ("key", "met", "count", "met_last", "size")  # of the state, in the order of `PairRows`
FOLLOW_FIELDS = tuple(f"follow_{name}" for name in PAIR_FIELDS)
LATEST = 4  # latest events of a node that its activity is read from
FIRST_SLOTS = 1024  # of an empty table of pairs
PRECISIONS = {"float32": torch.float32, "bfloat16": torch.bfloat16, "int8": torch.int8}


class Walks(Body):
    """Walk states, queried by the partner's identity, and the layers that read them."""

    heads = ("partner", "pair")
    any_clock = True

    def __init__(self, config: DSRDConfig, graph: GraphSpec, state: State) -> None:
        super().__init__()
        self.config, self.whole_moments = config, graph.whole_moments
        rates, dim = len(config.scales), config.dim
        self.content = Content(graph.edge_dim, rates, graph.whole_moments, state) if graph.edge_dim else None
        self.reads, self.memory = LearnedReads(config), Memory(config)
        pair_dim, node_dim = self.reads.pair_dim, self.reads.node_dim
        node_dim += 0 if self.content is None else self.content.width
        self.width = 2 * dim + config.layers * pair_dim + 2 * node_dim + 1
        self.num_targets: Tensor  # targets of the training events
        self.register_buffer("num_targets", torch.ones(()))
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
        columns = np.array(config.columns)
        self._columns = columns, np.sqrt(columns[0] / columns).astype(np.float32)  # see `Decay`
        self._sleepers = Sleepers()
        _declare(state, config)

    def calibrate(self, train: Events) -> None:
        """Measure the training stream's time span, the unit of ages in windows, and its events, that of decays.

        Scores then do not depend on the unit of time.
        """
        self.tick = torch.tensor(span(train) / TICKS)
        self.num_targets = torch.tensor(float(len(torch.unique(train.dst))))
        self.rate = 1.0 / (len(train) * torch.tensor(self.config.scales, dtype=torch.float64))
        self.fine = 1.0 / (len(train) * torch.tensor(self.config.count_scales, dtype=torch.float64))

    def learned(self) -> dict[str, Any]:
        """Decays per layer and head, and the number of events after which the state has decayed to 1 / e."""
        scales = torch.tensor(self.config.count_scales, dtype=torch.float64)
        num_events = float(1 / (self.fine * scales)[0])
        parts = {
            "retention": self.reads.learned(num_events),
            "memory": self.memory.learned((scales * num_events).float()),
        }
        return super().learned() | {name: part for name, part in parts.items() if part}

    def embed(self, node: Tensor, time: Tensor, past: Past, state: State) -> Tensor:
        """h with the NULL node as partner, the node's activity, and the directions of its walks.

        With NULL as partner, h depends on the node's own past and the noise of codes only. The node's partners are
        in the directions.  # [n] -> [n, dim + node + 2 code_dim]
        """
        query = with_null_partner(node, time)
        h, _, activity = self._endpoints(self.read(query, past, state), query, past, state)
        return torch.cat([h[0], activity[0], self.company(node, time, past, state)], dim=-1)

    def forget(self) -> None:
        self.memory.forget()

    def represent(self, query: Query, past: Past, state: State) -> tuple[Tensor, Tensor]:
        """The input of the partner head and the first guess that it corrects.  # [Q, width], [Q]"""
        reading = self.read(query, past, state)
        (src, dst), pair, node = self._endpoints(reading, query, past, state)
        guess = self.memory(*self.reads.remembered(reading), self.num_targets)
        return torch.cat([src, dst, pair, node[0], node[1], guess.unsqueeze(-1)], dim=-1), guess

    def _endpoints(
        self, reading: Reading[Tensor], query: Query, past: Past, state: State
    ) -> tuple[Tensor, Tensor, Tensor]:
        """h of both endpoints, s, and the endpoints' activity.  # [2, Q, dim], [Q, pair], [2, Q, node]"""
        known, kernels = self.reads.ablated(reading), self.reads.kernels()
        x = self._ages(reading.age)  # [T]
        s = self.reads.pair(known.pair, kernels)  # [Q, L * pair]
        node = self._nodes(known.node, kernels, query, past, state)
        z = self.reads.pair(known.partner, kernels[:1])  # [1 + U, pair]
        edge_x = signed_log(past.edge_x(reading.event))
        events = WindowEvents(self._shown(x), known.counts, edge_x, reading.which, reading.first)
        node_x = signed_log(past.node_x(torch.cat([query.src, query.dst])))
        layers = [layer for layer in self.layers if isinstance(layer, WalkLayer)]
        modules = Modules(self.age, self.token, self.start, [] if self.config.ablate == "no_block" else layers)
        s_of_layers = s.chunk(self.config.layers, dim=1)
        pairs = Known(events, x, z, s_of_layers, node.flatten(0, 1), node_x, self.config.neighbors)
        h = encode(pairs, modules)
        return h.view(2, len(query), self.config.dim), s, node

    def _nodes(
        self, grid: Tensor, kernels: list[tuple[Tensor, Tensor]], query: Query, past: Past, state: State
    ) -> Tensor:
        """What the state says about nodes alone, both endpoints or the sources.  # [1 or 2, Q, ...] twice"""
        node = self.reads.nodes(grid, kernels)
        if self.content is None:
            return node
        compared = self.content.read(query, past, state, self._decay().rate)[: len(grid)]
        return torch.cat([node, self.reads.ablated_content(signed_log(compared))], dim=-1)

    def sources(self, query: Query, past: Past, state: State) -> Tensor:
        """What is known about the source of each query alone, for p(source | t).  # [Q, source_width]"""
        count, widths = len(query), (len(self.rate), len(self.fine))
        out = Latest[NDArray[Any]](
            np.zeros((count, walk_queries.node_width(*widths)), np.float32),
            *(np.zeros((count, LATEST), np.float32) for _ in range(3)),
        )
        queries = queries_of(query)
        node_queries.read_sources(*self._view(queries, past, state), past.index, queries, out)
        latest = Latest(*(as_tensor(array).to(query.src.device) for array in out))
        known = self.reads.ablated_nodes(latest.node).unsqueeze(0)
        node = self._nodes(known, self.reads.kernels(), query, past, state)[0]
        x = self._shown(self._ages(latest.age)) * latest.exists
        return torch.cat([node, signed_log(past.node_x(query.src)), x, latest.exists, latest.outgoing], dim=-1)

    def _ages(self, age: Tensor) -> Tensor:
        if self.config.ablate == "no_temporal_decay":
            return torch.zeros_like(age)
        return torch.log1p(age * self._age_factor() / self.tick)

    def _shown(self, x: Tensor) -> Tensor:
        """The ages that features show; decays read all of them."""
        return torch.zeros_like(x) if self.config.ablate == "no_age_features" else x

    def _age_factor(self) -> float:
        """Factor on ages. Random in training, so that the model also works when a stream changes its pace."""
        return math.exp(self.config.stretch * torch.randn(()).item()) if self.training else 1.0

    def read(self, query: Query, past: Past, state: State) -> Reading[Tensor]:
        """Look up every pair in state and windows, at its own time."""
        k, count, widths = self.config.neighbors, len(query), (len(self.rate), len(self.fine))
        pair_dim, node_dim = walk_queries.pair_width(*widths), walk_queries.node_width(*widths)
        queries = queries_of(query)
        first = walk_queries.first_events(past.index, queries, k)
        size = int(first[-1])
        out = Reading[NDArray[Any]](
            partner=np.empty((1 + size, pair_dim), np.float32),
            which=np.empty(size, np.int64),
            counts=np.empty((size, WINDOW), np.float32),
            age=np.empty(size, np.float32),
            event=np.empty(size, np.int64),
            first=first,
            pair=np.empty((count, pair_dim), np.float32),
            node=np.empty((2, count, node_dim), np.float32),
        )
        out.partner[0] = 0
        view, pending = self._view(queries, past, state)
        taken = walk_queries.read(view, pending, past.index, queries, k, out)
        out = out._replace(partner=out.partner[:taken])
        return Reading(*(as_tensor(array).to(query.src.device) for array in out))

    def company(self, node: Tensor, time: Tensor, past: Past, state: State) -> Tensor:
        """The directions of each node's walk vectors, in the space of codes.  # [n] -> [n, 2 code_dim]"""
        queries = queries_of(with_null_partner(node, time))
        out = np.zeros((len(node), 2, self.config.code_dim), np.float32)
        view, pending = self._view(queries, past, state)
        node_queries.directions(view, pending, queries, out)
        if self.config.ablate == "no_state":
            out[:] = 0
        return as_tensor(out).flatten(1).to(node.device)

    def _view(self, queries: Queries, past: Past, state: State) -> tuple[View, Pending]:
        new = unobserved(past.unobserved, queries.time)
        return walk_queries.view_of(_arrays(state), new, self._decay(), self.whole_moments)

    def observe(self, events: Events, past: Past, state: State) -> None:
        state.rows_for(torch.cat([events.src, events.dst]))
        walks = _arrays(state)
        slots = len(walks.pairs.key) + len(walks.follows.key)
        walks = walks._replace(
            pairs=with_room(walks.pairs, len(events)), follows=with_room(walks.follows, 2 * len(events))
        )
        src, dst, time = (column.cpu().numpy() for column in (events.src, events.dst, events.time))
        walk_state.observe(walks, Arrivals(src, dst, time, src_row=src, dst_row=dst), self._decay())
        if len(walks.pairs.key) + len(walks.follows.key) > slots:  # larger copies
            columns: tuple[NDArray[Any], ...] = walks.pairs + walks.follows
            for name, array in zip(PAIR_FIELDS + FOLLOW_FIELDS, columns, strict=True):
                state[name] = as_tensor(array)
        if self.config.rows_on_disk:
            self._sleepers.sweep(state, float(1 / self.rate.min()))
        if self.content is not None:
            self.content.observe(events, past, state, self._decay().rate)

    def _decay(self) -> Decay:
        return Decay(self.rate.cpu().numpy(), self.fine.cpu().numpy(), *self._columns)


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
    on_disk = config.rows_on_disk
    declare, rows = partial(state.declare, compiled=True), mapped_rows if on_disk else _rows
    per_node = partial(declare, per_node=True, grow=grown_rows if on_disk else None)
    packed = (row_size(np.array(config.columns), config.precision == "int8"),)
    for name in ("step1", "step2"):
        shape = packed if config.packed else (rates, config.code_dim)
        per_node(name, partial(rows, shape, precision))
    per_node("acts", partial(rows, (ACT_KINDS, fine), torch.float32))
    per_node("last", partial(rows, (), torch.float64))
    per_node("previous", partial(rows, (), torch.int64), holds="nodes")
    for names in (PAIR_FIELDS, FOLLOW_FIELDS):
        for name, column in zip(names, PairRows._fields, strict=True):
            declare(name, partial(_empty_column, column, fine), table="" if column == "size" else names[0])
        state.require(partial(_table_fault, names))
    if config.precision == "int8":
        state.require(partial(step_fault, np.array(config.columns)))
    declare("clock", lambda _: torch.tensor([0.0, 0.0, -math.inf], dtype=torch.float64))


def _table_fault(names: Sequence[str], fields: Mapping[str, Tensor]) -> str | None:
    pairs = PairRows(*(fields[name].numpy() for name in names))
    return pair_table.fault(pairs.key, int(pairs.size[0]))


def _rows(shape: tuple[int, ...], dtype: torch.dtype, rows: int) -> Tensor:
    return torch.zeros(rows, *shape, dtype=dtype)


def _empty_column(column: str, fine: int, _: int) -> Tensor:
    return as_tensor(getattr(empty_table(FIRST_SLOTS, fine), column))
