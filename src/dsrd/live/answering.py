"""`Answering`: questions to a model at its newest event, asked by name; waiting ones are answered together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from dsrd.errors import DsrdError
from dsrd.events import Query
from dsrd.live.incoming import EventError, Floats, node_name
from dsrd.live.lock import ReadWriteLock
from dsrd.live.present import Answer
from dsrd.live.recovery import Recovered
from dsrd.live.tasks import Tasks

MOST_PAIRS = 512  # waiting pairs that are scored in one call


@dataclass(frozen=True)
class Scored:
    """Answers about pairs, made when the log had `seq` events."""

    seq: int
    time: float  # of the first pair
    source: list[str]
    target: list[str]
    known: list[bool]  # both names occur in the stream
    answer: Answer
    exact: bool = True  # no target was left out by a first score


@dataclass(frozen=True)
class State:
    """Where an engine stands."""

    seq: int  # events in the log
    events: int  # events the model has seen, those of the run included
    nodes: int
    time: float  # of the newest event seen; -inf before the first
    digest: str  # of the events in the log
    waiting: int  # events that wait for older ones


@dataclass(frozen=True)
class _Question:
    """Pairs that somebody asks about."""

    source: list[str]
    target: list[str]
    time: float | Floats | None  # None: now; an array has one time per pair
    future: Future[Scored] = field(default_factory=Future)


class Answering:
    """Answers `score`, `surprise`, `partners` and `state`, from several threads at a time."""

    def __init__(self, live: Recovered, lock: ReadWriteLock) -> None:
        self._live, self._lock = live, lock
        self._scoring: Tasks[_Question] = Tasks("dsrd-score", self._score_waiting)

    def close(self) -> None:
        """Answer what is waiting, and nothing any more."""
        self._scoring.close()

    @property
    def num_waiting(self) -> int:
        """Questions that wait."""
        return len(self._scoring)

    def score_soon(self, pairs: Sequence[tuple[Any, Any]], time: Any = None) -> Future[Scored]:
        """What the model says about pairs. Questions that wait at the same time are answered in one call."""
        if not pairs:
            raise DsrdError("there are no pairs; give at least one")
        with _faults_of("pair {}"):
            sources = [node_name(source, row) for row, (source, _) in enumerate(pairs)]
            targets = [node_name(target, row) for row, (_, target) in enumerate(pairs)]
        question = _Question(sources, targets, self._time(time))
        return self._scoring.put(question, question.future)

    def surprise_soon(self, events: Sequence[Mapping[str, Any]]) -> Future[Scored]:
        """How surprising each of these events would be if it came next."""
        if not events:
            raise DsrdError("there are no events; give at least one")
        asked = self._live.reader.records(events)
        question = _Question(asked.source, asked.target, asked.time)
        return self._scoring.put(question, question.future)

    def partners(self, node: Any, k: int, time: Any = None, exact: bool = False) -> Scored:
        """The k most likely targets of a node."""
        if not isinstance(k, int) or isinstance(k, bool) or k < 1:
            raise DsrdError(f"k={k!r:.40}: give a whole number, 1 or more")
        with _faults_of("partners"):
            name = node_name(node, 0)
        at = self._time(time)
        with self._lock.reading():
            live = self._live.timeline
            moment = live.present.time_of_question(at)
            source = _known(live.nodes.find(name), live.num_nodes)
            row = live.num_nodes if source is None else source
            live.present.check_source(row, name)
            target, answer = live.present.partners(row, k, moment, exact)
            names = [live.nodes.name(each) for each in target.tolist()]
            known = [source is not None] * len(names)
            all_scored = not live.present.retrieves(k, exact)
            return Scored(live.seq, moment, [name] * len(names), names, known, answer, all_scored)

    def state(self) -> State:
        """Where the engine stands."""
        with self._lock.reading():
            live = self._live.timeline
            present = live.present
            counts = live.seq, present.num_events, live.num_nodes - 1
            return State(*counts, present.last_time, live.digest, live.num_waiting)

    def _time(self, time: Any) -> float | None:
        if time is None:
            return None
        with _faults_of("question"):
            return float(self._live.reader.times([time])[0])

    def _score_waiting(self, questions: list[_Question]) -> None:
        for group in _groups(questions):
            with self._lock.reading():
                self._answer(group)

    def _answer(self, questions: list[_Question]) -> None:
        """Answer questions in one call of the model; an error of one does not fail the others."""
        live = self._live.timeline
        asked: list[tuple[_Question, Query, list[bool]]] = []
        for question in questions:
            try:
                asked.append((question, *self._query(question)))
            except DsrdError as error:
                question.future.set_exception(error)
        if not asked:
            return
        answer, start = live.present.score(Query.cat(*(query for _, query, _ in asked))), 0
        for question, query, known in asked:
            part = answer[start : start + len(query)]
            start += len(query)
            time = float(query.time[0])
            question.future.set_result(Scored(live.seq, time, question.source, question.target, known, part))

    def _query(self, question: _Question) -> tuple[Query, list[bool]]:
        live = self._live.timeline
        unknown: dict[tuple[str, bool], int] = {}
        src, known_src = _ids(live, question.source, False, unknown)
        dst, known_dst = _ids(live, question.target, True, unknown)
        at = live.present.time_of_question
        if isinstance(question.time, np.ndarray):
            time = np.array([at(each) for each in question.time.tolist()])
        else:
            time = np.full(len(src), at(question.time))
        return Query(*map(torch.from_numpy, (src, dst, time))), (known_src & known_dst).tolist()


@contextmanager
def _faults_of(what: str) -> Iterator[None]:
    """Names what is asked about instead of an event; {} is the number of the row."""
    try:
        yield
    except EventError as error:
        raise DsrdError(f"{what.format(error.row + 1)}: {error.fault}") from None


def _known(node: int | None, num_nodes: int) -> int | None:
    """Names of events that are being committed are not known yet."""
    return None if node is None or node >= num_nodes else node


def _ids(
    live: Any, names: list[str], target: bool, unknown: dict[tuple[str, bool], int]
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Ids, and which names are known; unknown names get the ids that follow, each its own.  # [Q], [Q]"""
    ids, known = np.empty(len(names), np.int64), np.ones(len(names), np.bool_)
    side = live.nodes.side(target)
    for row, name in enumerate(names):
        node = _known(live.nodes.find(name, target=target), live.num_nodes)
        if node is None:
            known[row] = False
            node = unknown.setdefault((name, side), live.num_nodes + len(unknown))
        ids[row] = node
    return ids, known


def _groups(questions: list[_Question]) -> Iterator[list[_Question]]:
    """Neighbouring questions with at most `MOST_PAIRS` pairs together; a larger question is a group of its own."""
    group: list[_Question] = []
    pairs = 0
    for question in questions:
        if group and pairs + len(question.source) > MOST_PAIRS:
            yield group
            group, pairs = [], 0
        group.append(question)
        pairs += len(question.source)
    if group:
        yield group
