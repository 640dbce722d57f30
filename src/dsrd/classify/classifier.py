"""`NodeClassifier`: a head on a fitted run that tells the classes of nodes apart, also of events to come."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dsrd.classify.head import (
    HeadConfig,
    Probabilities,
    TrainedHead,
    Walk,
    embedded_on_the_way,
    fit_end_to_end,
    fit_head,
    probabilities,
)
from dsrd.classify.labels import beside, read_node_labels
from dsrd.classify.metrics import measure
from dsrd.classify.saved_head import SavedHead, Training, outputs
from dsrd.classify.task import PARTS, NodeTask
from dsrd.config import RunConfig, overridden
from dsrd.data.dataset import Dataset
from dsrd.data.growing import Arrival
from dsrd.errors import DsrdError
from dsrd.estimator.fitted import Fitted
from dsrd.estimator.link_predictor import LinkPredictor
from dsrd.estimator.online import observed_at_once
from dsrd.estimator.tables import given_table
from dsrd.evaluate.protocol import PROTOCOLS, protocol
from dsrd.evaluate.scoring import observe_all
from dsrd.events import Events
from dsrd.history.past import Past
from dsrd.models import Snapshot, TemporalModel
from dsrd.reporter import Progress, silent
from dsrd.train.build import build, build_for, load_weights, placed
from dsrd.train.measure import weights_digest
from dsrd.train.record import Record, make_record
from dsrd.train.run_folder import RunFolder

STRICT = PROTOCOLS["strict"]  # how events to come are taken in, whatever the run was measured by
NEW = "new"  # the part of the stream that events to come are
JOINT_EPOCHS, JOINT_PATIENCE = 20, 5  # an epoch of a whole model takes minutes, not moments


@dataclass
class NodeClassifier:
    """A run and a head on its embeddings. `fit` trains one, `open` takes up the one in the run's folder.

    >>> model = LinkPredictor(epochs=1, dim=8, seed=1).fit("synth:events=600", progress=False)
    >>> classifier = NodeClassifier.fit(model, epochs=2)
    >>> classifier.predict([(3, 20, 1e9)]).columns
    ['source', 'target', 'time', 'probability', 'known']
    """

    fitted: Fitted
    head: SavedHead
    record: Record | None = None  # how well it does, and how it was trained
    scores: Mapping[str, Probabilities] = field(default_factory=dict)  # by part, as measured after training

    @classmethod
    def fit(
        cls,
        model: LinkPredictor,
        training: Training = "frozen",
        *,
        asks: str | None = None,
        visible: str | None = None,
        labels: Path | None = None,
        seed: int | None = None,
        data_dir: Path | None = None,
        progress: Progress = silent,
        **settings: Any,
    ) -> NodeClassifier:
        """Train a head on the labels of what the model was fitted on; the model stays as it is.

        Settings are those of `HeadConfig`. `labels` is a file with the classes of nodes; without one, what lies
        beside the data set or the labels of the events are taken.
        """
        fitted = model.fitted
        config = head_config(fitted.run, training, settings)
        dataset = fitted.task.dataset
        classes = _node_classes(fitted.run, dataset, asks, labels, data_dir)
        nodes = NodeTask.of(dataset, asks, visible, classes)  # bad labels are found before the work
        seed = fitted.run.seed if seed is None else seed
        with fitted.online.set_aside():
            job = _Job(fitted, nodes, training, config, seed)
            try:
                trained, state, timing = job.trained(progress)
                head = job.saved(trained, state)
                record = job.record(trained, head, timing)
            finally:
                fitted.evaluated.state.reset()
        return cls(fitted, head, record, trained.scores)

    @classmethod
    def open(cls, model: LinkPredictor) -> NodeClassifier:
        """The head in the folder of a run; refused if the run has been trained on since."""
        fitted = model.fitted
        if fitted.folder is None:
            raise DsrdError("this model came from no folder, so it has no head; train one")
        head = SavedHead.load(fitted.folder)
        if (head.data, head.run_weights) != (fitted.extent.digest, weights_digest(fitted.evaluated.state_dict())):
            raise DsrdError(f"{fitted.folder}: has changed since its head was trained; classify it again")
        return cls(fitted, head)

    def save(self) -> Path:
        """Write the head into the folder of its run."""
        if self.fitted.folder is None:
            raise DsrdError("this model came from no folder; save it before its head")
        folder = RunFolder(self.fitted.folder)
        with folder.held():
            return self.head.save(folder.path)

    def predict(self, events: Any, *, progress: Progress = silent) -> Any:
        """Classify the source of each of the events to come at the event's time.

        An answer knows everything strictly before the event; if the head was trained on what its own timestamp
        brings, that too. The events come back in their own columns, with `probability` (of the second class) and
        `known` (the source has been seen before) added; with more than two classes, with `class`, the likeliest
        one, and its `probability`. The run stays as it is.
        """
        stream = self.fitted.online.stream
        columns = stream.columns
        given = given_table(events, (columns.source, columns.target, columns.time), "events")
        arrival = stream.arrival(given.table, given.origin)
        if arrival.skipped:
            raise given.origin.error(
                f"the first {arrival.skipped:,} events are known already; give those that follow"
            )
        found = self.probabilities(arrival, progress)[
            np.argsort(arrival.row)
        ]  # from the order of time to the table's
        known = (arrival.events.src < stream.num_nodes).numpy()[np.argsort(arrival.row)]
        if found.shape[1] == 1:
            return given.with_columns({"probability": found[:, 0], "known": known})
        best = found.argmax(axis=1)
        names = np.array(self.head.classes, dtype=object)[best]
        return given.with_columns({"class": names, "probability": found.max(axis=1), "known": known})

    def probabilities(self, arrival: Arrival, progress: Progress = silent) -> Probabilities:
        """Of the positive class, or of every class if there are more than two.  # [E, outputs], in time order"""
        head, known = self.head.head, self.fitted.online.stream.dataset()
        if not len(arrival.events):
            return np.empty((0, outputs(self.head.classes)), np.float32)
        task = self._questions(known, arrival)
        with self._at_the_end(arrival, progress) as (model, past):
            steps = Walk(model, task, past, STRICT, _at_once(self.fitted.run, head.config, self.head.training))
            x = embedded_on_the_way(steps, [NEW], progress)
        return probabilities(head(x))

    def _questions(self, known: Dataset, arrival: Arrival) -> NodeTask:
        """One about the source of each event to come; of the data set the walk reads the events alone."""
        first, count = len(known.events), len(arrival.events)
        return NodeTask(
            dataset=replace(known, events=Events.cat(known.events, arrival.events)),
            rows={NEW: slice(first, first + count)},
            node=arrival.events.src,
            row=torch.arange(first, first + count),
            target=torch.zeros(count, dtype=torch.int64),
            names=self.head.classes,
            asks=self.head.asks,
            visible=self.head.visible,
        )

    @contextmanager
    def _at_the_end(self, arrival: Arrival, progress: Progress) -> Iterator[tuple[TemporalModel, Past]]:
        """The model whose embeddings the head knows, after all events so far, and a past that holds those to come.

        It is not always the one that predicts links: that may have been trained once more, on all events.
        """
        online, state = self.fitted.online, self.head.state
        with online.ahead(arrival) as (present, past):
            model, seen = self._model, online.stream.num_events
            if state:
                model.state.restore(state)
                seen = self.fitted.extent.events
            elif model is not present:
                model.state.reset()
                seen = 0
            if not model.stateless:
                missing = online.stream.events_since(seen)
                observe_all(model, missing, past, STRICT, observed_at_once(model), progress)
            try:
                yield model.eval(), past
            finally:
                if model is not present:
                    model.state.reset()

    @cached_property
    def _model(self) -> TemporalModel:
        fitted = self.fitted
        if self.head.training == "frozen":
            return fitted.evaluated
        return _copied(fitted, self.head.weights)


