"""`Engine`: a trained run behind a durable log. It observes events as they come and answers from all of them."""

from __future__ import annotations

import threading
import time as clock
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

from dsrd.errors import DsrdError
from dsrd.live.answering import Answering, Scored, State
from dsrd.live.data_folder import DataFolder
from dsrd.live.incoming import EventReader, Incoming, Position
from dsrd.live.lock import ReadWriteLock
from dsrd.live.log import Log
from dsrd.live.recovery import Progress, Recovered, recover
from dsrd.live.settings import LiveSettings
from dsrd.live.snapshots import Moment
from dsrd.live.swap import Fresh, swap
from dsrd.live.watch import Watch
from dsrd.live.writer import Observed, Writer

DAY = 86_400.0
TICK = 1.0  # seconds between looks at whether a snapshot is due


class Engine:
    """A run that lives on: `observe` is durable when it returns, and answers take in all that was observed.

    All methods may be called from several threads.

    >>> import tempfile, dsrd
    >>> folder = Path(tempfile.mkdtemp())
    >>> model = dsrd.LinkPredictor(epochs=1, dim=8)
    >>> model = model.fit(dsrd.load("synth:events=600"), folder=folder / "run", progress=False)
    >>> with Engine(folder / "data", folder / "run") as engine:
    ...     seen = engine.observe([{"source": 3, "target": 7, "time": 1e7}])
    ...     scored = engine.score([(3, 7), (3, 999)])
    >>> seen.seq, seen.accepted, scored.seq, scored.known
    (1, 1, 1, [True, False])
    >>> with Engine(folder / "data") as engine:  # started again: nothing is lost
    ...     engine.state().events
    601
    """

    def __init__(
        self,
        data: str | Path,
        run: str | Path | None = None,
        settings: LiveSettings | None = None,
        progress: Progress | None = None,
    ) -> None:
        """Open the data folder, or create it from a trained run; then catch up with the log.

        Meanwhile `progress` is called with the number of events of the log that are back, and of all.
        """
        self.settings = settings or LiveSettings()
        self.folder = DataFolder(Path(data))
        with ExitStack() as undo:
            undo.enter_context(self.folder.claimed())
            self.folder.prepare(None if run is None else Path(run), self.settings)
            self._log = Log(self.folder.log)
            undo.callback(self._log.close)
            self._live = recover(self.folder, self._log, progress)
            self._lock = ReadWriteLock()
            self._writer = Writer(self._live, self._log, self._lock, self.settings)
            self._answering = Answering(self._live, self._lock)
            self._fresh = Fresh(self.folder, self._live, self._swap)
            self._closing = undo.pop_all()
        self._stopping = threading.Event()
        self._snapshotting = threading.Lock()
        self._since = clock.monotonic()  # the last snapshot, or the start
        self._snapshots = threading.Thread(target=self._look_after, name="dsrd-snapshots", daemon=True)
        self._snapshots.start()

    def __enter__(self) -> Engine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Finish what is waiting, take a last snapshot and let the folder go."""
        if self._stopping.is_set():
            return
        self._stopping.set()
        self._snapshots.join()
        with self._closing:
            try:
                if self.failure is None and self._live.last_snapshot < self._live.timeline.seq:
                    self.snapshot()
            finally:
                self._writer.close()
                self._answering.close()

    # --- Events --------------------------------------------------------------------------------------------------

    def observe(
        self,
        events: Sequence[Mapping[str, Any]] | Incoming,
        *,
        position: Position | None = None,
        measure: bool = False,
    ) -> Observed:
        """Observe events; they are on disk when this returns.

        Events are mappings with `source`, `target`, `time`, and perhaps `id` (an event with an id seen before is
        not counted again) and `features`. With `position`, neither are events that a source has read before. With
        `measure`, the result says how surprising each event was, given everything before it.
        """
        return self.observe_soon(events, position=position, measure=measure).result()

    def observe_soon(
        self,
        events: Sequence[Mapping[str, Any]] | Incoming,
        *,
        position: Position | None = None,
        measure: bool = False,
    ) -> Future[Observed]:
        """`observe`, without waiting."""
        request = events if isinstance(events, Incoming) else self.reader.records(events, position)
        return self._writer.observe(request, measure)

    def position(self, source: str) -> int | None:
        """How far a source was read, as of the last commit; None if never."""
        return self._writer.position(source)

    # --- Questions -----------------------------------------------------------------------------------------------

    def score(self, pairs: Sequence[tuple[Any, Any]], time: Any = None) -> Scored:
        """What the model says about pairs of names, at a time not before the newest event; default: now."""
        return self.score_soon(pairs, time).result()

    def score_soon(self, pairs: Sequence[tuple[Any, Any]], time: Any = None) -> Future[Scored]:
        """`score`, without waiting. Questions that wait at the same time are answered in one call."""
        return self._answering.score_soon(pairs, time)

    def surprise(self, events: Sequence[Mapping[str, Any]]) -> Scored:
        """How surprising each of these events would be if it came next; nothing is observed."""
        return self.surprise_soon(events).result()

    def surprise_soon(self, events: Sequence[Mapping[str, Any]]) -> Future[Scored]:
        """`surprise`, without waiting."""
        return self._answering.surprise_soon(events)

    def partners(self, node: Any, k: int = 10, time: Any = None, exact: bool = False) -> Scored:
        """The k most likely targets of a node among all targets so far, best first.

        Of many targets, those that a cheap first score puts in front are ranked; with `exact`, all of them.
        """
        return self._answering.partners(node, k, time, exact)

    def state(self) -> State:
        """Where the engine stands."""
        return self._answering.state()

    # --- About the engine ----------------------------------------------------------------------------------------

    @property
    def reader(self) -> EventReader:
        """Reads events as the stream of the run writes them."""
        return self._live.reader

    @property
    def watch(self) -> Watch:
        """How surprising the latest events were."""
        return self._live.watch

    @property
    def live(self) -> Recovered:
        """The run, its nodes and its present; to be read while `reading()` is held."""
        return self._live

    def reading(self) -> AbstractContextManager[None]:
        """Inside, nothing changes; not to be held for long, and not twice by one thread."""
        return self._lock.reading()

    @property
    def counts(self) -> dict[str, int]:
        """What was counted over the life of the log: late events, duplicates, refused ones."""
        return dict(self._writer.counts)

    @property
    def failure(self) -> DsrdError | None:
        """Why no more events can be taken, if that is so; questions are still answered."""
        return self._writer.failure

    @property
    def num_waiting(self) -> tuple[int, int]:
        """Requests to observe and questions that wait."""
        return self._writer.num_waiting, self._answering.num_waiting

    # --- Snapshots and compaction --------------------------------------------------------------------------------

    def snapshot(self) -> int:
        """Write a snapshot of the state; the number of the newest event in it. Nobody has to wait meanwhile."""
        with self._snapshotting:
            copied: tuple[Moment, dict[str, Any]] = self._writer.do(self._copy).result()
            moment, state = copied
            self._live.snapshots.write(moment, state)
            self._live.last_snapshot, self._since = moment.seq, clock.monotonic()
            self._live.snapshots.remove_all_but(self.settings.keep_snapshots)
            return moment.seq

    def _copy(self) -> tuple[Moment, dict[str, Any]]:
        """The state; taken by the thread that writes it, so nobody who reads has to wait."""
        timeline = self._live.timeline
        moment = Moment(timeline.seq, timeline.applied, timeline.digest)
        return moment, timeline.present.state()

    def _look_after(self) -> None:
        while not self._stopping.wait(TICK):
            if self.failure is None and self._snapshot_is_due():
                try:
                    self.compact()
                except DsrdError as error:
                    self._live.notes.append(f"no snapshot: {error}")
                    self._since = clock.monotonic()  # tried again when the next one is due
            if self.failure is None:
                try:
                    self._fresh.look()
                except Exception as error:  # the old weights stay in use, and snapshots go on
                    self._live.notes.append(f"the refit cannot be used: {error}")

    def _swap(self, new: Recovered) -> None:
        """Use other weights from now on; events and questions hardly wait."""

        def while_nothing_is_written() -> None:
            swap(self._live, new, self.folder, self._log, self._lock)
            self._writer.start_over()

        self._writer.do(while_nothing_is_written).result()
        self.snapshot()

    def _snapshot_is_due(self) -> bool:
        new = self._live.timeline.seq - self._live.last_snapshot
        settings, age = self.settings, clock.monotonic() - self._since
        by_events = 0 < settings.snapshot_events <= new
        return by_events or (new > 0 and 0 < 60 * settings.snapshot_minutes <= age)

    def compact(self, *, vacuum: bool = False) -> int:
        """Take a snapshot, remove old ones, join small rows of the log and forget old event ids.

        With `vacuum`, the space is given back to the disk, which takes a while for a large log. Returns the number
        of rows by which the log is shorter.
        """
        until = self.snapshot()
        saved = 0
        while True:  # piece by piece, so that events do not wait for all of it
            done: int = self._writer.do(lambda: self._log.pack(until)).result()
            saved += done
            if not done or self._stopping.is_set():
                break
        if self.settings.keep_ids:
            before = clock.time() - DAY * self.settings.keep_ids
            self._writer.do(lambda: self._log.forget_ids(before)).result()
        if vacuum:
            self._writer.do(self._log.vacuum).result()
        return saved
