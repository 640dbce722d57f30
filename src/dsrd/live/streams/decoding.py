"""`Decoder` reads events from lines of JSON or CSV: whole blocks at once where all lines are good.

A block is parsed by Arrow. If anything in it is not as expected, every line is read on its own, which finds the
lines that are bad and says why; both ways give the same events.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.json
from numpy.typing import NDArray

from dsrd.data.dataset import Dataset
from dsrd.errors import DsrdError
from dsrd.live.incoming import LONGEST_NAME, EventError, EventReader, Floats, Incoming, times_fit
from dsrd.live.streams.raw import Raw

ROLES = ("source", "target", "time")
BLOCK = 1 << 24  # bytes that Arrow parses as one piece: a batch is one


@dataclass(frozen=True)
class Decoded:
    """The events of a batch and the lines they came from."""

    raw: Raw
    events: Incoming
    rows: Sequence[int]  # the line of each event
    skipped: int = 0  # bad lines that were left out
    fault: DsrdError | None = (
        None  # of the first bad line, where none may be left out: only events before it are here
    )


class Unexpected(Exception):  # noqa: N818 - not an error: the lines are read one by one
    """The block cannot be read at once."""


class Decoder:
    """Reads lines as events of the stream of a run.

    Columns and fields are called as in the data that the run was trained on, or source, target and time.

    >>> decoder = Decoder(EventReader(data := Dataset.from_arrays("tiny", [1, 2], [2, 3], [0.0, 1.0])), data)
    >>> raw = Raw(b'{"source": 1, "target": 3, "time": 2.5}', lambda row: f"line {row + 1}")
    >>> decoder.decode(raw).events.time.tolist()
    [2.5]
    >>> print(decoder.decode(Raw(b'{"source": 1}', lambda row: f"line {row + 1}")).fault)
    line 1: has no target; give source, target and time
    """

    def __init__(
        self, reader: EventReader, dataset: Dataset, *, id_field: str | None = None, skip_bad: bool = False
    ) -> None:
        columns = dataset.columns
        self._reader, self._features, self._id, self._skip_bad = reader, dataset.features, id_field, skip_bad
        self._own = {"source": columns.source, "target": columns.target, "time": columns.time}
        self._timed = columns.time_format is not None
        self.header: list[str] = []
        """Of CSV lines; empty: lines are JSON."""
        self.delimiter = ","

    # --- A batch -------------------------------------------------------------------------------------------------

    def decode(self, raw: Raw) -> Decoded:
        """The events of a batch; empty lines are passed over."""
        try:
            events = self._at_once(raw)
        except (Unexpected, pa.ArrowException, UnicodeDecodeError, DsrdError):
            return self._one_by_one(raw)
        return Decoded(raw, events, range(len(raw.lines)))

    def without(self, decoded: Decoded, refused: EventError, *, may_skip: bool = True) -> Decoded:
        """The batch again when the engine has refused an event of it."""
        skip = self._skip_bad and may_skip
        bad, count = refused.row, len(decoded.rows)
        keep = [*range(bad), *range(bad + 1, count)] if skip else [*range(bad)]
        rows = [decoded.rows[each] for each in keep]
        fault = None if skip else DsrdError(f"{decoded.raw.place(decoded.rows[bad])}: {refused.fault}")
        events = _taken(decoded.events, keep, decoded.raw, rows)
        return Decoded(decoded.raw, events, rows, decoded.skipped + skip, fault or decoded.fault)

    def record(self, line: bytes) -> dict[str, Any]:
        """All fields of a good line, as they came."""
        if not self.header:
            return dict(json.loads(line))
        return {
            name: value if name in (self._own["source"], self._own["target"], *ROLES[:2]) else _value(value)
            for name, value in zip(self.header, self._cells(line), strict=True)
        }

    # --- At once -------------------------------------------------------------------------------------------------

    def _at_once(self, raw: Raw) -> Incoming:
        table, fields = self._table_of_csv(raw) if self.header else self._table_of_json(raw)
        if len(table) != len(raw.lines) or any(table[name].null_count for name in table.column_names):
            raise Unexpected
        size = len(table)
        ids: list[str | None] = [None] * size
        if "id" in fields:
            ids = table[fields["id"]].cast(pa.string()).to_pylist()
            if not all(each is not None and 0 < len(each) <= LONGEST_NAME for each in ids):
                raise Unexpected
        return Incoming(
            source=_names(table[fields["source"]]),
            target=_names(table[fields["target"]]),
            time=self._times(table[fields["time"]]),
            id=ids,
            x=_features(
                [table[name] for name in self._features] if "features" in fields else [], size, self._features
            ),
            position=raw.position(range(size)),
        )

    def _table_of_csv(self, raw: Raw) -> tuple[pa.Table, dict[str, str]]:
        fields = self._fields(self.header)
        if fields is None or len(set(self.header)) < len(self.header):
            raise Unexpected
        named = pa.dictionary(pa.int32(), pa.string())
        kinds: dict[str, pa.DataType] = {
            fields["source"]: named,
            fields["target"]: named,
            fields["time"]: pa.string(),
        }
        if "id" in fields:
            kinds[fields["id"]] = pa.string()
        if "features" in fields:
            kinds |= {name: pa.float64() for name in self._features}
        table = pyarrow.csv.read_csv(
            BytesIO(raw.block),
            read_options=pyarrow.csv.ReadOptions(column_names=self.header, block_size=BLOCK, use_threads=False),
            parse_options=pyarrow.csv.ParseOptions(delimiter=self.delimiter),
            convert_options=pyarrow.csv.ConvertOptions(include_columns=list(kinds), column_types=kinds),
        )
        return table, fields

    def _table_of_json(self, raw: Raw) -> tuple[pa.Table, dict[str, str]]:
        """The kinds of values are those of the first line; Arrow refuses others."""
        first = _object(raw.lines[0])
        fields = self._fields(first)
        if fields is None or b"\r" in raw.block:
            raise Unexpected
        kinds = {fields[role]: _kind(first[fields[role]], role) for role in fields if role != "features"}
        kinds |= {name: pa.float64() for name in self._features} | {"features": pa.list_(pa.float64())}
        table = pyarrow.json.read_json(
            BytesIO(raw.block),
            read_options=pyarrow.json.ReadOptions(block_size=BLOCK, use_threads=False),
            parse_options=pyarrow.json.ParseOptions(
                explicit_schema=pa.schema(kinds.items()), unexpected_field_behavior="ignore"
            ),
        )
        unused = ["features"] if "features" in fields else ["features", *self._features]
        if any(table[name].null_count < len(table) for name in unused):
            raise Unexpected
        return table.drop_columns(unused), fields

    def _fields(self, available: Mapping[str, Any] | Sequence[str]) -> dict[str, str] | None:
        """The field of each role; None if one is missing."""
        fields = {role: own if own in available else role for role, own in self._own.items()}
        if self._id is not None:
            fields["id"] = self._id
        if len(set(fields.values())) < len(fields) or any(name not in available for name in fields.values()):
            return None
        present = [name for name in self._features if name in available]
        if present and len(present) < len(self._features):
            return None
        return fields | {"features": ""} if present else fields

    def _times(self, column: pa.ChunkedArray) -> Floats:
        if pa.types.is_string(column.type):
            texts = pc.utf8_trim_whitespace(column)
            try:
                if self._timed:
                    raise pa.ArrowInvalid
                column = texts.cast(pa.float64())
            except pa.ArrowInvalid:
                return self._reader.times(texts.to_pylist())
        time = np.asarray(column)
        if not times_fit(time).all():
            raise Unexpected
        return time

    # --- One by one ----------------------------------------------------------------------------------------------

    def _one_by_one(self, raw: Raw) -> Decoded:
        rows: list[int] = []
        records: list[dict[str, Any]] = []
        skipped, fault = 0, None
        for row, line in enumerate(raw.lines):
            if not line.strip():
                continue
            try:
                record = self._event(line)
                self._reader.records([record])
            except DsrdError as error:
                if self._skip_bad:
                    skipped += 1
                    continue
                fault = DsrdError(f"{raw.place(row)}: {_reason(error)}")
                break
            rows.append(row)
            records.append(record)
        try:
            events = self._reader.records(records, raw.position(rows))
        except DsrdError as error:  # good on their own, but not together: times written in two ways
            row = rows[error.row] if isinstance(error, EventError) else rows[0]
            raise DsrdError(f"{raw.place(row)}: {_reason(error)}") from None
        return Decoded(raw, events, rows, skipped, fault)

    def _event(self, line: bytes) -> dict[str, Any]:
        """A line as the record that `EventReader` expects."""
        if self.header:
            record: dict[str, Any] = dict(zip(self.header, self._cells(line), strict=True))
        else:
            record = _object(line)
        event = {role: record.get(own, record.get(role)) for role, own in self._own.items()}
        if self._id is not None:
            event["id"] = record.get(self._id)
            if event["id"] in (None, ""):
                raise EventError(0, f"has no {self._id}, which should be its id")
        present = [name for name in self._features if name in record]
        if present:
            lacking = next((name for name in self._features if name not in record), None)
            if lacking is not None:
                raise EventError(0, f"has no feature '{lacking}'; give all features of the stream, or none")
            event["features"] = [_value(record[name]) for name in self._features]
        elif not self.header and "features" in record:
            event["features"] = record["features"]
        return event

    def _cells(self, line: bytes) -> list[str]:
        try:
            cells = next(csv.reader([line.decode()], delimiter=self.delimiter, strict=True), [])
        except UnicodeDecodeError:
            raise EventError(0, "is not UTF-8 text; write UTF-8") from None
        except csv.Error as error:
            raise EventError(0, f"is not CSV ({error}); put each event on one line") from None
        if len(cells) != len(self.header):
            raise EventError(0, f"has {len(cells)} fields where {len(self.header)} are expected; repair it")
        return cells


def _taken(events: Incoming, keep: Sequence[int], raw: Raw, rows: Sequence[int]) -> Incoming:
    return Incoming(
        source=[events.source[each] for each in keep],
        target=[events.target[each] for each in keep],
        time=events.time[list(keep)],
        id=[events.id[each] for each in keep],
        x=events.x[list(keep)],
        position=raw.position(rows),
    )


def _object(line: bytes) -> dict[str, Any]:
    """A line of JSON, which must be an object."""
    try:
        value = json.loads(line, parse_constant=_refused)
    except UnicodeDecodeError:
        raise EventError(0, "is not UTF-8 text; write UTF-8") from None
    except (ValueError, RecursionError) as error:
        raise EventError(0, f"is not JSON ({error}); write one object per line") from None
    if not isinstance(value, dict):
        raise EventError(0, "is JSON, but no object; write one object per line")
    return value


def _refused(name: str) -> None:
    raise ValueError(f"{name} is no number")


def _kind(value: Any, role: str) -> pa.DataType:
    if isinstance(value, str):
        return pa.string()
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Unexpected
    return pa.float64() if role == "time" else pa.int64()


def _names(column: pa.ChunkedArray) -> list[str]:
    """Names as text; each distinct one is checked once, and all its rows share one object."""
    encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    encoded = encoded.unify_dictionaries().combine_chunks()
    distinct = np.array([name.strip() for name in encoded.dictionary.cast(pa.string()).to_pylist()], object)
    if not all(0 < len(name) <= LONGEST_NAME for name in distinct):
        raise Unexpected
    names: list[str] = distinct[np.asarray(encoded.indices)].tolist()
    return names


def _features(columns: Sequence[pa.ChunkedArray], size: int, names: Sequence[str]) -> NDArray[np.float32]:
    x = np.zeros((size, len(names)), np.float32)
    with np.errstate(over="ignore"):
        for place, column in enumerate(columns):
            x[:, place] = np.asarray(column)
    if not np.isfinite(x).all():
        raise Unexpected
    return x


def _value(text: Any) -> Any:
    """Text that is a number as that number."""
    if not isinstance(text, str) or "_" in text:  # Python would read 1_000 as a number
        return text
    for kind in (int, float):
        try:
            number = kind(text)
        except ValueError:
            continue
        return number if np.isfinite(number) else text
    return text


def _reason(error: DsrdError) -> str:
    return error.fault if isinstance(error, EventError) else str(error).removeprefix("events: ")
