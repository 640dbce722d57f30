"""bfloat16 inside compiled loops: the upper half of a float32, passed as a 16-bit integer.

The same loop serves both: these functions do nothing where elements are float32. Narrowing is unbiased rather than
nearest: a slow decay would otherwise stand still (0.9999 of 1 is 1 again) and small increments be lost.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numba.extending import overload


def widened(value: Any) -> Any:
    """An element as float32."""
    return (np.int32(value) << np.int32(16)).view(np.float32) if isinstance(value, np.integer) else value


def singles(row: Any, room: Any) -> Any:
    """A row of elements as float32: itself, or widened into `room`."""
    if not np.issubdtype(row.dtype, np.integer):
        return row
    room[:] = [widened(value) for value in row]
    return room


def narrowed(value: Any, chance: Any, like: Any) -> Any:
    """A float32 as an element of the kind of `like`; the lower 16 bits of an integer choose which neighbour.

    If they are uniform, the mean over them is the value itself.
    """
    if not isinstance(like, np.integer):
        return value
    return ((np.float32(value).view(np.uint32) + np.uint32(int(chance) & 0xFFFF)) >> np.uint32(16)).astype(
        np.int16
    )


# What the compiler takes in their place: which of two forms is known by the type of the elements.


def _widened(value: Any) -> Any:
    if isinstance(value, types.Integer):
        return lambda value: np.int32(np.int32(value) << np.int32(16)).view(np.float32)
    return lambda value: value


def _singles(row: Any, room: Any) -> Any:
    def widen(row: Any, room: Any) -> Any:
        for i in range(len(row)):
            room[i] = widened(row[i])
        return room

    if isinstance(row.dtype, types.Integer):
        return widen
    return lambda row, room: row


def _narrowed(value: Any, chance: Any, like: Any) -> Any:
    def upper_half(value: Any, chance: Any, like: Any) -> Any:
        bits = np.uint32(np.float32(value).view(np.uint32)) + np.uint32(chance & np.uint64(0xFFFF))
        return np.int16(np.uint32(bits) >> np.uint32(16))

    if isinstance(like, types.Integer):
        return upper_half
    return lambda value, chance, like: value


overload(widened, strict=False)(_widened)
overload(singles, strict=False)(_singles)
overload(narrowed, strict=False)(_narrowed)
