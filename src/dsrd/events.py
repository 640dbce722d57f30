"""The containers that all parts exchange: `Events`, `Query`, `Neighbors`.

Node ids and event ids start at 1; 0 (`NULL`) marks padding. Times are float64.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dsrd.errors import DsrdError

NULL = 0
"""The id of no node and of no event: padding."""
LATEST = 1e19
"""The largest time: nanoseconds since 1970 in the year 2286. Beyond, float64 cannot tell moments apart."""
MOST_NODES = 1 << 31
WHOLE_IDS = "node ids are whole numbers below 2^31; number the nodes without gaps"


def as_tensor(array: NDArray[Any]) -> Tensor:
    """A tensor that shares the array's memory, also if that memory is a read-only map of a file."""
    array = np.ascontiguousarray(array)
    if array.flags.writeable:
        return torch.from_numpy(array)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(array)


class EventArrays(NamedTuple):
    """The columns of `Events` for numpy and compiled code."""

    src: NDArray[np.int64]  # [E]
    dst: NDArray[np.int64]  # [E]
    time: NDArray[np.float64]  # [E]
    id: NDArray[np.int64]  # [E]


@dataclass(frozen=True, slots=True)
class Query:
    """Pairs to score: does `src` meet `dst` at `time`? Without labels and event ids, so neither can leak."""

    src: Tensor  # [Q] int64
    dst: Tensor  # [Q] int64
    time: Tensor  # [Q] float64

    def __len__(self) -> int:
        return self.src.shape[0]

    def __getitem__(self, rows: slice | Tensor) -> Query:
        return Query(self.src[rows], self.dst[rows], self.time[rows])

    def to(self, device: torch.device | str) -> Query:
        """The same rows on `device`."""
        return Query(self.src.to(device), self.dst.to(device), self.time.to(device))

    @staticmethod
    def cat(*queries: Query) -> Query:
        """Concatenate queries, to score them in one call."""
        return Query(
            torch.cat([q.src for q in queries]),
            torch.cat([q.dst for q in queries]),
            torch.cat([q.time for q in queries]),
        )


@dataclass(frozen=True, slots=True)
class Events:
    """Events sorted by time. Immutable; slices share memory.

    >>> events = Events.from_numpy([1, 2, 1], [2, 3, 3], [0.0, 1.5, 4.0])
    >>> len(events), events.num_nodes
    (3, 4)
    >>> [len(batch) for batch in events.batches(2)]
    [2, 1]
    """

    src: Tensor  # [E] int64, from 1
    dst: Tensor  # [E] int64, from 1
    time: Tensor  # [E] float64, non-decreasing
    id: Tensor  # [E] int64, from 1: the row of the feature matrix

    def __len__(self) -> int:
        return self.src.shape[0]

    def __getitem__(self, rows: slice | Tensor) -> Events:
        return Events(self.src[rows], self.dst[rows], self.time[rows], self.id[rows])

    @property
    def num_nodes(self) -> int:
        """The number of rows that a table indexed by node id needs: the largest id + 1."""
        return int(max(self.src.max(), self.dst.max())) + 1 if len(self) else 1

    @classmethod
    def from_numpy(cls, src: Any, dst: Any, time: Any, id: Any = None) -> Events:
        """Check and wrap arrays, without a copy if they have the right types. `id` defaults to 1 .. E."""
        src_, dst_ = (_ids(name, ids) for name, ids in (("src", src), ("dst", dst)))
        time_ = _column("time", time, np.float64)
        id_ = np.arange(1, len(src_) + 1) if id is None else np.asarray(id, dtype=np.int64)
        _check(src_, dst_, time_, id_)
        return cls(as_tensor(src_), as_tensor(dst_), as_tensor(time_), as_tensor(id_))

    def numpy(self) -> EventArrays:
        """The columns as arrays over the same memory."""
        return EventArrays(self.src.numpy(), self.dst.numpy(), self.time.numpy(), self.id.numpy())

    def to(self, device: torch.device | str) -> Events:
        """The same rows on `device`."""
        return Events(self.src.to(device), self.dst.to(device), self.time.to(device), self.id.to(device))

    @staticmethod
    def cat(*pieces: Events) -> Events:
        """Concatenate pieces that follow each other in time."""
        columns = zip(*((piece.src, piece.dst, piece.time, piece.id) for piece in pieces), strict=True)
        return Events(*(torch.cat(column) for column in columns))

    def batches(self, size: int) -> Iterator[Events]:
        """Consecutive pieces of `size` events; the last may be shorter."""
        for start in range(0, len(self), size):
            yield self[start : start + size]

    def query(self) -> Query:
        """The query for these events: endpoints and time, nothing else."""
        return Query(self.src, self.dst, self.time)


def _ids(name: str, values: Any) -> NDArray[np.int64]:
    """Node ids as int64; fractions and numbers that tables have no rows for are refused."""
    array = np.asarray(values)
    if array.dtype != np.int64 and array.dtype.kind in "fu" and array.size:
        bad = (array % 1 != 0) | (array >= MOST_NODES)
        if bad.any():
            row = int(bad.reshape(-1).argmax())
            raise DsrdError(f"events: row {row}: {name} is {array.reshape(-1)[row]}; {WHOLE_IDS}")
    ids: NDArray[np.int64] = _column(name, array, np.int64)
    if len(ids) and ids.max() >= MOST_NODES:
        row = int(ids.argmax())
        raise DsrdError(f"events: row {row}: {name} is {ids[row]}; {WHOLE_IDS}")
    return ids


def _column(name: str, values: Any, kind: type[Any]) -> NDArray[Any]:
    try:
        array = np.asarray(values, dtype=kind)
    except (TypeError, ValueError, OverflowError) as error:
        raise DsrdError(f"events: {name} is no column of numbers ({error}); give one number per event") from error
    if array.ndim != 1:
        raise DsrdError(f"events: {name} has shape {array.shape}; give one number per event")
    return array


def _check(src: NDArray[Any], dst: NDArray[Any], time: NDArray[Any], id: NDArray[Any]) -> None:
    if not len(src) == len(dst) == len(time) == len(id):
        raise DsrdError(
            f"events: src, dst, time, id have lengths {len(src)}, {len(dst)}, {len(time)}, {len(id)}; "
            "give one entry per event in each"
        )
    if not len(src):
        return
    for name, values in (("src", src), ("dst", dst)):
        if values.min() < 1:
            row = int(values.argmin())
            raise DsrdError(f"events: row {row}: {name} is {values[row]}; node ids start at 1 (0 is padding)")
    finite = np.isfinite(time)
    if not finite.all():
        raise DsrdError(f"events: row {int((~finite).argmax())}: time is not a number; drop or repair the row")
    if time.max() > LATEST:
        row = int(time.argmax())
        raise DsrdError(f"events: row {row}: time is {time[row]:g}; give times up to {LATEST:g}")
    backwards = np.diff(time) < 0
    if backwards.any():
        raise DsrdError(
            f"events: row {int(backwards.argmax()) + 1}: time runs backwards; sort the events by time first"
        )


@dataclass(frozen=True, slots=True)
class Neighbors:
    """Past events of each queried node, oldest first, padding at the front."""

    node: Tensor  # [Q, k] int64: the other endpoint, NULL in padding
    event: Tensor  # [Q, k] int64
    time: Tensor  # [Q, k] float64
    outgoing: Tensor  # [Q, k] bool: the queried node was the source
    mask: Tensor  # [Q, k] bool: False in padding
