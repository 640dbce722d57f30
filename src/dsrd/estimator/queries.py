"""Turns the names and dates of a user's question into node ids and times."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dsrd.data import column_arrays
from dsrd.data.growing import Arrival, GrowingStream
from dsrd.data.parse import Origin
from dsrd.errors import DsrdError
from dsrd.estimator.tables import InputTable
from dsrd.events import Query, as_tensor

Ids = NDArray[np.int64]
NEW_IDS = 1 << 24  # ids of unknown names: enough that the two of a pair differ
MOST_COUNTED = 1000  # unknown names that are remembered for the note about them


class NodeIds:
    """Ids of the nodes in a question. An unknown name gets the id of a new node without a history.

    That id is a hash of the name: answers do not depend on the other names in the question, nor on their order.
    """

    def __init__(self, stream: GrowingStream, strict: bool) -> None:
        self._stream, self._strict = stream, strict
        self._unknown: dict[str, None] = {}  # the first ones

    def find(self, name: str, *, target: bool = False) -> tuple[int, bool]:
        """The id of a node, and whether the stream contains it."""
        if not name.strip():
            raise DsrdError("a node without a name; give every node a name")
        if not self._stream.columns.keep_spaces:
            name = name.strip()
        node = self._stream.find(name, target=target)
        if node is not None:
            return node, True
        if self._strict:
            raise DsrdError(f"unknown node '{name}'{self._hint(name, target)}")
        if len(self._unknown) < MOST_COUNTED:
            self._unknown[name] = None
        hashed = int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "big")
        return self._stream.num_nodes + hashed % NEW_IDS, False

    def notes(self) -> list[str]:
        """A note about the unknown names, if there were any."""
        if not self._unknown:
            return []
        first = next(iter(self._unknown))
        counted = (
            f"at least {MOST_COUNTED - 1:,}" if len(self._unknown) == MOST_COUNTED else len(self._unknown) - 1
        )
        more = f" and {counted} more" if len(self._unknown) > 1 else ""
        return [
            f"never seen before: '{first}'{more}{self._hint(first, False)}; scored as new nodes without a past"
        ]

    def _hint(self, name: str, target: bool) -> str:
        similar = self._stream.suggestions(name, target=target)
        if similar:
            return f"; did you mean {' or '.join(repr(each) for each in similar)}?"
        if self._stream.numbered:
            return f"; the nodes of this stream are numbered from 1 to {self._stream.num_nodes - 1}"
        return f"; the stream has {self._stream.num_nodes - 1:,} nodes"


def query_of(
    pairs: InputTable, stream: GrowingStream, nodes: NodeIds, at: float | None
) -> tuple[Query, NDArray[np.bool_]]:
    """The pairs of a table as a query, and whether the stream contains both ends of each.

    If neither the table nor `at` has a time, it is the first time after the last event.
    """
    table, origin, columns = pairs.table, pairs.origin, stream.columns
    for column in (columns.source, columns.target):
        if column not in table.column_names:
            listed = ", ".join(table.column_names)
            raise origin.error(f"there is no column '{column}'; it has {listed}: call it as in the stream")
    if columns.time in table.column_names and len(table):
        if at is not None:
            raise origin.error(f"there is a column '{columns.time}', and a time was passed too; give one of them")
        time = column_arrays.times(table[columns.time], "time", origin, columns.time_format)
    else:
        time = np.full(len(table), np.nextafter(stream.last_time, np.inf) if at is None else at)
    kept = columns.keep_spaces
    src, known_src = _ids(table[columns.source], "source", origin, nodes, kept)
    dst, known_dst = _ids(table[columns.target], "target", origin, nodes, kept)
    return Query(as_tensor(src), as_tensor(dst), as_tensor(time)), known_src & known_dst


def _ids(
    column: Any, role: str, origin: Origin, nodes: NodeIds, keep_spaces: bool
) -> tuple[Ids, NDArray[np.bool_]]:
    code, distinct = column_arrays.names(column, role, origin, keep_spaces=keep_spaces)
    entries = [nodes.find(str(name), target=role == "target") for name in distinct]
    ids = np.array([node for node, _ in entries], dtype=np.int64)
    known = np.array([is_known for _, is_known in entries], dtype=np.bool_)
    return ids[code], known[code]


def time_of(at: Any, stream: GrowingStream) -> float | None:
    """A number, text or date, read as the times of the stream are; None stays None."""
    if at is None:
        return None
    remedy = f"give a number, 0 or later, or a date ({column_arrays.ISO})"
    try:
        column = pa.chunked_array([pa.array([at])])
        return float(column_arrays.times(column, "time", Origin("at"), stream.columns.time_format)[0])
    except (DsrdError, pa.ArrowException, TypeError):
        raise DsrdError(f"time {at}: {remedy}") from None


def as_names(nodes: Any) -> list[str]:
    """One name or many, as text; numbers are names too."""
    if isinstance(nodes, str | int | np.integer):
        return [str(nodes)]
    if not isinstance(nodes, Iterable):
        raise DsrdError(f"{nodes!r} is no node; give a name or a list of names")
    return [str(node) for node in nodes]


def upcoming(events: InputTable, stream: GrowingStream) -> Arrival:
    """The events of a table, all of which must follow the stream."""
    arrival = stream.arrival(events.table, events.origin)
    if arrival.skipped:
        skipped = f"the first {arrival.skipped:,} events are known already"
        raise events.origin.error(f"{skipped}; give those that follow")
    return arrival
