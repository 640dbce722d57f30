"""`PerSecond`: how many events came in each of the latest seconds."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

KEPT = 900  # seconds with events


class PerSecond:
    """Counts by second of this machine's clock; seconds without events are left out.

    >>> clock = iter([10.2, 10.9, 12.0])
    >>> counts = PerSecond(lambda: next(clock))
    >>> counts.add(3); counts.add(2); counts.add(1)
    >>> counts.after(0)
    [(10, 5), (12, 1)]
    >>> counts.after(10)
    [(12, 1)]
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock, self._lock = clock, threading.Lock()
        self._counts: deque[tuple[int, int]] = deque(maxlen=KEPT)

    def add(self, count: int) -> None:
        """Count events that came now. A clock that was set back does not open an earlier second again."""
        second = int(self._clock())
        with self._lock:
            if self._counts and self._counts[-1][0] >= second:
                second, before = self._counts.pop()
                count += before
            self._counts.append((second, count))

    def after(self, second: int) -> list[tuple[int, int]]:
        """(second, events) of the seconds after one."""
        with self._lock:
            return [pair for pair in self._counts if pair[0] > second]
