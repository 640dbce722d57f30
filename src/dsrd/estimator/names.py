"""Questions in a user's own words: names to ids, dates to times; names nobody knows are told apart."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dsrd.data import column_arrays
from dsrd.data.growing import GrowingStream
from dsrd.data.parse import Origin
from dsrd.errors import DsrdError
from dsrd.estimator.tables import Given
from dsrd.events import Query, as_tensor

Ids = NDArray[np.int64]


class Names:
    """Ids of the nodes of a question. An unknown name is a new node without a past, the same one throughout."""

    def __init__(self, stream: GrowingStream, strict: bool) -> None:
        self._stream, self._strict = stream, strict
        self._new: dict[str, int] = {}

    def id(self, name: str, *, target: bool = False) -> tuple[int, bool]:
        """(id, whether the stream knows it)"""
        if not name.strip():
            raise DsrdError("a node without a name; name every node that is asked about")
        node = self._stream.find(name, target=target)
        if node is not None:
            return node, True
        if self._strict:
            raise DsrdError(f"unknown node '{name}'{self._hint(name, target)}")
        return self._new.setdefault(name, self._stream.num_nodes + len(self._new)), False

    def note(self) -> list[str]:
        """What to tell a person about names that nobody has seen."""
        if not self._new:
            return []
        first = next(iter(self._new))
        more = f" and {len(self._new) - 1} more" if len(self._new) > 1 else ""
        return [
            f"never seen before: '{first}'{more}{self._hint(first, False)}; scored as new nodes without a past"
        ]

    def _hint(self, name: str, target: bool) -> str:
        near = self._stream.suggestions(name, target=target)
        if near:
            return f"; did you mean {' or '.join(repr(each) for each in near)}?"
        if self._stream.numbered:
            return f"; the nodes of this stream are numbered from 1 to {self._stream.num_nodes - 1}"
        return f"; the stream has {self._stream.num_nodes - 1:,} nodes"


def asked_pairs(given: Given, stream: GrowingStream, names: Names, at: float | None) -> tuple[Query, Any]:
    """The pairs of a table as a query, and whether both ends of each are known.

    Without a time in the table or given, the question is about the moment after the last event.
    """
    table, origin, columns = given.table, given.origin, stream.columns
    for column in (columns.source, columns.target):
        if column not in table.column_names:
            listed = ", ".join(table.column_names)
            raise origin.error(f"there is no column '{column}'; it has {listed}: call it as in the stream")
    if columns.time in table.column_names and len(table):
        if at is not None:
            raise origin.error(f"there is a column '{columns.time}' and a time besides; give one of them")
        time = column_arrays.times(table[columns.time], "time", origin, columns.time_format)
    else:
        time = np.full(len(table), np.nextafter(stream.last_time, np.inf) if at is None else at)
    src, known_src = _ids(table[columns.source], "source", origin, names)
    dst, known_dst = _ids(table[columns.target], "target", origin, names)
    return Query(as_tensor(src), as_tensor(dst), as_tensor(time)), known_src & known_dst


def _ids(column: Any, what: str, origin: Origin, names: Names) -> tuple[Ids, NDArray[np.bool_]]:
    code, distinct = column_arrays.names(column, what, origin)
    found = [names.id(str(name), target=what == "target") for name in distinct]
    ids = np.array([node for node, _ in found], dtype=np.int64)
    known = np.array([there for _, there in found], dtype=np.bool_)
    return ids[code], known[code]


def moment(at: Any, stream: GrowingStream) -> float | None:
    """A time as one writes it (number, text, date), read as the times of the stream are."""
    if at is None:
        return None
    remedy = f"give a number, 0 or later, or a date ({column_arrays.ISO})"
    try:
        column = pa.chunked_array([pa.array([at])])
        return float(column_arrays.times(column, "time", Origin("at"), stream.columns.time_format)[0])
    except (DsrdError, pa.ArrowException, TypeError):
        raise DsrdError(f"time {at}: {remedy}") from None


def as_names(nodes: Any) -> list[str]:
    """One name or many, as text; numbers are names, too."""
    if isinstance(nodes, str | int | np.integer):
        return [str(nodes)]
    if not isinstance(nodes, Iterable):
        raise DsrdError(f"{nodes!r} is no node; give a name or a list of names")
    return [str(node) for node in nodes]
