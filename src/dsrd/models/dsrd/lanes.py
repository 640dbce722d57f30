"""Sixteen float32 side by side, as one value of compiled code: one register where the processor has wide ones.

Loops over rows of 32 numbers are too short for the compiler's own vectors: it loads and stores every sum in every
step, because it cannot know that arrays do not overlap. A sum of this type stays in a register. `count` says how
many numbers of the last lanes exist; the others are read as 0 and not written.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic, models, register_model

from dsrd.compiled import inlined

emitted: Any = intrinsic  # numba gives the first argument of these functions itself
LANES = 16
FLOAT, WHOLE, BIT = ir.FloatType(), ir.IntType(32), ir.IntType(1)
VECTOR = ir.VectorType(FLOAT, LANES)
MASK = ir.VectorType(BIT, LANES)


def whole(width: int) -> int:
    """The smallest multiple of `LANES` that is at least a width."""
    return -(-width // LANES) * LANES


class LanesType(types.Type):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__(name="Lanes")


lanes = LanesType()


@register_model(LanesType)
class _Model(models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: Any, of: Any) -> None:
        super().__init__(manager, of, VECTOR)


def _place(context: Any, builder: Any, array_type: Any, array: Any, index_type: Any, index: Any) -> Any:
    """The address of an element."""
    places = cgutils.unpack_tuple(builder, index, len(index_type))
    places = [context.cast(builder, place, own, types.intp) for place, own in zip(places, index_type, strict=True)]
    struct = context.make_array(array_type)(context, builder, array)
    return cgutils.get_item_pointer(context, builder, array_type, struct, places, wraparound=False)


def _splat(builder: Any, value: Any, kind: Any) -> Any:
    one = builder.insert_element(ir.Constant(kind, ir.Undefined), value, ir.Constant(WHOLE, 0))
    zeros = ir.Constant(ir.VectorType(WHOLE, LANES), [0] * LANES)
    return builder.shuffle_vector(one, ir.Constant(kind, ir.Undefined), zeros)


def _mask(builder: Any, count: Any) -> Any:
    """Which of the lanes exist."""
    kind = ir.VectorType(WHOLE, LANES)
    wanted = _splat(builder, builder.trunc(count, WHOLE), kind)
    return builder.icmp_signed("<", ir.Constant(kind, list(range(LANES))), wanted)


def _called(builder: Any, name: str, result: Any, *values: Any, **flags: Any) -> Any:
    """What LLVM's function of that name gives for these values."""
    kind = ir.FunctionType(result, [value.type for value in values])
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), values, **flags)


