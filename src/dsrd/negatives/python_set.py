"""The iteration order of a Python set of pairs, without building the pairs.

Published historical and inductive negatives were drawn by position from `list(set)`, so repeating them needs
the very order CPython gives. That order is fixed: it follows from the hashes, the order of insertion and
the rules of CPython's hash table (`Objects/setobject.c`, the same from 3.7 to 3.13), which this file mirrors
on plain arrays. Pairs are known here by an integer id from 0, and by their hash.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dsrd.compiled import compiled
from dsrd.errors import DsrdError, unknown

EMPTY = -1
"""A slot never used: a search ends here."""
DUMMY = -2
"""A slot whose element was discarded; it stays behind when the elements move to another table."""

SMALLEST_TABLE = 8
NEIGHBOUR_PROBES = 9
"""After a collision the slots right behind are tried first, unless the table ends before."""
PERTURB_SHIFT = np.uint64(5)
"""Then a jump, into which the high bits of the hash are fed five at a time."""
LARGE_SET = 50_000
"""Up to here a full table grows to above four times its elements, later to above two times."""

ALL_ONES = np.uint64(2**64 - 1)  # -1 as a hash: CPython keeps it to report errors
MOST_PAIRS = 2**31 - 1  # ids are kept in 32 bits, which halves the tables

Ids = NDArray[np.int32]


class PairSet:
    """A Python `set` of pairs, as far as its order goes.

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
            raise DsrdError(f"{len(hashes)} pairs are too many to be ordered as Python does; choose order='fast'")
        self._hashes = hashes
        self._table = np.full(SMALLEST_TABLE, EMPTY, dtype=np.int32)
        self._used = 0  # elements
        self._dummies = 0

    def __len__(self) -> int:
        return self._used

    def add(self, ids: NDArray[np.int32] | NDArray[np.int64]) -> None:
        """`set.add`, one id after the other; not after `difference`: reuse of freed slots is not mirrored."""
        if self._dummies:
            raise ValueError("a set that lost elements cannot grow")
        ids = ids.astype(np.int32, copy=False)
        self._table, self._used = _add(self._table, self._used, self._hashes, ids)

    def order(self) -> Ids:
        """The ids as `list(set)` lists them."""
        return self._table[self._table >= 0]

    def copy(self) -> PairSet:
        """`set.copy`: may put the elements in another order."""
        copy = PairSet(self._hashes)
        copy._table = _copied(self._table, self._used, self._dummies, self._hashes)
        copy._used = self._used
        return copy

    def copied_by_difference(self, size: int) -> bool:
        """Whether `self - other`, with an other of this size, is a copy of self that loses the common elements.

        Otherwise the remaining elements are added to a new set one by one, which gives another order.
        """
        return self._used // 4 > size

    def difference(self, removed: NDArray[np.bool_], size: int) -> PairSet:
        """`self - other`: `removed[i]` says whether pair i is in the other set, `size` is that set's length."""
        if self.copied_by_difference(size):
            # CPython would shrink a table with too many dummies; a quarter of the elements is too few for that.
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
    """Xor an item in, multiply by a number that changes from item to item; modulo 2^64."""
    hashes: NDArray[np.uint64] = (src ^ np.uint64(0x345678)) * np.uint64(1000003) ^ dst
    hashes *= np.uint64(1082525)
    hashes += np.uint64(97531)
    hashes[hashes == ALL_ONES] = ALL_ONES - np.uint64(1)
    return hashes


def _hashes_py38(src: NDArray[np.uint64], dst: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """xxHash's round for each item, without its final mixing; modulo 2^64."""
    prime_1, prime_2 = np.uint64(11400714785074694791), np.uint64(14029467366897019727)
    prime_5 = np.uint64(2870177450012600261)

    def mixed(state: NDArray[np.uint64]) -> NDArray[np.uint64]:
        return (state << np.uint64(31) | state >> np.uint64(33)) * prime_1

    hashes = mixed(mixed(prime_5 + src * prime_2) + dst * prime_2)
    hashes += np.uint64(2) ^ prime_5 ^ np.uint64(3527539)  # 2: the length of the tuple
    hashes[hashes == ALL_ONES] = np.uint64(1546275796)
    return hashes


@compiled
def _free_slot(table: Ids, hashed: np.uint64, pair: int) -> np.int64:
    """Where `pair` belongs: the first empty slot of its probe sequence, or -1 if the pair comes before."""
    mask = np.uint64(len(table) - 1)
    perturb = hashed
    start = hashed & mask
    while True:
        tried = 1 + NEIGHBOUR_PROBES if start + np.uint64(NEIGHBOUR_PROBES) <= mask else 1
        for slot in range(start, start + np.uint64(tried)):
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
    """Fill an empty table with the elements of another, in that one's order; dummies stay behind."""
    for pair in source:
        if pair >= 0:
            target[_free_slot(target, hashes[pair], pair)] = pair
    return target


@compiled
def _crowded(used: int, slots: int) -> bool:
    """Three fifths full: time for a larger table."""
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
    """The table of a copy: sized for its elements, and taken over as it is if that gives the same size."""
    copy = _table_above(used * 2 if _crowded(used, SMALLEST_TABLE) else 0)
    if len(copy) == len(table) and dummies == 0:
        return table.copy()
    return _reinsert(table, copy, hashes)


@compiled
def _discard(table: Ids, removed: NDArray[np.bool_]) -> int:
    """Turn the removed elements into dummies; how many there were."""
    count = 0
    for slot in range(len(table)):
        if table[slot] >= 0 and removed[table[slot]]:
            table[slot] = DUMMY
            count += 1
    return count
