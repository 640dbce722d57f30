"""NAT: caches of each node's neighbours, joined for a pair.

Luo, Li: Neighborhood-aware Scalable Temporal Network Representation Learning, LoG 2022.

A node u keeps a vector s(u) and a cache of slots, each with a key (a node a), the event it came from and a small
vector z: one slot for u itself (hop 0), `near` for its partners (hop 1), `far` for its partners' partners (hop 2).
The hash of a key determines its slot; a slot that holds another key is overwritten with probability `replace`.

    s(u)    = GRU( W  [ s(v) || x(e) || cos(w t_e + b) ], s(u) )          v, e: u's last partner and event
    z(u, a) = GRU( W' [ s(a) || x(e) || cos(w t_e + b) ], z(u, a) )       e: the slot's event
    q(a)    = [ sum x(a) || sum z || P[hops of u and of v that hold a] ]   for every key a of u or v
    h(u, v) = sum over keys of W'' q(a) + b''                            a mean over heads
    score   = MLP [ h(u, v) || s(u) || s(v) ]

An event (u, v) writes v into u's near slots with z(u, v), u's near slots into v's far ones, and the same the other
way round.

Fidelity
--------
* The paper aggregates by attention. The public code computes attention weights and does not use them: keys are
  summed, in the published tables and here.
* Time is encoded as the clock shows it (in float32), not as an age: as in the paper and the public code.
* Slots are chosen by a mixing hash. `hashing="quadratic"` is the public code's (c a + (c + 1) a^2) mod size, where
  c is the seed: with an even seed only 7 of 32 slots (4 of 16, 12 of 64) can ever be used.
* Of several writes to a slot in one batch the last in *time* stays. `last_message="role"` keeps the public code's
  order: all source-role writes, then all target-role ones, the last of that list.
* Whether a slot is overwritten is a hash of seed, owner, event and key, not the next number of a generator: equal
  chances, independent of what else is read or written. All writes of a batch are decided by the slots as they were
  before it, as published.
* The public code writes the key of a node's own slot while scoring, negatives included. That key is always the
  node itself, so here it is not stored at all and scoring writes nothing.
* A slot is empty if no event is in it. `time_zero_is_empty=true` also empties slots of events at time 0 exactly,
  as the public code does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from dsrd.events import NULL, Events, Query, as_tensor
from dsrd.history.past import Past
from dsrd.models.base import GraphSpec, TemporalModel
from dsrd.models.card import ModelCard
from dsrd.models.nat.caches import (
    EMPTY,
    PLACES,
    Caches,
    FilledSlots,
    Join,
    Messages,
    Rule,
    Writes,
    joined,
    writes,
)
from dsrd.models.nat.dropped_sum import dropped_sum
from dsrd.nn.dropout import Dropout
from dsrd.nn.linear import BlockLinear, Merge
from dsrd.nn.memory import GRU, LastMessage, last_messages
from dsrd.nn.time import CosineTime
from dsrd.ranges import Chance, Heads, LinksOrNone, Share, Width, WidthOrNone


@dataclass(frozen=True, kw_only=True)
class NATConfig:
    near: LinksOrNone = 32  # slots for partners
    far: LinksOrNone = 16  # slots for partners' partners
    slot_dim: Width = 4  # width of a slot's vector z
    dim: Width = 172  # width of a node's vector s; features are padded to it
    time_dim: WidthOrNone = 100
    place_dim: WidthOrNone = 16  # width of the learned vector per combination of hops
    heads: Heads = 2
    replace: Share = 0.9  # probability that a slot with another key is overwritten
    seed: int = 0  # of slots and chances
    hashing: Literal["mixed", "quadratic"] = "mixed"  # see Fidelity
    last_message: LastMessage = "time"  # see Fidelity
    time_zero_is_empty: bool = False  # see Fidelity
    dropout: Chance = 0.1


class Slots(NamedTuple):
    """The filled slots of n distinct nodes, one node after the other."""

    start: Tensor  # [n + 1] node i has the slots start[i] .. start[i + 1]
    owner: Tensor  # [L] index of the node whose slot it is
    column: Tensor  # [L] its column in the cache
    key: Tensor  # [L] the node in the slot
    key_index: Tensor  # [L] the same, numbered from 0 without gaps
    value: Tensor  # [L, slot_dim] z, updated with the slot's event


class NAT(TemporalModel):
    """Neighbour dictionaries of both endpoints, joined key by key."""

    Config = NATConfig
    card = ModelCard(
        paper="Luo & Li, LoG 2022",
        reads="memory and neighbour caches of each endpoint, joined",
        keeps={"node": "4 * max(dim, edge_dim, node_dim) + 24 + (1 + near + far) * (4 * slot_dim + 24)"},
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
        self.state.declare("partner", lambda rows: ints(rows), per_node=True, holds="nodes")
        self.state.declare("event", lambda rows: ints(rows), per_node=True, holds="events")
        self.state.declare("time", lambda rows: times(rows), per_node=True)
        self.state.declare("slot_key", lambda rows: ints(rows, slots), per_node=True, holds="nodes")
        self.state.declare("slot_event", lambda rows: ints(rows, slots), per_node=True, holds="events")
        self.state.declare("slot_time", lambda rows: times(rows, slots), per_node=True)
        self.state.declare("slot_value", lambda rows: torch.zeros(rows, slots, width), per_node=True)

    @property
    def links_read(self) -> int:
        return int(self.config.near + self.config.far)

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
        """s of each node, updated with its last event.  # [n] -> [n, dim]"""
        row = self.state.known(node)
        own, event, time = self.state["own"], self.state["event"][row], self.state["time"][row]
        message = self.own_input(own[self.state["partner"][row]], past.edge_x(event), self.time(time))
        updated: Tensor = self.own_cell(message, h=own[row])
        return updated

    def _slots(self, node: Tensor, past: Past) -> Slots:
        """The slots of distinct nodes, each updated with its event."""
        row = self.state.known(node)
        key = self.state["slot_key"][row]  # [n, slots]
        key[:, 0] = node
        owner, column = (key != NULL).nonzero(as_tuple=True)  # [L] each
        key, at = key[owner, column], (row[owner], column)
        event, time = self.state["slot_event"][at], self.state["slot_time"][at]
        keys, key_index = torch.unique(key, return_inverse=True)
        message = self._from_keys(keys).index_select(0, key_index) + self._from_events(event, time, past)
        value = self.slot_cell(message, h=self.state["slot_value"][at])
        filled = (time != 0) if self.config.time_zero_is_empty else (event != NULL)
        count = torch.bincount(owner, minlength=len(node))
        start = nn.functional.pad(count.cumsum(0), (1, 0))
        return Slots(start, owner, column, key, key_index, value * filled.unsqueeze(1))

    def _from_keys(self, node: Tensor) -> Tensor:
        """The part of `slot_input` that reads the key's vector.  # [n] -> [n, slot_dim]"""
        own = self.state["own"][self.state.known(node)]
        message: Tensor = self.slot_input(own, own[:, :0], own[:, :0])
        return message

    def _from_events(self, event: Tensor, time: Tensor, past: Past) -> Tensor:
        """The part of `slot_input` that reads edge and time, computed once per event.  # [L] -> [L, slot_dim]"""
        events, where = torch.unique(event, return_inverse=True)
        times = time.new_zeros(len(events))
        times[where] = time  # an event has one time
        encoded = self.time(times)
        message: Tensor = self.slot_input(encoded[:, :0], past.edge_x(events), encoded)
        return message.index_select(0, where)

    def _joint(self, slots: Slots, src: Tensor, dst: Tensor, past: Past) -> Tensor:
        """h of each pair; src and dst are indices into the nodes of `slots`.  # [Q] -> [Q, dim]"""
        hop = (slots.column > 0).long() + (slots.column > self.config.near)
        filled = FilledSlots(*(part.cpu().numpy() for part in (slots.start, slots.key_index, hop)))
        join = joined(filled, src.cpu().numpy(), dst.cpu().numpy())
        by_slot = torch.cat([past.node_x(slots.key), slots.value], dim=-1)  # [L, node_dim + slot_dim]
        if self.dropout.active:
            joint = self._with_dropout(by_slot, join, len(src))
        else:  # the sum over keys goes before the linear map; only the places need the join
            by_node = by_slot.new_zeros(len(slots.start) - 1, by_slot.shape[-1]).index_add(0, slots.owner, by_slot)
            pair, place = (as_tensor(part).to(src.device) for part in (join.pair, join.place))
            count = torch.bincount(pair * PLACES + place, minlength=len(src) * PLACES).view(-1, PLACES)
            places = count.to(by_slot.dtype) @ self.place.weight  # [Q, place_dim]
            joint = self.joint(*self._blocks(torch.cat([by_node[src] + by_node[dst], places], dim=-1)))
        return joint.view(-1, self.config.heads, self.dim).mean(1) + self.joint_bias

    def _with_dropout(self, by_slot: Tensor, join: Join, pairs: int) -> Tensor:
        """Sum over keys of dropout(W'' dropout(q)).  # [pairs, heads * dim]"""
        pair, place, entry, slot = (as_tensor(part).to(by_slot.device) for part in join)
        by_key = by_slot.new_zeros(len(pair), by_slot.shape[-1]).index_add(0, entry, by_slot.index_select(0, slot))
        q = self.dropout(torch.cat([by_key, self.place(place)], dim=-1))  # [E, .]
        whole: Tensor = self.joint(*self._blocks(q.new_zeros(pairs, q.shape[-1]).index_add(0, pair, q)))
        (seed,) = self.dropout.seeds(1)
        dropped = dropped_sum(q, self.joint.columns(*self._blocks(q)), pair, pairs, self.dropout.p, seed)
        return (whole - dropped) / (1 - self.dropout.p)

    def _blocks(self, q: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Node features, slot vectors and places of joined keys."""
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
        self._write_slots(node, slots, self._writes(events, node, slots))
        state["own"][node] = own
        state["partner"][node] = torch.where(sent, events.dst[event], events.src[event])
        state["event"][node], state["time"][node] = events.id[event], events.time[event]

    def _writes(self, events: Events, node: Tensor, slots: Slots) -> Writes:
        """What the events write into the caches of their endpoints, `node`."""
        config, state = self.config, self.state
        value = torch.full((len(node), state["slot_key"].shape[1]), EMPTY, device=node.device)
        value[slots.owner, slots.column] = torch.arange(len(slots.key), device=node.device)
        ends = torch.searchsorted(node, torch.stack([events.src, events.dst]))  # [2, B]
        messages = [ends, ends.flip(0), events.id.expand(2, -1), events.time.expand(2, -1)]
        if config.last_message == "time":
            messages = [part.T for part in messages]
        caches = [state[name][node] for name in ("slot_key", "slot_event", "slot_time")]
        return writes(
            Rule(config.near, config.far, config.hashing == "quadratic", config.replace, config.seed),
            node.cpu().numpy(),
            Caches(*map(_array, [*caches, value])),
            Messages(*(_array(part.reshape(-1)) for part in messages)),
        )

    def _write_slots(self, node: Tensor, slots: Slots, new: Writes) -> None:
        owner, column, key, event, time, value = (as_tensor(part).to(node.device) for part in new)
        at, state = (node[owner], column), self.state
        state["slot_key"][at], state["slot_event"][at], state["slot_time"][at] = key, event, time
        state["slot_value"][at] = nn.functional.pad(slots.value, (0, 0, 1, 0))[value - EMPTY]  # EMPTY: zeros


def _array(x: Tensor) -> NDArray[Any]:
    array: NDArray[Any] = x.cpu().contiguous().numpy()
    return array
