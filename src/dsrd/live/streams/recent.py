"""`Recent`: the surprise of recent events, in order of size, for alerts."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterable

KEPT = 10_000


class Recent:
    """The latest values, and which of them are unusually large.

    >>> recent = Recent(range(100))
    >>> recent.is_above(99.0, 98.5), recent.is_above(99.0, 97.0)
    (True, False)
    >>> recent.add(1000.0)
    >>> recent.is_above(99.0, 98.5)
    False
    """

    def __init__(self, values: Iterable[float] = ()) -> None:
        self._latest: deque[float] = deque()
        self._sorted: list[float] = []
        for value in values:
            self.add(value)

    def is_above(self, percentile: float, value: float) -> bool:
        """Whether a value is larger than that percentile of the latest ones; of none, every value is."""
        smaller = bisect_left(self._sorted, value)
        return smaller >= percentile / 100 * len(self._sorted)

    def add(self, value: float) -> None:
        if len(self._latest) == KEPT:
            del self._sorted[bisect_left(self._sorted, self._latest.popleft())]
        self._latest.append(value)
        insort(self._sorted, value)
