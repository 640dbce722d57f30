"""`Writer`: the one thread that writes. It commits all requests that wait at once, then observes them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dsrd.errors import DsrdError, MachineError
from dsrd.live.incoming import Incoming
from dsrd.live.intake import Intake, Receipt
from dsrd.live.lock import ReadWriteLock
from dsrd.live.log import Entry, Floats, Log, LogFailedError
from dsrd.live.pending import Columns
from dsrd.live.recovery import Recovered
from dsrd.live.settings import LiveSettings
from dsrd.live.tasks import Tasks
from dsrd.live.watch import Budget, Measured

MEASURED = 64  # events of a commit whose surprise is measured where nobody asked for all
MOST_EVENTS = 20_000  # in a commit; what waits beyond that is committed next


@dataclass(frozen=True)
class Observed:
    """What became of a request. `seq` is the number of the newest event in the log."""

    seq: int
    accepted: int
    duplicates: int
    late: int
    measured: tuple[Measured, ...] = ()
    """With `measure`: the events that the model saw with this request, and how surprising they were."""
    rows: Sequence[int] = ()
    """Rows of the request that were accepted, in the order of the log."""


@dataclass(frozen=True)
class Request:
    """Events to observe."""

    events: Incoming
    measure: bool = False
    future: Future[Observed] = field(default_factory=Future)


@dataclass(frozen=True)
class Job:
    """Something else that only this thread may do, such as packing the log."""

    run: Callable[[], Any]
    future: Future[Any] = field(default_factory=Future)


Taken = list[tuple[Request, Receipt]]


class Writer:
    """Takes requests to observe from any thread; their futures are done when the log has the events on disk and
    the model has seen them."""

    def __init__(self, live: Recovered, log: Log, lock: ReadWriteLock, settings: LiveSettings) -> None:
        self._live, self._log, self._lock, self._settings = live, log, lock, settings
        self.counts = log.counts()
        """What was counted over the life of the log."""
        self._positions = log.positions()
        self._uncommitted: dict[str, int] = {}  # counts of requests that brought nothing to commit
        self._budget = Budget(settings.watch)
        self.failure: DsrdError | None = None
        """Why no more events can be taken, if that is so."""
        self.start_over()
        self._tasks: Tasks[Request | Job] = Tasks("dsrd-write", self._work)

    def start_over(self) -> None:
        """Take events by the names and times of the timeline as it is now."""
        present = self._live.timeline.present
        self._intake = Intake(
            self._live.timeline.nodes,
            self._settings,
            self._live.timeline.newest,
            self._live.floor,
            self._positions,
            self._log.known_ids,
            present,
        )

    @property
    def num_waiting(self) -> int:
        """Requests and jobs that wait."""
        return len(self._tasks)

    def observe(self, events: Incoming, measure: bool) -> Future[Observed]:
        """Observe events, soon."""
        if self.failure is not None:
            raise self.failure
        request = Request(events, measure)
        return self._tasks.put(request, request.future)

    def do(self, run: Callable[[], Any]) -> Future[Any]:
        """Run something while nothing is written."""
        job = Job(run)
        return self._tasks.put(job, job.future)

    def position(self, source: str) -> int | None:
        """How far a source was read, as of the last commit."""
        return self._positions.get(source)

    def close(self) -> None:
        """Write what is waiting, then end."""
        self._tasks.close()

    def _work(self, tasks: list[Request | Job]) -> None:
        taken: Taken = []
        for task in tasks:
            if isinstance(task, Job):
                taken = self._commit(taken)
                try:
                    task.future.set_result(task.run())
                except Exception as error:
                    task.future.set_exception(error)
                continue
            try:
                if self.failure is not None:
                    raise self.failure
                seq = self._live.timeline.seq + self._intake.group.num_events
                taken.append((task, self._intake.take(task.events, seq)))
            except Exception as error:
                task.future.set_exception(error)
            if self._intake.group.num_events >= MOST_EVENTS:
                taken = self._commit(taken)
        self._commit(taken)

    def _commit(self, taken: Taken) -> Taken:
        """Commit what the intake has accepted, observe it and answer; the next group is empty."""
        try:
            entry = self._logged()
            measured = () if entry is None else self._observed(entry, taken)
        except Exception as error:
            for request, _ in taken:
                request.future.set_exception(error)
            return []
        seq = self._live.timeline.seq
        for request, receipt in taken:
            part = _of_request(measured, receipt, self._settings) if request.measure else ()
            counts = (receipt.accepted, receipt.duplicates, receipt.late)
            request.future.set_result(Observed(seq, *counts, part, receipt.rows.tolist()))
        return []

    def _logged(self) -> Entry | None:
        """Commit the group of the intake; None if it has no events."""
        group, intake = self._intake.group, self._intake
        counts = _sum(self._uncommitted, group.counts)
        entry = None
        if group.num_events:
            columns = Columns.cat(*map(Columns, group.src, group.dst, group.time, group.x))
            cuts = np.array([[group.num_events, len(group.names)]])
            last = self._live.timeline.seq + group.num_events
            entry = Entry(last, *columns, tuple(group.names), time.time(), cuts)
        if entry is None and not group.positions:
            self._uncommitted = counts
        else:
            try:
                self._log.append(entry, group.ids, group.positions, counts)
            except BaseException as error:
                intake.undo_group()
                if isinstance(error, LogFailedError):
                    self.failure = error
                raise
            self._uncommitted = {}
            self._positions.update(group.positions)
        self.counts = _sum(self.counts, group.counts)
        intake.start_group()
        return entry

    def _observed(self, entry: Entry, taken: Taken) -> tuple[Measured, ...]:
        """Let the model see the events of a commit, and measure the surprise of some or all of them."""
        wanted = any(request.measure for request, _ in taken)
        most = len(entry.src) + self._live.timeline.num_waiting if wanted else MEASURED if self._budget.left else 0
        began = time.monotonic()
        try:
            with self._lock.writing():
                seen, bits = self._live.timeline.advance(entry, most)
                last_met = self._live.timeline.present.last_met(seen.src, seen.dst, seen.time)
        except Exception as error:
            self.failure = MachineError(
                f"the log has event {entry.last} but the model failed to observe it "
                f"({type(error).__name__}: {error}); start again"
            )
            raise self.failure from error
        self._live.watch.rates.add(len(entry.src))
        if bits is None or not len(bits):
            return ()
        measured = measured_events(self._live, seen, bits, last_met)
        self._live.watch.add(measured)
        if not wanted:
            self._budget.charge(time.monotonic() - began)
        return measured


def measured_events(live: Recovered, seen: Columns, bits: Floats, last_met: Floats) -> tuple[Measured, ...]:
    """The last events of those the model has just seen, with their bits and how these compare."""
    first, timeline, now = len(seen.src) - len(bits), live.timeline, time.time()
    name, has_sources = timeline.nodes.name, timeline.present.model.has_intensity
    rows = zip(
        seen.src[first:].tolist(),
        seen.dst[first:].tolist(),
        seen.time[first:].tolist(),
        (bits[:, 0] if has_sources else np.full(len(bits), np.nan)).tolist(),
        bits[:, 1].tolist(),
        live.watch.percentiles(bits.sum(axis=1)).tolist(),
        last_met[first:].tolist(),
        strict=True,
    )
    start = timeline.applied - len(bits) + 1
    return tuple(
        Measured(start + row, name(src), name(dst), at, now, *rest)
        for row, (src, dst, at, *rest) in enumerate(rows)
    )


def _of_request(measured: tuple[Measured, ...], receipt: Receipt, settings: LiveSettings) -> tuple[Measured, ...]:
    """The events of a request; where events wait for older ones, all that the model saw with it."""
    if settings.window:
        return measured
    return tuple(each for each in measured if receipt.seq - receipt.accepted < each.seq <= receipt.seq)


def _sum(*counts: dict[str, int]) -> dict[str, int]:
    kinds = {kind for each in counts for kind in each}
    return {kind: sum(each.get(kind, 0) for each in counts) for kind in kinds}
