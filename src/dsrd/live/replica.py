"""`Replica`: answers from the log of an engine that another process writes."""

from __future__ import annotations

import threading
import time as clock
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Any

from dsrd.errors import DsrdError, MachineError
from dsrd.live.answering import Answering, Scored, State
from dsrd.live.data_folder import DataFolder
from dsrd.live.incoming import EventReader
from dsrd.live.lock import ReadWriteLock
from dsrd.live.log import Entry, Log
from dsrd.live.recovery import Progress, Recovered, recover
from dsrd.live.watch import Budget, Watch
from dsrd.live.writer import MEASURED, measured_events

PERIOD = 0.1  # seconds between looks at the log


class Replica:
    """Follows the data folder of an engine and answers like it, a moment later. It writes nothing.

    >>> import tempfile, dsrd
    >>> from dsrd.live import Engine
    >>> folder = Path(tempfile.mkdtemp())
    >>> stream = dsrd.load("synth:events=600")
    >>> model = dsrd.LinkPredictor(epochs=1, dim=8).fit(stream, folder=folder / "run", progress=False)
    >>> with Engine(folder / "data", folder / "run") as engine:
    ...     with Replica(folder / "data") as replica:
    ...         seen = engine.observe([{"source": 3, "target": 7, "time": 1e7}])
    ...         replica.wait_for(seen.seq)
    ...         replica.state() == engine.state()
    True
    """

    def __init__(self, data: str | Path, progress: Progress | None = None) -> None:
        """Open a data folder and catch up with its log; then follow it."""
        self.folder = DataFolder(Path(data))
        self._base = self.folder.base()
        self._log = Log(self.folder.log, read_only=True)
        self._live = recover(self.folder, self._log, progress)
        self._lock = ReadWriteLock()
        self._answering = Answering(self._live, self._lock)
        self._budget = Budget(0.25)
        self._behind = 0
        self._failure: DsrdError | None = None
        self._stopping = threading.Event()
        self._moved = threading.Condition()
        self._following = threading.Thread(target=self._follow, name="dsrd-follow", daemon=True)
        self._following.start()

    def __enter__(self) -> Replica:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop following."""
        if not self._stopping.is_set():
            self._stopping.set()
            self._following.join()
            self._answering.close()
            self._log.close()

    # --- Questions -----------------------------------------------------------------------------------------------

    def score(self, pairs: Sequence[tuple[Any, Any]], time: Any = None) -> Scored:
        """See `Engine.score`."""
        return self.score_soon(pairs, time).result()

    def score_soon(self, pairs: Sequence[tuple[Any, Any]], time: Any = None) -> Future[Scored]:
        """`score`, without waiting."""
        return self._answering.score_soon(pairs, time)

    def surprise(self, events: Sequence[Mapping[str, Any]]) -> Scored:
        """See `Engine.surprise`."""
        return self.surprise_soon(events).result()

    def surprise_soon(self, events: Sequence[Mapping[str, Any]]) -> Future[Scored]:
        """`surprise`, without waiting."""
        return self._answering.surprise_soon(events)

    def partners(self, node: Any, k: int = 10, time: Any = None, exact: bool = False) -> Scored:
        """See `Engine.partners`."""
        return self._answering.partners(node, k, time, exact)

    def state(self) -> State:
        """Where the replica stands."""
        return self._answering.state()

    # --- About the replica ---------------------------------------------------------------------------------------

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
        """Inside, nothing changes."""
        return self._lock.reading()

    @property
    def counts(self) -> dict[str, int]:
        """What the engine counted over the life of the log."""
        return self._log.counts()

    @property
    def failure(self) -> DsrdError | None:
        """Why the replica no longer follows, if that is so; it still answers."""
        return self._failure

    @property
    def num_waiting(self) -> tuple[int, int]:
        """Requests to observe, of which there are none, and questions that wait."""
        return 0, self._answering.num_waiting

    @property
    def behind(self) -> int:
        """Events in the log that the replica has not seen."""
        return self._behind

    def wait_for(self, seq: int, timeout: float = 60.0) -> None:
        """Return once the replica has seen an event."""
        with self._moved:
            if not self._moved.wait_for(lambda: self._live.timeline.seq >= seq or self._failure, timeout):
                raise MachineError(f"event {seq} did not come within {timeout:g} seconds; is the engine running?")
        if self._failure is not None:
            raise self._failure

    # --- Following -----------------------------------------------------------------------------------------------

    def _follow(self) -> None:
        while not self._stopping.wait(PERIOD):
            try:
                if self.folder.base() != self._base:
                    self._open_again()
                self._read_on()
            except Exception as error:
                self._failure = MachineError(f"the replica no longer follows ({error}); start it again")
                return
            finally:
                with self._moved:
                    self._moved.notify_all()

    def _read_on(self) -> None:
        seq, last = self._live.timeline.seq, self._log.last
        self._behind = last - seq
        for entry in self._log.entries(seq) if last > seq else ():
            unseen = entry.part(seq, entry.last) if entry.first <= seq else entry
            for commit in self._live.timeline.steps(unseen):
                self._see(commit)
                self._behind = max(last - commit.last, 0)
                if self._stopping.is_set():
                    return

    def _see(self, commit: Entry) -> None:
        began = clock.monotonic()
        timeline = self._live.timeline
        with self._lock.writing():
            seen, bits = timeline.advance(commit, MEASURED if self._budget.left else 0)
            last_met = timeline.present.last_met(seen.src, seen.dst, seen.time)
        if bits is not None and len(bits):
            self._live.watch.add(measured_events(self._live, seen, bits, last_met))
            self._budget.charge(clock.monotonic() - began)

    def _open_again(self) -> None:
        """The engine uses another run from now on."""
        self._base = self.folder.base()
        live = recover(self.folder, self._log)
        with self._lock.writing():
            vars(self._live).update(vars(live))