@dataclass(frozen=True)
class _Job:
    """The training of one head."""

    fitted: Fitted
    nodes: NodeTask
    training: Training
    config: HeadConfig
    seed: int

    @cached_property
    def run(self) -> RunConfig:
        run = self.fitted.run
        return replace(run, seed=self.seed) if self.training == "from scratch" else run

    @cached_property
    def backbone(self) -> TemporalModel:
        """The model that is asked for embeddings; one that learns along is not the run's own."""
        fitted = self.fitted
        if self.training == "frozen":
            return fitted.evaluated
        if self.training == "from scratch":
            return build(self.run, fitted.task.dataset, fitted.task.split.train)
        return _copied(fitted, fitted.evaluated.state_dict())

    def trained(self, progress: Progress) -> tuple[TrainedHead, Snapshot, dict[str, Any]]:
        """The head, the state of the model after all events, and how long the parts took."""
        model, began = self.backbone, time.perf_counter()
        past, rules = self.fitted.task.full_past.to(model.device), protocol(self.run.protocol)
        steps = Walk(model, self.nodes, past, rules, _at_once(self.run, self.config, self.training))
        timing: dict[str, Any] = {}
        if self.training == "frozen":
            model.state.reset()
            x = embedded_on_the_way(steps, PARTS, progress)
            timing["embed_seconds"] = round(time.perf_counter() - began, 3)
            began, state = time.perf_counter(), model.state.fields_now()
            trained = fit_head(x, self.nodes, self.config, self.seed, progress)
        else:
            trained = fit_end_to_end(steps, self.config, self.seed, progress)
            state = trained.state or {}
        timing["head_seconds"] = round(time.perf_counter() - began, 3)
        timing |= {"epochs": trained.epochs, "best_epoch": trained.best_epoch}
        return trained, {} if model.state_from_events else state, timing

    def saved(self, trained: TrainedHead, state: Snapshot) -> SavedHead:
        return SavedHead(
            head=trained.head.eval().cpu(),
            classes=self.nodes.names,
            asks=self.nodes.asks,
            visible=self.nodes.visible,
            training=self.training,
            seed=self.seed,
            data=self.fitted.extent.digest,
            run_weights=weights_digest(self.fitted.evaluated.state_dict()),
            weights=_copy({} if self.training == "frozen" else self.backbone.state_dict()),
            state=_copy(state),
        )

    def record(self, trained: TrainedHead, head: SavedHead, timing: dict[str, Any]) -> Record:
        nodes, task = self.nodes, self.fitted.task
        found = {
            part: measure(nodes.targets(part), trained.scores[part], nodes.names, seed=self.seed)
            for part in ("test", "val")
        }
        for part, figures in found.items():
            figures["with_past"] = round(100 * nodes.with_past(part, task.full_past), 4)
        more = {
            "seed": self.seed,
            "backbone_seed": self.run.seed,
            "head": "node",
            "training": self.training,
            "asks": nodes.asks,
            "visible": nodes.visible,
            "classes": nodes.names,
            "labels": {part: nodes.counts(part) for part in PARTS},
            "val_auc": [round(100 * auc, 4) for auc in trained.val_auc],
            "dim": trained.dim,
        }
        record = {**make_record(self.run, task, self.backbone, found, {}, timing, **more), "task": "node"}
        record["config"] = {**record["config"], "head": asdict(self.config)}
        del record["digests"]["negatives"]  # none were drawn
        weights = weights_digest(self.backbone.state_dict())
        record["digests"] |= {"split": nodes.digest, "weights": weights, "head": head.digest}
        return record


