"""`MostSurprising`: the most surprising events of the last hour, however many there were."""

from __future__ import annotations

import heapq
from typing import Generic, Protocol, TypeVar


class Rated(Protocol):
    """An event that came at a time of this machine's clock and was surprising to some degree."""

    @property
    def at(self) -> float: ...

    @property
    def surprise(self) -> float: ...


R = TypeVar("R", bound=Rated)

MINUTE = 60.0


class MostSurprising(Generic[R]):
    """Keeps the most surprising events of each minute, so its size does not depend on the number of events.

    The span of an answer is a whole number of minutes: an event leaves together with its minute.
    """

    def __init__(self, minutes: int = 60, kept: int = 50) -> None:
        """`kept` events of each minute."""
        self._minutes, self._kept = minutes, kept
        self._heaps: dict[int, list[tuple[float, int, R]]] = {}  # minute -> least surprising first
        self._added = 0  # breaks ties: events themselves have no order

    def add(self, event: R) -> None:
        """Take in an event."""
        minute = int(event.at // MINUTE)
        if minute not in self._heaps:
            self._heaps[minute] = []
            for old in [each for each in self._heaps if each <= minute - self._minutes]:
                del self._heaps[old]
        heap, self._added = self._heaps[minute], self._added + 1
        item = (event.surprise, -self._added, event)
        if len(heap) < self._kept:
            heapq.heappush(heap, item)
        elif item > heap[0]:
            heapq.heapreplace(heap, item)

    def best(self, most: int, since: float) -> list[R]:
        """The most surprising events after a time, most surprising first; ties in order of arrival."""
        items = [item for heap in list(self._heaps.values()) for item in list(heap) if item[2].at >= since]
        return [item[2] for item in heapq.nlargest(most, items, key=lambda item: item[:2])]
