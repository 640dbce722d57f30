"""Columns of a table as numpy arrays; the first entry that cannot be converted is an error that names its row.

`role` is what error messages call the column: source, target, time, a feature, a label.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds
from numpy.typing import NDArray

from dsrd.data.parse import Origin
from dsrd.decoding import decoding, shortened
from dsrd.events import LATEST, MOST_NODES, WHOLE_IDS

NUMBER = pa.float64()
NANOSECONDS = 2**61  # since 1970, until 2043; such times are rounded to 256 ns
INSTANTS = (pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.timestamp("ns"), pa.timestamp("ns", "UTC"))
ISO = "2024-05-01 or 2024-05-01T12:30:00Z"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LAST_DATE = 253402300799999999  # microseconds: the end of the year 9999
FLOAT32 = float(np.finfo(np.float32).max)
ARROW_DIRECTIVES = frozenset("YmdHMS")  # parts of a time format that Arrow reads as Python does
YEAR_DIRECTIVES = frozenset("YyGcx")
DAYS_IN_MONTH = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


def numbers(column: pa.ChunkedArray, role: str, origin: Origin) -> NDArray[np.float64]:
    """A column as float64; missing and infinite entries are refused."""
    column = _plain(column, role, origin)
    bad = _first_failure(column, NUMBER)
    if bad == 0 and len(column) > 1 and _first_failure(column.slice(1, 1), NUMBER) == 0:
        raise origin.error(
            f"{role} is not a column of numbers ({_shown(column[0])}); choose a column of numbers", 0
        )
    if bad < len(column):
        raise origin.error(f"{role} is {_shown(column[bad])}, not a number; repair the entry", bad)
    values = _array(_cast(column, NUMBER))
    finite = np.isfinite(values)
    if not finite.all():
        bad = int(finite.argmin())
        raise origin.error(f"{role} is {values[bad]}; use finite numbers", bad)
    return values


def integers(column: pa.ChunkedArray, role: str, origin: Origin, *, least: int) -> NDArray[np.int64]:
    """A column as int64; entries below `least` are refused."""
    column = _plain(column, role, origin)
    bad = _first_failure(column, pa.int64())
    if bad < len(column):
        raise origin.error(f"{role} is {_shown(column[bad])}, not a whole number; repair the entry", bad)
    values = _array(column.cast(pa.int64()))
    if len(values) and values.min() < least:
        bad = int((values < least).argmax())
        raise origin.error(f"{role} is {values[bad]}; ids start at {least} here", bad)
    if len(values) and values.max() >= MOST_NODES - 1:
        bad = int(values.argmax())
        raise origin.error(f"{role} is {values[bad]}; {WHOLE_IDS}", bad)
    return values


def times(column: pa.ChunkedArray, role: str, origin: Origin, format: str | None = None) -> NDArray[np.float64]:
    """A column as float64 times: numbers stay as they are, dates and timestamps become seconds since 1970 (UTC).

    With a `format` (as for strptime), text and whole numbers are read as dates in that format.
    """
    return dated_times(column, role, origin, format)[0]


def dated_times(
    column: pa.ChunkedArray, role: str, origin: Origin, format: str | None = None
) -> tuple[NDArray[np.float64], bool]:
    """`times`, and whether they were dates."""
    column = _plain(column, role, origin)
    if format is not None and not (kinds.is_timestamp(column.type) or kinds.is_date(column.type)):
        column = _in_format(column, format, role, origin)
    elif _is_text(column.type):
        column = _parsed(column, role, origin)
    dates = bool(kinds.is_timestamp(column.type) or kinds.is_date(column.type))
    if dates:
        seconds = _microseconds_of(column, role, origin) / 1e6
        remedy = "lies before 1970; give numbers counted from the first event instead"
    elif kinds.is_duration(column.type):
        seconds = _microseconds_of(column, role, origin) / 1e6
        remedy = "is negative; times must be 0 or later"
    elif kinds.is_time(column.type) or kinds.is_boolean(column.type):
        raise origin.error(f"{role} is {_shown(column[0])}, which has no date; use numbers or dates ({ISO})", 0)
    else:
        seconds = numbers(column, role, origin)
        remedy = "is negative; times must be 0 or later"
    if len(seconds) and seconds.min() < 0:
        bad = int((seconds < 0).argmax())
        raise origin.error(f"{role} {_shown(column[bad])} {remedy}", bad)
    if len(seconds) and seconds.max() > LATEST:
        bad = int(seconds.argmax())
        raise origin.error(
            f"{role} {_shown(column[bad])} is too large: events {seconds[bad] * 2**-52:.2g} apart would have the "
            "same time; repair the entry, or count from the first event",
            bad,
        )
    if kinds.is_integer(column.type) and len(seconds) and seconds.max() > NANOSECONDS:
        _refuse_merged(_array(column), seconds, role, origin)
    return seconds, dates


def _refuse_merged(whole: NDArray[Any], seconds: NDArray[np.float64], role: str, origin: Origin) -> None:
    """Refuse times that differ as whole numbers and no longer do as the numbers that models read."""
    order = np.argsort(whole, kind="stable")
    merged = (np.diff(seconds[order]) == 0) & (whole[order][1:] != whole[order][:-1])
    if merged.any():
        row = int(order[1:][merged].min())
        raise origin.error(
            f"{role} '{whole[row]}' has more digits than are kept, and would equal another time; count from the "
            "first event, or in a coarser unit",
            row,
        )


def look_like_days(time: NDArray[np.float64]) -> bool:
    """Whether all numbers could be calendar dates written as YYYYMMDD.

    >>> look_like_days(np.array([20240401.0, 20240430.0])), look_like_days(np.array([20240401.0, 20240431.0]))
    (True, False)
    """
    if not len(time) or time.min() < 19700101 or time.max() > 21001231 or (time % 1).any():
        return False
    month, day = time // 100 % 100, time % 100
    if month.min() < 1 or month.max() > 12:
        return False
    return bool((day >= 1).all() and (day <= np.array(DAYS_IN_MONTH)[month.astype(np.int64) - 1]).all())


def float32s(column: pa.ChunkedArray, role: str, origin: Origin) -> NDArray[np.float32]:
    """A column as float32, as features and labels are kept; larger numbers are refused."""
    values = numbers(column, role, origin)
    if len(values) and max(values.max(), -values.min()) > FLOAT32:
        bad = int((np.abs(values) > FLOAT32).argmax())
        raise origin.error(f"{role} is {values[bad]:g}, beyond 32-bit numbers (3.4e38); scale the column", bad)
    return values.astype(np.float32)


@dataclass(frozen=True)
class NodeNames:
    """The names in a column."""

    codes: NDArray[np.int64]  # for each row the position of its name
    distinct: pa.Array  # text, each name once
    stripped: int = 0  # names that had spaces around them


def names(
    column: pa.ChunkedArray, role: str, origin: Origin, *, keep_spaces: bool = False
) -> tuple[NDArray[np.int64], pa.Array]:
    """(for each entry the position of its name, the distinct names as text)."""
    read = node_names(column, role, origin, keep_spaces=keep_spaces)
    return read.codes, read.distinct


def node_names(column: pa.ChunkedArray, role: str, origin: Origin, *, keep_spaces: bool = False) -> NodeNames:
    """The names in a column, without the spaces around them; empty ones are refused."""
    if kinds.is_floating(column.type) and _first_failure(column, pa.int64()) == len(column):
        column = column.cast(pa.int64())  # frames may store whole numbers as floats; the name is "7", not "7.0"
    kind = column.type.value_type if kinds.is_dictionary(column.type) else column.type
    if kinds.is_nested(kind):
        raise origin.error(f"{role} holds {kind}, not names; give a column of text or numbers", 0)
    with decoding(origin.name, f"names in the {role} column"):
        encoded = column if kinds.is_dictionary(column.type) else column.dictionary_encode()
        encoded = encoded.unify_dictionaries().combine_chunks()
    if encoded.indices.null_count:
        raise origin.error(f"{role} is empty; name both ends of every event", _first_null(encoded.indices))
    distinct = pc.fill_null(_as_names(encoded, role, origin), "")
    positions, stripped = np.asarray(encoded.indices).astype(np.int64), 0
    bare = pc.utf8_trim_whitespace(distinct)
    if not keep_spaces and not bare.equals(distinct):
        used = np.bincount(positions, minlength=len(distinct)) > 0
        stripped = int((np.asarray(pc.not_equal(bare, distinct)) & used).sum())
        again = bare.dictionary_encode()
        positions, distinct = np.asarray(again.indices).astype(np.int64)[positions], again.dictionary
        bare = distinct
    blank = np.flatnonzero(np.asarray(pc.equal(bare, "")))
    if len(blank) and np.isin(positions, blank).any():
        bad = int(np.isin(positions, blank).argmax())
        raise origin.error(f"{role} is empty; name both ends of every event", bad)
    return NodeNames(positions, distinct, stripped)


def _as_names(encoded: pa.DictionaryArray, role: str, origin: Origin) -> pa.Array:
    """The distinct entries as text; an error at the first that is none."""
    try:
        distinct = encoded.dictionary.cast(pa.string())
        distinct.validate(full=True)
    except (pa.ArrowException, ValueError):
        broken = [i for i in range(len(encoded.dictionary)) if not _is_name(encoded.dictionary.slice(i, 1))]
        rows = np.isin(np.asarray(encoded.indices.fill_null(-1)), broken)
        bad = int(rows.argmax())
        raise origin.error(f"{role} is {_shown(encoded[bad])}, not text; give names as UTF-8 text", bad) from None
    if kinds.is_floating(encoded.dictionary.type):  # a number that is none is not a name
        return pc.if_else(pc.is_nan(encoded.dictionary), pa.scalar(None, pa.string()), distinct)
    return distinct


def _is_name(entry: pa.Array) -> bool:
    try:
        entry.cast(pa.string()).validate(full=True)
    except (pa.ArrowException, ValueError):
        return False
    return True


def _plain(column: pa.ChunkedArray, role: str, origin: Origin) -> pa.ChunkedArray:
    """The column without dictionary encoding; missing entries are refused."""
    if kinds.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if column.null_count:
        raise origin.error(f"{role} is empty or not a number; fill it in or drop the row", _first_null(column))
    return column


def _parsed(column: pa.ChunkedArray, role: str, origin: Origin) -> pa.ChunkedArray:
    """Text as numbers or timestamps, whichever fits all entries; an error at the first that fits neither."""
    column = pc.utf8_trim_whitespace(column.cast(pa.large_string()))
    furthest = 0
    for kind in (NUMBER, *INSTANTS):
        bad = _first_failure(column, kind)
        if bad == len(column):
            return column.cast(kind)
        furthest = max(furthest, bad)
    entry = column.slice(furthest, 1)
    if any(_castable(entry, kind) for kind in (NUMBER, *INSTANTS)):
        fault = "written differently from the rows before; write all times in the same way"
    else:
        fault = f"neither a number nor a date ({ISO}); repair the entry, or give the `time_format`"
    raise origin.error(f"{role} is {_shown(entry[0])}, {fault}", furthest)


def _in_format(column: pa.ChunkedArray, format: str, role: str, origin: Origin) -> pa.ChunkedArray:
    """Text or whole numbers as timestamps; each distinct entry is parsed once."""
    directives = _directives(format, origin)
    distinct = column.dictionary_encode().unify_dictionaries().combine_chunks()
    texts, codes = _as_text(distinct.dictionary, format), np.asarray(distinct.indices)
    parsed = pa.nulls(len(texts), pa.timestamp("us"))
    if directives <= ARROW_DIRECTIVES:
        parsed = pc.strptime(texts, format=format, unit="us", error_is_null=True)
    # Arrow reads 31 February as 2 March and gives no reason for a failure: Python decides about these entries.
    doubtful = pc.fill_null(pc.less_equal(pc.day(parsed), 3), True)
    instants = np.asarray(pc.fill_null(parsed.cast(pa.int64()), 0)).copy()
    wrong = []
    for code in np.flatnonzero(np.asarray(doubtful)):
        try:
            instants[code] = _microseconds(texts[int(code)].as_py(), format)
        except ValueError:
            wrong.append(code)
    if wrong:
        bad = int(np.isin(codes, wrong).argmax())
        raise origin.error(
            f"{role} is {_shown(column[bad])}, which does not fit the time format {format}; "
            "repair the entry or correct `time_format`",
            bad,
        )
    return pa.chunked_array([pa.array(instants[codes], pa.timestamp("us"))])


def _directives(format: str, origin: Origin) -> set[str]:
    """The letters after the percent signs of a time format; it must be valid and contain a year."""
    directives = set(re.findall("%(.)", format)) - {"%"}
    try:
        datetime.strptime(datetime(2024, 11, 22, tzinfo=UTC).strftime(format), format)
    except ValueError as error:
        raise origin.error(f"time format {format}: {error}; write it as for strptime: %d/%m/%Y %H:%M") from None
    if not directives & YEAR_DIRECTIVES:
        raise origin.error(f"time format {format}: has no year; write it as for strptime: %d/%m/%Y %H:%M")
    return directives


def _as_text(entries: pa.Array, format: str) -> pa.Array:
    """Trimmed text; whole numbers get their leading zeros back."""
    if kinds.is_floating(entries.type) and _castable(entries, pa.int64()):
        entries = entries.cast(pa.int64())
    if kinds.is_integer(entries.type):
        width = len(datetime(2024, 11, 22).strftime(format))
        return pa.array([str(entry).zfill(width) for entry in entries.to_pylist()], pa.string())
    return pc.utf8_trim_whitespace(entries.cast(pa.string()))


def _microseconds(text: str, format: str) -> int:
    moment = datetime.strptime(text, format)
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return (aware - EPOCH) // timedelta(microseconds=1)


def _microseconds_of(column: pa.ChunkedArray, role: str, origin: Origin) -> NDArray[np.int64]:
    """Dates, timestamps or durations as microseconds, which are finer than float64 seconds can resolve.

    An entry beyond the calendar is refused: casting it would wrap around in silence.
    """
    if kinds.is_date32(column.type):
        count = _array(column.cast(pa.int32())).astype(np.int64)  # days
        factor = 86_400_000_000
    else:
        count = _array(column.cast(pa.int64()))
        factor = {"s": 1_000_000, "ms": 1000, "us": 1, "ns": 0}[getattr(column.type, "unit", "ms")]
    if not factor:
        return count // 1000
    most = LAST_DATE // factor
    if len(count) and (count.max() > most or count.min() < -most):
        bad = int(((count > most) | (count < -most)).argmax())
        raise origin.error(
            f"{role} {_shown(column[bad])} lies outside the years 1 to 9999; repair the entry, or correct the "
            "unit of the column",
            bad,
        )
    return count * factor


def _first_failure(column: pa.ChunkedArray, kind: pa.DataType) -> int:
    """The position of the first entry that cannot be cast; the length of the column if all can.

    Slices double in size while they can be cast, and halve after a failure: casting a long bad column is slow.
    """
    start, size = 0, 1
    while start < len(column):
        if _castable(column.slice(start, size), kind):
            start, size = start + size, size * 2
        elif size == 1:
            return start
        else:
            size //= 2
    return len(column)


def _castable(column: pa.ChunkedArray, kind: pa.DataType) -> bool:
    try:
        _cast(column, kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return False
    return True


def _cast(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    # Nanoseconds since 1970 have more digits than a float64: they are rounded, not refused.
    return column.cast(kind, safe=not (kind == NUMBER and kinds.is_integer(column.type)))


def _first_null(column: Any) -> int:
    return int(np.asarray(pc.is_null(column)).argmax())


def _array(column: pa.ChunkedArray) -> NDArray[Any]:
    return np.asarray(column)


def _is_text(kind: pa.DataType) -> bool:
    return bool(kinds.is_string(kind) or kinds.is_large_string(kind) or kinds.is_string_view(kind))


def _shown(value: pa.Scalar) -> str:
    try:
        text = str(value)
    except (ValueError, OverflowError):  # a date that Python's calendar does not have
        number = getattr(value, "value", None)
        text = f"{number:,}" if isinstance(number, int) else str(value.type)
    text = shortened(text, 80)
    return f"'{text}'" if text.strip() else "empty"
