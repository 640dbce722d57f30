"""Arrays in temporary files that are mapped into memory: they may be larger than memory.

The operating system keeps what is used in memory and writes the rest to the file; `release` gives memory back at
once. A file has no name, and its space is free again when the array is gone. It is made in the folder of temporary
files (the variable TMPDIR): that should be a disk, and not itself a part of memory.
"""

from __future__ import annotations

import mmap
import tempfile
from math import prod
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import DTypeLike, NDArray

from dsrd.errors import MachineError


class Mapping(mmap.mmap):
    """A mapped file that can be mapped again, larger."""

    file: Any


_mappings: WeakValueDictionary[int, Mapping] = WeakValueDictionary()  # by address


def mapped_zeros(shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
    """An array of zeros in a temporary file, which takes no space where nothing is written.

    >>> array = mapped_zeros((3, 2), np.float32)
    >>> array[1] = 5
    >>> larger = grown(array, 1000)
    >>> larger.shape, larger[1].tolist(), is_mapped(larger), is_mapped(np.zeros(1))
    ((1000, 2), [5.0, 5.0], True, False)
    """
    return _mapped(tempfile.TemporaryFile(prefix="dsrd-"), shape, np.dtype(dtype))


def grown(array: NDArray[Any], rows: int) -> NDArray[Any]:
    """The same array with more rows, of zeros; nothing is copied. Do not use the old one any more."""
    mapping = _mappings[array.ctypes.data]
    return _mapped(mapping.file, (rows, *array.shape[1:]), array.dtype)


def _mapped(file: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    size = max(prod(shape) * dtype.itemsize, 1)
    try:
        file.truncate(size)
        mapping = Mapping(file.fileno(), size)
    except (OSError, ValueError, OverflowError) as error:
        raise MachineError(
            f"{tempfile.gettempdir()}: no file of {size:,} bytes ({error}); set TMPDIR to a folder with room"
        ) from error
    mapping.file = file
    array = np.frombuffer(mapping, dtype, prod(shape)).reshape(shape)
    _mappings[array.ctypes.data] = mapping
    return array


def is_mapped(array: NDArray[Any]) -> bool:
    """Whether the array was made here."""
    return array.ctypes.data in _mappings


def release(array: NDArray[Any], resting: NDArray[np.bool_] | None = None) -> None:
    """Give back the memory of a mapped array, or of its rows that rest. They are read again when they are used.

    A page of memory is given back if all rows on it rest.
    """
    mapping = _mappings[array.ctypes.data]
    if not hasattr(mapping, "madvise"):  # Windows: the operating system alone decides
        return
    if resting is None:
        mapping.madvise(mmap.MADV_DONTNEED)
        return
    for first, stop in resting_pages(resting, array[:1].nbytes):
        mapping.madvise(mmap.MADV_DONTNEED, first * mmap.PAGESIZE, (stop - first) * mmap.PAGESIZE)


def resting_pages(resting: NDArray[np.bool_], row_bytes: int) -> list[tuple[int, int]]:
    """Runs of pages, first and stop, on which all rows rest.

    >>> resting_pages(np.array([True, True, False, True]), mmap.PAGESIZE // 2)
    [(0, 1)]
    """
    awake = np.flatnonzero(~resting)
    first, last = awake * row_bytes // mmap.PAGESIZE, ((awake + 1) * row_bytes - 1) // mmap.PAGESIZE
    pages = len(resting) * row_bytes // mmap.PAGESIZE  # whole ones
    used = np.zeros(pages + 2, np.int64)  # by how many awake rows, as differences from page to page
    np.add.at(used, np.minimum(first, pages), 1)
    np.add.at(used, np.minimum(last + 1, pages + 1), -1)
    free = np.concatenate([[0], np.cumsum(used)[:pages] == 0, [0]]).astype(np.int8)
    edges = np.flatnonzero(np.diff(free))
    return list(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))
