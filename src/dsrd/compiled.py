"""Compilation of plain loops: numba behind a decorator that keeps the types."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

import numba

F = TypeVar("F", bound=Callable[..., object])


def compiled(function: F) -> F:
    """Compile a loop over numpy arrays to machine code at its first call; kept on disk between processes."""
    return cast(F, numba.njit(cache=True, nogil=True)(function))


def inlined(function: F) -> F:
    """Like `compiled`, and copied into every function that calls it: faster in inner loops."""
    return cast(F, numba.njit(cache=True, nogil=True, forceinline=True)(function))


def vectorised(function: F) -> F:
    """Like `compiled`, and sums may be reordered: several times faster, equal up to rounding, always the same."""
    return cast(F, numba.njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})(function))
