"""How walks are stored: as they are (`rows` of three dimensions), or packed (of two) in fewer columns and bits.

A packed row holds a node's walks at all rates, one after the other: `columns[r]` numbers at rate r, as float32,
as bfloat16, or in 8 bits. In 8 bits the numbers of a rate share a step: a number is a multiple of it from -127 to
127, and the step follows them in two bytes. It is that of the largest number, rounded up to 8 significant bits.
Rounding to multiples is random and unbiased, by a hash of the event: the same event is always rounded in the same
way.

Fewer columns: only the first signs of a code are used, scaled so that they have length 1 again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numba import types
from numba.extending import overload
from numpy.typing import NDArray
from torch import Tensor

from dsrd.compiled import inlined
from dsrd.hashing import splitmix64
from dsrd.models.dsrd.bfloat16 import narrowed, widened

if TYPE_CHECKING:
    from dsrd.models.dsrd.walk_state import Decay, Meeting, NodeRows, Singles

LARGEST = 127  # multiple of the step
STEP_BYTES = 2
TINIEST = 1e-30  # a smaller largest number counts as 0
GONE = 104  # exp(-GONE) is less than half of the smallest float32
ROOM = 4  # rows of work space that `extend_packed` needs behind the two codes
INLINED: Any = {"forceinline": True, "_nrt": False}  # see `dsrd.compiled.inlined`


def stored_row(plain: Any, rows: Any, row: int, r: int, columns: Any, room: Any) -> Any:
    """Walks at rate r as float32: the row itself, or a copy in `room`, with zeros behind its columns.

    `plain` is `rows[row, r]`, which is that row if rows are not packed: an inlined function cannot slice it.
    """
    if rows.ndim == 3:
        choice = _widened if np.issubdtype(rows.dtype, np.integer) else _itself
    else:
        choice = _load_bytes if rows.dtype == np.int8 else _load_numbers
    return choice(plain, rows, row, r, columns, room)


def store_row(rows: Any, row: int, r: int, columns: Any, values: Any, bits: Any) -> None:
    """Store walks at rate r in a packed row, rounded by random numbers that follow from `bits`.  # [width]"""
    (_store_bytes if rows.dtype == np.int8 else _store_numbers)(rows, row, r, columns, values, bits)


def row_size(columns: NDArray[np.int64], is_bytes: bool) -> int:
    """Elements of a packed row."""
    return int(columns.sum()) + STEP_BYTES * len(columns) * is_bytes


def step_fault(columns: NDArray[np.int64], fields: Mapping[str, Tensor]) -> str | None:
    """What is wrong with the steps of a saved state: they are neither negative nor larger than numbers are."""
    high = np.cumsum(columns + STEP_BYTES) - STEP_BYTES
    for name in ("step1", "step2"):
        if bool(((fields[name].numpy()[:, high].astype(np.int64) & 255) >= 0x7F).any()):
            return f"'{name}' has steps that are not numbers"
    return None


@inlined
def faded(rate: float, age: float) -> np.float32:
    """exp(-rate age), which in float32 is 0 from `GONE` on."""
    exponent = rate * age
    return np.float32(np.exp(-exponent)) if exponent < GONE else np.float32(0)


@inlined
def first_column(columns: NDArray[np.int64], r: int, behind: int) -> int:
    """Where the numbers of rate r begin in a packed row, `behind` elements following those of each rate."""
    start = 0
    for before in range(r):
        start += columns[before] + behind
    return start


@inlined
def step_of(high: int, low: int) -> np.float32:
    """A step from its two bytes, the upper half of a float32; they are from 0 to 255."""
    return np.int32((np.int32(high) << np.int32(24)) | (np.int32(low) << np.int32(16))).view(np.float32)


@inlined
def signed_byte(byte: int) -> np.int8:
    return np.int8(byte if byte < 128 else byte - 256)


@inlined
def upper_half(step: np.float32) -> int:
    """The upper half of the bits of a step, rounded up, so that no number is more than `LARGEST` steps."""
    if step < TINIEST:
        return 0
    return int((np.int64(np.float32(step).view(np.int32)) + 0xFFFF) >> 16)


