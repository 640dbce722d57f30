"""Exact numbers of walks back in time between nodes, compiled, kept for those pairs that any walk joins.

    n_k(u, x) = walks of k steps that leave u, each step earlier than the one before, and arrive at x

An event (u, v) adds every walk that v had before it, one step longer, to u, and the same the other way round. A
row holds the nodes that u reaches, in rising order, with n_1 .. n_K of each; n_0 is 1 for u itself and not kept.
Rows live in a pool: a row that outgrows its place moves to the end, and a full pool is packed anew.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dsrd.compiled import compiled
from dsrd.history.index import Ints

# A table is a tuple of arrays: per node start, length, room [N]; the pool's node [P] and count [P, K]; used [1].
START, LENGTH, ROOM, NODE, COUNT, USED = range(6)

LEAST_ROOM = 8


@compiled
def entry(table: Any, node: int, low: int, high: int) -> int:
    """Where in the row's part low:high of the pool the node is, or would go."""
    reached = table[NODE]
    while low < high:
        middle = (low + high) // 2
        if reached[middle] < node:
            low = middle + 1
        else:
            high = middle
    return low


@compiled
def joined(table: Any, u: int, v: int, node: Any, count: Any) -> int:
    """Write the row of u after it met v: its own walks, and those of v one step longer. Returns its length."""
    reached, counts = table[NODE], table[COUNT]
    steps = counts.shape[1]
    i, i_stop = table[START][u], table[START][u] + table[LENGTH][u]
    j, j_stop = table[START][v], table[START][v] + table[LENGTH][v]
    size, met = 0, False  # met: the walk of one step to v itself has been entered
    while i < i_stop or j < j_stop or not met:
        at = np.int64(v) if not met else np.int64(0x7FFFFFFF)
        if i < i_stop and reached[i] < at:
            at = np.int64(reached[i])
        if j < j_stop and reached[j] < at:
            at = np.int64(reached[j])
        for k in range(steps):
            count[size, k] = 0
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
        for k in range(steps):  # what v reaches in as many steps as are kept is out of u's reach
            if count[size, k] > 0:
                size += 1
                break
    return size


@compiled
def packed(table: Any, more: int) -> Any:
    """The same rows, each with a little room, in a pool with space for `more` entries beside them."""
    start, length, room, node, count, used = table
    total = 0
    for u in range(len(start)):
        room[u] = length[u] + length[u] // 4 if length[u] else 0
        total += room[u]
    size = total + total // 2 + more + LEAST_ROOM
    new_node, new_count = np.zeros(size, node.dtype), np.zeros((size, count.shape[1]), count.dtype)
    at = 0
    for u in range(len(start)):
        new_node[at : at + length[u]] = node[start[u] : start[u] + length[u]]
        new_count[at : at + length[u]] = count[start[u] : start[u] + length[u]]
        start[u] = at
        at += room[u]
    used[0] = at
    return start, length, room, new_node, new_count, used


@compiled
def stored(table: Any, u: int, node: Any, count: Any, size: int) -> Any:
    """The table with a new row of u."""
    if size > table[ROOM][u]:
        room = max(LEAST_ROOM, size + size // 2)
        if table[USED][0] + room > len(table[NODE]):
            table[LENGTH][u] = 0  # the old row need not be carried along
            table = packed(table, room)
        table[START][u], table[ROOM][u] = table[USED][0], room
        table[USED][0] += room
    at = table[START][u]
    table[NODE][at : at + size] = node[:size]
    table[COUNT][at : at + size] = count[:size]
    table[LENGTH][u] = size
    return table


@compiled
def observe(table: Any, src: Ints, dst: Ints) -> Any:
    """Count events in, one after the other; the table, with larger arrays where it had to grow."""
    steps = table[COUNT].shape[1]
    for e in range(len(src)):
        u, v = src[e], dst[e]
        most = table[LENGTH][u] + table[LENGTH][v] + 1
        node, count = np.empty(most, np.int32), np.empty((most, steps), np.float32)
        size = joined(table, u, v, node, count)
        if u == v:
            table = stored(table, u, node, count, size)
            continue
        back_node, back_count = np.empty(most, np.int32), np.empty((most, steps), np.float32)
        back_size = joined(table, v, u, back_node, back_count)
        table = stored(table, u, node, count, size)
        table = stored(table, v, back_node, back_count, back_size)
    return table


@compiled
def read(table: Any, root: Ints, node: Ints, out: Any) -> None:
    """Walks of 0, 1, .. K steps from each root to each node.  # [n], [n] -> [n, K + 1]"""
    for q in range(len(root)):
        u, x = root[q], node[q]
        out[q, :] = 0
        if u == x:
            out[q, 0] = 1
        if u >= len(table[START]):
            continue
        stop = table[START][u] + table[LENGTH][u]
        at = entry(table, x, table[START][u], stop)
        if at < stop and table[NODE][at] == x:
            out[q, 1:] = table[COUNT][at]
