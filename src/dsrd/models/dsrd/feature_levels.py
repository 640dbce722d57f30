"""What a node's events are like beside everybody's, compiled.

Features drift: one year's weights are twice the next one's, and a number learned in the first says the wrong thing
in the second. What lasts is how a node compares with the rest. For each rate of decay a node u keeps

    n_u = sum over its events  exp(-rate age)          how many, of late
    C_u = sum over its events  exp(-rate age) x        and their features

and the stream the same of all events, from which follow the mean m and the deviation s of each feature, of late.
Asked about u, the state answers with (C_u - n_u m) / ((n_u + 1) s): by how many deviations its events lie above or
below the others', and 0 if it has none.

Ages are those of the walk state, counted in events (`walk_state`), and so is how `read` folds events in and
out again.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dsrd.compiled import compiled
from dsrd.history.index import Floats, Ints
from dsrd.models.dsrd.walk_state import Singles, advance_clock, read_clock

LEAST_VARIANCE = 1e-6  # of a feature that is the same in all events: no deviation is none, not a division by 0

# A state is a tuple of arrays. Per node: content [N, rates, 1 + d] (n_u, C_u), last [N]. Of the stream: level
# [rates, 1 + 2 d] (how many, features, their squares); clock [4], that of the walk state and the reading to which
# the level has faded.


@compiled
def fade(row: Any, rate: Floats, passed: float) -> None:
    for r in range(len(rate)):
        row[r] *= np.exp(-rate[r] * passed)


@compiled
def add(state: Any, src: int, dst: int, time: float, x: Singles, rate: Floats) -> None:
    """Fold one event in; a self-loop is one event of its node."""
    content, last, level, clock = state
    now, dim = advance_clock(clock, time), len(x)
    fade(level, rate, now - clock[3])
    clock[3] = now
    for end in range(1 if src == dst else 2):
        node = dst if end else src
        fade(content[node], rate, now - last[node])
        last[node] = now
        for r in range(len(rate)):
            content[node, r, 0] += 1
            content[node, r, 1:] += x
    for r in range(len(rate)):
        level[r, 0] += 1
        for i in range(dim):
            level[r, 1 + i] += x[i]
            level[r, 1 + dim + i] += x[i] * x[i]


@compiled
def observe(state: Any, src: Ints, dst: Ints, time: Floats, x: Singles, rate: Floats) -> None:
    """Fold events in, in their order.  # x: [E, d]"""
    for e in range(len(src)):
        add(state, src[e], dst[e], time[e], x[e], rate)


@compiled
def answer(state: Any, node: int, time: float, rate: Floats, whole: bool, out: Singles) -> None:
    """How the node's events compare with all others.  # [rates, d]"""
    content, last, level, clock = state
    dim = content.shape[2] - 1
    row = node if node < len(last) else 0  # that of nobody, never written
    passed = read_clock(clock, time, whole) - last[row]
    for r in range(len(rate)):
        kept, everybody = np.exp(-rate[r] * passed), max(level[r, 0], 1e-300)
        count = content[row, r, 0] * kept
        for i in range(dim):
            mean = level[r, 1 + i] / everybody
            deviation = np.sqrt(max(level[r, 1 + dim + i] / everybody - mean * mean, 0.0) + LEAST_VARIANCE)
            out[r, i] = (content[row, r, 1 + i] * kept - count * mean) / ((count + 1) * deviation)


@compiled
def read(
    state: Any, rate: Floats, whole: bool,
    ends: Ints, time: Floats, order: Ints,
    new_src: Ints, new_dst: Ints, new_time: Floats, new_x: Singles,
    out: Singles,
) -> None:  # fmt: skip
    """Answer for both ends of pairs, in the order of their times.  # ends [2, Q] -> out [2, Q, rates, d]

    The caller puts the rows of the new events' nodes back; what belongs to the stream is restored here.
    """
    folded, level, clock = 0, state[2].copy(), state[3].copy()
    for q in order:
        while folded < len(new_src) and new_time[folded] < time[q]:
            add(state, new_src[folded], new_dst[folded], new_time[folded], new_x[folded], rate)
            folded += 1
        for side in range(2):
            answer(state, ends[side, q], time[q], rate, whole, out[side, q])
    state[2][:] = level
    state[3][:] = clock