@inlined
def next_random(word: np.uint64, bits: np.uint64, i: int) -> np.uint64:
    """Random bits for column i, after those for the column before it; 16 of them may be used."""
    return splitmix64(bits + np.uint64(i // 4)) if i % 4 == 0 else word >> np.uint64(16)


def _itself(plain: Any, rows: Any, row: int, r: int, columns: Any, room: Any) -> Any:
    return plain


def _widened(plain: Any, rows: Any, row: int, r: int, columns: Any, room: Any) -> Any:
    for i in range(len(plain)):
        room[i] = widened(plain[i])
    return room


def _load_numbers(plain: Any, rows: Any, row: int, r: int, columns: Any, room: Any) -> Any:
    start = first_column(columns, r, 0)
    for i in range(columns[r]):
        room[i] = widened(rows[row, start + i])
    for i in range(columns[r], len(room)):
        room[i] = 0
    return room


def _load_bytes(plain: Any, rows: Any, row: int, r: int, columns: Any, room: Any) -> Any:
    start = first_column(columns, r, STEP_BYTES)
    end = start + columns[r]
    step = step_of(int(rows[row, end]) & 255, int(rows[row, end + 1]) & 255)
    for i in range(columns[r]):
        room[i] = step * np.float32(rows[row, start + i])
    for i in range(columns[r], len(room)):
        room[i] = 0
    return room


def _store_numbers(rows: Any, row: int, r: int, columns: Any, values: Any, bits: Any) -> None:
    start, word = first_column(columns, r, 0), np.uint64(0)
    for i in range(columns[r]):
        word = np.uint64(next_random(word, bits, i))
        rows[row, start + i] = narrowed(values[i], word, rows[row, start + i])


def _store_bytes(rows: Any, row: int, r: int, columns: Any, values: Any, bits: Any) -> None:
    start, largest, word = first_column(columns, r, STEP_BYTES), np.float32(0), np.uint64(0)
    end = start + columns[r]
    for i in range(columns[r]):
        largest = max(largest, abs(values[i]))
    half = upper_half(largest / np.float32(LARGEST))
    rows[row, end] = signed_byte(half >> 8)
    rows[row, end + 1] = signed_byte(half & 255)
    inverse = np.float32(1) / step_of(half >> 8, half & 255) if half else np.float32(0)
    for i in range(columns[r]):
        word = np.uint64(next_random(word, bits, i))
        up = np.float32(np.int64(word & np.uint64(0xFFFF))) * np.float32(2.0**-16)
        multiple = np.floor(values[i] * inverse + up)
        rows[row, start + i] = np.int8(min(max(multiple, np.float32(-LARGEST)), np.float32(LARGEST)))


@inlined
def extend_packed(nodes: NodeRows, event: Meeting, decay: Decay, codes: Singles, bits: np.uint64) -> None:
    """Like `extend_walks`, for packed rows: each rate of both nodes is loaded, changed and stored again.

    The rows of `codes` from 2 on are work space.  # [2 + ROOM, width]
    """
    step1, step2, src, dst, columns = nodes.step1, nodes.step2, event.src_row, event.dst_row, decay.columns
    for r in range(len(decay.rate)):
        src_kept = faded(decay.rate[r], event.now - nodes.last[src])
        dst_kept = faded(decay.rate[r], event.now - nodes.last[dst])
        gain, first = decay.gain[r], bits + np.uint64(ROOM * r * codes.shape[1])
        stored_row(step1[src, r], step1, src, r, columns, codes[2])
        stored_row(step2[src, r], step2, src, r, columns, codes[3])
        stored_row(step1[dst, r], step1, dst, r, columns, codes[4])
        stored_row(step2[dst, r], step2, dst, r, columns, codes[5])
        for i in range(columns[r]):
            src_one, src_two = codes[2, i] * src_kept, codes[3, i] * (src_kept * src_kept)
            dst_one, dst_two = codes[4, i] * dst_kept, codes[5, i] * (dst_kept * dst_kept)
            codes[2, i], codes[3, i] = src_one + gain * codes[1, i], src_two + dst_one
            codes[4, i], codes[5, i] = dst_one + gain * codes[0, i], dst_two + src_one
        store_row(step1, src, r, columns, codes[2], first)
        store_row(step2, src, r, columns, codes[3], first + np.uint64(codes.shape[1]))
        if src != dst:
            store_row(step1, dst, r, columns, codes[4], first + np.uint64(2 * codes.shape[1]))
            store_row(step2, dst, r, columns, codes[5], first + np.uint64(3 * codes.shape[1]))


# What numba compiles in their place: the dimensions and the type of the elements select the version.


def _is_packed(rows: types.Array) -> bool:
    return bool(rows.ndim == 2)


def _is_bytes(rows: types.Array) -> bool:
    return bool(rows.dtype == types.int8)


@overload(stored_row, strict=False)  # counts references to what it returns where its caller does
def _stored_row(plain: Any, rows: Any, row: Any, r: Any, columns: Any, room: Any) -> Any:
    if not _is_packed(rows):
        return _widened if isinstance(rows.dtype, types.Integer) else _itself
    return _load_bytes if _is_bytes(rows) else _load_numbers


@overload(store_row, strict=False, jit_options=INLINED)
def _store_row(rows: Any, row: Any, r: Any, columns: Any, values: Any, bits: Any) -> Any:
    return _store_bytes if _is_bytes(rows) else _store_numbers
