"""Asking for memory before it is needed: a table of pairs is read at random, and each look-up waits for memory.

Asking changes nothing that is computed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from llvmlite import ir
from numba.core import cgutils, types

from dsrd.compiled import inlined
from dsrd.history.index import Ints
from dsrd.history.pair_table import first_slot, packed
from dsrd.models.dsrd.lanes import emitted

if TYPE_CHECKING:
    from dsrd.models.dsrd.walk_state import Arrivals, NodeRows, PairRows, WalkState

LINE = 64  # bytes that come together
BYTE, WHOLE = ir.IntType(8), ir.IntType(32)


@emitted  # type: ignore[misc, untyped-decorator]
def ask(_: Any, array: Any, row: Any, offset: Any) -> tuple[Any, Callable[..., Any]]:
    """Begin to fetch a row of an array, so many bytes from its start."""

    def written(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        struct = context.make_array(signature.args[0])(context, builder, given[0])
        number, bytes_after = (
            context.cast(builder, value, kind, types.intp)
            for value, kind in zip(given[1:], signature.args[1:], strict=True)
        )
        stride = cgutils.unpack_tuple(builder, struct.strides, signature.args[0].ndim)[0]
        start = builder.bitcast(struct.data, BYTE.as_pointer())
        place = builder.gep(start, [builder.add(builder.mul(number, stride), bytes_after)])
        values = [place, *(ir.Constant(WHOLE, flag) for flag in (0, 3, 1))]  # to read, to keep, data
        kind = ir.FunctionType(ir.VoidType(), [value.type for value in values])
        builder.call(cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0"), values)
        return context.get_dummy_value()

    return types.none(array, row, offset), written


@inlined
def ask_row(array: Any, row: int) -> None:
    """All of a row."""
    for offset in range(0, array.strides[0], LINE):
        ask(array, row, offset)


@inlined
def ask_pair(key: Ints, src: int, dst: int) -> None:
    """Where a pair is looked for first."""
    ask(key, first_slot(key, packed(src, dst)), 0)


@inlined
def ask_node(nodes: NodeRows, row: int) -> None:
    """All that is kept of a node."""
    ask(nodes.last, row, 0)
    ask_row(nodes.step1, row)
    ask_row(nodes.step2, row)
    ask_row(nodes.acts, row)


@inlined
def ask_partner(pairs: PairRows, follows: PairRows, node: int, other: int) -> None:
    """What a query looks up about a partner of one endpoint and the other endpoint."""
    ask_pair(pairs.key, node, other)
    ask_pair(pairs.key, other, node)
    ask_pair(follows.key, node, other)


@inlined
def ask_event(state: WalkState, events: Arrivals, e: int) -> None:
    """What an event changes, if there is such an event: rows of its nodes, meetings of the pair."""
    if e < len(events.src):
        ask_node(state.nodes, events.src_row[e])
        ask_node(state.nodes, events.dst_row[e])
        ask_pair(state.pairs.key, events.src[e], events.dst[e])
        ask_pair(state.pairs.key, events.dst[e], events.src[e])
        ask(state.nodes.previous, events.src_row[e], 0)
        ask(state.nodes.previous, events.dst_row[e], 0)
