"""The caches of nodes' neighbours, compiled: what events write into them, and the join of two nodes' caches.

A cache has a column for the node itself (hop 0), then `near` columns for partners (hop 1), then `far` columns for
partners' partners (hop 2).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dsrd.compiled import compiled, inlined
from dsrd.events import NULL
from dsrd.hashing import hashed_uniform, splitmix64
from dsrd.history.index import Floats, Ints

HOPS = 3
PLACES = 2 ** (2 * HOPS)
"""Combinations of hops in which the source and the target hold a key."""
EMPTY = -1


class Rule(NamedTuple):
    """Which slot a key belongs to, and when it may replace another."""

    near: int  # columns
    far: int  # columns
    quadratic: bool  # hash of the public code
    replace: float  # chance that another key is replaced
    seed: int


class Caches(NamedTuple):
    """The caches of n nodes."""

    key: Ints  # [n, slots] the node in each slot, NULL where there is none
    event: Ints  # [n, slots] the event it came from
    time: Floats  # [n, slots] of that event
    value: Ints  # [n, slots] row of the slot's vector z, EMPTY for a vector of zeros


class Messages(NamedTuple):
    """What events tell their endpoints; nodes are counted from 0 without gaps."""

    node: Ints  # [M] the endpoint
    partner: Ints  # [M] the other endpoint
    event: Ints  # [M]
    time: Floats  # [M]


class Writes(NamedTuple):
    """New contents of slots, each slot once."""

    node: Ints  # [W] whose cache
    column: Ints  # [W]
    key: Ints  # [W]
    event: Ints  # [W]
    time: Floats  # [W]
    value: Ints  # [W]


class FilledSlots(NamedTuple):
    """The filled slots of n nodes, one node after the other."""

    start: Ints  # [n + 1] node i has the slots start[i] .. start[i + 1]
    key: Ints  # [L] nodes in slots, counted from 0 without gaps
    hop: Ints  # [L]


class Join(NamedTuple):
    """The distinct keys of pairs of nodes (entries), and the slots that hold each."""

    pair: Ints  # [E] the pair that the entry belongs to
    place: Ints  # [E] a bit for each hop that holds the key, the target's hops above the source's
    entry: Ints  # [C] of every slot that is read: its entry
    slot: Ints  # [C] the slot


@compiled
def joined(slots: FilledSlots, src: Ints, dst: Ints) -> Join:
    """Join the caches of the two nodes of each pair, key by key."""
    start, keys, hop = slots.start, slots.key, slots.hop
    total = 0
    for q in range(len(src)):
        total += start[src[q] + 1] - start[src[q]] + start[dst[q] + 1] - start[dst[q]]
    pair, place = np.empty(total, np.int64), np.zeros(total, np.int64)
    entry, slot = np.empty(total, np.int64), np.empty(total, np.int64)
    size = keys.max() + 1 if len(keys) else 0
    last_pair, entry_of = np.full(size, EMPTY), np.empty(size, np.int64)  # of each key
    entries, read = 0, 0
    for q in range(len(src)):
        for side in range(2):
            node = src[q] if side == 0 else dst[q]
            for i in range(start[node], start[node + 1]):
                key = keys[i]
                if last_pair[key] != q:
                    last_pair[key], entry_of[key] = q, entries
                    pair[entries] = q
                    entries += 1
                place[entry_of[key]] |= 1 << (hop[i] + HOPS * side)
                entry[read], slot[read] = entry_of[key], i
                read += 1
    return Join(pair[:entries], place[:entries], entry, slot)


@compiled
def slot_of(rule: Rule, key: int, size: int) -> np.int64:
    """Which of `size` slots a key belongs to."""
    if rule.quadratic:
        c = rule.seed % 100
        return np.int64((c * key + (c + 1) * key * key) % size)
    return np.int64(splitmix64(splitmix64(np.uint64(rule.seed)) ^ np.uint64(key)) % np.uint64(size))


@compiled
def accepts(rule: Rule, held: int, key: int, hop: int, owner: int, event: int) -> bool:
    """Whether a slot that holds `held` takes `key`: always if empty or equal, otherwise by chance."""
    if held in (NULL, key):
        return True
    return hashed_uniform(HOPS * rule.seed + hop, owner, event, key) < rule.replace


@inlined
def write_far(rule: Rule, nodes: Ints, old: Caches, new: Caches, messages: Messages, m: int) -> None:
    """Offer the node's partners to the partner of message m, as partners' partners."""
    u, v = messages.node[m], messages.partner[m]
    for column in range(1, 1 + rule.near):
        key = old.key[u, column]
        if key == NULL:
            continue
        to = 1 + rule.near + slot_of(rule, key, rule.far)
        if accepts(rule, old.key[v, to], key, 2, nodes[v], messages.event[m]):
            new.key[v, to] = key
            new.event[v, to], new.time[v, to] = old.event[u, column], old.time[u, column]
            new.value[v, to] = old.value[u, column]


@inlined
def write_near(rule: Rule, nodes: Ints, old: Caches, new: Caches, messages: Messages, m: int) -> None:
    """Offer the partner of message m to the node."""
    u, key = messages.node[m], nodes[messages.partner[m]]
    to = 1 + slot_of(rule, key, rule.near)
    if accepts(rule, old.key[u, to], key, 1, nodes[u], messages.event[m]):
        new.key[u, to], new.event[u, to], new.time[u, to] = key, messages.event[m], messages.time[m]
        new.value[u, to] = old.value[u, to] if old.key[u, to] == key else EMPTY


@compiled
def writes(rule: Rule, nodes: Ints, old: Caches, messages: Messages) -> Writes:
    """What messages write into the caches of these nodes [n]; all are judged by the caches before them."""
    new = Caches(
        np.zeros_like(old.key), np.zeros_like(old.event), np.zeros_like(old.time), np.full(old.key.shape, EMPTY)
    )
    for m in range(len(messages.node)):
        u = messages.node[m]
        if rule.far > 0:
            write_far(rule, nodes, old, new, messages, m)
        if rule.near > 0:
            write_near(rule, nodes, old, new, messages, m)
        new.key[u, 0], new.event[u, 0], new.time[u, 0] = nodes[u], messages.event[m], messages.time[m]
        new.value[u, 0] = old.value[u, 0]
    node, column = np.nonzero(new.key)
    size = len(node)
    key, event = np.empty(size, np.int64), np.empty(size, np.int64)
    time, value = np.empty(size, np.float64), np.empty(size, np.int64)
    for i in range(size):
        n, c = node[i], column[i]
        key[i], event[i], time[i], value[i] = new.key[n, c], new.event[n, c], new.time[n, c], new.value[n, c]
    return Writes(node, column, key, event, time, value)
