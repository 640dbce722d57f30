"""Are a model's probabilities true? Log loss per event, normalisers, and expected against observed frequency.

A score s(v) of target v, given the source, is meant to be log(D p(v | source, t)) for the D targets of training.
Two probabilities follow from it: exp(s) / D, if the model normalises by itself, and softmax(s) over all D targets.
The same holds for `activity` and the S sources of training.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dsrd.config import EvaluateConfig
from dsrd.evaluate.scoring import AT_ONCE, arriving, to_start
from dsrd.evaluate.task import Task
from dsrd.events import Events, Query, as_tensor
from dsrd.history.past import Past
from dsrd.models import Snapshot, TemporalModel
from dsrd.protocol import Protocol
from dsrd.reporter import step
from dsrd.synthetic.oracle import true_probability

BINS = 10
PARTS = 20  # of the sampled events in order of time, each with quartiles of the surprise
SAMPLE = 200  # test events that are asked about; each costs one score per candidate
NOT_LOG_RATIOS = "its scores rank targets but are not log ratios, so no probability follows from them"

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def log_probabilities(scores: Floats) -> Floats:
    """Log of the softmax of each row.  # [E, C] -> [E, C]

    >>> np.exp(log_probabilities(np.array([[0.0, np.log(3)]]))).round(4).tolist()
    [[0.25, 0.75]]
    """
    normalised: Floats = scores - np.logaddexp.reduce(scores, axis=1, keepdims=True)
    return normalised


def log_normalisers(scores: Floats) -> Floats:
    """log of the mean of exp(score) over the candidates: 0 if exp(score) / C adds up to 1.  # [E, C] -> [E]

    >>> log_normalisers(np.log([[0.5, 1.5], [2.0, 2.0]])).round(4).tolist()
    [0.0, 0.6931]
    """
    values: Floats = np.logaddexp.reduce(scores, axis=1) - np.log(scores.shape[1])
    return values


def calibration_curve(probability: Floats, happened: NDArray[np.bool_], bins: int = BINS) -> list[dict[str, Any]]:
    """Expected and observed frequency in bins of equal counts, from the least probable up.  # [N], [N]

    Equal probabilities share a bin, so there may be fewer bins.

    >>> calibration_curve(np.array([0.75, 0.25]), np.array([True, False]), bins=2)
    [{'count': 1, 'expected': 0.25, 'observed': 0.0}, {'count': 1, 'expected': 0.75, 'observed': 1.0}]
    """
    order = np.argsort(probability)
    ascending = probability[order]
    borders = ascending[np.arange(1, bins) * len(order) // bins]  # the least value of each bin but the first
    pieces = np.split(order, np.unique(np.searchsorted(ascending, borders)))
    return [
        {
            "count": len(rows),
            "expected": float(probability[rows].mean()),
            "observed": float(happened[rows].mean()),
        }
        for rows in pieces
        if len(rows)
    ]


def expected_calibration_error(curve: list[dict[str, Any]]) -> float:
    """Mean distance of expected and observed frequency over the bins, weighted by their counts.

    >>> expected_calibration_error([{"count": 3, "expected": 0.25, "observed": 0.5}])
    0.25
    """
    distance = [abs(each["expected"] - each["observed"]) for each in curve]
    return float(np.average(distance, weights=[each["count"] for each in curve]))


def bits_over_time(losses: Floats) -> list[list[float]]:
    """Quartiles of the surprise in bits in equal parts of the events, first to last.  # [E] nats -> [parts, 3]

    >>> bits_over_time(np.log([2.0, 2.0, 8.0, 8.0]))
    [[1.0, 1.0, 1.0], [1.0, 1.0, 1.0], [3.0, 3.0, 3.0], [3.0, 3.0, 3.0]]
    """
    parts = np.array_split(losses / np.log(2), min(PARTS, len(losses)))
    return [np.quantile(part, [0.25, 0.5, 0.75]).round(3).tolist() for part in parts]


def measure_factor(scores: Floats, true: Ints, true_law: Floats | None = None) -> dict[str, Any]:
    """Log loss in nats per event and calibration of one factor, from the scores of all its candidates.

    `scores` are log ratios against a uniform candidate; `true` is the column of the candidate that came true;
    `true_law`, on synthetic streams, has the true probability of each candidate.  # [E, C], [E], [E, C]

    >>> measured = measure_factor(np.zeros((4, 2)), np.array([0, 1, 1, 0]))
    >>> measured["log_loss"], measured["log_normaliser"], measured["calibration_error"]
    (0.69315, 0.0, 0.0)
    """
    events, candidates = scores.shape
    if not events:
        return {"skipped": "no sampled test event has a candidate of training as its answer"}
    rows, log_p = np.arange(events), log_probabilities(scores)
    normaliser = log_normalisers(scores)
    happened = np.zeros(scores.shape, dtype=np.bool_)
    happened[rows, true] = True
    curve = calibration_curve(np.exp(log_p).ravel(), happened.ravel())
    error = expected_calibration_error(curve)
    losses = -log_p[rows, true]  # [E]
    measured = {
        "log_loss": float(losses.mean()),
        "log_loss_se": float(losses.std() / np.sqrt(events)),
        "log_loss_self_normalised": float((losses - normaliser).mean()),
        "log_loss_uniform": float(np.log(candidates)),
        "log_normaliser": float(normaliser.mean()),
        "log_normaliser_sd": float(normaliser.std()),
        "calibration_error": error,
        "misplaced": error * candidates,
    }
    if true_law is not None:
        true_losses = -np.log((true_law / true_law.sum(axis=1, keepdims=True))[rows, true])  # [E]
        measured["log_loss_true_law"] = float(true_losses.mean())
        measured["excess"] = float((losses - true_losses).mean())
        measured["excess_se"] = float((losses - true_losses).std() / np.sqrt(events))
    counts = {"events": events, "candidates": candidates}
    figures = {name: float(f"{value:.5g}") for name, value in measured.items()}
    return {**counts, **figures, "curve": curve, "bits_over_time": bits_over_time(losses)}


# --- Scores of all candidates ------------------------------------------------------------------------------------

FactorScore = Callable[[Query, Past], Tensor]


@dataclass(frozen=True)
class Factor:
    """One factor of p(source, target | t): its candidates, and the model's score of each."""

    name: str
    candidates: Ints  # [C] ids, sorted
    score: FactorScore
    is_source: bool  # candidates are sources, not targets

    def query(self, event: Query) -> Query:
        """One event, asked about with every candidate.  # [1] -> [C]"""
        candidates, many = as_tensor(self.candidates), len(self.candidates)
        if self.is_source:  # the target would give the source away
            return Query(candidates, torch.zeros_like(candidates), event.time.repeat(many))
        return Query(event.src.repeat(many), candidates, event.time.repeat(many))

    def answers(self, events: Events) -> tuple[Ints, Ints]:
        """The rows of events whose answer is a candidate, and the columns of these answers."""
        answer = (events.src if self.is_source else events.dst).numpy()
        column = np.searchsorted(self.candidates, answer).clip(max=len(self.candidates) - 1)
        rows = np.flatnonzero(self.candidates[column] == answer)
        return rows, column[rows]

    def true_law(self, law: Any, stream: Events, events: Events) -> Floats:
        """The true probability of every candidate at each event of a synthetic stream.  # [E, C]"""
        many = len(self.candidates)
        row, all_candidates = np.repeat(events.id.numpy() - 1, many), np.tile(self.candidates, len(events))
        if self.is_source:
            truth = true_probability(law, stream, row, all_candidates, np.zeros_like(row)).source
        else:
            truth = true_probability(law, stream, row, np.repeat(events.src.numpy(), many), all_candidates).partner
        return truth.reshape(len(events), many)


