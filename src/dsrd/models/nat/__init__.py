"""NAT: dictionaries of each node's neighbours, joined for a pair.

Luo, Li: Neighborhood-aware Scalable Temporal Network Representation Learning, LoG 2022.

A node u keeps a vector s(u) and a cache of slots, each with a key (a node a), the event it came from and a small
vector z: one slot for u itself (hop 0), `near` for its partners (hop 1), `far` for its partners' partners (hop 2).
A key's hash names its slot; a slot that holds another key gives way with probability `replace`.

    s(u)    = GRU( W  [ s(v) || x(e) || cos(w t_e + b) ], s(u) )          v, e: u's last partner and event
    z(u, a) = GRU( W' [ s(a) || x(e) || cos(w t_e + b) ], z(u, a) )       e: the slot's event
    q(a)    = [ sum x(a) || sum z || P[hops of u and of v that hold a] ]   for every key a of u or v
    h(u, v) = sum over keys of W'' q(a) + b''                            a mean over heads
    score   = MLP [ h(u, v) || s(u) || s(v) ]

An event (u, v) writes v into u's near slots with z(u, v), u's near slots into v's far ones, and the same the other
way round.

Fidelity
--------
* The paper aggregates by attention. In the public code the attention weights are computed and not used: its keys
  are summed, in the published tables and here.
* Time is encoded as the clock shows it (in float32), not as an age: as in the paper and the public code.
* Slots are chosen by a mixing hash. `hashing="quadratic"` is the public code's (c a + (c + 1) a^2) mod size, where
  c is the seed: with an even seed only 7 of 32 slots (4 of 16, 12 of 64) can ever be used.
* Of several writes to a slot in one batch the last in *time* stays. `last_message="role"` keeps the public code's
  order: all source-role writes, then all target-role ones, the last of that list.
* Whether a slot gives way is a hash of seed, owner, event and key, not the next number of a generator: equal
  chances, and no dependence on what else was asked or written. All writes of a batch are judged against the
  slots as they were before it, as published.
* The public code writes a node's own slot key while scoring, negatives included; the key is always the node
  itself, so here it is not stored at all and nothing is written.
* A slot is empty if no event is in it. `time_zero_is_empty=true` also empties slots of events at time 0 exactly,
  as the public code does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from dsrd.compiled import compiled
from dsrd.events import NULL, Events, Query, as_tensor
from dsrd.history.index import mixed, unit
from dsrd.history.past import Past
from dsrd.models.base import GraphSpec, TemporalModel
from dsrd.models.card import ModelCard
from dsrd.models.nat.dropped_sum import dropped_sum
from dsrd.models.ranges import Chance, Positive
from dsrd.nn.dropout import Dropout
from dsrd.nn.linear import BlockLinear, Merge
from dsrd.nn.memory import GRU, LastMessage, last_messages
from dsrd.nn.time import CosineTime

Ints = NDArray[np.int64]
HOPS = 3  # 0: the node itself, 1: partners, 2: partners' partners
PLACES = 2 ** (2 * HOPS)  # in which hops of the source and of the target a key is found
EMPTY = -1


@dataclass(frozen=True, kw_only=True)
class NATConfig:
    near: int = 32  # slots for partners
    far: int = 16  # slots for partners' partners
    slot_dim: int = 4  # width of what a slot remembers
    dim: int = 172  # width of what a node remembers; features are padded to it
    time_dim: int = 100
    place_dim: int = 16  # width of the learned vector per combination of hops
    heads: Positive = 2
    replace: float = 0.9  # chance that a slot with another key gives way
    seed: int = 0  # of slots and chances
    hashing: Literal["mixed", "quadratic"] = "mixed"  # see Fidelity
    last_message: LastMessage = "time"  # see Fidelity
    time_zero_is_empty: bool = False  # see Fidelity
    dropout: Chance = 0.1


class Slots(NamedTuple):
    """The filled slots of n distinct nodes, one node after the other."""

    start: Tensor  # [n + 1]: node i owns start[i] .. start[i + 1]
    owner: Tensor  # [L]: which of the n
    column: Tensor  # [L]: its place in the cache
    key: Tensor  # [L]: the node in the slot
    who: Tensor  # [L]: the same, numbered from 0 without gaps
    value: Tensor  # [L, slot_dim]: z, brought up to date


class NAT(TemporalModel):
    """Neighbour dictionaries of both endpoints, joined key by key."""

    Config = NATConfig
    card = ModelCard(
        paper="Luo & Li, LoG 2022",
        reads="memory and neighbour caches of each endpoint, joined",
        cost="caches of fixed size, no links searched",
        small={
            "near": 8,
            "far": 6,
            "slot_dim": 4,
            "dim": 16,
            "time_dim": 8,
            "place_dim": 6,
            "dropout": 0.0,
        },
    )

    def __init__(self, config: NATConfig, graph: GraphSpec) -> None:
        super().__init__(config, graph)
        self.dim = dim = max(config.dim, graph.edge_dim, graph.node_dim)
        width, slots = config.slot_dim, 1 + config.near + config.far
        self.time = CosineTime(config.time_dim)
        self.own_input = BlockLinear([dim, dim, config.time_dim], dim, bias=False)
        self.own_cell = GRU([dim], dim)
        self.slot_input = BlockLinear([dim, dim, config.time_dim], width, bias=False)
        self.slot_cell = GRU([width], width)
        self.place = nn.Embedding(PLACES, config.place_dim)
        self.joint = BlockLinear([dim, width, config.place_dim], config.heads * dim, bias=False)
        self.joint_bias = nn.Parameter(torch.zeros(dim))
        self.dropout = Dropout(config.dropout)
        self.head = Merge([dim, dim, dim], 3 * dim, 1)
        nn.init.xavier_uniform_(self.joint.weight)
        for layer in (self.head.hidden, self.head.out):
            nn.init.xavier_normal_(layer.weight)

        def ints(*shape: int) -> Tensor:
            return torch.zeros(*shape, dtype=torch.int64)

        def times(*shape: int) -> Tensor:
            return torch.zeros(*shape, dtype=torch.float64)

        self.state.declare("own", lambda rows: torch.zeros(rows, dim), per_node=True)
        self.state.declare("partner", lambda rows: ints(rows), per_node=True)
        self.state.declare("event", lambda rows: ints(rows), per_node=True)
        self.state.declare("time", lambda rows: times(rows), per_node=True)
        self.state.declare("slot_key", lambda rows: ints(rows, slots), per_node=True)
        self.state.declare("slot_event", lambda rows: ints(rows, slots), per_node=True)
        self.state.declare("slot_time", lambda rows: times(rows, slots), per_node=True)
        self.state.declare("slot_value", lambda rows: torch.zeros(rows, slots, width), per_node=True)

    def score(self, query: Query, past: Past, head: str = "") -> Tensor:
        node, where = torch.unique(torch.cat([query.src, query.dst]), return_inverse=True)
        src, dst = where.chunk(2)
        own = self._own(node, past)  # [n, dim]
        joint = self._joint(self._slots(node, past), src, dst, past)  # [Q, dim]
        logits: Tensor = self.head(joint, own[src], own[dst])
        return logits.squeeze(-1)

    def embed(self, node: Tensor, time: Tensor, past: Past) -> Tensor:
        return self._own(node, past)

    def _own(self, node: Tensor, past: Past) -> Tensor:
        """What each node remembers, its last event included.  # [n] -> [n, dim]"""
        row = self.state.known(node)
        own, event, time = self.state["own"], self.state["event"][row], self.state["time"][row]
        heard = self.own_input(own[self.state["partner"][row]], past.edge_x(event), self.time(time))
        remembered: Tensor = self.own_cell(heard, h=own[row])
        return remembered

    def _slots(self, node: Tensor, past: Past) -> Slots:
        """The slots of distinct nodes, each with its event taken in."""
        row = self.state.known(node)
        key = self.state["slot_key"][row]  # [n, slots]
        key[:, 0] = node
        owner, column = (key != NULL).nonzero(as_tuple=True)  # [L] each
        key, at = key[owner, column], (row[owner], column)
        event, time = self.state["slot_event"][at], self.state["slot_time"][at]
        keys, who = torch.unique(key, return_inverse=True)
        heard = self._heard_of_nodes(keys).index_select(0, who) + self._heard_of_events(event, time, past)
        value = self.slot_cell(heard, h=self.state["slot_value"][at])
        filled = (time != 0) if self.config.time_zero_is_empty else (event != NULL)
        count = torch.bincount(owner, minlength=len(node))
        start = nn.functional.pad(count.cumsum(0), (1, 0))
        return Slots(start, owner, column, key, who, value * filled.unsqueeze(1))

    def _heard_of_nodes(self, node: Tensor) -> Tensor:
        """The part of `slot_input` that speaks of the key.  # [n] -> [n, slot_dim]"""
        own = self.state["own"][self.state.known(node)]
        heard: Tensor = self.slot_input(own, own[:, :0], own[:, :0])
        return heard

    def _heard_of_events(self, event: Tensor, time: Tensor, past: Past) -> Tensor:
        """The part of `slot_input` that speaks of edge and time, made once per event.  # [L] -> [L, slot_dim]"""
        when, where = torch.unique(event, return_inverse=True)
        clock = time.new_zeros(len(when))
        clock[where] = time  # an event has one time
        encoded = self.time(clock)
        heard: Tensor = self.slot_input(encoded[:, :0], past.edge_x(when), encoded)
        return heard.index_select(0, where)

    def _joint(self, slots: Slots, src: Tensor, dst: Tensor, past: Past) -> Tensor:
        """The joined dictionaries of each pair; src and dst count in the nodes of `slots`.  # [Q] -> [Q, dim]"""
        hop = (slots.column > 0).long() + (slots.column > self.config.near)
        parts = (slots.start, slots.who, hop, src, dst)
        pair, place, entry, slot = (as_tensor(a).to(src.device) for a in joined(*(p.cpu().numpy() for p in parts)))
        by_slot = torch.cat([past.node_x(slots.key), slots.value], dim=-1)  # [L, node_dim + slot_dim]
        if self.dropout.active:
            joint = self._thinned(by_slot, pair, place, entry, slot, len(src))
        else:  # the sum over keys goes before the linear map, and needs no join but for the places
            by_node = by_slot.new_zeros(len(slots.start) - 1, by_slot.shape[-1]).index_add(0, slots.owner, by_slot)
            count = torch.bincount(pair * PLACES + place, minlength=len(src) * PLACES).view(-1, PLACES)
            found = count.to(by_slot.dtype) @ self.place.weight  # [Q, place_dim]
            joint = self.joint(*self._blocks(torch.cat([by_node[src] + by_node[dst], found], dim=-1)))
        return joint.view(-1, self.config.heads, self.dim).mean(1) + self.joint_bias

    def _thinned(
        self, by_slot: Tensor, pair: Tensor, place: Tensor, entry: Tensor, slot: Tensor, pairs: int
    ) -> Tensor:
        """Sum over keys of dropout(W'' dropout(q)).  # [pairs, heads * dim]"""
        by_key = by_slot.new_zeros(len(pair), by_slot.shape[-1]).index_add(0, entry, by_slot.index_select(0, slot))
        q = self.dropout(torch.cat([by_key, self.place(place)], dim=-1))  # [E, .]
        whole: Tensor = self.joint(*self._blocks(q.new_zeros(pairs, q.shape[-1]).index_add(0, pair, q)))
        taken = dropped_sum(q, self.joint.columns(*self._blocks(q)), pair, pairs, self.dropout.p)
        return (whole - taken) / (1 - self.dropout.p)

    def _blocks(self, q: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Node features, slot values and places of joined keys."""
        places = q.shape[-1] - self.config.place_dim
        values = places - self.config.slot_dim
        return q[:, :values], q[:, values:places], q[:, places:]

    @torch.no_grad()
    def observe(self, events: Events, past: Past) -> None:
        if not len(events):
            return
        state = self.state
        node, event, sent = last_messages(events.src, events.dst, by=self.config.last_message)
        state.rows_for(node)
        slots, own = self._slots(node, past), self._own(node, past)
        owner, column, key, id, when, source = self._writes(events, node, slots)
        at = (node[owner], column)
        state["slot_key"][at], state["slot_event"][at], state["slot_time"][at] = key, id, when
        state["slot_value"][at] = nn.functional.pad(slots.value, (0, 0, 1, 0))[source - EMPTY]  # first: zeros
        state["own"][node] = own
        state["partner"][node] = torch.where(sent, events.dst[event], events.src[event])
        state["event"][node], state["time"][node] = events.id[event], events.time[event]

    def _writes(self, events: Events, node: Tensor, slots: Slots) -> list[Tensor]:
        """What the events leave in the slots of their endpoints: see `writes`."""
        config, state = self.config, self.state
        index = torch.full((len(node), state["slot_key"].shape[1]), EMPTY, device=node.device)
        index[slots.owner, slots.column] = torch.arange(len(slots.key), device=node.device)
        ends = torch.searchsorted(node, torch.stack([events.src, events.dst]))  # [2, B]
        messages = [ends, ends.flip(0), events.id.expand(2, -1), events.time.expand(2, -1)]
        if config.last_message == "time":
            messages = [part.T for part in messages]
        cache = (node, state["slot_key"][node], state["slot_event"][node], state["slot_time"][node], index)
        arrays = (part.cpu().contiguous().numpy() for part in (*cache, *(part.reshape(-1) for part in messages)))
        rule = (config.near, config.far, config.hashing == "quadratic", config.replace, config.seed)
        return [as_tensor(part).to(node.device) for part in writes(*rule, *arrays)]


@compiled
def joined(start: Ints, who: Ints, hop: Ints, src: Ints, dst: Ints) -> Any:
    """The distinct keys of each pair's slots: (pair [E], place [E], and of every slot read: entry [C], slot [C]).

    `who` numbers the keys from 0. A place has one bit per hop that holds the key, the target's above the source's.
    """
    total = 0
    for q in range(len(src)):
        total += start[src[q] + 1] - start[src[q]] + start[dst[q] + 1] - start[dst[q]]
    pair, place = np.empty(total, np.int64), np.zeros(total, np.int64)
    entry, slot = np.empty(total, np.int64), np.empty(total, np.int64)
    size = who.max() + 1 if len(who) else 0
    asked_by, found_at = np.full(size, EMPTY), np.empty(size, np.int64)
    entries, read = 0, 0
    for q in range(len(src)):
        for side in range(2):
            node = src[q] if side == 0 else dst[q]
            for i in range(start[node], start[node + 1]):
                key = who[i]
                if asked_by[key] != q:
                    asked_by[key], found_at[key] = q, entries
                    pair[entries] = q
                    entries += 1
                place[found_at[key]] |= 1 << (hop[i] + HOPS * side)
                entry[read], slot[read] = found_at[key], i
                read += 1
    return pair[:entries], place[:entries], entry, slot


@compiled
def slot_of(key: int, size: int, seed: int, quadratic: bool) -> Any:
    """Where in a cache of this size a key belongs."""
    if quadratic:
        c = seed % 100
        return np.int64((c * key + (c + 1) * key * key) % size)
    return np.int64(mixed(mixed(np.uint64(seed)) ^ np.uint64(key)) % np.uint64(size))


@compiled
def gives_way(held: int, key: int, hop: int, owner: int, event: int, replace: float, seed: int) -> bool:
    """Whether a slot that holds `held` takes `key`: always its own key, another by chance."""
    if held in (NULL, key):
        return True
    return unit(HOPS * seed + hop, owner, event, key) < replace


@compiled
def writes(
    near: int,
    far: int,
    quadratic: bool,
    replace: float,
    seed: int,
    node: Ints,  # [n]
    key: Ints,  # [n, slots], like the next three: the caches before these messages
    event: Ints,
    time: NDArray[np.float64],
    index: Ints,  # where a slot's value is found
    here: Ints,  # [M]: whose message it is, counted in `node`
    there: Ints,  # [M]: the partner
    id: Ints,  # [M]
    when: NDArray[np.float64],  # [M]
) -> Any:
    """Slots to be written, each once: (owner, column, key, event, time, index of the value it starts from)."""
    new_key, new_event, new_time = np.zeros_like(key), np.zeros_like(event), np.zeros_like(time)
    source = np.full(key.shape, EMPTY)
    for m in range(len(here)):
        u, v = here[m], there[m]
        if far > 0:
            for c in range(1, 1 + near):
                a = key[u, c]
                if a == NULL:
                    continue
                to = 1 + near + slot_of(a, far, seed, quadratic)
                if gives_way(key[v, to], a, 2, node[v], id[m], replace, seed):
                    new_key[v, to], new_event[v, to], new_time[v, to] = a, event[u, c], time[u, c]
                    source[v, to] = index[u, c]
        if near > 0:
            to = 1 + slot_of(node[v], near, seed, quadratic)
            if gives_way(key[u, to], node[v], 1, node[u], id[m], replace, seed):
                new_key[u, to], new_event[u, to], new_time[u, to] = node[v], id[m], when[m]
                source[u, to] = index[u, to] if key[u, to] == node[v] else EMPTY
        new_key[u, 0], new_event[u, 0], new_time[u, 0] = node[u], id[m], when[m]
        source[u, 0] = index[u, 0]
    owner, column = np.nonzero(new_key)
    count = len(owner)
    found, source_of = np.empty((2, count), np.int64), np.empty(count, np.int64)
    at = np.empty(count, np.float64)
    for i in range(count):
        o, c = owner[i], column[i]
        found[0, i], found[1, i], at[i], source_of[i] = (
            new_key[o, c],
            new_event[o, c],
            new_time[o, c],
            source[o, c],
        )
    return owner, column, found[0], found[1], at, source_of
