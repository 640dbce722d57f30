"""`Pending`: events that wait for older ones, in the order in which the model will see them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dsrd.live.log import Floats, Ids, Singles


class Columns(NamedTuple):
    """Events of the log."""

    src: Ids  # [E]
    dst: Ids  # [E]
    time: Floats  # [E]
    x: Singles  # [E, edge_dim]

    def take(self, rows: slice | NDArray[np.int64]) -> Columns:
        return Columns(self.src[rows], self.dst[rows], self.time[rows], self.x[rows])

    @staticmethod
    def cat(*pieces: Columns) -> Columns:
        return pieces[0] if len(pieces) == 1 else Columns(*map(np.concatenate, zip(*pieces, strict=True)))


class Pending:
    """Releases events once the newest is later than they by a window, by time and, at equal times, as they came.

    Events older than those already released are not accepted, so all releases together are in that order too.

    >>> def event(*time):
    ...     return Columns(*np.ones((2, len(time)), np.int64), np.array(time), np.zeros((len(time), 0)))
    >>> pending = Pending(window=5.0)
    >>> pending.push(event(1.0, 7.0)).time.tolist(), len(pending)
    ([1.0], 1)
    >>> pending.push(event(4.0, 12.0)).time.tolist(), len(pending)
    ([4.0, 7.0], 1)
    """

    def __init__(self, window: float) -> None:
        self._window = window
        self._newest = -np.inf
        self._waiting: Columns | None = None

    def __len__(self) -> int:
        return 0 if self._waiting is None else len(self._waiting.time)

    def push(self, events: Columns) -> Columns:
        """Add events and release those that need not wait any longer."""
        if not len(events.time):
            return events
        if self._waiting is not None:
            events = Columns.cat(self._waiting, events)
        if not self._window:  # accepted events are in order of time
            return events
        events = events.take(np.argsort(events.time, kind="stable"))
        self._newest = max(self._newest, float(events.time[-1]))
        released = int(np.searchsorted(events.time, self._newest - self._window, side="right"))
        rest = events.take(slice(released, None))
        self._waiting = rest if len(rest.time) else None
        return events.take(slice(0, released))
