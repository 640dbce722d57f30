"""The iteration order of a Python set of pairs, without building the pairs.

Published historical and inductive negatives were drawn by position from `list(set)`, so to repeat them we need the
order that CPython gives. That order is fixed by the hashes, the order of insertion and the rules of CPython's hash
table (`Objects/setobject.c`, the same from 3.7 to 3.13). This file follows these rules on plain arrays. A pair is
given by an integer id from 0 and by its hash.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dsrd.compiled import compiled
from dsrd.errors import DsrdError, unknown

EMPTY = -1
"""A slot never used: a search ends here."""
DUMMY = -2
"""A slot whose element was discarded; not copied when the elements move to another table."""

SMALLEST_TABLE = 8
NEIGHBOUR_PROBES = 9
"""After a collision these many slots right behind are tried first, unless the table ends before."""
PERTURB_SHIFT = np.uint64(5)
"""Then the search jumps; each jump takes in five more of the high bits of the hash."""
LARGE_SET = 50_000
"""Up to this size a full table grows to more than four times its elements, above it to more than two times."""

ALL_ONES = np.uint64(2**64 - 1)  # -1 as a hash: CPython keeps it to report errors
MOST_PAIRS = 2**31 - 1  # ids are kept in 32 bits, which halves the tables

Ids = NDArray[np.int32]


class PairSet:
    """The order of a Python `set` of pairs.

    >>> src, dst = np.array([3, 1, 2]), np.array([4, 9, 7])
    >>> pairs = PairSet(pair_hashes(src, dst, "py38"))
    >>> pairs.add(np.array([0, 1, 2, 1]))
    >>> pairs.order().tolist(), list(set([(3, 4), (1, 9), (2, 7), (1, 9)]))
    ([1, 0, 2], [(1, 9), (3, 4), (2, 7)])
    >>> removed = np.array([False, True, False])
    >>> pairs.difference(removed, size=1).order().tolist(), list(set([(3, 4), (1, 9), (2, 7)]) - {(1, 9)})
    ([0, 2], [(3, 4), (2, 7)])
    """

    def __init__(self, hashes: NDArray[np.uint64]) -> None:
        """An empty set; `hashes[i]` is the hash of the pair with id i, also for pairs added later."""
        if len(hashes) > MOST_PAIRS:
            raise DsrdError(f"{len(hashes)} pairs are too many to order as Python does; choose order='fast'")
        self._hashes = hashes
        self._table = np.full(SMALLEST_TABLE, EMPTY, dtype=np.int32)
        self._used = 0  # elements
        self._dummies = 0

    def __len__(self) -> int:
        return self._used

    def add(self, ids: NDArray[np.int32] | NDArray[np.int64]) -> None:
        """`set.add` of one id after the other. Not after `difference`: reuse of freed slots is not implemented."""
        if self._dummies:
            raise ValueError("a set that lost elements cannot grow")
        ids = ids.astype(np.int32, copy=False)
        self._table, self._used = _add(self._table, self._used, self._hashes, ids)

    def order(self) -> Ids:
        """The ids as `list(set)` lists them."""
        return self._table[self._table >= 0]

    def copy(self) -> PairSet:
        """`set.copy`, which may change the order."""
        copy = PairSet(self._hashes)
        copy._table = _copied(self._table, self._used, self._dummies, self._hashes)
        copy._used = self._used
        return copy

    def copied_by_difference(self, size: int) -> bool:
        """Whether CPython computes `self - other`, for an `other` of this size, on a copy of `self`.

        Otherwise it adds the remaining elements to a new set one by one, which gives another order.
        """
        return self._used // 4 > size

    def difference(self, removed: NDArray[np.bool_], size: int) -> PairSet:
        """`self - other`: `removed[i]` says whether pair i is in the other set, `size` is that set's length."""
        if self.copied_by_difference(size):
            # CPython shrinks a table with too many dummies, but a quarter of the elements is too few for that.
            rest = self.copy()
            rest._dummies = _discard(rest._table, removed)
            rest._used -= rest._dummies
            return rest
        rest = PairSet(self._hashes)
        order = self.order()
        rest.add(order[~removed[order]])
        return rest


