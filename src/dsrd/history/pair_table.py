"""A hash table of directed pairs: when first met, when last, how often. Its columns are plain arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dsrd.compiled import compiled
from dsrd.history.index import Floats, Ints, mixed

EMPTY = -1


@compiled
def slot_of(key: Ints, src: int, dst: int) -> Any:
    """Where the pair is, or the empty slot where it would go. The table's size is a power of two."""
    mask = len(key) - 1
    code = (src << 32) | dst
    slot = np.int64(mixed(code) & np.uint64(mask))
    while key[slot] != EMPTY and key[slot] != code:
        slot = (slot + 1) & mask
    return slot


@compiled
def enlarged(key: Ints, first: Floats, last: Floats, count: Ints) -> Any:
    """The same pairs in a table of twice the size."""
    size = 2 * len(key)
    table = (np.full(size, EMPTY), np.zeros(size), np.zeros(size), np.zeros(size, np.int64))
    for old in range(len(key)):
        if key[old] != EMPTY:
            new = slot_of(table[0], key[old] >> 32, key[old] & 0xFFFFFFFF)
            table[0][new], table[1][new] = key[old], first[old]
            table[2][new], table[3][new] = last[old], count[old]
    return table


@compiled
def add(table: Any, pairs: int, gaps: float, src: Ints, dst: Ints, time: Floats) -> Any:
    """Count events in, in place where there is room.

    Returns the table (a larger one if it was half full), the number of distinct pairs, and the sum over repeated
    pairs of their mean gap.
    """
    key, first, last, count = table
    for e in range(len(src)):
        if 2 * (pairs + 1) > len(key):
            key, first, last, count = enlarged(key, first, last, count)
        at = slot_of(key, src[e], dst[e])
        if key[at] == EMPTY:
            key[at] = (src[e] << 32) | dst[e]
            first[at] = time[e]
            pairs += 1
        elif count[at] > 1:
            gaps -= (last[at] - first[at]) / (count[at] - 1)
        last[at] = time[e]
        count[at] += 1
        if count[at] > 1:
            gaps += (last[at] - first[at]) / (count[at] - 1)
    return (key, first, last, count), pairs, gaps


@compiled
def find(table: Any, src: Ints, dst: Ints) -> Any:
    """(last time, count) of each pair; (-inf, 0) for pairs that never met."""
    key, _, last, count = table
    when, times = np.full(len(src), -np.inf), np.zeros(len(src), np.int64)
    for q in range(len(src)):
        at = slot_of(key, src[q], dst[q])
        if key[at] != EMPTY:
            when[q], times[q] = last[at], count[at]
    return when, times


def empty(size: int = 1024) -> tuple[NDArray[Any], ...]:
    """A table with room for size / 2 pairs."""
    return np.full(size, EMPTY), np.zeros(size), np.zeros(size), np.zeros(size, np.int64)
