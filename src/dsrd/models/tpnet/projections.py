"""Random projections of temporal walk matrices, compiled: who reaches whom along walks of up to L steps.

Every node has a row P0 of d normal numbers, made from its id, so that one nobody has met has one too. Step i keeps

    Pi[u] = sum over events (u, v, t_e)  exp(-rate i (t - t_e)) P(i-1)[v] as it was at t_e

so Pi[u] . Pj[v] estimates the decayed number of walks of i steps from u and of j steps from v that end together.
Rows are brought forward when they are touched: `last` is the time a row speaks of.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dsrd.compiled import compiled, vectorised
from dsrd.hashing import hashed_uniform
from dsrd.history.index import Floats, Ints


@compiled
def write_code(node: int, out: Any) -> None:
    """P0 of a node: normal numbers of variance 1 / d, by Box and Muller."""
    for i in range(len(out)):
        radius = np.sqrt(-2.0 * np.log(1.0 - hashed_uniform(0, node, 0, 2 * i)) / len(out))
        out[i] = radius * np.cos(2.0 * np.pi * hashed_uniform(0, node, 0, 2 * i + 1))


@compiled
def at_rest(rows: int, steps: int, width: int) -> Any:
    """Rows of nodes nothing has happened to.  # [rows, steps + 1, width]"""
    walks = np.zeros((rows, steps + 1, width), np.float32)
    for node in range(rows):
        write_code(node, walks[node, 0])
    return walks


@compiled
def forward_to(time: float, row: Any, last: float, rate: float) -> None:
    """Let a row [L + 1, d] that speaks of `last` speak of `time`; a row never touched has nothing to decay."""
    kept = np.exp(-rate * max(0.0, time - last))
    factor = 1.0
    for step in range(1, len(row)):
        factor *= kept
        for i in range(row.shape[1]):
            row[step, i] *= factor


@compiled
def observe(walks: Any, last: Floats, src: Ints, dst: Ints, time: Floats, rate: float) -> None:
    """Fold in a batch, none of whose events sees another: longer walks first, from shorter ones of before."""
    now = time[-1]
    for ends in (src, dst):
        for node in ends:
            if last[node] != now:
                forward_to(now, walks[node], last[node], rate)
                last[node] = now
    for step in range(walks.shape[1] - 1, 0, -1):
        for e in range(len(src)):
            weight = np.exp(-rate * (now - time[e]))
            for i in range(walks.shape[2]):
                walks[src[e], step, i] += weight * walks[dst[e], step - 1, i]
            for i in range(walks.shape[2]):
                walks[dst[e], step, i] += weight * walks[src[e], step - 1, i]


@compiled
def read(walks: Any, last: Floats, node: Ints, now: float, rate: float) -> Any:
    """The rows of these nodes as of `now`; fresh ones for nodes that have none.  # [n, L + 1, d]"""
    found = np.zeros((len(node), walks.shape[1], walks.shape[2]), walks.dtype)
    for n in range(len(node)):
        if node[n] < len(walks):
            found[n] = walks[node[n]]
            forward_to(now, found[n], last[node[n]], rate)
        else:
            write_code(node[n], found[n, 0])
    return found


@vectorised
def multiply(first: Any, second: Any, out: Any) -> None:
    """Products of each row of one with each of the other."""
    for i in range(len(first)):
        for j in range(len(second)):
            total = out.dtype.type(0)
            for c in range(first.shape[1]):
                total += first[i, c] * second[j, c]
            out[i, j] = total


@compiled
def products(rows: Any, first: Ints, second: Ints) -> Any:
    """For pairs of nodes, all products among the 2 (L + 1) rows of both.  # [pairs, 2 (L + 1), 2 (L + 1)]"""
    steps = rows.shape[1]
    own = np.empty((len(rows), steps, steps), rows.dtype)
    for n in range(len(rows)):
        multiply(rows[n], rows[n], own[n])
    found = np.empty((len(first), 2 * steps, 2 * steps), rows.dtype)
    for p in range(len(first)):
        a, b = first[p], second[p]
        found[p, :steps, :steps], found[p, steps:, steps:] = own[a], own[b]
        across = found[p, :steps, steps:]
        multiply(rows[a], rows[b], across)
        found[p, steps:, :steps] = across.T
    return found


@compiled
def moments(start: Ints, length: Ints, time: Floats) -> Floats:
    """The distinct times in an index of interactions, sorted."""
    found, size = np.empty(length.sum(), np.float64), 0
    for node in range(len(start)):
        for at in range(start[node], start[node] + length[node]):
            found[size] = time[at]
            size += 1
    return np.unique(found)
