"""`Asked`: what an engine and a replica share: questions about the present, and a look at what is live."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Self

from dsrd.live.answering import Answering, Scored, State
from dsrd.live.incoming import EventReader
from dsrd.live.lock import ReadWriteLock
from dsrd.live.recovery import Recovered
from dsrd.live.watch import Watch


class Asked(ABC):
    """Answers questions about a live run, from several threads at a time; a subclass keeps the run up to date."""

    _live: Recovered
    _lock: ReadWriteLock
    _answering: Answering

    @abstractmethod
    def close(self) -> None:
        """Let the data folder go."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

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
