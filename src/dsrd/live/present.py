"""`Present`: a trained model at the newest event, and what it answers now.

Everything kept per event or per node grows in place, so the cost of an event does not depend on how many came
before it. Callers see to it that nobody reads while `observe` writes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dsrd.errors import DsrdError
from dsrd.estimator.bits import BitsReader, choice_bits
from dsrd.estimator.event_rate import event_rate
from dsrd.estimator.fitted import Fitted
from dsrd.estimator.online import AT_ONCE, observe_batch_size
from dsrd.estimator.ranking import Retrieval, is_retrieved, read_ranked
from dsrd.evaluate.task import FULL_SEED
from dsrd.events import Events, Query
from dsrd.history.live import Live
from dsrd.history.past import Past
from dsrd.live.growing_array import GrowingArray
from dsrd.models import Snapshot

SECONDS_PER_DAY = 86_400.0
Floats = NDArray[np.float64]
Ids = NDArray[np.int64]


@dataclass(frozen=True)
class Answer:
    """What the model says about pairs; see `LinkPredictor.predict`."""

    partner: Floats  # [Q]
    rate: Floats | None  # [Q]; None: the model does not know when sources act
    surprise: Floats  # [Q]
    source_bits: Floats | None  # [Q]
    partner_bits: Floats  # [Q]

    def __getitem__(self, rows: Any) -> Answer:
        parts: dict[str, Any] = {
            name: None if values is None else values[rows] for name, values in vars(self).items()
        }
        return Answer(**parts)


class Present:
    """Weights, history and state after some number of events, by ids of nodes."""

    def __init__(self, fitted: Fitted, head: str = "") -> None:
        """Stands after the events of the run."""
        online = fitted.online
        data = online.stream.dataset()
        self.model = online.up_to_date()
        self.dates, self.edge_dim, self.bipartite = data.dates, data.edge_dim, data.bipartite
        self._data = data
        self._head = self.model.head_called(head)
        self._history = Live(data.events, edge_x=data.edge_x, node_x=data.node_x, seed=FULL_SEED)
        self._time = GrowingArray(data.events.time.numpy())
        self._targets: Ids = np.unique(data.events.dst.numpy())
        self._new_targets: set[int] = set()
        self._is_end = (GrowingArray(np.zeros(0, np.bool_)), GrowingArray(np.zeros(0, np.bool_)))
        self._mark_ends(data.events.src.numpy(), data.events.dst.numpy())
        self._piece = observe_batch_size(self.model)
        self._retrieval = Retrieval()

    @property
    def num_events(self) -> int:
        """Events the model has observed, those of the run included."""
        return len(self._time)

    @property
    def times(self) -> Floats:
        """Of all events so far."""
        return self._time.values

    @property
    def last_time(self) -> float:
        return float(self._time.values[-1]) if len(self._time) else -math.inf

    @property
    def after_last(self) -> float:
        """The first time after the newest event."""
        return math.nextafter(self.last_time, math.inf)

    @property
    def past(self) -> Past:
        return self._history.to(self.model.device)

    def written_time(self, time: float) -> str:
        """A time as the stream writes it."""
        return self._data.written_time(time)

    def _mark_ends(self, src: Ids, dst: Ids) -> None:
        for marks, nodes in zip(self._is_end, (src, dst), strict=True):
            if len(nodes):
                marks.reserve(int(nodes.max()) + 1)
                marks.values[nodes] = True

    # --- Events --------------------------------------------------------------------------------------------------

    @torch.no_grad()
    def observe(
        self, src: Ids, dst: Ids, time: Floats, x: NDArray[np.float32], measured: int = 0
    ) -> Floats | None:
        """Observe events in order of time.

        The bits of the source and of the partner of the last `measured` of them, each given what came before it.
        # [measured, 2]
        """
        events = self._record(src, dst, time, x)
        bits, first = np.zeros((measured, 2)), len(events) - measured
        for start in range(0, len(events), self._piece):
            piece = events[start : start + self._piece]
            asked = slice(max(first - start, 0), len(piece))
            if measured and asked.start < len(piece):
                now = self.past.during(piece)
                row = max(start - first, 0)
                bits[row : row + len(piece) - asked.start] = self._bits(piece[asked].query(), now)
            if not self.model.stateless:
                self.model.observe(piece.to(self.model.device), self.past)
        return bits if measured else None

    def record(self, src: Ids, dst: Ids, time: Floats, x: NDArray[np.float32]) -> None:
        """Add events that the state of the model holds already."""
        self._record(src, dst, time, x)

    def _record(self, src: Ids, dst: Ids, time: Floats, x: NDArray[np.float32]) -> Events:
        first = self.num_events + 1
        events = Events.from_numpy(src, dst, time, np.arange(first, first + len(src)))
        self._history.append(events, torch.from_numpy(x.copy()) if self.edge_dim else None)
        self._time.extend(time)
        known = self._is_end[1].values
        fresh = dst[(dst >= len(known)) | ~known[np.minimum(dst, len(known) - 1)]] if len(known) else dst
        self._new_targets.update(fresh.tolist())
        self._mark_ends(src, dst)
        return events

    def _bits(self, query: Query, past: Past) -> Floats:
        """Bits of the source and of the partner.  # [Q, 2]"""
        read = BitsReader(lambda _: self.targets(), self._head)
        parts = [
            read(self.model, query[start : start + AT_ONCE], past)[:, 1:]
            for start in range(0, len(query), AT_ONCE)
        ]
        bits: Floats = torch.cat(parts).numpy()
        return bits

    # --- State ---------------------------------------------------------------------------------------------------

    def state(self) -> Snapshot:
        """A copy of the model's state."""
        return self.model.state.snapshot()

    def adopt(self, state: Snapshot) -> None:
        """Use a state from a snapshot; the events in it must have been recorded, or be recorded next."""
        self.model.state.adopt(state)

    def nbytes(self) -> int:
        """Memory of the model's state, in bytes."""
        return self.model.state.nbytes()

    # --- Questions -----------------------------------------------------------------------------------------------

    def targets(self) -> Ids:
        """All targets so far, by ascending id."""
        if self._new_targets:
            new, self._new_targets = self._new_targets, set()
            self._targets = np.union1d(self._targets, np.fromiter(new, np.int64, len(new)))
        return self._targets

    def time_of_question(self, time: float | None) -> float:
        """The time at which a question is answered: now at the earliest, which is just after the newest event."""
        if time is not None and time < self.last_time:
            raise DsrdError(
                f"time {self.written_time(time)} is before the newest event "
                f"({self.written_time(self.last_time)}); ask about now or later"
            )
        return self.after_last if time is None else max(time, self.after_last)

    @torch.no_grad()
    def score(self, query: Query) -> Answer:
        """About each pair at its time, which must be after the newest event."""
        read, past, parts = BitsReader(lambda _: self.targets(), self._head), self.past, []
        for start in range(0, len(query), AT_ONCE):
            parts.append(read(self.model, query[start : start + AT_ONCE], past).double())
        return self._answer(query.time.numpy(), torch.cat(parts)[:, 1:])

    def retrieves(self, k: int, exact: bool) -> bool:
        """Whether `partners` ranks a shortlist of the targets."""
        return is_retrieved(self.model, len(self.targets()), k, exact)

    @torch.no_grad()
    def partners(self, node: int, k: int, time: float, exact: bool = False) -> tuple[Ids, Answer]:
        """The k most likely targets of a node, best first; see `is_retrieved` for `exact`."""
        targets = torch.from_numpy(self.targets())
        query = Query(
            torch.full_like(targets, node), targets, torch.full(targets.shape, time, dtype=torch.float64)
        )
        model, past = self.model, self.past
        first = self._retrieval(model, targets, self.after_last, past) if self.retrieves(k, exact) else None
        ranked = read_ranked(model, query, past, self._head, first, k)
        best = torch.sort(ranked[:, 1], descending=True, stable=True).indices[:k]
        bits = choice_bits(model, ranked[best, :2], ranked[best, 2])
        return query.dst[best].numpy(), self._answer(query.time[best].numpy(), bits)

    def check_source(self, node: int, name: str) -> None:
        """An error for a node that is only ever a target, in a bipartite stream."""
        source, target = self._is_end
        if self.bipartite and not _marked(source, node) and _marked(target, node):
            raise DsrdError(f"node '{name}' is only ever a target; ask about a source of this bipartite stream")

    def _answer(self, time: Floats, bits: Tensor) -> Answer:
        intensity = self.model.has_intensity
        surprise = bits.sum(dim=1)
        rate = torch.exp2(-surprise).numpy() * self.stream_rate(time) if intensity else None
        source_bits = bits[:, 0].numpy() if intensity else None
        partner_bits = bits[:, 1]
        return Answer(torch.exp2(-partner_bits).numpy(), rate, surprise.numpy(), source_bits, partner_bits.numpy())

    def stream_rate(self, time: Floats) -> Floats:
        """Events of the whole stream per day, or per unit of time where times are numbers.  # [Q]"""
        rate = event_rate(self._time.values, np.minimum(time, self.after_last))
        return rate * SECONDS_PER_DAY if self.dates else rate

    @torch.no_grad()
    def embed(self, node: Ids) -> NDArray[np.float32]:
        """A vector for each node now.  # [n] -> [n, d]"""
        time = torch.full((len(node),), self.after_last, dtype=torch.float64, device=self.model.device)
        vectors = self.model.embed(torch.from_numpy(node).to(self.model.device), time, self.past)
        array: NDArray[np.float32] = vectors.float().cpu().numpy()
        return array

    def last_met(self, src: Ids, dst: Ids, time: Floats) -> Floats:
        """When each source last sent an event to each target before each time; -inf if never.  # [Q]"""
        ends = (torch.from_numpy(each) for each in (src, dst, time))
        return np.asarray(self._history.last_met(*ends).numpy())

    def recent(self, node: int, k: int) -> tuple[Ids, Floats, NDArray[np.bool_]]:
        """(partner, time, whether the node was the source) of its latest k events, oldest first."""
        found = self._history.recent(torch.tensor([node]), torch.tensor([self.after_last]), k)
        mask = found.mask[0]
        return found.node[0][mask].numpy(), found.time[0][mask].numpy(), found.outgoing[0][mask].numpy()

    def degree(self, node: int) -> int:
        """How many events a node has had."""
        length = self._history.index.length
        return int(length[node]) if node < len(length) else 0

    def latest_nodes(self, most: int, like: int) -> Ids:
        """The nodes that were active last, newest first; in a bipartite stream on the side of node `like`."""
        index = self._history.index
        nodes = np.flatnonzero(index.length)
        if self.bipartite:
            source = self._is_end[0]
            is_source = np.array([_marked(source, node) for node in nodes.tolist()], np.bool_)
            nodes = nodes[is_source == _marked(source, like)]
        nodes = nodes[nodes != like]
        newest = index.time[index.start[nodes] + index.length[nodes] - 1]
        return np.asarray(nodes[np.argsort(-newest, kind="stable")[:most]])


def _marked(marks: GrowingArray[np.bool_], node: int) -> bool:
    return node < len(marks) and bool(marks.values[node])
