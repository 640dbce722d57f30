"""Decorators that compile loops with numba and keep the types of the functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

import numba

F = TypeVar("F", bound=Callable[..., object])


def compiled(function: F) -> F:
    """Compile a function over numpy arrays at its first call; the machine code is cached on disk."""
    return cast(F, numba.njit(cache=True, nogil=True)(function))


def inlined(function: F) -> F:
    """Like `compiled`, and inlined in every compiled function that calls it: faster in inner loops."""
    return cast(F, numba.njit(cache=True, nogil=True, forceinline=True)(function))


def vectorised(function: F) -> F:
    """Like `compiled`, but sums may be reordered: several times faster, equal up to rounding, deterministic."""
    return cast(F, numba.njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})(function))
