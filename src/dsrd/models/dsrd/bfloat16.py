"""bfloat16 in compiled loops: the upper 16 bits of a float32, stored as an integer, because numpy has no bfloat16.

Loops call these functions for both precisions; on float32 they do nothing. Rounding to bfloat16 is random and
unbiased. Rounding to the nearest value would stop a slow decay (0.9999 * 1 rounds to 1) and lose small increments.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numba.extending import overload


def widened(value: Any) -> Any:
    """A stored element as float32."""
    return (np.int32(value) << np.int32(16)).view(np.float32) if isinstance(value, np.integer) else value


def widened_row(row: Any, room: Any) -> Any:
    """A stored row as float32: the row itself, or a copy in `room` if it is bfloat16."""
    if not np.issubdtype(row.dtype, np.integer):
        return row
    room[:] = [widened(value) for value in row]
    return room


def narrowed(value: Any, random: Any, like: Any) -> Any:
    """A float32 in the type of `like`; for bfloat16 the lower 16 bits of `random` decide whether to round up.

    If these bits are uniform, the expected result is the value itself.
    """
    if not isinstance(like, np.integer):
        return value
    return ((np.float32(value).view(np.uint32) + np.uint32(int(random) & 0xFFFF)) >> np.uint32(16)).astype(
        np.int16
    )


# What numba compiles in their place: the element type selects one of two versions.


def _widened(value: Any) -> Any:
    if isinstance(value, types.Integer):
        return lambda value: np.int32(np.int32(value) << np.int32(16)).view(np.float32)
    return lambda value: value


def _widened_row(row: Any, room: Any) -> Any:
    def widen(row: Any, room: Any) -> Any:
        for i in range(len(row)):
            room[i] = widened(row[i])
        return room

    if isinstance(row.dtype, types.Integer):
        return widen
    return lambda row, room: row


def _narrowed(value: Any, random: Any, like: Any) -> Any:
    def upper_half(value: Any, random: Any, like: Any) -> Any:
        bits = np.uint32(np.float32(value).view(np.uint32)) + np.uint32(random & np.uint64(0xFFFF))
        return np.int16(np.uint32(bits) >> np.uint32(16))

    if isinstance(like, types.Integer):
        return upper_half
    return lambda value, random, like: value


overload(widened, strict=False)(_widened)
overload(widened_row, strict=False)(_widened_row)
overload(narrowed, strict=False)(_narrowed)
