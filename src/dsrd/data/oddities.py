"""Notes about what is odd in a stream but no error: equal rows, names that differ in little, times far away."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

MOST_COMPARED = 200_000
"""Names, and rows with a time that others have too, that are compared; of a longer stream only the first ones."""
WHOLE = r"^(\d+)\.0+$"
END_OF_PLANS = datetime(2100, 1, 1, tzinfo=UTC).timestamp()
FAR = 1000
"""A time is far from the rest if the stream would be this many times shorter without a hundredth of its events."""


def odd_names(names: pa.Array, stripped: int) -> tuple[str, ...]:
    """Notes about names: spaces that were removed, and different names that may have been meant to be one.

    >>> odd_names(pa.array(["Ann", "ann", "7", "7.0"]), 2)[1:]
    ("1 name differs from another only in case, such as 'ann'", "1 number is written in two ways, such as '7.0'")
    """
    notes: tuple[str, ...] = ()
    if stripped:
        count = _number(stripped, "name")
        notes += (f"removed the spaces around {count}; set `keep_spaces` if they belong to the names",)
    names = names.slice(0, MOST_COMPARED)
    lower = pc.utf8_lower(names)
    repeated = _repeated(lower)
    if len(repeated):
        verb = "differs from another" if len(repeated) == 1 else "differ from others"
        notes += (f"{_number(len(repeated), 'name')} {verb} only in case, such as '{names[int(repeated[0])]}'",)
    fraction = np.flatnonzero(np.asarray(pc.match_substring_regex(names, WHOLE)))
    if len(fraction):
        written = names.take(pa.array(fraction))
        twice = np.flatnonzero(np.asarray(pc.is_in(pc.replace_substring_regex(written, WHOLE, r"\1"), names)))
        if len(twice):
            verb = "is" if len(twice) == 1 else "are"
            notes += (
                f"{_number(len(twice), 'number')} {verb} written in two ways, such as '{written[int(twice[0])]}'",
            )
    return notes


def odd_events(
    src: NDArray[np.int64], dst: NDArray[np.int64], time: NDArray[np.float64], dates: bool
) -> tuple[str, ...]:
    """Notes about events sorted by time: rows that repeat an earlier one, and times far from the others."""
    notes: tuple[str, ...] = ()
    repeats = _repeats(src, dst, time)
    if repeats:
        rows = "row repeats an earlier one" if repeats == 1 else "rows repeat an earlier one"
        notes += (f"{repeats:,} {rows} (source, target and time); each counts as an event",)
    if dates and len(time) and time[-1] >= END_OF_PLANS:
        late = int((time >= END_OF_PLANS).sum())
        notes += (f"{_number(late, 'event')} after the year 2100, the last in {_year(time[-1])}; check the dates",)
        return notes
    return notes + _far(time)


def _far(time: NDArray[np.float64]) -> tuple[str, ...]:
    """A note if a hundredth of the events makes the stream a thousand times longer."""
    few = max(1, len(time) // 100)
    if len(time) < 10:
        return ()
    for inner, end in ((time[:-few], time[-1]), (time[few:], time[0])):
        span = inner[-1] - inner[0]
        if span > 0 and time[-1] - time[0] > FAR * span:
            return (
                f"the time {end:.15g} lies far from all others ({inner[0]:.15g} to {inner[-1]:.15g}); check it",
            )
    return ()


def _repeats(src: NDArray[np.int64], dst: NDArray[np.int64], time: NDArray[np.float64]) -> int:
    same = np.diff(time) == 0
    tied = np.flatnonzero(np.append(same, False) | np.insert(same, 0, False))[:MOST_COMPARED]
    if not len(tied):
        return 0
    order = np.lexsort((dst[tied], src[tied], time[tied]))
    rows = tied[order]
    equal = np.ones(len(rows) - 1, dtype=np.bool_)
    for column in (src, dst, time):
        equal &= np.diff(column[rows]) == 0
    return int(equal.sum())


def _repeated(values: pa.Array) -> NDArray[np.int64]:
    """The positions of values that occurred before."""
    codes = np.asarray(values.dictionary_encode().indices)
    newest = np.maximum.accumulate(np.insert(codes, 0, -1))[:-1] if len(codes) else codes
    return np.flatnonzero(codes <= newest).astype(np.int64)


def _number(count: int, what: str) -> str:
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def _year(seconds: float) -> int:
    return datetime.fromtimestamp(min(seconds, 253402300799), UTC).year
