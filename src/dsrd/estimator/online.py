"""A trained model at the end of its stream: answers from its state now, and goes on as events arrive."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dsrd.data.dataset import Dataset
from dsrd.data.growing import Arrival, GrowingStream
from dsrd.errors import DsrdError
from dsrd.evaluate.protocol import PROTOCOLS
from dsrd.evaluate.scoring import COPIED_BYTES, Progress, observe_all, probability, silent
from dsrd.evaluate.task import FULL_SEED
from dsrd.events import Events, Query
from dsrd.history.live import Live
from dsrd.history.past import Past
from dsrd.models import Snapshot, TemporalModel

RULES = PROTOCOLS["strict"].lagging()
AT_ONCE = 500  # pairs scored in one call: more do not fit the cache


class OnlineModel:
    """Weights, the events known so far, and the state after all of them. Speaks in ids, not in names.

    A question about a time after the last event is answered from the state as it is; for an earlier time the
    stream is observed again up to then. The state does not depend on how the events arrived: it is that of a
    model which observes the whole stream at once.
    """

    def __init__(
        self, model: TemporalModel, dataset: Dataset, state: Snapshot | None = None, holds: int = 0
    ) -> None:
        """`state` is that after the first `holds` events; without it the stream is observed when first asked."""
        self.model, self.stream = model.eval(), GrowingStream(dataset)
        self._holds: int | None = None  # events in the model's state; None: it is not that of the stream
        if state is not None:
            model.state.adopt(state)
            self._holds = holds
        self._whole: tuple[Snapshot, int] | None = None  # state before the last batch, which may be incomplete
        self._past: Live | None = None
        self._targets: NDArray[np.int64] | None = None

    @property
    def after_last(self) -> float:
        """The moment right after the last event."""
        return math.nextafter(self.stream.last_time, math.inf)

    @property
    def past(self) -> Past:
        """Every event so far, for looking up what came before a time."""
        return self._history().to(self.model.device)

    def _history(self) -> Live:
        if self._past is None:
            data = self.stream.dataset()
            self._past = Live(data.events, edge_x=data.edge_x, node_x=data.node_x, seed=FULL_SEED)
        return self._past

    @torch.no_grad()
    def at_now(self, progress: Progress = silent) -> TemporalModel:
        """The model, its state after all events."""
        if self._holds is None:
            self.model.state.reset()
            self._holds, self._whole = 0, None
        if self._holds < self.stream.num_events and not self.model.stateless:
            self._catch_up(progress)
        self._holds = self.stream.num_events
        return self.model.eval()

    def _catch_up(self, progress: Progress) -> None:
        """Observe what the state lacks. If a state depends on how events are cut into batches, the cuts are those
        of the whole stream: the last batch is observed again as more events complete it."""
        model = self.model
        if self._whole is not None:
            state, self._holds = self._whole
            model.state.adopt(state)
            self._whole = None
        assert self._holds is not None
        missing = self.stream.events_since(self._holds)
        size = observed_at_once(model)
        if not model.state_from_events:
            *_, last = RULES.flushes(missing, size, exact=model.exact)
            observe_all(model, missing[: last.start], self.past, RULES, size, progress)
            self._whole = (model.state.snapshot(), self._holds + last.start)
            missing = missing[last.start :]
        observe_all(model, missing, self.past, RULES, size, progress)

    def kept(self) -> tuple[Snapshot, int]:
        """The state that a run goes on from, not a copy, and the number of events in it."""
        self.at_now()
        return (self.model.state.fields_now(), self.stream.num_events) if self._whole is None else self._whole

    @contextmanager
    def set_aside(self) -> Iterator[TemporalModel]:
        """The model for other work inside the block; its state of the end is kept, or made again when needed."""
        state, held = self.model.state, self._holds
        keep = held is not None and (not self.model.state_from_events or state.nbytes() < COPIED_BYTES)
        kept = state.snapshot() if keep else None
        self._holds = None
        try:
            yield self.model.eval()
        finally:
            if kept is not None:
                state.adopt(kept)
                self._holds = held

    @torch.no_grad()
    def observe(self, arrival: Arrival, progress: Progress = silent) -> None:
        """Take in events that follow."""
        history = self._history()
        if len(arrival.events) and float(arrival.events.time[0]) == self.stream.last_time:
            self._holds = None  # a timestamp goes on: its events count as one moment, so it is observed anew
        self.stream.append(arrival)
        history.append(arrival.events, arrival.edge_x)
        self.at_now(progress)
        if self._targets is not None:
            self._targets = np.union1d(self._targets, arrival.events.dst.numpy())

    @torch.no_grad()
    def score(self, query: Query, head: str = "", progress: Progress = silent) -> Tensor:
        """Probability of each pair at its time, from everything strictly before it.  # [Q]"""
        scores = torch.empty(len(query))
        early = query.time <= self.stream.last_time
        if bool((~early).any()):
            rows = (~early).nonzero().squeeze(1)
            model, past = self.at_now(progress), self.past
            for start in range(0, len(rows), AT_ONCE):
                part = rows[start : start + AT_ONCE]
                scores[part] = probability(model, query[part], past, head)
                progress("scoring", start + len(part), len(rows))
        if bool(early.any()):
            rows = early.nonzero().squeeze(1)
            scores[rows] = self._scored_earlier(query[rows], head, progress)
        return scores

    def _scored_earlier(self, query: Query, head: str, progress: Progress) -> Tensor:
        order = torch.argsort(query.time, stable=True)
        scores, past, seen = torch.empty(len(query)), self.past, 0
        events = self.stream.dataset().events
        with self.set_aside() as model:
            model.state.reset()
            for rows in _moments(query.time[order]):
                seen = self._observe_before(float(query.time[order[rows.start]]), events, seen, progress)
                for start in range(rows.start, rows.stop, AT_ONCE):
                    part = order[start : min(start + AT_ONCE, rows.stop)]
                    scores[part] = probability(model, query[part], past, head)
        return scores

    def _observe_before(self, time: float, events: Events, seen: int, progress: Progress) -> int:
        """Bring a state that has seen so many events to just before a time; how many it has seen then."""
        upto = int(torch.searchsorted(events.time, time))
        if upto > seen:
            self.observe_rows(slice(seen, upto), progress)
        return max(seen, upto)

    def observe_rows(self, rows: slice, progress: Progress = silent) -> None:
        """Let a model that was set aside take in events of the stream."""
        if not self.model.stateless:
            events = self.stream.dataset().events[rows]
            observe_all(self.model, events, self.past, RULES, observed_at_once(self.model), progress)

    def targets(self, before: float) -> NDArray[np.int64]:
        """Who was a target of an event before a time, in the order of ids."""
        if before <= self.stream.last_time:
            events = self.stream.dataset().events
            return np.unique(events.dst[events.time < before].numpy())
        if self._targets is None:
            self._targets = np.unique(self.stream.dataset().events.dst.numpy())
        return self._targets

    def partners(
        self, node: int, k: int, at: float | None = None, head: str = "", progress: Progress = silent
    ) -> tuple[Tensor, Tensor]:
        """The k likeliest targets of a node at a time, likeliest first, and their probabilities.  # [k], [k]

        Candidates are all who were a target before that time, the node itself included if it was one. Equal
        probabilities stand in the order of ids.
        """
        if not isinstance(k, int | np.integer) or k < 1:
            raise DsrdError(f"k={k}: give a whole number, 1 or more")
        if self.stream.bipartite and self._is_target_only(node):
            name = self.stream.name(node)
            raise DsrdError(f"node '{name}' is only ever a target; ask about a source of this bipartite stream")
        time = self.after_last if at is None else at
        target = torch.from_numpy(self.targets(time))
        if not len(target):
            written = self.stream.dataset().written_time(time)
            raise DsrdError(f"nobody was a target before {written}; ask about a later time")
        query = Query(torch.full_like(target, node), target, torch.full(target.shape, time, dtype=torch.float64))
        scores = self.score(query, head, progress)
        best = torch.sort(scores, descending=True, stable=True).indices[:k]
        return target[best], scores[best]

    def _is_target_only(self, node: int) -> bool:
        events = self.stream.dataset().events
        return bool((events.dst == node).any()) and not bool((events.src == node).any())

    @torch.no_grad()
    def embed(self, node: Tensor, at: float | None = None, progress: Progress = silent) -> Tensor:
        """A vector for each node at a time, from what happened strictly before it.  # [n] -> [n, d]"""
        if at is None or at > self.stream.last_time:
            return self._embedded(self.at_now(progress), node, self.after_last if at is None else at)
        events = self.stream.dataset().events
        with self.set_aside() as model:
            model.state.reset()
            self._embedded(model, node[:1], at)  # a model without embeddings says so before the stream is told
            self._observe_before(at, events, 0, progress)
            return self._embedded(model, node, at)

    def _embedded(self, model: TemporalModel, node: Tensor, at: float) -> Tensor:
        found, past = [], self.past
        for rows in torch.split(node, AT_ONCE):
            moment = torch.full(rows.shape, at, dtype=torch.float64, device=model.device)
            found.append(model.embed(rows.to(model.device), moment, past).float().cpu())
        return torch.cat(found)

    @contextmanager
    def ahead(self, arrival: Arrival) -> Iterator[tuple[TemporalModel, Past]]:
        """The model at the end of the stream, and a past that also holds the events to come, inside the block.

        Whoever walks through these events observes them on the way; afterwards all is as it was.
        """
        self.at_now()
        data = self.stream.dataset()
        events = Events.cat(data.events, arrival.events)
        edge_x = torch.cat([data.edge_x, arrival.edge_x])
        past = Past(events, edge_x=edge_x, node_x=data.node_x, num_nodes=data.num_nodes, seed=FULL_SEED)
        kept = self.model.state.snapshot()
        try:
            yield self.model.eval(), past.to(self.model.device)
        finally:
            self.model.state.adopt(kept)


def observed_at_once(model: TemporalModel) -> int:
    """Events per call of `observe`: few for a model whose state lags by a batch, as in training."""
    return 10_000 if model.state_from_events else 200


def _moments(time: Tensor) -> Iterator[slice]:
    """Stretches of equal times."""
    cuts = np.flatnonzero(np.diff(time.numpy())) + 1
    bounds = [0, *cuts.tolist(), len(time)]
    yield from (slice(start, stop) for start, stop in pairwise(bounds) if stop > start)
