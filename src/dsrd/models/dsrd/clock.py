"""The clock of the states: ages are counted in events of the whole stream, not in seconds.

An event's age is the number of events from its timestamp on. A quiet month then decays no more than a busy hour,
and the values in a state keep the range they had in training when a stream slows down or speeds up.

Streams of snapshots need one exception. If every timestamp is observed whole (`whole_moments`), the newest
observed timestamp is not counted: a snapshot of thousands of events has age 0 when the next one is scored.
Otherwise only the slowest decay rates would still see it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dsrd.compiled import inlined

Clock = NDArray[np.float64]  # [3] or more, named below; every other field of a state stores readings of it
EVENTS, BEFORE_NEWEST, NEWEST = range(3)  # events so far; events before the newest timestamp; that timestamp


@inlined
def read_clock(clock: Clock, time: float, whole_moments: bool) -> float:
    """The reading at a query's time: the events before it, without the newest timestamp if moments are whole."""
    return float(clock[BEFORE_NEWEST] if whole_moments or time <= clock[NEWEST] else clock[EVENTS])


@inlined
def advance_clock(clock: Clock, time: float) -> float:
    """Count one event and return the reading at its time. Events of one timestamp share a reading."""
    if time > clock[NEWEST]:
        clock[BEFORE_NEWEST], clock[NEWEST] = clock[EVENTS], time
    clock[EVENTS] += 1
    return float(clock[BEFORE_NEWEST])
