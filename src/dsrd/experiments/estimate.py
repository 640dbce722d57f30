"""How long a run will take and how much memory it needs, from the records of earlier runs.

The cost of a model is measured per event: seconds of training (validation included) for an event of an epoch, and
seconds of evaluation for an event and kind of negatives. A run of the same model on the same data counts most.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dsrd.data import catalog
from dsrd.experiments.plan import PlannedRun
from dsrd.train.record import Record

TRAINED = 0.7  # share of the events that are trained on
BASE_MB = 450.0  # a process that has loaded the library and nothing else
FEATURE_BYTES = 2 * 4  # of one number: in the data set and in the look-ups
EVENT_BYTES = 400  # of one event without features: arrays, indexes, negatives


@dataclass(frozen=True)
class Estimate:
    """The expected cost of a run."""

    seconds: float
    memory_mb: float
    how: str  # "last time", "same data" or "per event"


@dataclass(frozen=True)
class _Cost:
    """What one record says about the cost of its model."""

    dataset: str
    events: float
    train: float  # seconds for an event of an epoch
    evaluate: float  # seconds for an event and kind of negatives
    epochs: int | None  # None: the clock ended the training
    memory_mb: float  # above the base, features and events


class Costs:
    """The costs in a collection of records."""

    def __init__(self, records: Iterable[Record]) -> None:
        self.by_digest: dict[str, Record] = {}
        self.by_model: dict[tuple[str, str], list[_Cost]] = {}
        for record in records:
            try:
                cost = _cost(record)
                if cost is not None:
                    self.by_digest[record["digests"]["config"]] = record
                    self.by_model.setdefault((record["model"], record["preset"]), []).append(cost)
            except (KeyError, TypeError, ZeroDivisionError):
                continue  # the record of something else, or of a version that did not measure this

    def of(self, planned: PlannedRun) -> Estimate | None:
        """The expected cost of a run; None where nothing is known about its model."""
        last = self.by_digest.get(planned.digest)
        if last is not None:
            timing = last["timing"]
            return Estimate(timing["train_seconds"] + timing["evaluate_seconds"], last["peak_rss_mb"], "last time")
        costs = self.by_model.get((planned.run.model, planned.run.preset), [])
        same = [cost for cost in costs if cost.dataset == planned.stream.name]
        events = planned.stream.events or (same[0].events if same else None)
        if not costs or events is None:
            return None
        seconds = self._seconds(planned, same or costs, events)
        memory = max(cost.memory_mb for cost in same or costs) + _data_mb(events, planned.stream.edge_dim)
        return Estimate(seconds, memory, "same data" if same else "per event")

    def _seconds(self, planned: PlannedRun, costs: Sequence[_Cost], events: float) -> float:
        train, evaluate = planned.run.train, planned.run.evaluate
        epoch = statistics.median(cost.train for cost in costs) * TRAINED * events
        training = epoch * min(train.epochs, self._epochs(planned, costs))
        if train.minutes:
            training = min(training, 60 * train.minutes + epoch)  # the epoch that passes the limit is finished
        measuring = statistics.median(cost.evaluate for cost in costs) * events * len(evaluate.negatives)
        return training + measuring

    def _epochs(self, planned: PlannedRun, costs: Sequence[_Cost]) -> float:
        """Epochs until early stopping: of this model here, of this model, or of all; then the limit itself."""
        model = self.by_model[planned.run.model, planned.run.preset]
        everything = [cost for each in self.by_model.values() for cost in each]
        for known in (costs, model, everything):
            whole = [cost.epochs for cost in known if cost.epochs is not None and cost.epochs > 1]
            if whole:
                return statistics.median(whole)
        rule = all(cost.epochs == 1 for cost in model)
        return 1 if rule else planned.run.train.epochs


def _cost(record: Mapping[str, Any]) -> _Cost | None:
    """The cost in a record of training; None in one that was not timed."""
    timing, config = record["timing"], record["config"]
    trained = timing["seconds_per_epoch"] * timing["events_per_second"]
    if not isinstance(timing["epochs"], int) or not trained:
        return None
    spec = catalog.get(record["dataset"])
    events = spec.events if spec else trained / TRAINED
    cut = 0 < 60 * config["train"].get("minutes", 0.0) <= timing["train_seconds"]
    return _Cost(
        dataset=record["dataset"],
        events=events,
        train=timing["train_seconds"] / timing["epochs"] / (events * TRAINED),
        evaluate=timing["evaluate_seconds"] / events / len(config["evaluate"]["negatives"]),
        epochs=None if cut else timing["epochs"],
        memory_mb=max(0.0, record["peak_rss_mb"] - _data_mb(events, spec.edge_dim if spec else 0)),
    )


def _data_mb(events: float, edge_dim: int) -> float:
    """Memory that does not depend on the model."""
    return BASE_MB + events * (EVENT_BYTES + edge_dim * FEATURE_BYTES) / (1 << 20)
