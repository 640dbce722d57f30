"""The two protocols, as tables: which events are scored, from which state, and what a score may have seen.

`dyglib` is the published protocol: state takes in a batch of 200 events at a time, even when the next batch lies
at the same timestamp. `strict` lets nothing at or after t reach a score at t, and every event before t count; its
scores do not depend on the batch size.

Neighbour look-ups see every earlier event of the stream in evaluation, those of withheld nodes included. The state
of a published model does not: it has seen the training events and what a pass walks through. An *exact* model's
state is the one that the look-ups speak of: it holds every event before t.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from torch import Tensor

from dsrd.data.split import Split
from dsrd.errors import unknown
from dsrd.events import Events, as_tensor

Setting = Literal["transductive", "inductive"]


@dataclass(frozen=True)
class Pass:
    """One walk through events: what is scored, from which snapshot of the state, against which negatives."""

    name: str
    part: Literal["val", "test"]
    setting: Setting
    events: Events
    meanwhile: Events  # everything that happens in its time, `events` among it
    pool: Events  # what negatives are drawn from
    seed: int  # of the negatives
    last_observed: float  # pairs up to here are not inductive negatives
    start: Literal["train", "val"]  # the state it begins with: after training or after validation
    leaves: Literal["val", ""] = ""  # the snapshot it leaves behind
    candidates: Tensor | None = None  # [E, m] wrong targets that came with the data, NULL where a row has fewer


def passes(split: Split) -> list[Pass]:
    """The four evaluation passes of the published protocol."""
    trained, validated = float(split.train.time[-1]), float(split.val.time[-1])
    return [
        Pass("val", "val", "transductive", split.val, split.val, split.full, 0, trained, "train", leaves="val"),
        Pass("val/new", "val", "inductive", split.val_new, split.val, split.val_new, 1, trained, "train"),
        Pass("test", "test", "transductive", split.test, split.test, split.full, 2, validated, "val"),
        Pass("test/new", "test", "inductive", split.test_new, split.test, split.test_new, 3, validated, "val"),
    ]


@dataclass(frozen=True)
class Protocol:
    """What a score may have seen, and what metrics average over."""

    name: str
    strict: bool  # equal timestamps never see each other
    fixed_batch: int | None  # negatives and batch means use batches of this size, whatever is scored at once
    lags: bool = False  # under strict, state may miss the events just before a query

    def metric_batch(self, batch_size: int) -> int:
        return batch_size if self.fixed_batch is None else self.fixed_batch

    def flushes(self, events: Events, size: int, exact: bool) -> Iterator[slice]:
        """Rows scored before they are observed, piece by piece.

        A model that is not `exact` (its state cannot be brought forward inside `score`) must have observed
        every earlier event, so under `strict` each timestamp is a piece of its own.
        """
        if self.strict:
            yield from aligned(events, size if exact or self.lags else 1)
        else:
            yield from (slice(row, min(row + size, len(events))) for row in range(0, len(events), size))

    def lagging(self) -> Protocol:
        """The same rules with state allowed to lag: nothing leaks, not everything earlier is seen."""
        return replace(self, lags=True)


PROTOCOLS = {
    "dyglib": Protocol("dyglib", strict=False, fixed_batch=None),
    "strict": Protocol("strict", strict=True, fixed_batch=200),
}


def protocol(name: str) -> Protocol:
    """The protocol of that name."""
    if name not in PROTOCOLS:
        raise unknown("protocol", name, PROTOCOLS)
    return PROTOCOLS[name]


def aligned(events: Events, size: int) -> Iterator[slice]:
    """Pieces of at least `size` events (the last excepted) that never cut a timestamp in two.

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


def arriving(events: Events, meanwhile: Events, flushes: Iterable[slice]) -> Iterator[tuple[slice, Events]]:
    """Each piece of `events` with what is taken in along with it: of all that happens meanwhile, every earlier
    event, and of the piece's last moment the piece's own.

    >>> stream = Events.from_numpy([1, 2, 3, 4, 5], [9] * 5, [0.0, 1.0, 1.0, 1.0, 2.0])
    >>> few = stream[as_tensor(np.array([2, 4]))]
    >>> [arrived.src.tolist() for _, arrived in arriving(few, stream, [slice(0, 1), slice(1, 2)])]
    [[1, 3], [2, 4, 5]]
    """
    order = np.argsort(meanwhile.id.numpy(), kind="stable")
    row = order[np.searchsorted(meanwhile.id.numpy(), events.id.numpy(), sorter=order)]  # of each event
    waiting, seen = np.ones(len(meanwhile), np.bool_), 0
    for flush in flushes:
        earlier = int(np.searchsorted(meanwhile.time.numpy(), float(events.time[flush.stop - 1])))
        own = row[flush]
        found = np.union1d(np.flatnonzero(waiting[seen:earlier]) + seen, own[waiting[own]])
        waiting[found], seen = False, earlier
        yield flush, meanwhile[as_tensor(found)]