def head_config(run: RunConfig, training: Training, given: Mapping[str, Any]) -> HeadConfig:
    """The published head with settings of one's own; a model that learns along does so at its own rate."""
    config = HeadConfig()
    if training != "frozen":
        config = replace(config, lr=run.train.lr, epochs=JOINT_EPOCHS, patience=JOINT_PATIENCE)
    return overridden(config, given, prefix="head.")


def _node_classes(
    run: RunConfig, dataset: Dataset, asks: str | None, file: Path | None, data_dir: Path | None
) -> Tensor | None:
    """Classes of nodes from the file given, or from the one that lies with the data; none for labels of events."""
    if asks == "events":
        if file is not None:
            raise DsrdError(f"{file}: holds classes of nodes, and events are asked about; leave one of them out")
        return None
    file = file or beside(run.dataset, data_dir)
    return None if file is None else read_node_labels(file, dataset)


def _at_once(run: RunConfig, config: HeadConfig, training: Training) -> int:
    """Questions per call: as in evaluation, or as in training for a model that learned along."""
    return run.evaluate.batch_size if training == "frozen" else config.batch_size


def _copied(fitted: Fitted, weights: Mapping[str, Tensor]) -> TemporalModel:
    """A model like the run's, with these weights and an empty state."""
    model = build_for(fitted.run, fitted.evaluated.graph)
    load_weights(model, weights, fitted.folder)
    return placed(model, fitted.run).eval()


def _copy(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: value.detach().cpu().clone() for name, value in tensors.items()}
