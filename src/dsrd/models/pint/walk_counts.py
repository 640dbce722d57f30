"""Exact numbers of walks back in time between nodes, compiled; kept only for pairs that some walk connects.

    n_k(u, x) = walks of k steps that leave u, each step earlier than the one before, and arrive at x

An event (u, v) adds every walk that v had before it, one step longer, to u, and the same the other way round. The
row of u lists the nodes that u reaches, by id, with n_1 .. n_K of each; n_0 is 1 for u itself and not stored.
Rows live in a pool: a row that outgrows its room moves to the pool's end; a full pool is copied to a larger one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dsrd.compiled import compiled
from dsrd.history.index import Ints, first_not_before

Ids = NDArray[np.int32]
Counts = NDArray[np.float32]
MIN_ROOM = 8
NO_ID = np.int64(0x7FFFFFFF)
"""Larger than every node id in the pool."""


class WalkTable(NamedTuple):
    """A row for each node, in a pool that all rows share."""

    start: Ints  # [N] where the node's row begins in the pool
    length: Ints  # [N] entries in the row
    room: Ints  # [N] entries the row may have before it must move
    node: Ids  # [P] pool: node that is reached
    walks: Counts  # [P, K] pool: walks of 1 .. K steps to it
    used: Ints  # [1] entries of the pool that belong to some row


class Row(NamedTuple):
    """A row outside the pool."""

    node: Ids  # [n]
    walks: Counts  # [n, K]


@compiled
def row_after_event(table: WalkTable, u: int, v: int) -> Row:
    """The row of u after an event with v: its walks so far, and those of v one step longer."""
    reached, counts = table.node, table.walks
    steps = counts.shape[1]
    most = table.length[u] + table.length[v] + 1
    node, count = np.empty(most, np.int32), np.empty((most, steps), np.float32)
    i, i_stop = table.start[u], table.start[u] + table.length[u]
    j, j_stop = table.start[v], table.start[v] + table.length[v]
    size, met = 0, False  # met: the walk of one step to v itself has been entered
    while i < i_stop or j < j_stop or not met:
        at = np.int64(v) if not met else NO_ID
        if i < i_stop and reached[i] < at:
            at = np.int64(reached[i])
        if j < j_stop and reached[j] < at:
            at = np.int64(reached[j])
        count[size, :] = 0
        if i < i_stop and reached[i] == at:
            for k in range(steps):
                count[size, k] += counts[i, k]
            i += 1
        if j < j_stop and reached[j] == at:
            for k in range(steps - 1):
                count[size, k + 1] += counts[j, k]
            j += 1
        if at == v and not met:
            count[size, 0] += 1
            met = True
        node[size] = at
        for k in range(steps):  # a node that v reaches in K steps only is K + 1 steps from u: not kept
            if count[size, k] > 0:
                size += 1
                break
    return Row(node[:size], count[:size])


@compiled
def repacked(table: WalkTable, more: int) -> WalkTable:
    """The same rows, each with a little room, in a pool with space for `more` entries beside them."""
    start, length, room = table.start, table.length, table.room
    total = 0
    for u in range(len(start)):
        room[u] = length[u] + length[u] // 4 if length[u] else 0
        total += room[u]
    size = total + total // 2 + more + MIN_ROOM
    node, count = np.zeros(size, table.node.dtype), np.zeros((size, table.walks.shape[1]), table.walks.dtype)
    end = 0
    for u in range(len(start)):
        node[end : end + length[u]] = table.node[start[u] : start[u] + length[u]]
        count[end : end + length[u]] = table.walks[start[u] : start[u] + length[u]]
        start[u] = end
        end += room[u]
    table.used[0] = end
    return WalkTable(start, length, room, node, count, table.used)


@compiled
def with_row(table: WalkTable, u: int, row: Row) -> WalkTable:
    """The table with a new row of u: changed in place, or with a larger pool."""
    size = len(row.node)
    if size > table.room[u]:
        room = max(MIN_ROOM, size + size // 2)
        if table.used[0] + room > len(table.node):
            table.length[u] = 0  # the old row need not be copied
            table = repacked(table, room)
        table.start[u], table.room[u] = table.used[0], room
        table.used[0] += room
    start = table.start[u]
    table.node[start : start + size] = row.node
    table.walks[start : start + size] = row.walks
    table.length[u] = size
    return table


@compiled
def observe(table: WalkTable, src: Ints, dst: Ints) -> WalkTable:
    """Count the walks of events, one event after the other; the table, with a larger pool where it had to grow."""
    for e in range(len(src)):
        u, v = src[e], dst[e]
        row_u, row_v = row_after_event(table, u, v), row_after_event(table, v, u)  # both from before the event
        table = with_row(table, u, row_u)
        if u != v:
            table = with_row(table, v, row_v)
    return table


@compiled
def read(table: WalkTable, root: Ints, node: Ints, out: Counts) -> None:
    """Walks of 0, 1, .. K steps from each root to each node.  # [n], [n] -> [n, K + 1]"""
    for q in range(len(root)):
        u, x = root[q], node[q]
        out[q, :] = 0
        if u == x:
            out[q, 0] = 1
        if u >= len(table.start):
            continue
        stop = table.start[u] + table.length[u]
        entry = first_not_before(table.node, table.start[u], stop, x)
        if entry < stop and table.node[entry] == x:
            out[q, 1:] = table.walks[entry]


def fault(table: WalkTable) -> str | None:
    """What is wrong with a table from a file; None if the functions above may work with it."""
    pool, used = len(table.node), int(table.used[0])
    if len(table.walks) != pool or not 0 <= used <= pool:
        return "pool of walks is not as long as its rows need"
    if not _rows_fit(table, used):
        return "rows of walks do not lie in their pool, or are not in order"
    return None


@compiled
def _rows_fit(table: WalkTable, used: int) -> bool:
    """Whether every row lies in the used part of the pool and lists existing nodes by ascending id."""
    rooms = 0
    for u in range(len(table.start)):
        start, length, room = table.start[u], table.length[u], table.room[u]
        if not (0 <= start <= used and 0 <= length <= room <= used - start):
            return False
        rooms += room
        for entry in range(start, start + length):
            node = table.node[entry]
            if not 0 <= node < len(table.start) or (entry > start and node <= table.node[entry - 1]):
                return False
    return rooms <= used
