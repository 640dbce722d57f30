"""Random projections of temporal walk matrices, compiled: which nodes reach each other in up to L steps.

Every node has a row P0 of d normal numbers, computed from its id, so that an unseen node has one too. Step i keeps

    Pi[u] = sum over events (u, v, t_e)  exp(-decay i (t - t_e)) P(i-1)[v] as it was at t_e

so Pi[u] . Pj[v] estimates the decayed number of walks of i steps from u and of j steps from v that end at the same
node. A row is decayed when it is read or written: `last` is the time up to which it has been.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dsrd.compiled import compiled, vectorised
from dsrd.hashing import hashed_uniform
from dsrd.history.index import Floats, Index, Ints

Rows = NDArray[np.float32]


class Projections(NamedTuple):
    """The state of every node."""

    rows: Rows  # [N, L + 1, d]
    last: Floats  # [N] the time that each row is decayed to
    decay: float  # of one step, per unit of time


class EventBatch(NamedTuple):
    """Events in order of time."""

    src: Ints  # [B]
    dst: Ints  # [B]
    time: Floats  # [B]


@compiled
def write_code(node: int, out: Rows) -> None:
    """P0 of a node: normal numbers of variance 1 / d, by the Box-Muller transform."""
    for i in range(len(out)):
        radius = np.sqrt(-2.0 * np.log(1.0 - hashed_uniform(0, node, 0, 2 * i)) / len(out))
        out[i] = radius * np.cos(2.0 * np.pi * hashed_uniform(0, node, 0, 2 * i + 1))


@compiled
def initial_rows(num_nodes: int, steps: int, width: int) -> Rows:
    """Rows of nodes without events.  # [num_nodes, steps + 1, width]"""
    rows = np.zeros((num_nodes, steps + 1, width), np.float32)
    for node in range(num_nodes):
        write_code(node, rows[node, 0])
    return rows


@compiled
def decay_row(row: Rows, age: float, decay: float) -> None:
    """Decay a row [L + 1, d] by the time since it was last decayed; P0 does not decay."""
    kept = np.exp(-decay * max(0.0, age))
    factor = 1.0
    for step in range(1, len(row)):
        factor *= kept
        for i in range(row.shape[1]):
            row[step, i] *= factor


@compiled
def observe(state: Projections, events: EventBatch) -> None:
    """Add a batch of events, none of which sees another: longer walks first, from the shorter ones before it."""
    rows, last, decay = state.rows, state.last, state.decay
    src, dst, time = events.src, events.dst, events.time
    now = time[-1]
    for ends in (src, dst):
        for node in ends:
            if last[node] != now:
                decay_row(rows[node], now - last[node], decay)
                last[node] = now
    for step in range(rows.shape[1] - 1, 0, -1):
        for e in range(len(src)):
            weight = np.exp(-decay * (now - time[e]))
            for i in range(rows.shape[2]):
                rows[src[e], step, i] += weight * rows[dst[e], step - 1, i]
            for i in range(rows.shape[2]):
                rows[dst[e], step, i] += weight * rows[src[e], step - 1, i]


@compiled
def read(state: Projections, nodes: Ints, now: float) -> Rows:
    """Copies of the rows of these nodes, decayed to `now`; initial rows for unseen nodes.  # [n, L + 1, d]"""
    rows = state.rows
    copies = np.zeros((len(nodes), rows.shape[1], rows.shape[2]), rows.dtype)
    for n in range(len(nodes)):
        node = nodes[n]
        if node < len(rows):
            copies[n] = rows[node]
            decay_row(copies[n], now - state.last[node], state.decay)
        else:
            write_code(node, copies[n, 0])
    return copies


@vectorised
def multiply(first: Rows, second: Rows, out: Rows) -> None:
    """Dot products of each row of one with each row of the other."""
    for i in range(len(first)):
        for j in range(len(second)):
            total = out.dtype.type(0)
            for c in range(first.shape[1]):
                total += first[i, c] * second[j, c]
            out[i, j] = total


@compiled
def products(rows: Rows, first: Ints, second: Ints) -> Rows:
    """For pairs of nodes, all products among the 2 (L + 1) rows of both.  # [pairs, 2 (L + 1), 2 (L + 1)]"""
    steps = rows.shape[1]
    inner = np.empty((len(rows), steps, steps), rows.dtype)
    for n in range(len(rows)):
        multiply(rows[n], rows[n], inner[n])
    result = np.empty((len(first), 2 * steps, 2 * steps), rows.dtype)
    for p in range(len(first)):
        a, b = first[p], second[p]
        result[p, :steps, :steps], result[p, steps:, steps:] = inner[a], inner[b]
        across = result[p, :steps, steps:]
        multiply(rows[a], rows[b], across)
        result[p, steps:, :steps] = across.T
    return result


@compiled
def distinct_times(index: Index) -> Floats:
    """The distinct times in an index of interactions, sorted."""
    times, size = np.empty(index.length.sum(), np.float64), 0
    for node in range(len(index.start)):
        for place in range(index.start[node], index.start[node] + index.length[node]):
            times[size] = index.time[place]
            size += 1
    return np.unique(times)
