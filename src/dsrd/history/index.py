"""The index of past events by node: its arrays, how they are built, how they grow, where a node's past ends.

All entries lie in one pool. Node n owns the block `start[n] .. start[n] + length[n]`, sorted by time. Questions to
the index are in `dsrd.history.lookups`, random choices from it in `dsrd.history.sampling`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dsrd.compiled import compiled
from dsrd.events import EventArrays

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


class Index(NamedTuple):
    """Every event under both of its endpoints: N nodes, P places in the pool."""

    start: Ints  # [N] where the node's block begins
    length: Ints  # [N] entries in the node's block
    node: Ints  # [P] the other endpoint
    event: Ints  # [P] id of the event
    time: Floats  # [P]
    outgoing: Bools  # [P] whether the node that owns the block was the source


@compiled
def build(events: EventArrays, num_nodes: int) -> Index:
    """Index every event under its source and under its target."""
    length = np.zeros(num_nodes, np.int64)
    for e in range(len(events.src)):
        length[events.src[e]] += 1
        length[events.dst[e]] += 1
    start = np.zeros(num_nodes, np.int64)
    for n in range(1, num_nodes):
        start[n] = start[n - 1] + length[n - 1]
    size = 2 * len(events.src)
    node, event = np.empty(size, np.int64), np.empty(size, np.int64)
    time, outgoing = np.empty(size, np.float64), np.empty(size, np.bool_)
    index = Index(start, length, node, event, time, outgoing)
    next_place = start.copy()
    for e in range(len(events.src)):
        src, dst = events.src[e], events.dst[e]
        write_entry(index, next_place[src], events, e, True)
        next_place[src] += 1
        write_entry(index, next_place[dst], events, e, False)
        next_place[dst] += 1
    return index


@compiled
def write_entry(index: Index, place: int, events: EventArrays, e: int, outgoing: bool) -> None:
    """Write event `e` to a place of the pool, as its source (`outgoing`) or its target sees it."""
    index.node[place] = events.dst[e] if outgoing else events.src[e]
    index.event[place] = events.id[e]
    index.time[place] = events.time[e]
    index.outgoing[place] = outgoing


@compiled
def enlarged(array: Any, size: int) -> Any:
    """A copy of `size` entries; those beyond the old ones are not initialised."""
    larger = np.empty(size, array.dtype)
    larger[: len(array)] = array
    return larger


@compiled
def append(index: Index, capacity: Ints, used: int, events: EventArrays) -> tuple[Index, int]:
    """Add events. Node n's block has room for `capacity[n]` entries; `used` places of the pool belong to blocks.

    Changes the arrays in place where it can. Returns the index and the places used now.
    """
    for e in range(len(events.src)):
        for outgoing in (True, False):
            owner = events.src[e] if outgoing else events.dst[e]
            if index.length[owner] == capacity[owner]:
                room = max(4, 2 * index.length[owner])
                if used + room > len(index.node):
                    index = _with_larger_pool(index, 2 * (used + room))
                _move_block(index, owner, used)
                capacity[owner] = room
                used += room
            write_entry(index, index.start[owner] + index.length[owner], events, e, outgoing)
            index.length[owner] += 1
    return index, used


@compiled
def _with_larger_pool(index: Index, size: int) -> Index:
    return Index(
        index.start,
        index.length,
        enlarged(index.node, size),
        enlarged(index.event, size),
        enlarged(index.time, size),
        enlarged(index.outgoing, size),
    )


@compiled
def _move_block(index: Index, node: int, to: int) -> None:
    old, count = index.start[node], index.length[node]
    index.node[to : to + count] = index.node[old : old + count]
    index.event[to : to + count] = index.event[old : old + count]
    index.time[to : to + count] = index.time[old : old + count]
    index.outgoing[to : to + count] = index.outgoing[old : old + count]
    index.start[node] = to


@compiled
def first_not_before(sorted_values: NDArray[Any], low: int, high: int, value: float) -> int:
    """The first position in `low .. high` whose value is not below `value`; `high` if there is none."""
    while low < high:
        middle = (low + high) // 2
        if sorted_values[middle] < value:
            low = middle + 1
        else:
            high = middle
    return low


@compiled
def history(index: Index, node: int, time: float) -> tuple[int, int]:
    """The places (first, stop) of a node's entries strictly before a time; (0, 0) for an unknown node."""
    if node >= len(index.start):
        return 0, 0
    first = index.start[node]
    return first, first_not_before(index.time, first, first + index.length[node], time)
