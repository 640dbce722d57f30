"""The two evaluation protocols: which events a score may use, and which batches metrics average over.

`dyglib` is the published protocol: the state observes a batch of 200 events at a time, even if the next batch has
the same timestamp. `strict` hides everything at or after t from a score at t and uses every event before t. Its
scores do not depend on the batch size.

In evaluation, neighbour look-ups see every earlier event of the stream, including those of withheld nodes. The
state of a published model holds the training events and the events of the pass. The state of an *exact* model
agrees with the look-ups: it holds every event before t.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from dsrd.errors import unknown
from dsrd.events import Events, as_tensor


@dataclass(frozen=True)
class Protocol:
    """What a score may have seen, and what metrics average over."""

    name: str
    strict: bool  # events with equal timestamps never see each other
    fixed_batch: int | None  # size of the batches of negatives and batch means; None: the scoring batch size
    lags: bool = False  # under strict, the state may miss the events just before a query

    def metric_batch(self, batch_size: int) -> int:
        """The size of the batches that metrics average over."""
        return batch_size if self.fixed_batch is None else self.fixed_batch

    def flushes(self, events: Events, size: int, exact: bool) -> Iterator[slice]:
        """Pieces of the events: all rows of a piece are scored before any of them is observed.

        A model that is not `exact` (its state cannot be brought forward inside `score`) must have observed every
        earlier event. Under `strict` it therefore gets one timestamp per piece.
        """
        if self.strict:
            yield from aligned(events, size if exact or self.lags else 1)
        else:
            yield from (slice(row, min(row + size, len(events))) for row in range(0, len(events), size))

    def lagging(self) -> Protocol:
        """The same protocol with a state that may lag: no leak, but the latest events may be missing."""
        return replace(self, lags=True)


DYGLIB = Protocol("dyglib", strict=False, fixed_batch=None)
STRICT = Protocol("strict", strict=True, fixed_batch=200)
PROTOCOLS = {each.name: each for each in (DYGLIB, STRICT)}


def protocol_named(name: str) -> Protocol:
    """The protocol with this name."""
    if name not in PROTOCOLS:
        raise unknown("protocol", name, PROTOCOLS)
    return PROTOCOLS[name]


def aligned(events: Events, size: int) -> Iterator[slice]:
    """Pieces of at least `size` events (the last one may be shorter) that never split a timestamp.

    >>> stream = Events.from_numpy([1] * 5, [2] * 5, [0.0, 0.0, 1.0, 2.0, 2.0])
    >>> list(aligned(stream, 1))
    [slice(0, 2, None), slice(2, 3, None), slice(3, 5, None)]
    """
    time = events.time.numpy()
    ends = np.append(np.flatnonzero(np.diff(time)) + 1, len(time)) if len(time) else np.zeros(0, np.int64)
    start = 0
    while start < len(time):
        end = int(ends[np.searchsorted(ends, min(start + size, len(time)))])
        yield slice(start, end)
        start = end


def arriving(events: Events, stream: Events, flushes: Iterable[slice]) -> Iterator[tuple[slice, Events]]:
    """Each piece of `events`, and what the state observes with it from the `stream` they belong to.

    Observed are all events of the stream before the last timestamp of the piece. At that timestamp only the
    events of the piece itself are observed.

    >>> stream = Events.from_numpy([1, 2, 3, 4, 5], [9] * 5, [0.0, 1.0, 1.0, 1.0, 2.0])
    >>> few = stream[as_tensor(np.array([2, 4]))]
    >>> [observed.src.tolist() for _, observed in arriving(few, stream, [slice(0, 1), slice(1, 2)])]
    [[1, 3], [2, 4, 5]]
    """
    order = np.argsort(stream.id.numpy(), kind="stable")
    stream_row = order[np.searchsorted(stream.id.numpy(), events.id.numpy(), sorter=order)]  # [E]
    unobserved, earlier_before = np.ones(len(stream), np.bool_), 0
    for flush in flushes:
        earlier = int(np.searchsorted(stream.time.numpy(), float(events.time[flush.stop - 1])))
        in_flush = stream_row[flush]
        missed = np.flatnonzero(unobserved[earlier_before:earlier]) + earlier_before
        rows = np.union1d(missed, in_flush[unobserved[in_flush]])
        unobserved[rows], earlier_before = False, earlier
        yield flush, stream[as_tensor(rows)]