def pair_hashes(src: NDArray[np.int64], dst: NDArray[np.int64], python: str) -> NDArray[np.uint64]:
    """`hash((src, dst))`, read as unsigned, of CPython up to 3.7 ("py37") or from 3.8 on ("py38").

    The arguments broadcast. Ids must be non-negative: then the hash of an int is the int.

    >>> pair_hashes(np.array([1]), np.array([2]), "py38").astype(np.int64).item() == hash((1, 2))
    True
    """
    rules = {"py37": _hashes_py37, "py38": _hashes_py38}
    if python not in rules:
        raise unknown("order of a Python set", python, rules)
    return rules[python](src.astype(np.uint64), dst.astype(np.uint64))


def _hashes_py37(src: NDArray[np.uint64], dst: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """For each item: xor it in, multiply by a constant that differs by item; modulo 2^64."""
    hashes: NDArray[np.uint64] = (src ^ np.uint64(0x345678)) * np.uint64(1000003) ^ dst
    hashes *= np.uint64(1082525)
    hashes += np.uint64(97531)
    hashes[hashes == ALL_ONES] = ALL_ONES - np.uint64(1)
    return hashes


def _hashes_py38(src: NDArray[np.uint64], dst: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """xxHash's round for each item, without its final mixing; modulo 2^64."""
    prime_1, prime_2 = np.uint64(11400714785074694791), np.uint64(14029467366897019727)
    prime_5 = np.uint64(2870177450012600261)

    def rotate_and_multiply(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
        return (words << np.uint64(31) | words >> np.uint64(33)) * prime_1

    hashes = rotate_and_multiply(rotate_and_multiply(prime_5 + src * prime_2) + dst * prime_2)
    hashes += np.uint64(2) ^ prime_5 ^ np.uint64(3527539)  # 2: the length of the tuple
    hashes[hashes == ALL_ONES] = np.uint64(1546275796)
    return hashes


@compiled
def _free_slot(table: Ids, pair_hash: np.uint64, pair: int) -> np.int64:
    """Where `pair` goes: the first empty slot of its probe sequence, or -1 if the pair is already in the table."""
    mask = np.uint64(len(table) - 1)
    perturb = pair_hash
    start = pair_hash & mask
    while True:
        probes = 1 + NEIGHBOUR_PROBES if start + np.uint64(NEIGHBOUR_PROBES) <= mask else 1
        for slot in range(start, start + np.uint64(probes)):
            if table[slot] == EMPTY:
                return np.int64(slot)
            if table[slot] == pair:
                return np.int64(-1)
        perturb >>= PERTURB_SHIFT
        start = (start * np.uint64(5) + np.uint64(1) + perturb) & mask


@compiled
def _table_above(count: int) -> Ids:
    """An empty table of the smallest size CPython takes for `count`: a power of two above it."""
    size = SMALLEST_TABLE
    while size <= count:
        size *= 2
    return np.full(size, EMPTY, dtype=np.int32)


@compiled
def _reinsert(source: Ids, target: Ids, hashes: NDArray[np.uint64]) -> Ids:
    """Fill an empty table with the elements of another, in their order there, without dummies."""
    for pair in source:
        if pair >= 0:
            target[_free_slot(target, hashes[pair], pair)] = pair
    return target


@compiled
def _crowded(used: int, slots: int) -> bool:
    """Whether the table is three fifths full and must grow."""
    return used * 5 >= (slots - 1) * 3


@compiled
def _add(table: Ids, used: int, hashes: NDArray[np.uint64], pairs: Ids) -> tuple[Ids, int]:
    for pair in pairs:
        slot = _free_slot(table, hashes[pair], pair)
        if slot < 0:
            continue
        table[slot] = pair
        used += 1
        if _crowded(used, len(table)):
            table = _reinsert(table, _table_above(used * 2 if used > LARGE_SET else used * 4), hashes)
    return table, used


@compiled
def _copied(table: Ids, used: int, dummies: int, hashes: NDArray[np.uint64]) -> Ids:
    """The table of a copy, sized for its elements; if that is the same size, slots stay as they are."""
    copy = _table_above(used * 2 if _crowded(used, SMALLEST_TABLE) else 0)
    if len(copy) == len(table) and dummies == 0:
        return table.copy()
    return _reinsert(table, copy, hashes)


@compiled
def _discard(table: Ids, removed: NDArray[np.bool_]) -> int:
    """Turn the removed elements into dummies and count them."""
    count = 0
    for slot in range(len(table)):
        if table[slot] >= 0 and removed[table[slot]]:
            table[slot] = DUMMY
            count += 1
    return count
