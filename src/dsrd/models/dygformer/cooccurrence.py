"""How often the nodes of two sequences appear in either of them, compiled."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dsrd.compiled import compiled
from dsrd.history.index import Ints
from dsrd.history.pair_table import EMPTY, slot_of_key


class SequencePairs(NamedTuple):
    """Q pairs of sequences of nodes, and where the counts of each go."""

    node: Ints  # [S, W] the sequences, a row each
    length: Ints  # [S] entries in use
    ends: Ints  # [Q, 2] rows of the two sequences of a pair
    begin: Ints  # [Q, 2] where their counts begin


@compiled
def appearances(pairs: SequencePairs, size: int) -> Ints:
    """Of each node of a pair: how often it is in the first and in the second sequence.  # [size, 2]

    Counts that belong to no node are left at zero.
    """
    node, length = pairs.node, pairs.length
    slots = 2
    while slots < 4 * node.shape[1]:
        slots *= 2
    key, count = np.full(slots, EMPTY), np.zeros((slots, 2), np.int64)  # a hash table for one pair at a time
    counts = np.zeros((size, 2), np.int64)
    for q in range(len(pairs.ends)):
        key[:] = EMPTY
        count[:] = 0
        for side in range(2):
            row = pairs.ends[q, side]
            for j in range(length[row]):
                slot = slot_of_key(key, node[row, j])
                key[slot] = node[row, j]
                count[slot, side] += 1
        for side in range(2):
            row = pairs.ends[q, side]
            for j in range(length[row]):
                counts[pairs.begin[q, side] + j] = count[slot_of_key(key, node[row, j])]
    return counts
