"""Python pairs that a real `set` orders as the named CPython version did."""

from __future__ import annotations

LOWER_64_BITS = 2**64 - 1


class Py37Pair(tuple):
    """A pair with the hash that tuples had up to CPython 3.7."""

    __slots__ = ()

    def __hash__(self) -> int:
        x = ((0x345678 ^ self[0]) * 1000003) & LOWER_64_BITS
        x = ((x ^ self[1]) * 1082525) & LOWER_64_BITS
        x = (x + 97531) & LOWER_64_BITS
        if x == LOWER_64_BITS:
            return -2
        return x - 2**64 if x >> 63 else x


PAIR = {"py37": Py37Pair, "py38": tuple}


def pairs(src, dst, python: str) -> list[tuple[int, int]]:
    """The pairs of two arrays, as objects with the hash of that Python version."""
    return [PAIR[python](pair) for pair in zip(src.tolist(), dst.tolist(), strict=True)]
