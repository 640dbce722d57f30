"""Compiled random choices from the index: neighbours and walks.

Every random number is a hash of (seed, node, time, number of the draw). So a query gets the same answer whatever
other queries are in the same call.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dsrd.compiled import compiled
from dsrd.hashing import hashed_uniform
from dsrd.history.index import Floats, Index, Ints, first_not_before, history

NEGLIGIBLE = 40.0
"""exp(-40) is lost in the rounding of a sum of float64: entries that weigh less are never drawn."""


class Draw(NamedTuple):
    """How to draw an entry of age a: with weight exp(-rate * a), or uniformly if the rate is 0."""

    rate: float
    seed: np.uint64


@compiled
def sum_weights(time: Floats, first: int, stop: int, rate: float, weight_sums: Floats) -> int:
    """Fill `weight_sums` with running sums of exp(rate * time) over the entries that are not negligible.

    Returns the first of these entries. Scaled so that the newest entry weighs 1.
    """
    newest = time[stop - 1]
    first = first_not_before(time, first, stop, newest - NEGLIGIBLE / rate)
    total = 0.0
    for place in range(first, stop):
        total += np.exp(rate * (time[place] - newest))
        weight_sums[place - first] = total
    return first


@compiled
def pick(weight_sums: Floats, count: int, chance: float) -> int:
    """Which of `count` entries a uniform number in [0, 1) picks, given the running sums of their weights."""
    position = first_not_before(weight_sums, 0, count, chance * weight_sums[count - 1])
    return min(position, count - 1)


@compiled
def longest_block(index: Index) -> int:
    """The size a buffer needs to hold a number for every entry of any one node; at least 1."""
    return int(max(1, index.length.max()))


@compiled
def sample(index: Index, node_ids: Ints, query_time: Floats, k: int, draw: Draw) -> Ints:
    """Places of k entries of each node, with replacement, oldest first; -1 without history.  # [Q, k]"""
    weight_sums = np.empty(longest_block(index), np.float64)
    time_bits = query_time.view(np.uint64)
    places = np.full((len(node_ids), k), -1, np.int64)
    for q in range(len(node_ids)):
        first, stop = history(index, node_ids[q], query_time[q])
        if stop == first:
            continue
        if draw.rate > 0:
            first = sum_weights(index.time, first, stop, draw.rate, weight_sums)
        for j in range(k):
            chance = hashed_uniform(draw.seed, node_ids[q], time_bits[q], j)
            if draw.rate > 0:
                places[q, j] = first + pick(weight_sums, stop - first, chance)
            else:
                places[q, j] = first + int(chance * (stop - first))
        places[q].sort()
    return places


@compiled
def walk(index: Index, node_ids: Ints, query_time: Floats, count: int, length: int, draw: Draw) -> Ints:
    """Places that `count` walks of each node visit, each step strictly before the last.  # [Q, count, length]

    A walk that reaches a node without history ends in -1.
    """
    weight_sums = np.empty(longest_block(index), np.float64)
    time_bits = query_time.view(np.uint64)
    places = np.full((len(node_ids), count, length), -1, np.int64)
    for q in range(len(node_ids)):
        for i in range(count):
            node, time = node_ids[q], query_time[q]
            for step in range(length):
                first, stop = history(index, node, time)
                if stop == first:
                    break
                chance = hashed_uniform(draw.seed, node_ids[q], time_bits[q], i * length + step)
                if draw.rate > 0:
                    first = sum_weights(index.time, first, stop, draw.rate, weight_sums)
                    place = first + pick(weight_sums, stop - first, chance)
                else:
                    place = first + int(chance * (stop - first))
                places[q, i, step] = place
                node, time = index.node[place], index.time[place]
    return places
