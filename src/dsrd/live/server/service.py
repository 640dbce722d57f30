"""`Service`: the engine or replica behind a server, from the moment it starts to recover until it is closed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from dsrd.errors import DsrdError, MachineError
from dsrd.live.answering import Scored, State
from dsrd.live.engine import Engine
from dsrd.live.recovery import Progress, Recovered
from dsrd.live.replica import Replica
from dsrd.live.watch import Watch

Live = Engine | Replica
"""What answers: an engine, or with `--read-only` a replica of one."""


class NotReadyError(Exception):
    """The server is up, the engine is not: it catches up with its log, or is stopping."""


class Service:
    """Opens an engine in a thread of its own, so that a server answers while it recovers."""

    def __init__(self, open_engine: Callable[[Progress], Live]) -> None:
        """`open_engine` gets a function to report progress to."""
        self._open = open_engine
        self._engine: Live | None = None
        self.error: BaseException | None = None
        """Why the engine could not be opened."""
        self.progress = (0, 0)
        """Events of the log that are back, and all of them."""
        self.stopping = False
        self._thread: threading.Thread | None = None

    def start(self, failed: Callable[[], None] = lambda: None) -> None:
        """Begin to open the engine; `failed` is called if that raises an error."""
        self._thread = threading.Thread(target=self._run, args=(failed,), name="dsrd-open", daemon=True)
        self._thread.start()

    def _run(self, failed: Callable[[], None]) -> None:
        def report(done: int, all_events: int) -> None:
            self.progress = done, all_events
            if self.stopping:
                raise NotReadyError("stopped while it caught up with the log")

        try:
            self._engine = self._open(report)
        except BaseException as error:
            self.error = error
            failed()

    def close(self) -> None:
        """Close the engine: it finishes what is waiting and takes a snapshot."""
        self.stopping = True
        if self._thread is not None:
            self._thread.join()
        if self._engine is not None:
            self._engine.close()

    @property
    def ready(self) -> bool:
        """Whether questions are answered."""
        return self._engine is not None and not self.stopping

    @property
    def why_not_ready(self) -> str:
        """In words; empty if it is ready."""
        if self.stopping:
            return "the server is stopping"
        if self.error is not None:
            return str(self.error)
        if self._engine is None:
            done, all_events = self.progress
            return f"catching up with the log: {done:,} of {all_events:,} events"
        return "" if self._engine.failure is None else str(self._engine.failure)

    @property
    def engine(self) -> Live:
        """The engine, once it is ready."""
        if self._engine is None:
            raise NotReadyError(f"{self.why_not_ready}; ask again in a moment")
        return self._engine

    @property
    def writer(self) -> Engine:
        """The engine, if this server takes events."""
        engine = self.engine
        if isinstance(engine, Replica):
            raise ReadOnlyError("this server only answers; send events to the one it follows")
        return engine

    # --- What the page reads -------------------------------------------------------------------------------------

    @property
    def watch(self) -> Watch:
        return self.engine.watch

    @property
    def failure(self) -> DsrdError | None:
        return self.engine.failure

    @property
    def live(self) -> Recovered:
        return self.engine.live

    def health(self) -> dict[str, Any]:
        """What the page shows beside the state."""
        engine = self.engine
        if isinstance(engine, Replica):
            return {"ready": not self.why_not_ready, "read_only": True, "behind": engine.behind}
        return {"ready": not self.why_not_ready, "requests": engine.num_waiting[0]}

    def reading(self) -> AbstractContextManager[Any]:
        return self.engine.reading()

    def state(self) -> State:
        return self.engine.state()

    def partners(self, node: Any, k: int = 10, time: Any = None) -> Scored:
        return self.engine.partners(node, k, time)


class ReadOnlyError(DsrdError):
    """Events were sent to a replica."""


def status_of(error: DsrdError) -> int:
    """The HTTP status that says who has to do something about an error."""
    if isinstance(error, ReadOnlyError):
        return 403
    return 503 if isinstance(error, MachineError) else 422
