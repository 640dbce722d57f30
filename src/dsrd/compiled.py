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


def vectorised(function: F) -> F:
    """Like `compiled`, but sums may be reordered: several times faster, equal up to rounding, deterministic."""
    return cast(F, kept(numba.njit(nogil=True, fastmath={"reassoc", "contract"})(function)))


def float_function(function: F) -> F:
    """A function of single floats that leaves the loops it is inlined into vectorisable: x / 0 is no error."""
    options: dict[str, Any] = {"forceinline": True, "_nrt": False, "error_model": "numpy"}
    return cast(F, kept(numba.njit(nogil=True, fastmath={"contract"}, **options)(function)))


def row_function(function: F) -> F:
    """Both `inlined` and `vectorised`: a short loop over rows, whose sums may be reordered; x / 0 is no error."""
    options: dict[str, Any] = {"forceinline": True, "_nrt": False, "error_model": "numpy"}
    return cast(F, kept(numba.njit(nogil=True, fastmath={"reassoc", "contract"}, **options)(function)))
