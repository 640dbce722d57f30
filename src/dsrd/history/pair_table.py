"""A hash table of directed pairs, and one that holds when each pair first and last met, and how often.

A pair's key is `src << 32 | dst`. A table is a NamedTuple of arrays with one entry per slot; one of them holds the
keys. Tables with other columns than `PairTable` share `slot_of` and `rehashed`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dsrd.compiled import compiled, inlined
from dsrd.hashing import splitmix64
from dsrd.history.index import Floats, Ints

EMPTY = -1
"""The key of a free slot."""


class PairTable(NamedTuple):
    """When pairs met; S slots, a power of two, of which at most half are taken."""

    key: Ints  # [S] `EMPTY` for a free slot
    first: Floats  # [S] time of the pair's first event
    last: Floats  # [S] time of its last event
    num_events: Ints  # [S]


@inlined
def packed(src: int, dst: int) -> int:
    """A pair as one key."""
    return (src << 32) | dst


@inlined
def first_slot(keys: Ints, key: int) -> int:
    """Where a key is looked for first."""
    return int(np.int64(splitmix64(key) & np.uint64(len(keys) - 1)))


@compiled
def slot_of_key(keys: Ints, key: int) -> int:
    """Where `key` is in a hash table with linear probing, or else the free slot where it goes.

    `keys` has 2^n slots, at least one of them `EMPTY`.
    """
    last = len(keys) - 1
    slot = first_slot(keys, key)
    while keys[slot] != EMPTY and keys[slot] != key:
        slot = (slot + 1) & last
    return int(slot)


@compiled
def slot_of(key: Ints, src: int, dst: int) -> int:
    """Where the pair is, or else the free slot where it goes."""
    return slot_of_key(key, packed(src, dst))


@compiled
def rehashed(key: Ints, slots: int) -> tuple[Ints, Ints]:
    """The same keys in a table of `slots` slots, and the new slot of each old one (-1 for a free one)."""
    new_key = np.full(slots, EMPTY)
    new_slot = np.full(len(key), -1)
    for old in range(len(key)):
        if key[old] != EMPTY:
            new_slot[old] = slot_of_key(new_key, key[old])
            new_key[new_slot[old]] = key[old]
    return new_key, new_slot


@compiled
def enlarged(table: PairTable) -> PairTable:
    """The same pairs in a table of twice the size."""
    size = 2 * len(table.key)
    key, new_slot = rehashed(table.key, size)
    larger = PairTable(key, np.zeros(size), np.zeros(size), np.zeros(size, np.int64))
    for old in range(len(new_slot)):
        new = new_slot[old]
        if new >= 0:
            larger.first[new], larger.last[new] = table.first[old], table.last[old]
            larger.num_events[new] = table.num_events[old]
    return larger


@compiled
def add(
    table: PairTable, num_pairs: int, gap_sum: float, src: Ints, dst: Ints, time: Floats
) -> tuple[PairTable, int, float]:
    """Count events in, in place where there is room.

    Returns the table (a larger one if it was half full), the number of distinct pairs, and the sum over repeated
    pairs of their mean gap.
    """
    for e in range(len(src)):
        if 2 * (num_pairs + 1) > len(table.key):
            table = enlarged(table)
        slot = slot_of(table.key, src[e], dst[e])
        if table.key[slot] == EMPTY:
            table.key[slot] = (src[e] << 32) | dst[e]
            table.first[slot] = time[e]
            num_pairs += 1
        elif table.num_events[slot] > 1:
            gap_sum -= _mean_gap(table, slot)
        table.last[slot] = time[e]
        table.num_events[slot] += 1
        if table.num_events[slot] > 1:
            gap_sum += _mean_gap(table, slot)
    return table, num_pairs, gap_sum


@compiled
def _mean_gap(table: PairTable, slot: int) -> float:
    return float((table.last[slot] - table.first[slot]) / (table.num_events[slot] - 1))


@compiled
def find(table: PairTable, src: Ints, dst: Ints) -> tuple[Floats, Ints]:
    """The time of each pair's last event and the number of its events; (-inf, 0) for pairs that never met."""
    last, count = np.full(len(src), -np.inf), np.zeros(len(src), np.int64)
    for q in range(len(src)):
        slot = slot_of(table.key, src[q], dst[q])
        if table.key[slot] != EMPTY:
            last[q], count[q] = table.last[slot], table.num_events[slot]
    return last, count


def empty(slots: int = 1024) -> PairTable:
    """A table with room for slots / 2 pairs."""
    return PairTable(np.full(slots, EMPTY), np.zeros(slots), np.zeros(slots), np.zeros(slots, np.int64))


def fault(key: Ints, num_pairs: int) -> str | None:
    """What is wrong with the keys of a table from a file; None if compiled code may work with it."""
    slots = len(key)
    if slots & (slots - 1):
        return f"table of pairs has {slots} slots, not a power of two"
    if num_held(key) != num_pairs:
        return f"table of pairs is not one of {num_pairs} pairs"
    return None


@compiled
def num_held(key: Ints) -> int:
    """The number of pairs in a table; -1 if it is too full, or if a pair is not where it is looked for."""
    held = 0
    for slot in range(len(key)):
        held += key[slot] != EMPTY
    if 2 * held > len(key):
        return -1
    for slot in range(len(key)):
        if key[slot] != EMPTY and slot_of_key(key, key[slot]) != slot:
            return -1
    return held
