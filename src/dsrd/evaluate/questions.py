"""Honest questions about a model, beside the published columns: asked under the protocol `strict`.

    partner    which target, given that the source acts now? Every target seen before; and one random other target
    pairs      events against uniformly random pairs of a known source and a known target
    awake      events of pairs that met before, against pairs that met before and do not meet now
    first      first meetings of a known source and a known target, against strangers that do not meet now

In `awake` and `first` an event and its negative differ in nothing but being true: neither is given away by whether
the pair met before. Sources and targets are known if they had an event in that role before the time of the query.
The head `pair` answers all but the first question; a model without it answers with its only score.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dsrd.config import EvaluateConfig
from dsrd.evaluate import metrics
from dsrd.evaluate.scoring import (
    StartState,
    column,
    logits_of,
    ranking,
    score_candidates,
    scored_batches,
    to_end_of_training,
)
from dsrd.evaluate.task import Pass, Task
from dsrd.evaluate.true_edges import TrueEdges
from dsrd.events import Events, Query, as_tensor
from dsrd.history.past import Past
from dsrd.models import Snapshot, TemporalModel
from dsrd.negatives.pairs import Ids, PairIndex
from dsrd.protocol import STRICT

METRIC_BATCH = 200  # events per batch that AP and AUC average over, as in the published columns under `strict`
DRAWS = 100  # attempts to draw a negative that fits, before the event is left out


@dataclass(frozen=True)
class Question:
    """Some events, each with one negative."""

    head: str
    rows: Ids  # [n] rows of the events, ascending
    negative: Query  # [n]


class Asker:
    """Draws the negatives of all questions about the events of a pass.

    `stream` are all events up to the end of the pass, and may go on after it.
    """

    def __init__(self, pass_: Pass, stream: Events) -> None:
        self.events = pass_.events
        self._time = self.events.time.numpy()
        self._rng = np.random.default_rng(pass_.seed)
        self._truth = TrueEdges(stream)
        self._pairs = PairIndex(stream)
        self._num_met = self._pairs.distinct[np.searchsorted(stream.time.numpy(), self._time)]  # [E]
        self.sources = FirstSeen(stream.src.numpy(), stream.time.numpy())
        self.targets = FirstSeen(stream.dst.numpy(), stream.time.numpy())
        query = self.events.query()
        self._met = self._truth.before(query)
        self._known = self.sources.knows(query.src, self._time) & self.targets.knows(query.dst, self._time)

    def questions(self) -> dict[str, Question]:
        """All questions by name."""
        return {
            "partner": self.partner(),
            "pairs": self.pairs(),
            "awake": self.awake(),
            "first": self.first(),
        }

    def partner(self) -> Question:
        """Every event against a random other target."""
        dst = self.events.dst.numpy()

        def draw(rows: Ids) -> tuple[Ids, Ids]:
            return self.events.src.numpy()[rows], self.targets.draw(self._rng, self._time[rows])

        return self._drawn(
            "partner", np.arange(len(dst)), draw, lambda query, rows: query.dst.numpy() != dst[rows]
        )

    def pairs(self) -> Question:
        """Every event against a random pair, which may be true by chance."""
        return self._drawn("pair", np.arange(len(self.events)), self._random_pairs, _anything)

    def awake(self) -> Question:
        """Repeated events against pairs that met before and do not meet now."""

        def draw(rows: Ids) -> tuple[Ids, Ids]:
            return self._pairs.pairs(_below(self._rng, self._num_met[rows]))

        return self._drawn("pair", np.flatnonzero(self._met), draw, lambda query, _: ~self._truth.at(query))

    def first(self) -> Question:
        """First meetings of known nodes against random strangers that do not meet now."""

        def fits(query: Query, _: Ids) -> NDArray[np.bool_]:
            return ~(self._truth.before(query) | self._truth.at(query))

        return self._drawn("pair", np.flatnonzero(~self._met & self._known), self._random_pairs, fits)

    def _random_pairs(self, rows: Ids) -> tuple[Ids, Ids]:
        time = self._time[rows]
        return self.sources.draw(self._rng, time), self.targets.draw(self._rng, time)

    def _drawn(
        self,
        head: str,
        rows: Ids,
        draw: Callable[[Ids], tuple[Ids, Ids]],
        fits: Callable[[Query, Ids], NDArray[np.bool_]],
    ) -> Question:
        """Draw until every negative fits; an event without one, at the very start of a stream, is left out."""
        rows = rows[self._num_met[rows] > 0]
        src, dst, missing = np.zeros_like(rows), np.zeros_like(rows), np.arange(len(rows))
        for _ in range(DRAWS):
            if not len(missing):
                break
            src[missing], dst[missing] = draw(rows[missing])
            time = as_tensor(self._time[rows[missing]])
            query = Query(as_tensor(src[missing]), as_tensor(dst[missing]), time)
            missing = missing[~fits(query, rows[missing])]
        kept = np.setdiff1d(np.arange(len(rows)), missing)
        time = as_tensor(self._time[rows[kept]])
        return Question(head, rows[kept], Query(as_tensor(src[kept]), as_tensor(dst[kept]), time))


class FirstSeen:
    """Nodes by the time of their first event in one role.

    >>> targets = FirstSeen(np.array([7, 5, 7]), np.array([0.0, 1.0, 2.0]))
    >>> targets.before(1.0).tolist(), targets.before(1.5).tolist()
    ([7], [7, 5])
    """

    def __init__(self, nodes: Ids, time: NDArray[np.float64]) -> None:
        distinct, first_row = np.unique(nodes, return_index=True)
        order = np.argsort(first_row)
        self._nodes: Ids = distinct[order]
        self._time = time[first_row[order]]
        self._first = dict(zip(self._nodes.tolist(), self._time.tolist(), strict=True))

    def before(self, time: float) -> Ids:
        """The nodes whose first event lies strictly before a time."""
        return self._nodes[: np.searchsorted(self._time, time)]

    def knows(self, nodes: Tensor, time: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Whether each node had an event before each time.  # [n]"""
        first = np.array([self._first.get(node, np.inf) for node in nodes.tolist()])
        return first < time

    def draw(self, rng: np.random.Generator, time: NDArray[np.float64]) -> Ids:
        """For each time a node that had an event before it.  # [n]"""
        return self._nodes[_below(rng, np.searchsorted(self._time, time))]


