"""A trained model at the end of its stream: answers queries and observes events as they arrive."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dsrd import faults
from dsrd.data.dataset import Dataset
from dsrd.data.growing import Arrival, GrowingStream
from dsrd.errors import DsrdError
from dsrd.estimator.first_score import Retriever
from dsrd.estimator.ranking import Retrieval
from dsrd.estimator.shared_lock import SharedLock
from dsrd.evaluate.scoring import COPIED_BYTES, observe_all
from dsrd.evaluate.task import FULL_SEED
from dsrd.events import Events, Query
from dsrd.history.live import Live
from dsrd.history.past import Past
from dsrd.models import Snapshot, TemporalModel
from dsrd.protocol import STRICT
from dsrd.reporter import step

ONLINE = STRICT.lagging()  # how events are observed outside of an evaluation
AT_ONCE = 500  # pairs scored in one call: more do not fit the cache

Read = Callable[[TemporalModel, Query, Past], Tensor]
"""Reads numbers about pairs from a model in the state before their time.  # [Q] -> [Q, width]"""


class OnlineModel:
    """Weights, the events so far, and the state after all of them. Works with ids, not with names.

    A query after the last event is answered from the current state. For an earlier time the stream is observed
    again up to that time. The state does not depend on how the events arrived: it equals the state of a model that
    observes the whole stream at once.

    What is asked with `lock.run` may be asked from several threads: questions about the time after the last event
    are answered beside each other, everything that changes the state waits for them.
    """

    def __init__(
        self, model: TemporalModel, dataset: Dataset, state: Snapshot | None = None, num_observed: int = 0
    ) -> None:
        """`state` is that after the first `num_observed` events; without it the stream is observed on demand."""
        self.model, self.stream, self.lock = model.eval(), GrowingStream(dataset), SharedLock()
        self._observed: int | None = None  # events in the model's state; None: not a state of this stream
        if state is not None:
            model.state.adopt(state)
            self._observed = num_observed
        self._before_last_batch: tuple[Snapshot, int] | None = None  # that batch may be incomplete
        self._past: Live | None = None
        self._retrieval = Retrieval()
        self._targets: tuple[NDArray[np.int64], NDArray[np.float64]] | None = None  # and when each was first one

    @property
    def after_last(self) -> float:
        """The first time after the last event."""
        return math.nextafter(self.stream.last_time, math.inf)

    @property
    def past(self) -> Past:
        """The history of all events so far."""
        return self._history().to(self.model.device)

    def _history(self) -> Live:
        if self._past is None:
            self.lock.require_alone()
            data = self.stream.dataset()
            self._past = Live(data.events, edge_x=data.edge_x, node_x=data.node_x, seed=FULL_SEED)
        return self._past

    def settle(self, time: Tensor | None = None) -> None:
        """Bring everything up to date that questions at these times read; None: after the last event.

        Called before a question has had any effect: if there is something to do, the question begins again, alone.
        """
        if self.stream.has_arrivals:
            self.lock.require_alone()
            self.stream.dataset()
        self._history()
        self.up_to_date()
        self.targets(self.after_last)
        if time is not None and bool((time <= self.stream.last_time).any()):
            self.lock.require_alone()

    @torch.no_grad()
    def up_to_date(self) -> TemporalModel:
        """The model with its state after all events."""
        if self._observed == self.stream.num_events:
            return self.model
        self.lock.require_alone()
        if self._observed is None:
            self.model.state.reset()
            self._observed, self._before_last_batch = 0, None
        if self._observed < self.stream.num_events and not self.model.stateless:
            self._observe_missing()
        self._observed = self.stream.num_events
        return self.model.eval()

    def _observe_missing(self) -> None:
        """Observe the events that the state lacks.

        If a state depends on how events are cut into batches, the cuts are those of the whole stream: the last
        batch is observed again when more events complete it.
        """
        model = self.model
        if self._before_last_batch is not None:
            state, self._observed = self._before_last_batch
            model.state.adopt(state)
            self._before_last_batch = None
        assert self._observed is not None
        missing = self.stream.events_since(self._observed)
        batch_size = observe_batch_size(model)
        if not model.state_from_events:
            *_, last = ONLINE.flushes(missing, batch_size, exact=model.exact)
            observe_all(model, missing[: last.start], self.past, ONLINE, batch_size)
            self._before_last_batch = (model.state.snapshot(), self._observed + last.start)
            missing = missing[last.start :]
        observe_all(model, missing, self.past, ONLINE, batch_size)

    def state_to_save(self) -> tuple[Snapshot, int]:
        """The state from which a reopened run continues (not a copy), and the number of events in it."""
        self.up_to_date()
        if self._before_last_batch is not None:
            return self._before_last_batch
        return self.model.state.fields_now(), self.stream.num_events

    @contextmanager
    def state_preserved(self) -> Iterator[TemporalModel]:
        """Lend the model out inside the block. Afterwards its state is restored, or rebuilt when needed."""
        self.lock.require_alone()
        state, observed = self.model.state, self._observed
        copied = not self.model.state_from_events or state.nbytes() < COPIED_BYTES
        snapshot = state.snapshot() if observed is not None and copied else None
        self._observed = None
        try:
            yield self.model.eval()
        finally:
            if snapshot is not None:
                state.adopt(snapshot)
                self._observed = observed

    @torch.no_grad()
    def observe(self, arrival: Arrival) -> None:
        """Observe events that follow the stream."""
        self.lock.require_alone()
        history = self._history()
        if len(arrival.events) and float(arrival.events.time[0]) == self.stream.last_time:
            self._observed = None  # a timestamp is observed as a whole: one that gets more events starts over
        faults.point("before the stream grows")
        self.stream.append(arrival)
        faults.point("after the stream has grown")
        history.append(arrival.events, arrival.edge_x)
        self.up_to_date()
        self._add_targets(arrival.events)

    def _add_targets(self, events: Events) -> None:
        if self._targets is not None:
            known, first_time = self._targets
            target, first = np.unique(events.dst.numpy(), return_index=True)
            new = ~np.isin(target, known)
            both = np.concatenate([known, target[new]])
            times = np.concatenate([first_time, events.time.numpy()[first[new]]])
            order = np.argsort(both)
            self._targets = both[order], times[order]

    @torch.no_grad()
    def ask(self, query: Query, read: Read, *, width: int, at_once: int = AT_ONCE) -> Tensor:
        """What `read` reads of each pair at its time, from everything strictly before it.  # [Q, width] float64

        The pairs in a call of `read` are either all after the last event, or all at one time, and `at_once` at
        most.
        """
        answers = torch.empty(len(query), width, dtype=torch.float64)
        early = query.time <= self.stream.last_time
        if bool((~early).any()):
            rows = (~early).nonzero().squeeze(1)
            model, past = self.up_to_date(), self.past
            for start in range(0, len(rows), at_once):
                part = rows[start : start + at_once]
                answers[part] = read(model, query[part], past).double()
                step("scoring", start + len(part), len(rows))
        if bool(early.any()):
            self._ask_earlier(query, early.nonzero().squeeze(1), read, answers, at_once)
        return answers

    def _ask_earlier(self, query: Query, rows: Tensor, read: Read, answers: Tensor, at_once: int) -> None:
        """Fill in the answers of queries that are not after the last event: observe the stream once more."""
        order = rows[torch.argsort(query.time[rows], stable=True)]
        past, observed, events = self.past, 0, self.stream.dataset().events
        with self.state_preserved() as model:
            model.state.reset()
            for same_time in _equal_times(query.time[order]):
                observed = self._observe_before(float(query.time[order[same_time.start]]), events, observed)
                for start in range(same_time.start, same_time.stop, at_once):
                    part = order[start : min(start + at_once, same_time.stop)]
                    answers[part] = read(model, query[part], past).double()

    def _observe_before(self, time: float, events: Events, observed: int) -> int:
        """Observe everything before a time, given the number of events observed so far; returns the new number."""
        until = int(torch.searchsorted(events.time, time))
        if until > observed:
            self.observe_rows(slice(observed, until))
        return max(observed, until)

    def observe_rows(self, rows: slice) -> None:
        """Let the model observe these events of the stream; only inside `state_preserved`."""
        if not self.model.stateless:
            events = self.stream.dataset().events[rows]
            observe_all(self.model, events, self.past, ONLINE, observe_batch_size(self.model))

    def targets(self, before: float) -> NDArray[np.int64]:
        """All targets of events before a time, by ascending id."""
        if self._targets is None:
            self.lock.require_alone()
            events = self.stream.dataset().events
            target, first = np.unique(events.dst.numpy(), return_index=True)
            self._targets = target, events.time.numpy()[first]
        target, first_time = self._targets
        return target if before > self.stream.last_time else target[first_time < before]

    @torch.no_grad()
    def first_score(self) -> Retriever:
        """The cheap first score of targets, from the state after all events; the model must have one."""
        targets = torch.from_numpy(self.targets(self.after_last))
        return self._retrieval(self.up_to_date(), targets, self.after_last, self.past)

    def candidates(self, node: int, k: int, at: float | None = None) -> Query:
        """Pairs of a node with all targets before a time, of which the best `k` are wanted."""
        if not isinstance(k, int | np.integer) or k < 1:
            raise DsrdError(f"k={k}: give a whole number, 1 or more")
        if self.stream.bipartite and self._is_target_only(node):
            name = self.stream.name(node)
            raise DsrdError(f"node '{name}' is only ever a target; ask about a source of this bipartite stream")
        time = self.after_last if at is None else at
        target = torch.from_numpy(self.targets(time))
        if not len(target):
            written = self.stream.dataset().written_time(time)
            raise DsrdError(f"there is no target before {written}; choose a later time")
        return Query(torch.full_like(target, node), target, torch.full(target.shape, time, dtype=torch.float64))

    def _is_target_only(self, node: int) -> bool:
        events = self.stream.dataset().events
        return bool((events.dst == node).any()) and not bool((events.src == node).any())

    @torch.no_grad()
    def embed(self, node: Tensor, at: float | None = None) -> Tensor:
        """A vector for each node at a time, from what happened strictly before it.  # [n] -> [n, d]"""
        if at is None or at > self.stream.last_time:
            return self._embed_now(self.up_to_date(), node, self.after_last if at is None else at)
        events = self.stream.dataset().events
        with self.state_preserved() as model:
            model.state.reset()
            self._embed_now(model, node[:1], at)  # a model without embeddings fails before the long work
            self._observe_before(at, events, 0)
            return self._embed_now(model, node, at)

    def _embed_now(self, model: TemporalModel, node: Tensor, at: float) -> Tensor:
        vectors, past = [], self.past
        for rows in torch.split(node, AT_ONCE):
            time = torch.full(rows.shape, at, dtype=torch.float64, device=model.device)
            vectors.append(model.embed(rows.to(model.device), time, past).float().cpu())
        return torch.cat(vectors)

    @contextmanager
    def with_upcoming(self, arrival: Arrival) -> Iterator[tuple[TemporalModel, Past]]:
        """The model at the end of the stream, and a history that already contains the upcoming events.

        The caller lets the model observe these events step by step. After the block the state is as before.
        """
        self.lock.require_alone()
        self.up_to_date()
        data = self.stream.dataset()
        events = Events.cat(data.events, arrival.events)
        edge_x = torch.cat([data.edge_x, arrival.edge_x])
        past = Past(events, edge_x=edge_x, node_x=data.node_x, num_nodes=data.num_nodes, seed=FULL_SEED)
        snapshot = self.model.state.snapshot()
        try:
            yield self.model.eval(), past.to(self.model.device)
        finally:
            self.model.state.adopt(snapshot)


def observe_batch_size(model: TemporalModel) -> int:
    """Events per call of `observe`: as few as in training for a model whose state lags by a batch."""
    return 10_000 if model.state_from_events else 200


def _equal_times(time: Tensor) -> Iterator[slice]:
    """Stretches of equal values."""
    cuts = np.flatnonzero(np.diff(time.numpy())) + 1
    bounds = [0, *cuts.tolist(), len(time)]
    yield from (slice(start, stop) for start, stop in pairwise(bounds) if stop > start)