@emitted  # type: ignore[misc, untyped-decorator]
def load(_: Any, array: Any, index: Any, count: Any) -> tuple[Any, Callable[..., Any]]:
    """Up to `LANES` numbers of an array from an index on, `count` of which exist."""

    def written(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        place = _place(context, builder, signature.args[0], given[0], signature.args[1], given[1])
        wanted = context.cast(builder, given[2], signature.args[2], types.int64)
        pointer, zeros = builder.bitcast(place, VECTOR.as_pointer()), ir.Constant(VECTOR, [0.0] * LANES)
        values = (pointer, ir.Constant(WHOLE, 4), _mask(builder, wanted), zeros)
        return _called(builder, "llvm.masked.load.v16f32.p0", VECTOR, *values)

    return lanes(array, index, count), written


@emitted  # type: ignore[misc, untyped-decorator]
def store(_: Any, array: Any, index: Any, value: Any, count: Any) -> tuple[Any, Callable[..., Any]]:
    """Write lanes to an array from an index on, `count` of them."""

    def written(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        place = _place(context, builder, signature.args[0], given[0], signature.args[1], given[1])
        wanted = context.cast(builder, given[3], signature.args[3], types.int64)
        pointer = builder.bitcast(place, VECTOR.as_pointer())
        values = (given[2], pointer, ir.Constant(WHOLE, 4), _mask(builder, wanted))
        _called(builder, "llvm.masked.store.v16f32.p0", ir.VoidType(), *values)
        return context.get_dummy_value()

    return types.none(array, index, value, count), written


@emitted  # type: ignore[misc, untyped-decorator]
def element(_: Any, array: Any, index: Any) -> tuple[Any, Callable[..., Any]]:
    """One number of an array in every lane; the index is not negative."""

    def written(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        place = _place(context, builder, signature.args[0], given[0], signature.args[1], given[1])
        return _splat(builder, builder.load(place), VECTOR)

    return lanes(array, index), written


@emitted  # type: ignore[misc, untyped-decorator]
def filled(_: Any, value: Any) -> tuple[Any, Callable[..., Any]]:
    """A number in every lane."""

    def written(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        return _splat(builder, context.cast(builder, given[0], signature.args[0], types.float32), VECTOR)

    return lanes(value), written


@emitted  # type: ignore[misc, untyped-decorator]
def plus(_: Any, sums: Any, one: Any, two: Any) -> tuple[Any, Callable[..., Any]]:
    """sums + one * two, rounded once where the processor can."""

    def written(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        return _called(builder, "llvm.fmuladd.v16f32", VECTOR, given[1], given[2], given[0])

    return lanes(sums, one, two), written


@emitted  # type: ignore[misc, untyped-decorator]
def times(_: Any, one: Any, two: Any) -> tuple[Any, Callable[..., Any]]:
    def written(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        return builder.fmul(given[0], given[1])

    return lanes(one, two), written


@emitted  # type: ignore[misc, untyped-decorator]
def added(_: Any, one: Any, two: Any) -> tuple[Any, Callable[..., Any]]:
    def written(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        return builder.fadd(given[0], given[1])

    return lanes(one, two), written


@emitted  # type: ignore[misc, untyped-decorator]
def total(_: Any, value: Any) -> tuple[Any, Callable[..., Any]]:
    """The sum of all lanes."""

    def written(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        zero = ir.Constant(FLOAT, -0.0)
        return _called(builder, "llvm.vector.reduce.fadd.v16f32", FLOAT, zero, given[0], fastmath=("reassoc",))

    return types.float32(value), written


@inlined
def dot(a: Any, at_a: Any, b: Any, at_b: Any, width: int) -> np.float32:
    """The product of two rows; `at_a` and `at_b` are their indices without the last one."""
    sums = filled(0.0)
    for i in range(0, width, LANES):
        sums = plus(sums, load(a, (*at_a, i), width - i), load(b, (*at_b, i), width - i))
    return np.float32(total(sums))


@emitted  # type: ignore[misc, untyped-decorator]
def totals(_: Any, a: Any, b: Any, c: Any, d: Any) -> tuple[Any, Callable[..., Any]]:
    """The sums of all lanes of four, together in half the steps of four times `total`."""
    quarters = range(0, LANES, 4)
    low = [place for q in quarters for place in (q, q + LANES, q + 1, q + LANES + 1)]
    high = [place + 2 for place in low]
    first = [place for q in quarters for place in (q, q + 1, q + LANES, q + LANES + 1)]
    second = [place + 2 for place in first]

    def folded(builder: Any, one: Any, two: Any, places: list[int], others: list[int]) -> Any:
        kind = ir.VectorType(WHOLE, len(places))
        parts = (builder.shuffle_vector(one, two, ir.Constant(kind, each)) for each in (places, others))
        return builder.fadd(*parts)

    def written(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        pairs = (folded(builder, one, two, low, high) for one, two in (given[:2], given[2:]))
        sums = folded(builder, next(pairs), next(pairs), first, second)  # in each quarter: a, b, c, d
        for half in (LANES // 2, LANES // 4):
            sums = folded(builder, sums, sums, list(range(half)), list(range(half, 2 * half)))
        parts = [builder.extract_element(sums, ir.Constant(WHOLE, place)) for place in range(4)]
        return context.make_tuple(builder, signature.return_type, parts)

    return types.UniTuple(types.float32, 4)(a, b, c, d), written


@inlined
def four(h: int, heads: int) -> tuple[int, int, int, int]:
    """Four heads from one on, which are computed together; the last one again where there are fewer."""
    last = heads - 1
    return h, min(h + 1, last), min(h + 2, last), min(h + 3, last)


@inlined
def dots(
    heads: Any, b: int, of: tuple[int, int, int, int], row: Any, at: int, width: int
) -> tuple[Any, Any, Any, Any]:
    """The products of four heads' rows of a window with another row.  # [B, H, width], ..., [T, width]"""
    zero = filled(0.0)
    s0, s1, s2, s3 = zero, zero, zero, zero
    for i in range(0, width, LANES):
        x = load(row, (at, i), width - i)
        s0 = plus(s0, load(heads, (b, of[0], i), width - i), x)
        s1 = plus(s1, load(heads, (b, of[1], i), width - i), x)
        s2 = plus(s2, load(heads, (b, of[2], i), width - i), x)
        s3 = plus(s3, load(heads, (b, of[3], i), width - i), x)
    sums: tuple[Any, Any, Any, Any] = totals(s0, s1, s2, s3)
    return sums