def _below(rng: np.random.Generator, count: Ids) -> Ids:
    return rng.integers(0, count)


def _anything(query: Query, rows: Ids) -> NDArray[np.bool_]:
    return np.ones(len(rows), dtype=np.bool_)


def questions_of_test(
    model: TemporalModel, task: Task, config: EvaluateConfig, trained: Snapshot | None
) -> dict[str, Any]:
    """Answers to all questions about the test events; `trained` is the state right after training.

    The model is left in that state.
    """
    pass_ = task.passes["test"]
    StartState(model, task, STRICT, config, trained, pass_.start).restore()
    answers = ask(model, pass_, task.split.full, task.full_past.to(model.device), config)
    to_end_of_training(model, task, STRICT, trained)
    return answers


@torch.no_grad()
def ask(model: TemporalModel, pass_: Pass, stream: Events, past: Past, config: EvaluateConfig) -> dict[str, Any]:
    """Answers to all questions about the events of a pass, from the current state of the model, in percent.

    The model observes the events on the way.
    """
    model.eval()
    answers = _Answers(model, Asker(pass_, stream), config.asked_events)
    observed = pass_.stream if config.known == "all" else pass_.events
    batches = scored_batches(model, "questions", pass_.events, observed, past, STRICT, config.batch_size)
    for rows, now in batches:
        answers.score(rows, now)
    return {"protocol": STRICT.name, **answers.measured()}


class _Answers:
    """Logits of the events by head, and of their negatives by question; ranks of a sample of true targets.

    Metrics rank the logits themselves: sigmoids of sure answers would tie.
    """

    def __init__(self, model: TemporalModel, asker: Asker, ranked_events: int) -> None:
        self._model, self._asker = model, asker
        self._questions = asker.questions()
        self._events = asker.events.query()
        self._positive = {self._head(name): torch.empty(len(self._events)) for name in self._questions}
        self._negative = {name: torch.empty(len(each.rows)) for name, each in self._questions.items()}
        self._ranked = _evenly_spaced(len(self._events), ranked_events)
        self._ranks: list[float] = []
        self._num_targets: list[int] = []

    def _head(self, question: str) -> str:
        head = self._questions[question].head
        return head if head in self._model.heads else self._model.heads[0]

    def score(self, rows: slice, past: Past) -> None:
        """Score the events in these rows and their negatives, and rank the true targets of the sample."""
        for head, positive in self._positive.items():
            places = {
                name: _within(q.rows, rows) for name, q in self._questions.items() if self._head(name) == head
            }
            batch = [self._events[rows], *(self._questions[name].negative[at] for name, at in places.items())]
            logits = torch.split(
                logits_of(self._model, Query.cat(*batch), past, head), [len(each) for each in batch]
            )
            positive[rows] = logits[0]
            for (name, at), of_negatives in zip(places.items(), logits[1:], strict=True):
                self._negative[name][at] = of_negatives
        for row in self._ranked[_within(self._ranked, rows)].tolist():
            self._rank(row, past)

    def _rank(self, row: int, past: Past) -> None:
        head, true = self._head("partner"), self._events[row : row + 1]
        targets = self._asker.targets.before(float(true.time))
        wrong = as_tensor(targets[targets != int(true.dst)])[None]  # [1, targets]
        logits = score_candidates(self._model, true, wrong, past, head)
        rank = metrics.ranks(self._positive[head][row : row + 1].numpy(), logits.numpy())
        self._ranks.append(float(rank[0]))
        self._num_targets.append(wrong.shape[1])

    def measured(self) -> dict[str, Any]:
        """The metrics of each question."""
        results: dict[str, Any] = {}
        for name, question in self._questions.items():
            positive = self._positive[self._head(name)][as_tensor(question.rows)].numpy()
            figures = column(positive, self._negative[name].numpy(), METRIC_BATCH)
            results[name] = {"head": self._head(name), "events": len(question.rows), **figures}
        results["partner"] |= ranking(np.array(self._ranks))
        results["partner"] |= {
            "ranked_events": len(self._ranks),
            "mean_targets": round(float(np.mean(self._num_targets or [0])), 1),
        }
        random_pairs = torch.sigmoid(self._negative["pairs"]).double()
        results["pairs"]["mean_probability"] = round(float(random_pairs.mean()), 6)
        return results


def _evenly_spaced(length: int, count: int) -> Ids:
    """At most `count` of the rows 0, ..., length - 1, the first and the last among them.

    >>> _evenly_spaced(9, 3).tolist(), _evenly_spaced(2, 3).tolist()
    ([0, 4, 8], [0, 1])
    """
    return np.linspace(0, length - 1, min(count, length)).round().astype(np.int64)


def _within(rows: Ids, batch: slice) -> slice:
    """Where those of the ascending rows are that lie in the batch."""
    start, stop = np.searchsorted(rows, [batch.start, batch.stop])
    return slice(int(start), int(stop))
