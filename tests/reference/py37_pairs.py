"""Real Python pairs that real sets order as each CPython did."""

from __future__ import annotations

MODULO_2_64 = 2**64 - 1


class Py37Pair(tuple):
    """A pair with the hash tuples had up to CPython 3.7."""

    __slots__ = ()

    def __hash__(self) -> int:
        x = ((0x345678 ^ self[0]) * 1000003) & MODULO_2_64
        x = ((x ^ self[1]) * 1082525) & MODULO_2_64
        x = (x + 97531) & MODULO_2_64
        if x == MODULO_2_64:
            return -2
        return x - 2**64 if x >> 63 else x


PAIR = {"py37": Py37Pair, "py38": tuple}


def pairs(src, dst, python: str) -> list[tuple[int, int]]:
    """The pairs of two arrays, as objects hashed as in that Python."""
    return [PAIR[python](pair) for pair in zip(src.tolist(), dst.tolist(), strict=True)]
