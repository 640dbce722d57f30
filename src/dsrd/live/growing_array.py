"""`GrowingArray`: a numpy array to which entries are appended, at a cost that does not depend on its length."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T", bound=np.generic)


class GrowingArray(Generic[T]):
    """Room for more entries than there are; it doubles when it is full.

    >>> array = GrowingArray(np.array([1.0]))
    >>> array.extend(np.array([2.0, 3.0]))
    >>> array.values.tolist(), len(array)
    ([1.0, 2.0, 3.0], 3)
    """

    def __init__(self, first: NDArray[T]) -> None:
        self._room, self._length = first.copy(), len(first)

    def __len__(self) -> int:
        return self._length

    @property
    def values(self) -> NDArray[T]:
        """The entries: a view, which later entries do not change."""
        return self._room[: self._length]

    def extend(self, more: NDArray[Any]) -> None:
        """Append entries."""
        start = self._length
        self.reserve(start + len(more))
        self._room[start : self._length] = more

    def reserve(self, length: int) -> None:
        """Make it at least this long; new entries are 0."""
        if length > len(self._room):
            larger = np.zeros(max(length, 2 * len(self._room)), self._room.dtype)
            larger[: self._length] = self._room[: self._length]
            self._room = larger
        self._length = max(self._length, length)
