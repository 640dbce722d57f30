"""Sets of (source, target) pairs that negatives are drawn from by position, without listing the pairs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dsrd.events import Events
from dsrd.negatives.python_set import PairSet, pair_hashes

Ids = NDArray[np.int64]


class Positions(Protocol):
    """Pair ids in some order, to be picked by position."""

    def __len__(self) -> int: ...
    def __getitem__(self, position: Ids, /) -> NDArray[Any]: ...


@dataclass(frozen=True)
class Remaining:
    """start, start + 1, ..., stop - 1 without the holes (sorted, distinct, in that range).

    >>> rest = Remaining(10, 15, holes=np.array([10, 13]))
    >>> len(rest), rest[np.array([0, 1, 2])].tolist()
    (3, [11, 12, 14])
    """

    start: int
    stop: int
    holes: Ids

    def __len__(self) -> int:
        return self.stop - self.start - len(self.holes)

    def __getitem__(self, position: Ids, /) -> Ids:
        holes_passed = np.searchsorted(self._remaining_before_hole, position, side="right")
        return self.start + position + holes_passed

    @cached_property
    def _remaining_before_hole(self) -> Ids:
        return self.holes - self.start - np.arange(len(self.holes))


class PairIndex:
    """Numbers the distinct pairs of a stream 0, 1, 2, ... by their first occurrence.

    So the pairs of the first k events are always the ids 0 .. distinct[k] - 1.

    >>> index = PairIndex(Events.from_numpy([1, 2, 1, 2], [5, 5, 5, 6], [0, 1, 2, 3]))
    >>> index.ids.tolist(), len(index), index.distinct.tolist()
    ([0, 1, 0, 2], 3, [0, 1, 2, 2, 3])
    >>> index.find(np.array([2, 6]), np.array([6, 2])).tolist()
    [2, -1]
    """

    def __init__(self, events: Events) -> None:
        encoded = pa.array(_codes(events.src.numpy(), events.dst.numpy())).dictionary_encode()
        self._pair_codes = encoded.dictionary
        self.ids: Ids = encoded.indices.to_numpy().astype(np.int64)  # [E]
        self.distinct: Ids = np.zeros(len(events) + 1, dtype=np.int64)  # [E + 1] pairs in the first k events
        np.maximum.accumulate(self.ids + 1, out=self.distinct[1:])

    def __len__(self) -> int:
        return len(self._pair_codes)

    def pairs(self, ids: NDArray[Any] | slice = slice(None)) -> tuple[Ids, Ids]:
        """Sources and targets of these ids."""
        codes = self._pair_codes.to_numpy()[ids]
        return codes >> 32, codes & 0xFFFFFFFF

    def find(self, src: Ids, dst: Ids) -> Ids:
        """The ids of these pairs, -1 for one that never occurs."""
        ids = pc.index_in(pa.array(_codes(src, dst)), value_set=self._pair_codes)
        return np.asarray(ids.fill_null(-1).to_numpy(), dtype=np.int64)


def _codes(src: Ids, dst: Ids) -> Ids:
    """One number per pair. Node ids fit in 31 bits: they number the rows of tables in memory."""
    return src << 32 | dst


class Candidates:
    """Pairs that occurred before a batch and do not occur during it.

    With `observed`, the pairs with ids below it are left out as well. The result has the order of
    `list(seen - present)` or `list(seen - observed - present)` in the CPython named by `python`; None: by id.
    """

    def __init__(self, index: PairIndex, observed: int | None, python: str | None) -> None:
        self._observed = observed
        self._numbers = np.arange(len(index))
        self._seen = None if python is None else PairSet(pair_hashes(*index.pairs(), python))

    def __call__(self, seen: int, present: Ids) -> Positions:
        """Those among the first `seen` pairs; `present` are the sorted ids during the batch.

        `seen` never falls from one call to the next.
        """
        if self._seen is None:
            start = min(self._observed or 0, seen)
            return Remaining(start, seen, present[slice(*np.searchsorted(present, [start, seen]))])
        self._seen.add(self._numbers[len(self._seen) : seen])
        rest = self._seen
        if self._observed is not None:
            rest = rest.difference(self._numbers < self._observed, self._observed)
        during = np.zeros(len(self._numbers), dtype=np.bool_)
        during[present] = True
        return rest.difference(during, len(present)).order()


class Grid:
    """Every source of a stream with every target; pair (i, j) of the sorted nodes has id i * targets + j.

    >>> grid = Grid(Events.from_numpy([1, 2], [8, 9], [0, 1]), python=None)
    >>> rest = grid.without(np.array([1, 1]), np.array([9, 9]))
    >>> [nodes.tolist() for nodes in grid.pairs(rest[np.arange(len(rest))])]
    [[1, 2, 2], [8, 8, 9]]
    """

    def __init__(self, events: Events, python: str | None) -> None:
        self._src, self._dst = distinct_nodes(events.src.numpy()), distinct_nodes(events.dst.numpy())
        self._python = python

    def __len__(self) -> int:
        return len(self._src) * len(self._dst)

    def pairs(self, ids: NDArray[Any]) -> tuple[Ids, Ids]:
        """Sources and targets of these ids."""
        row, column = np.divmod(ids, len(self._dst))
        return self._src[row], self._dst[column]

    def without(self, src: Ids, dst: Ids) -> Positions:
        """All pairs except these, ordered as `list(grid - these)` in the chosen Python, or by id."""
        codes = sorted_distinct(_codes(src, dst))
        removed = self._inside(codes >> 32, codes & 0xFFFFFFFF)
        if self._python is None:
            return Remaining(0, len(self), np.sort(removed))
        if self._set.copied_by_difference(len(codes)):
            order, position = self._copy_order
            return _Reordered(order, Remaining(0, len(self), np.sort(position[removed])))
        is_removed = np.zeros(len(self), dtype=np.bool_)
        is_removed[removed] = True
        return self._set.difference(is_removed, len(codes)).order()

    def _inside(self, src: Ids, dst: Ids) -> Ids:
        """Ids of those pairs that are in the grid."""
        row, has_src = _find_sorted(self._src, src)
        column, has_dst = _find_sorted(self._dst, dst)
        return (row * len(self._dst) + column)[has_src & has_dst]

    @cached_property
    def _set(self) -> PairSet:
        assert self._python is not None
        pairs = PairSet(pair_hashes(self._src[:, None], self._dst[None, :], self._python).reshape(-1))
        pairs.add(np.arange(len(self), dtype=np.int32))
        return pairs

    @cached_property
    def _copy_order(self) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """The order of a copy, and each id's position in it. Computed once: batches only remove pairs from it."""
        order = self._set.copy().order()
        position = np.empty_like(order)
        position[order] = np.arange(len(order), dtype=np.int32)
        return order, position


@dataclass(frozen=True)
class _Reordered:
    order: NDArray[np.int32]
    kept: Remaining

    def __len__(self) -> int:
        return len(self.kept)

    def __getitem__(self, position: Ids, /) -> NDArray[np.int32]:
        return self.order[self.kept[position]]


def _find_sorted(sorted_nodes: Ids, nodes: Ids) -> tuple[Ids, NDArray[np.bool_]]:
    """The position of each node among the sorted ones, and whether it is one of them."""
    position = np.searchsorted(sorted_nodes, nodes).clip(max=len(sorted_nodes) - 1)
    return position, sorted_nodes[position] == nodes


def sorted_distinct(values: Ids) -> Ids:
    """Like `np.unique`, several times faster: it sorts instead of hashing."""
    values = np.sort(values)
    return values[np.diff(values, prepend=values[:1] - 1) > 0]


def distinct_nodes(ids: Ids) -> Ids:
    """Sorted distinct node ids; marked in a table, because sorting millions of repeats takes seconds."""
    occurs = np.zeros(int(ids.max()) + 1 if len(ids) else 0, dtype=np.bool_)
    occurs[ids] = True
    return np.flatnonzero(occurs)
