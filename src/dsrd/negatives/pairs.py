"""Sets of (source, target) pairs to draw from, by position and without listing them."""

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
    """Pair ids in some order, of which some can be picked by position."""

    def __len__(self) -> int: ...
    def __getitem__(self, position: Ids, /) -> NDArray[Any]: ...


@dataclass(frozen=True)
class Remaining:
    """start, start + 1, ..., stop - 1 without the holes (sorted, distinct, inside); nothing is listed.

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

    So the pairs of the first k events always are a range from 0.

    >>> index = PairIndex(Events.from_numpy([1, 2, 1, 2], [5, 5, 5, 6], [0, 1, 2, 3]))
    >>> index.ids.tolist(), len(index), index.distinct.tolist()
    ([0, 1, 0, 2], 3, [0, 1, 2, 2, 3])
    >>> index.find(np.array([2, 6]), np.array([6, 2])).tolist()
    [2, -1]
    """

    def __init__(self, events: Events) -> None:
        encoded = pa.array(_codes(*events.numpy()[:2])).dictionary_encode()
        self._known = encoded.dictionary
        self.ids: Ids = encoded.indices.to_numpy().astype(np.int64)  # [E]
        self.distinct: Ids = np.zeros(len(events) + 1, dtype=np.int64)  # [E + 1] pairs in the first k events
        np.maximum.accumulate(self.ids + 1, out=self.distinct[1:])

    def __len__(self) -> int:
        return len(self._known)

    def pairs(self, ids: NDArray[Any] | slice = slice(None)) -> tuple[Ids, Ids]:
        """Sources and targets of these ids."""
        codes = self._known.to_numpy()[ids]
        return codes >> 32, codes & 0xFFFFFFFF

    def find(self, src: Ids, dst: Ids) -> Ids:
        """The ids of these pairs, -1 for one that never occurs."""
        found = pc.index_in(pa.array(_codes(src, dst)), value_set=self._known)
        return np.asarray(found.fill_null(-1).to_numpy(), dtype=np.int64)


def _codes(src: Ids, dst: Ids) -> Ids:
    """One number per pair; node ids fit in 31 bits, since tables are indexed by them."""
    return src << 32 | dst


class Candidates:
    """Pairs that happened before a batch, but not while it lasts.

    With `observed`, the first so many pairs are left out as well. `python` names the CPython whose order of
    `list(seen - present)` or `list(seen - observed - present)` the result has; None: by first occurrence.
    """

    def __init__(self, index: PairIndex, observed: int | None, python: str | None) -> None:
        self._observed = observed
        self._numbers = np.arange(len(index))
        self._seen = None if python is None else PairSet(pair_hashes(*index.pairs(), python))

    def __call__(self, seen: int, present: Ids) -> Positions:
        """Among the first `seen` pairs (never fewer than in the call before); `present` are sorted ids."""
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
        self._src, self._dst = (distinct_nodes(ids) for ids in events.numpy()[:2])
        self._python = python

    def __len__(self) -> int:
        return len(self._src) * len(self._dst)

    def pairs(self, ids: NDArray[Any]) -> tuple[Ids, Ids]:
        """Sources and targets of these ids."""
        row, column = np.divmod(ids, len(self._dst))
        return self._src[row], self._dst[column]

    def without(self, src: Ids, dst: Ids) -> Positions:
        """All pairs but these, ordered as `list(grid - these)` in the chosen Python, or by id."""
        codes = sorted_distinct(_codes(src, dst))
        removed = self._inside(codes >> 32, codes & 0xFFFFFFFF)
        if self._python is None:
            return Remaining(0, len(self), np.sort(removed))
        if self._set.copied_by_difference(len(codes)):
            order, position = self._copy_order
            return _Reordered(order, Remaining(0, len(self), np.sort(position[removed])))
        table = np.zeros(len(self), dtype=np.bool_)
        table[removed] = True
        return self._set.difference(table, len(codes)).order()

    def _inside(self, src: Ids, dst: Ids) -> Ids:
        """Ids of those pairs that are in the grid at all."""
        row, known_src = _places(self._src, src)
        column, known_dst = _places(self._dst, dst)
        return (row * len(self._dst) + column)[known_src & known_dst]

    @cached_property
    def _set(self) -> PairSet:
        assert self._python is not None
        pairs = PairSet(pair_hashes(self._src[:, None], self._dst[None, :], self._python).reshape(-1))
        pairs.add(np.arange(len(self), dtype=np.int32))
        return pairs

    @cached_property
    def _copy_order(self) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """The order of a copy and each id's position in it: found once, since batches only remove from it."""
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


def _places(nodes: Ids, wanted: Ids) -> tuple[Ids, NDArray[np.bool_]]:
    """Where the wanted ids stand among the sorted nodes, and whether they are there."""
    place = np.searchsorted(nodes, wanted).clip(max=len(nodes) - 1)
    return place, nodes[place] == wanted


def sorted_distinct(values: Ids) -> Ids:
    """`np.unique`, whose hash table is several times slower than sorting."""
    values = np.sort(values)
    return values[np.diff(values, prepend=values[:1] - 1) > 0]


def distinct_nodes(ids: Ids) -> Ids:
    """Sorted distinct node ids; a table by id, since sorting millions of repeats takes seconds."""
    table = np.zeros(int(ids.max()) + 1 if len(ids) else 0, dtype=np.bool_)
    table[ids] = True
    return np.flatnonzero(table)