def factors(model: TemporalModel, train: Events) -> list[Factor]:
    """The factors a model has: p(target | source, t), and with an intensity also p(source | t)."""
    head = "partner" if model.has_intensity else ""
    targets, sources = np.unique(train.dst.numpy()), np.unique(train.src.numpy())
    partner = Factor("partner", targets, lambda query, past: model.score(query, past, head), is_source=False)
    return [partner, *([Factor("activity", sources, model.activity, True)] if model.has_intensity else [])]


class Sample(NamedTuple):
    """Evenly spaced events of the test."""

    rows: Ints  # [n] of the test events
    events: Events  # [n]


def evenly_spaced(events: Events, count: int) -> Sample:
    """At most `count` events, from the first to the last."""
    rows = np.unique(np.linspace(0, len(events) - 1, min(count, len(events))).round().astype(np.int64))
    return Sample(rows, events[as_tensor(rows)])


def calibration(
    model: TemporalModel,
    task: Task,
    protocol: Protocol,
    config: EvaluateConfig,
    trained: Snapshot | None = None,
    *,
    sample: int = SAMPLE,
) -> dict[str, Any]:
    """Log loss and calibration on a sample of the test events: an entry `partner`, and one `activity` if there is.

    Candidates are the targets, or the sources, of training. An event whose answer is none of them is left out, and
    `events` says how many remain. On a synthetic stream, `excess` is the log loss beyond that of the true law
    among the same candidates. `trained` is the state right after training, as for `evaluate`.
    """
    if model.card.rule:
        return {"skipped": NOT_LOG_RATIOS}
    asked, asked_of = evenly_spaced(task.split.test, sample), factors(model, task.split.train)
    to_start(model, task, protocol, config, trained, "val")
    scores = _score_candidates(model, asked_of, asked, task, protocol, config.batch_size)
    record: dict[str, Any] = {"sample": len(asked.rows), "test_events": len(task.split.test)}
    for factor in asked_of:
        rows, columns = factor.answers(asked.events)
        law = task.dataset.law
        truth = None if law is None else factor.true_law(law, task.split.full, asked.events[as_tensor(rows)])
        record[factor.name] = measure_factor(scores[factor.name][rows], columns, truth)
    return record


@torch.no_grad()
def _score_candidates(
    model: TemporalModel,
    asked_of: list[Factor],
    asked: Sample,
    task: Task,
    protocol: Protocol,
    batch_size: int,
) -> dict[str, Floats]:
    """Scores of every candidate at each sampled event; the model observes the test events along the way."""
    test, past = task.split.test, task.full_past.to(model.device)
    scores = {factor.name: np.empty((len(asked.rows), len(factor.candidates))) for factor in asked_of}
    model.eval()
    for flush, observed in arriving(
        test, test, protocol.flushes(test, batch_size, model.exact or model.stateless)
    ):
        now = past.during(observed)
        for place in range(*np.searchsorted(asked.rows, [flush.start, flush.stop])):
            for factor in asked_of:
                query = factor.query(asked.events[place : place + 1].query()).to(model.device)
                pieces = (query[start : start + AT_ONCE] for start in range(0, len(query), AT_ONCE))
                scores[factor.name][place] = torch.cat([factor.score(piece, now).cpu() for piece in pieces])
        model.observe(observed.to(model.device), past)
        step("test: calibration", flush.stop, len(test))
    return scores
