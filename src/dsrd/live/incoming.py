"""`Incoming`: events as they arrive, by name and checked, not yet accepted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dsrd.data import column_arrays
from dsrd.data.dataset import Dataset
from dsrd.data.parse import Origin
from dsrd.errors import DsrdError
from dsrd.events import LATEST

Floats = NDArray[np.float64]

FIELDS = ("source", "target", "time", "id", "features")
FIELDS_SET = frozenset(FIELDS)
LONGEST_NAME = 1_000  # characters


@dataclass(frozen=True)
class Position:
    """Where a source stands after each of some events: numbers that grow, such as offsets."""

    source: str
    after: tuple[int, ...]  # one per event


@dataclass(frozen=True)
class Incoming:
    """Events of one request, in the order in which they came."""

    source: list[str]
    target: list[str]
    time: Floats  # [E]
    id: list[str | None]
    x: NDArray[np.float32]  # [E, edge_dim]
    position: Position | None = None

    def __len__(self) -> int:
        return len(self.source)


class EventReader:
    """Checks events and reads their times and features as the stream of a run writes them.

    >>> data = Dataset.from_arrays("tiny", [1, 2], [2, 3], [0.0, 1.0])
    >>> reader = EventReader(data)
    >>> reader.records([{"source": 1, "target": "3", "time": 2.5}]).time.tolist()
    [2.5]
    >>> reader.records([{"source": 1, "time": 2.5}])
    Traceback (most recent call last):
    ...
    dsrd.live.incoming.EventError: event 1: has no target; give source, target and time
    """

    def __init__(self, dataset: Dataset) -> None:
        self._features, self._dates = dataset.features, dataset.dates
        self._format = dataset.columns.time_format

    def records(self, records: Sequence[Mapping[str, Any]], position: Position | None = None) -> Incoming:
        """Events given as mappings with `source`, `target`, `time` and perhaps `id` and `features`."""
        source, target, time, event_id, features = ([record.get(field) for record in records] for field in FIELDS)
        known = FIELDS_SET.issuperset
        if None in source or None in target or None in time or not all(map(known, records)):
            raise _field_fault(records)
        return Incoming(
            source=_node_names(source),
            target=_node_names(target),
            time=self.times(time),
            id=[None if each is None else _event_id(each, row) for row, each in enumerate(event_id)],
            x=self._matrix(features),
            position=position,
        )

    def times(self, values: Sequence[Any]) -> Floats:
        """Numbers as they are, dates as seconds since 1970; all must be written in the same way."""
        if all(type(value) in (int, float) for value in values):
            return _checked(values)
        for row, value in enumerate(values):
            if not isinstance(value, str):
                raise _fault(row, f"time is {value!r:.60}; give numbers or dates ({column_arrays.ISO}), not both")
        time, dates = column_arrays.dated_times(
            pa.chunked_array([pa.array(values, pa.string())]), "time", _Events(), self._format
        )
        if dates and not self._dates:
            raise _fault(0, f"time is the date {values[0]}; the times of this stream are numbers")
        return time

    def _matrix(self, given: Sequence[Any]) -> NDArray[np.float32]:
        """Features by name or in the order of the stream; zeros for events that come without."""
        matrix = np.zeros((len(given), len(self._features)), np.float32)
        if given.count(None) == len(given):
            return matrix
        for row, features in enumerate(given):
            if features is None:
                continue
            if isinstance(features, Mapping):
                features = self._in_order(features, row)
            if not isinstance(features, Sequence) or isinstance(features, str):
                raise _fault(row, "features are neither a list of numbers nor an object of names and numbers")
            if len(features) != len(self._features):
                raise _fault(row, f"has {len(features)} features; this stream has {len(self._features)}")
            if not all(type(value) in (int, float) for value in features):
                raise _fault(row, "has a feature that is not a number")
            with np.errstate(over="ignore"):
                matrix[row] = np.array(features, np.float64)
        finite = np.isfinite(matrix).all(axis=1) if matrix.shape[1] else np.ones(len(given), np.bool_)
        if not finite.all():
            raise _fault(int(finite.argmin()), "has a feature that is not a finite number")
        return matrix

    def _in_order(self, features: Mapping[str, Any], row: int) -> list[Any]:
        if set(features) != set(self._features):
            raise _fault(
                row, f"features are {sorted(features)}; this stream has {', '.join(self._features) or 'none'}"
            )
        return [features[name] for name in self._features]


def _field_fault(records: Sequence[Mapping[str, Any]]) -> EventError:
    """Which event lacks a field, or has one too many."""
    for row, record in enumerate(records):
        for field in FIELDS[:3]:
            if record.get(field) is None:
                return _fault(row, f"has no {field}; give source, target and time")
        other = next((field for field in record if field not in FIELDS), None)
        if other is not None:
            return _fault(row, f"has a field '{other}'; the fields are {', '.join(FIELDS)}")
    raise AssertionError("all fields are there")


def _node_names(values: Sequence[Any]) -> list[str]:
    return [str(value) if type(value) is int else node_name(value, row) for row, value in enumerate(values)]


def node_name(value: Any, row: int) -> str:
    """A name as text, without spaces around it; whole numbers are names too."""
    if isinstance(value, str):
        name = value.strip()
    elif isinstance(value, int) and not isinstance(value, bool):
        name = str(value)
    else:
        raise _fault(row, f"node {value!r:.60} is neither text nor a whole number")
    if not name:
        raise _fault(row, "has a node without a name; name both ends")
    if len(name) > LONGEST_NAME:
        raise _fault(row, f"has a name of {len(name):,} characters; {LONGEST_NAME:,} are allowed")
    if not _is_unicode(name):
        raise _fault(row, f"node {name!a:.60} is no valid Unicode; repair it")
    return name


def _is_unicode(text: str) -> bool:
    """False with half of a surrogate pair, which JSON can hold and no file and no answer can."""
    try:
        text.isascii() or text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _event_id(value: Any, row: int) -> str | None:
    if value is None:
        return None
    if isinstance(value, str):
        if not 0 < len(value) <= LONGEST_NAME:
            raise _fault(row, f"has an id of {len(value):,} characters; give 1 to {LONGEST_NAME:,}, or none")
        if not _is_unicode(value):
            raise _fault(row, f"id {value!a:.60} is no valid Unicode; repair it")
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    raise _fault(row, f"id {value!r:.60} is neither text nor a whole number")


def _checked(values: Sequence[Any]) -> Floats:
    try:
        time = np.array(values, np.float64)
    except OverflowError:
        raise DsrdError(f"a time is too large; give numbers from 0 to {LATEST:g}") from None
    bad = ~times_fit(time)
    if bad.any():
        row = int(bad.argmax())
        raise _fault(row, f"time is {values[row]}; give a number from 0 to {LATEST:g}")
    return time


def times_fit(time: Floats) -> NDArray[np.bool_]:
    """Which times a model can take; others must not get into a log, because no start could replay them."""
    return np.asarray((time >= 0) & (time <= LATEST))  # false for nan


class EventError(DsrdError):
    """What is wrong with one event of a request."""

    def __init__(self, row: int, fault: str) -> None:
        super().__init__(f"event {row + 1}: {fault}")
        self.row, self.fault = row, fault


def _fault(row: int, message: str) -> EventError:
    return EventError(row, message)


class _Events(Origin):
    """A list of events as the origin of a column: a fault is one of an event."""

    def __init__(self) -> None:
        super().__init__("events")

    def error(self, message: str, row: int | None = None) -> DsrdError:
        return super().error(message) if row is None else _fault(row, message)
