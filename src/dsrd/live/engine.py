"""`Engine`: a trained run behind a durable log. It observes events as they come and answers from all of them."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import torch

from dsrd.errors import DsrdError
from dsrd.events import Query
from dsrd.live.data_folder import DataFolder
from dsrd.live.incoming import EventReader, Incoming, Position, node_name
from dsrd.live.lock import ReadWriteLock
from dsrd.live.log import Ids, Log
from dsrd.live.present import Answer
from dsrd.live.recovery import Recovered, recover
from dsrd.live.settings import LiveSettings
from dsrd.live.snapshots import Moment
from dsrd.live.tasks import Tasks
from dsrd.live.watch import Measured, Watch
from dsrd.live.writer import Observed, Writer

MOST_PAIRS = 512  # waiting pairs that are scored in one call


@dataclass(frozen=True)
class Scored:
    """Answers about pairs, made when the log had `seq` events."""

    seq: int
    time: float
    source: list[str]
    target: list[str]
    known: list[bool]  # both names occur in the stream
    answer: Answer


@dataclass(frozen=True)
class State:
    """Where an engine stands."""

    seq: int  # events in the log
    events: int  # events the model has seen, those of the run included
    nodes: int
    time: float  # of the newest event seen; -inf before the first
    digest: str  # of the events in the log
    waiting: int  # events that wait for older ones


class Engine:
    """A run that lives on: `observe` is durable when it returns, and answers take in all that was observed.

    All methods may be called from several threads.

    >>> import tempfile, dsrd
    >>> folder = Path(tempfile.mkdtemp())
    >>> model = dsrd.LinkPredictor(epochs=1, dim=8).fit(dsrd.load("synth:events=600"), folder=folder / "run", progress=False)
    >>> with Engine(folder / "data", folder / "run") as engine:
    ...     seen = engine.observe([{"source": 3, "target": 7, "time": 1e6}])
    ...     scored = engine.score([(3, 7), (3, 999)])
    >>> seen.seq, seen.accepted, scored.seq, scored.known
    (1, 1, 1, [True, False])
    >>> with Engine(folder / "data") as engine:  # started again: nothing is lost
    ...     engine.state().events
    601
    """

    def __init__(self, data: str | Path, run: str | Path | None = None, settings: LiveSettings | None = None) -> None:
        """Open the data folder, or create it from a trained run; then catch up with the log."""
        self.settings = settings or LiveSettings()
        self.folder = DataFolder(Path(data))
        self.lock = ReadWriteLock()
        """Reading the present, or writing to it."""
        self._closing = ExitStack()
        with ExitStack() as undo:
            undo.enter_context(self.folder.claimed())
            self.folder.prepare(None if run is None else Path(run), self.settings)
            log = Log(self.folder.log)
            undo.callback(log.close)
            self._live: Recovered = recover(self.folder, log, self.settings)
            self._writer = Writer(self)
            self._scoring: Tasks[_Question] = Tasks("dsrd-score", self._score_waiting)
            self._closing = undo.pop_all()
        self._closed = False
        self._snapshots = threading.Thread(target=self._snapshot_in_time, name="dsrd-snapshots", daemon=True)
        self._stopping = threading.Event()
        self._snapshots.start()

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Finish what is waiting, take a last snapshot and let the folder go."""
        if self._closed:
            return
        self._closed = True
        self._stopping.set()
        self._snapshots.join()
        self._scoring.close()
        self._writer.close()
        with self._closing:
            if self.failure is None and self._live.last_snapshot < self._live.timeline.seq:
                self._write_snapshot()

    # --- Events ------------------------------------------------------------------------------------------------------

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
        return self._live.intake.position(source)

    @property
    def reader(self) -> EventReader:
        """Reads events as the stream of the run writes them."""
        return self._live.reader

    @property
    def watch(self) -> Watch:
        """How surprising the latest events were."""
        return self._live.watch

    @property
    def counts(self) -> dict[str, int]:
        """What was counted over the life of the log: late events, duplicates, refused ones."""
        return dict(self._live.counts)

    @property
    def failure(self) -> DsrdError | None:
        """Why no more events can be taken, if that is so; questions are still answered."""
        return self._writer.failure

    # --- Questions ---------------------------------------------------------------------------------------------------

    def score(self, pairs: Sequence[tuple[Any, Any]], time: Any = None) -> Scored:
        """What the model says about pairs of names, at a time that is not before the newest event; default: now."""
        return self.score_soon(pairs, time).result()

    def score_soon(self, pairs: Sequence[tuple[Any, Any]], time: Any = None) -> Future[Scored]:
        """`score`, without waiting. Questions that wait at the same time are answered in one call."""
        sources = [node_name(source, row) for row, (source, _) in enumerate(pairs)]
        targets = [node_name(target, row) for row, (_, target) in enumerate(pairs)]
        question = _Question(sources, targets, self._time(time), Future())
        if not pairs:
            raise DsrdError("there are no pairs; give at least one")
        return self._scoring.put(question, question.future)

    def surprise(self, events: Sequence[Mapping[str, Any]]) -> Scored:
        """How surprising each of these events would be if it came next; nothing is observed."""
        asked = self.reader.records(events)
        if not len(asked):
            raise DsrdError("there are no events; give at least one")
        with self.lock.reading():
            return self._answer([_Question(asked.source, asked.target, asked.time, Future())])[0]

    def partners(self, node: Any, k: int = 10, time: Any = None) -> Scored:
        """The k most likely targets of a node among all targets so far, best first."""
        if not isinstance(k, int) or k < 1:
            raise DsrdError(f"k={k}: give a whole number, 1 or more")
        name, at = node_name(node, 0), self._time(time)
        with self.lock.reading():
            live = self._live.timeline
            moment = live.present.time_of_question(at)
            known = live.nodes.find(name)
            source = live.nodes.count if known is None else known
            live.present.check_source(source, name)
            target, answer = live.present.partners(source, k, moment)
            names = [live.nodes.name(each) for each in target.tolist()]
            return Scored(live.seq, moment, [name] * len(names), names, [known is not None] * len(names), answer)

    def state(self) -> State:
        """Where the engine stands."""
        with self.lock.reading():
            live = self._live.timeline
            present = live.present
            return State(
                live.seq, present.num_events, live.nodes.count - 1, present.last_time, live.digest, live.num_waiting
            )

    def _time(self, time: Any) -> float | None:
        return None if time is None else float(self.reader.times([time])[0])

    def _score_waiting(self, questions: list[_Question]) -> None:
        with self.lock.reading():
            for start, stop in _groups_of([len(each.source) for each in questions], MOST_PAIRS):
                self._answer(questions[start:stop])

    def _answer(self, questions: list[_Question]) -> list[Scored]:
        """Answer questions in one call of the model; an error of one does not fail the others."""
        live = self._live.timeline
        valid, queries, known = [], [], []
        for question in questions:
            try:
                query, is_known = self._query(question)
            except Exception as error:
                question.future.set_exception(error)
                continue
            valid.append(question)
            queries.append(query)
            known.append(is_known)
        if not valid:
            if len(questions) == 1:
                questions[0].future.result()
            return []
        answer, start, scored = live.present.score(Query.cat(*queries)), 0, []
        for question, query, is_known in zip(valid, queries, known, strict=True):
            rows = slice(start, start + len(query))
            time = float(query.time[0])
            scored.append(Scored(live.seq, time, question.source, question.target, is_known, answer[rows]))
            question.future.set_result(scored[-1])
            start += len(query)
        return scored

    def _query(self, question: _Question) -> tuple[Query, list[bool]]:
        live, unknown = self._live.timeline, {}
        src, known_src = _ids(live.nodes, question.source, False, unknown)
        dst, known_dst = _ids(live.nodes, question.target, True, unknown)
        if isinstance(question.time, np.ndarray):
            time = np.array([live.present.time_of_question(float(each)) for each in question.time])
        else:
            time = np.full(len(src), live.present.time_of_question(question.time))
        query = Query(torch.from_numpy(src), torch.from_numpy(dst), torch.from_numpy(time))
        return query, (known_src & known_dst).tolist()
