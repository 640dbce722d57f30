"""The latest events of both endpoints of a pair, compared, compiled."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dsrd.compiled import compiled, inlined
from dsrd.history.index import Bools, Floats, Index, Ints, history
from dsrd.models.dsrd.walk_state import Singles

(
    IS_OTHER,  # 1 if the partner is the other endpoint
    IN_THIS_WINDOW,  # how often the partner is in this window
    IN_OTHER_WINDOW,  # how often it is in the other endpoint's window
    IN_OTHER_WINDOW_AT_TIME,  # how often it is there at the event's timestamp (two recipients of one mail)
    EVENTS_AT_TIME,  # events of this window at the event's timestamp
    RANK,  # of the event, from 0 for the newest towards 1
    OUTGOING,  # 1 if the endpoint was the source
) = range(7)  # columns of the counts of an event in a window
WINDOW = 7


class Windows(NamedTuple):
    """The latest events of both endpoints of one pair, newest first; entries from `size` on are left over."""

    partner: Ints  # [2, k]
    time: Floats  # [2, k]
    event: Ints  # [2, k]
    outgoing: Bools  # [2, k]
    size: Ints  # [2]


@compiled
def empty_windows(k: int) -> Windows:
    ids, times, flags = np.empty((2, 2, k), np.int64), np.empty((2, k)), np.empty((2, k), np.bool_)
    return Windows(ids[0], times, ids[1], flags, np.zeros(2, np.int64))


@inlined
def fill_window(index: Index, node: int, time: float, side: int, windows: Windows) -> None:
    """Look up the node's latest events strictly before the time."""
    first, stop = history(index, node, time)
    windows.size[side] = min(windows.partner.shape[1], stop - first)
    for j in range(windows.size[side]):
        entry = stop - 1 - j
        windows.partner[side, j] = index.node[entry]
        windows.time[side, j] = index.time[entry]
        windows.event[side, j] = index.event[entry]
        windows.outgoing[side, j] = index.outgoing[entry]


@inlined
def compare(windows: Windows, side: int, other: int, token: Singles) -> None:
    """Fill the counts of one window's events.  # [size, WINDOW]"""
    partner, time, size = windows.partner, windows.time, windows.size
    for j in range(size[side]):
        here = at_time = across = across_at_time = 0
        for i in range(size[side]):  # without branches: several entries at a time
            here += partner[side, i] == partner[side, j]
            at_time += time[side, i] == time[side, j]
        for i in range(size[1 - side]):
            met = partner[1 - side, i] == partner[side, j]
            across += met
            across_at_time += met & (time[1 - side, i] == time[side, j])
        token[j, IS_OTHER] = partner[side, j] == other
        token[j, IN_THIS_WINDOW] = here
        token[j, IN_OTHER_WINDOW] = across
        token[j, IN_OTHER_WINDOW_AT_TIME] = across_at_time
        token[j, EVENTS_AT_TIME] = at_time
        token[j, RANK] = j / partner.shape[1]
        token[j, OUTGOING] = windows.outgoing[side, j]
