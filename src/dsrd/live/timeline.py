"""`Timeline`: how far a model has come in a log. The writer, recovery and read-only replicas go along it alike."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from itertools import pairwise

import numpy as np

from dsrd.estimator.fitted import Fitted
from dsrd.live.log import Entry, Floats
from dsrd.live.nodes import Nodes
from dsrd.live.pending import Columns, Pending
from dsrd.live.present import Present

JOINED = 100_000  # events replayed in one piece, where the pieces do not matter


class Timeline:
    """The present of a model and the events of the log on their way into it.

    The state of a model that depends on how events are cut into batches observes one commit after the other, here
    as at the time; of any other model long stretches are joined.
    """

    def __init__(self, fitted: Fitted, window: float, held: int = 0) -> None:
        """`held` events of the log are part of the run's history already."""
        data = fitted.online.stream.dataset()
        self.present = Present(fitted)
        self.nodes = Nodes(data.names, data.num_nodes)
        self.seq = 0
        """Events of the log so far; some may be waiting for older ones."""
        self.applied = 0
        """Events of the log that the model has seen."""
        self.newest = self.present.last_time
        self.num_nodes = self.nodes.count
        """Nodes of the events so far, padding included; the writer may have prepared names for more."""
        self._skipped = held
        self._pending = Pending(window)
        self._events_digest, self._names_digest = hashlib.blake2b(), hashlib.blake2b()

    @property
    def digest(self) -> str:
        """Identifies the events of the log so far, however they were cut into commits."""
        both = self._events_digest.digest() + self._names_digest.digest()
        return hashlib.blake2b(both, digest_size=16).hexdigest()

    @property
    def num_waiting(self) -> int:
        """Events that wait for older ones."""
        return len(self._pending)

    def advance(self, entry: Entry, most_measured: int = 0) -> tuple[Columns, Floats | None]:
        """Go on by one entry: the events that the model has now seen, and the bits of the last of them.

        At most `most_measured` are measured.  # [M, 2]
        """
        released = self._push(entry)
        measured = min(most_measured, len(released.time))
        return released, self.present.observe(*released, measured)

    def steps(self, entry: Entry) -> Iterator[Entry]:
        """A packed entry as the model has to see it: in one piece, or commit by commit."""
        if self.present.model.state_from_events:
            yield entry
        else:
            yield from commits_of(entry)

    def replay(self, entries: Iterable[Entry], until: int = 0, applied: int = 0) -> Iterator[int]:
        """Go on by many entries and yield after each stretch the number of the last event; one ends at `until`.

        The state holds the first `applied` events already, as they were when event `until` was the newest.
        """
        for entry in self._stretches(entries, until):
            released = self._push(entry)
            in_state = max(min(applied - (self.applied - len(released.time)), len(released.time)), 0)
            if in_state:
                self.present.record(*released.take(slice(0, in_state)))
            if in_state < len(released.time):
                self.present.observe(*released.take(slice(in_state, None)))
            yield self.seq

    def _push(self, entry: Entry) -> Columns:
        """Add an entry to what is waiting; the events that need not wait any longer."""
        new = self.nodes.missing(entry.names)
        self.nodes.add(new)
        if self.nodes.numbered and len(entry.src):
            self.nodes.grow(int(max(entry.src.max(), entry.dst.max())))
        self.num_nodes = self.nodes.count
        self._digest(entry)
        self.seq = entry.last
        if len(entry.time):
            self.newest = max(self.newest, float(entry.time.max()))
        released = self._pending.push(Columns(entry.src, entry.dst, entry.time, entry.x))
        skipped = min(self._skipped, len(released.time))
        self._skipped -= skipped
        self.applied += len(released.time)
        return released.take(slice(skipped, None)) if skipped else released

    def _digest(self, entry: Entry) -> None:
        rows = np.column_stack([entry.src, entry.dst, entry.time.view(np.int64)]).view(np.uint8)
        features = np.ascontiguousarray(entry.x).view(np.uint8).reshape(len(rows), -1)
        self._events_digest.update(np.concatenate([rows, features], axis=1).tobytes())
        for name, _ in entry.names:
            self._names_digest.update(json.dumps(name).encode())

    def _stretches(self, entries: Iterable[Entry], until: int) -> Iterator[Entry]:
        """Entries joined as far as that changes nothing, and cut after event `until`."""
        joined: list[Entry] = []
        events = 0
        for entry in entries:
            one_by_one = not self.present.model.state_from_events and entry.last > until
            pieces = commits_of(entry, until) if one_by_one else cut_after(entry, until)
            for piece in pieces:
                joined.append(piece)
                events += len(piece.src)
                if events >= JOINED or piece.last == until or one_by_one:
                    yield Entry.joined(joined)
                    joined, events = [], 0
        if joined:
            yield Entry.joined(joined)


def cut_after(entry: Entry, until: int) -> Iterator[Entry]:
    """A packed entry in two parts if event `until` lies inside."""
    if entry.first <= until < entry.last:
        yield entry.part(entry.first - 1, until)
        yield entry.part(until, entry.last)
    else:
        yield entry


def commits_of(entry: Entry, until: int = 0) -> Iterator[Entry]:
    """The commits of a packed entry one by one; those up to event `until` in one piece."""
    ends = (np.cumsum(entry.cuts[:, 0]) + entry.first - 1).tolist()
    bounds = [entry.first - 1, *(end for end in ends if end >= until)]
    for before, end in pairwise(bounds):
        yield entry.part(before, end)
