"""Decorators that compile loops with numba and keep the types of the functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

from dsrd.compiled_cache import kept

F = TypeVar("F", bound=Callable[..., object])


def compiled(function: F) -> F:
    """Compile a function over numpy arrays at its first call; the machine code is cached on disk."""
    return cast(F, kept(numba.njit(nogil=True)(function)))


def inlined(function: F) -> F:
    """Like `compiled`, for inner loops of compiled functions: copied into its callers, without reference counts.

    Such a function neither makes an array nor returns one, nor assigns a slice to a slice. Otherwise every array
    that is sliced or taken out of a tuple is counted by an atomic increment, and passing a tuple of many arrays
    means copying it: in a short loop both cost more than the arithmetic.
    """
    options: dict[str, Any] = {"forceinline": True, "_nrt": False}
    return cast(F, kept(numba.njit(nogil=True, **options)(function)))


def inlined_sums(function: F) -> F:
    """Like `inlined`, and sums may be reordered as in `vectorised`."""
    options: dict[str, Any] = {"forceinline": True, "_nrt": False, "fastmath": {"reassoc", "contract"}}
    return cast(F, kept(numba.njit(nogil=True, **options)(function)))


def vectorised(function: F) -> F:
    """Like `compiled`, but sums may be reordered: several times faster, equal up to rounding, deterministic."""
    return cast(F, kept(numba.njit(nogil=True, fastmath={"reassoc", "contract"})(function)))
