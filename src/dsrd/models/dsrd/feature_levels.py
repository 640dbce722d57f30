"""How the features of a node's events compare with those of all events, compiled.

Features drift: if the weights of one year are twice those of the next, a value learned in the first year misleads
in the second. What stays is how a node compares with the rest. For each decay rate a node u keeps

    n_u = sum over its events  exp(-rate age)          decayed number of events
    C_u = sum over its events  exp(-rate age) x        decayed sum of their features

and the stream keeps the same over all events, from which follow the decayed mean m and standard deviation s of
each feature. A query about u is answered with (C_u - n_u m) / ((n_u + 1) s): by how many standard deviations u's
events lie above or below the mean, pulled towards 0 if u has few events.

Ages are readings of `clock`. Unobserved events go into an overlay, as in `walk_queries`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dsrd.compiled import compiled, inlined
from dsrd.events import NULL
from dsrd.history.index import Floats
from dsrd.models.dsrd.clock import Clock, advance_clock, read_clock
from dsrd.models.dsrd.overlay import CopiedNodes, Queries, Unobserved, copied_row, copied_rows, read_only
from dsrd.models.dsrd.walk_state import Arrivals, Singles

LEAST_VARIANCE = 1e-6  # keeps a feature that never varies from a division by 0
LEAST_COUNT = 1e-300  # the same for a stream without events
LEVEL_READING = (
    3  # in the clock, after the three entries named in `clock`: the reading that `level` has decayed to
)


class LevelState(NamedTuple):
    content: Singles  # [N, rates, 1 + d]: n_u, C_u
    content_last: Floats  # [N]: clock reading of the node's last event
    level: Floats  # [rates, 1 + 2 d]: of all events: number, features, squared features
    level_clock: Clock  # [4]


class LevelView(NamedTuple):
    """The state as a query sees it: nodes are looked up in the overlay first; level and clock are its own."""

    state: LevelState  # read only
    overlay: LevelState  # read only
    copied: CopiedNodes  # nodes with a row in the overlay
    rate: Floats  # [rates]
    whole_moments: bool  # see `clock`


class PendingLevels(NamedTuple):
    """Unobserved events with features, and the overlay they are added to: the memory of `LevelView.overlay`."""

    events: Arrivals
    x: Singles  # [E or more, d]: row e belongs to event e
    overlay: LevelState


def view_of(
    state: LevelState, unobserved: Unobserved, x: Singles, rate: Floats, whole_moments: bool
) -> tuple[LevelView, PendingLevels]:
    """The state with an overlay on top that holds no events yet, and the events to add to it."""
    overlay = LevelState(
        copied_rows(state.content, unobserved.node),
        copied_rows(state.content_last, unobserved.node),
        state.level.copy(),
        state.level_clock.copy(),
    )
    view = LevelView(read_only(state), read_only(overlay), unobserved.copied, rate, whole_moments)
    return view, PendingLevels(unobserved.events, x, overlay)


@inlined
def decay_rows(rows: Floats | Singles, rate: Floats, age: float) -> None:
    """Multiply each row by its decay.  # [rates, ...]"""
    for r in range(len(rate)):
        kept = np.exp(-rate[r] * age)
        for i in range(rows.shape[1]):
            rows[r, i] *= kept


@inlined
def add(state: LevelState, events: Arrivals, e: int, x: Singles, rate: Floats) -> None:
    """Add event e with features x; a self-loop is one event of its node.  # [d]"""
    content, last, level, clock = state.content, state.content_last, state.level, state.level_clock
    src, dst = events.src_row[e], events.dst_row[e]
    now, dim = advance_clock(clock, events.time[e]), len(x)
    decay_rows(level, rate, now - clock[LEVEL_READING])
    clock[LEVEL_READING] = now
    for end in range(1 if src == dst else 2):
        row = dst if end else src
        decay_rows(content[row], rate, now - last[row])
        last[row] = now
        for r in range(len(rate)):
            content[row, r, 0] += 1
            for i in range(dim):
                content[row, r, 1 + i] += x[i]
    for r in range(len(rate)):
        level[r, 0] += 1
        for i in range(dim):
            level[r, 1 + i] += x[i]
            level[r, 1 + dim + i] += x[i] * x[i]


@compiled
def observe(state: LevelState, events: Arrivals, x: Singles, rate: Floats) -> None:
    """Add events in their order.  # x: [E, d]"""
    for e in range(len(events.src)):
        add(state, events, e, x[e], rate)


@inlined
def compare(rows: LevelState, row: int, level: Floats, now: float, rate: Floats, out: Singles) -> None:
    """How the events of the node in this row compare with all events.  # [rates, d]"""
    content, age, dim = rows.content, now - rows.content_last[row], out.shape[1]
    for r in range(len(rate)):
        kept, events = np.exp(-rate[r] * age), max(level[r, 0], LEAST_COUNT)
        count = content[row, r, 0] * kept
        for i in range(dim):
            mean = level[r, 1 + i] / events
            deviation = np.sqrt(max(level[r, 1 + dim + i] / events - mean * mean, 0.0) + LEAST_VARIANCE)
            out[r, i] = (content[row, r, 1 + i] * kept - count * mean) / ((count + 1) * deviation)


@inlined
def answer(view: LevelView, node: int, time: float, out: Singles) -> None:
    """Look a node up in the overlay, then in the state; one that is in neither has the empty row of NULL."""
    level, rate = view.overlay.level, view.rate
    now = read_clock(view.overlay.level_clock, time, view.whole_moments)
    row = copied_row(view.copied, node)
    if row >= 0:
        compare(view.overlay, row, level, now, rate, out)
    else:
        compare(view.state, node if node < len(view.state.content_last) else NULL, level, now, rate, out)


@compiled
def read(view: LevelView, pending: PendingLevels, queries: Queries, out: Singles) -> None:
    """Answer for both ends of pairs, in the order of their times.  # -> [2, Q, rates, d]"""
    events, added = pending.events, 0
    for q in queries.order:
        while added < len(events.src) and events.time[added] < queries.time[q]:
            add(pending.overlay, events, added, pending.x[added], view.rate)
            added += 1
        for side in range(2):
            answer(view, queries.ends[side, q], queries.time[q], out[side, q])
