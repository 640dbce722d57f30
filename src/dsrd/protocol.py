"""The two evaluation protocols: which events a score may use, and which batches metrics average over.

`dyglib` is the published protocol: the state observes a batch of 200 events at a time, even if the next batch has
the same timestamp. `strict` hides everything at or after t from a score at t and uses every event before t. Its
scores do not depend on the batch size.

In evaluation, neighbour look-ups see every earlier event of the stream, including those of withheld nodes. The
state of a published model holds the training events and the events of the pass. The state of an *exact* model
agrees with the look-ups: it holds every event before t.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dsrd.errors import unknown

if TYPE_CHECKING:
    from dsrd.events import Events


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

    >>> from dsrd.events import Events
    >>> stream = Events.from_numpy([1] * 5, [2] * 5, [0.0, 0.0, 1.0, 2.0, 2.0])
    >>> list(aligned(stream, 1))
    [slice(0, 2, None), slice(2, 3, None), slice(3, 5, None)]
    """
    ends = [*(events.time.diff().nonzero().squeeze(1) + 1).tolist(), len(events)]  # rows where a timestamp ends
    start = 0
    while start < len(events):
        end = ends[bisect_left(ends, min(start + size, len(events)))]
        yield slice(start, end)
        start = end
