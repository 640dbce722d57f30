"""How often the nodes of two sequences appear in either of them, compiled."""

from __future__ import annotations

import numpy as np

from dsrd.compiled import compiled
from dsrd.hashing import splitmix64
from dsrd.history.index import Ints


@compiled
def slot_of(key: Ints, node: int) -> np.int64:
    """Where a node stands in a table whose size is a power of two, or where it would go; -1 marks free slots."""
    last = len(key) - 1
    slot = np.int64(splitmix64(np.uint64(node)) & np.uint64(last))
    while key[slot] != node and key[slot] != -1:
        slot = (slot + 1) & last
    return slot


@compiled
def appearances(node: Ints, length: Ints, ends: Ints, begin: Ints, slots: int) -> Ints:
    """Counts of each pair's nodes in its first and in its second sequence.  # [slots, 2]

    Sequences are rows of `node` [S, W], their first `length` entries. A pair is two of them (`ends` [Q, 2]), whose
    counts go to the slots from `begin` [Q, 2] on; slots that no entry goes to are left at zero.
    """
    size = 2
    while size < 4 * node.shape[1]:
        size *= 2
    key, count = np.full(size, -1), np.zeros((size, 2), np.int64)
    found = np.zeros((slots, 2), np.int64)
    for q in range(len(ends)):
        key[:] = -1
        count[:] = 0
        for side in range(2):
            row = ends[q, side]
            for j in range(length[row]):
                slot = slot_of(key, node[row, j])
                key[slot] = node[row, j]
                count[slot, side] += 1
        for side in range(2):
            row = ends[q, side]
            for j in range(length[row]):
                found[begin[q, side] + j] = count[slot_of(key, node[row, j])]
    return found
