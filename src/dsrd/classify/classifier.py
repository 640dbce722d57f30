"""`NodeClassifier`: a head on a fitted run that predicts the classes of nodes, also for upcoming events."""

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

from dsrd.classify.embedder import NodeEmbedder
from dsrd.classify.head import HeadConfig, Probabilities, TrainedHead, fit_end_to_end, fit_head, probabilities
from dsrd.classify.labels import label_file, read_node_labels
from dsrd.classify.metrics import measure
from dsrd.classify.saved_head import SavedHead, Training, outputs
from dsrd.classify.task import PARTS, NodeTask
from dsrd.config import RunConfig, overridden
from dsrd.data.dataset import Dataset
from dsrd.data.growing import Arrival
from dsrd.errors import DsrdError
from dsrd.estimator.fitted import Fitted
from dsrd.estimator.link_predictor import LinkPredictor, Shown
from dsrd.estimator.online import observe_batch_size
from dsrd.estimator.queries import upcoming
from dsrd.estimator.tables import input_table
from dsrd.evaluate.scoring import observe_all
from dsrd.events import Events
from dsrd.history.past import Past
from dsrd.models import Snapshot, TemporalModel
from dsrd.protocol import STRICT
from dsrd.reporter import reporting
from dsrd.train.build import build, build_for, load_weights, placed
from dsrd.train.record import Record, make_record, weights_digest
from dsrd.train.run_folder import RunFolder

NEW = "new"  # the name of the upcoming events as a part of the stream
JOINT_EPOCHS, JOINT_PATIENCE = 20, 5  # an epoch of a whole model takes minutes, not seconds


@dataclass
class NodeClassifier:
    """A fitted run and a head on its embeddings. `fit` trains the head, `open` loads it from the run's folder.

    >>> model = LinkPredictor(epochs=1, dim=8, seed=1).fit("synth:events=600", progress=False)
    >>> classifier = NodeClassifier.fit(model, epochs=2)
    >>> classifier.predict([(3, 20, 1e9)]).columns
    ['source', 'target', 'time', 'probability', 'known']
    """

    fitted: Fitted
    head: SavedHead
    record: Record | None = None  # results and settings of its training
    scores: Mapping[str, Probabilities] = field(default_factory=dict)  # by part, after training

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
        progress: Shown = False,
        **settings: Any,
    ) -> NodeClassifier:
        """Train a head on the labels of the model's stream; the model does not change.

        `settings` are those of `HeadConfig`. `labels` is a file with the classes of nodes. Without it they come
        from a file next to the data set or, if there is none, from the labels of the events.
        """
        fitted = model.fitted
        config = head_config(fitted.run, training, settings)
        dataset = fitted.task.dataset
        classes = _node_classes(fitted.run, dataset, asks, labels, data_dir)
        nodes = NodeTask.of(dataset, asks, visible, classes)  # reports bad labels before the long work
        seed = fitted.run.seed if seed is None else seed
        with fitted.online.lock.alone(), reporting(progress), fitted.online.state_preserved():
            training_job = _HeadTraining(fitted, nodes, training, config, seed)
            try:
                trained, state, timing = training_job.train()
                head = training_job.saved_head(trained, state)
                record = training_job.record(trained, head, timing)
            finally:
                fitted.evaluated.state.reset()
        return cls(fitted, head, record, trained.scores)

    @classmethod
    def open(cls, model: LinkPredictor) -> NodeClassifier:
        """Load the head from the folder of a run; an error if the weights of the run have changed since."""
        fitted = model.fitted
        if fitted.folder is None:
            raise DsrdError("this model came from no folder, so it has no head; train one")
        head = SavedHead.load(fitted.folder)
        if (head.data, head.run_weights) != (fitted.extent.digest, weights_digest(fitted.evaluated.state_dict())):
            raise DsrdError(f"{fitted.folder}: has changed since its head was trained; classify it again")
        return cls(fitted, head)

    def save(self) -> Path:
        """Save the head to the folder of its run."""
        if self.fitted.folder is None:
            raise DsrdError("this model came from no folder; save it before its head")
        folder = RunFolder(self.fitted.folder)
        with folder.locked():
            return self.head.save(folder.path)

    def predict(self, events: Any, *, progress: Shown = False) -> Any:
        """Classify the source of each upcoming event at the time of the event.

        A prediction uses everything strictly before the event, and the events of the same timestamp if the head
        was trained with them. The result has the columns of `events`, `probability` (of the second class) and
        `known` (the source occurs in the stream). With more than two classes it has `class`, the most likely one,
        and its `probability`. The run does not change.
        """
        stream = self.fitted.online.stream
        columns = stream.columns
        table = input_table(events, (columns.source, columns.target, columns.time), "events")
        with self.fitted.online.lock.alone(), reporting(progress):
            arrival = upcoming(table, stream)
            table_order = np.argsort(arrival.row)  # events are sorted by time, the table may not be
            probability = self.probabilities(arrival)[table_order]
        known = (arrival.events.src < stream.num_nodes).numpy()[table_order]
        if probability.shape[1] == 1:
            return table.with_columns({"probability": probability[:, 0], "known": known})
        names = np.array(self.head.classes, dtype=object)[probability.argmax(axis=1)]
        return table.with_columns({"class": names, "probability": probability.max(axis=1), "known": known})

    def probabilities(self, arrival: Arrival) -> Probabilities:
        """Of the positive class, or of every class if there are more than two.  # [E, outputs], in time order"""
        head, known = self.head.head, self.fitted.online.stream.dataset()
        if not len(arrival.events):
            return np.empty((0, outputs(self.head.classes)), np.float32)
        task, batch_size = (
            self._task(known, arrival),
            _batch_size(self.fitted.run, head.config, self.head.training),
        )
        with self._at_end_of_stream(arrival) as (model, past):
            x = NodeEmbedder(model, task, past, STRICT, batch_size).embed_parts([NEW])
        return probabilities(head(x))

    def _task(self, known: Dataset, arrival: Arrival) -> NodeTask:
        """One question about the source of each upcoming event; the labels are not used."""
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
    def _at_end_of_stream(self, arrival: Arrival) -> Iterator[tuple[TemporalModel, Past]]:
        """The model that the head was trained on, after all events so far, and a history with the upcoming ones.

        It is not always the model that predicts links: that one may have been trained on all events.
        """
        online, state = self.fitted.online, self.head.state
        with online.with_upcoming(arrival) as (link_model, past):
            model, observed = self._model, online.stream.num_events
            if state:
                model.state.verify(state, self.fitted.extent.events)
                model.state.restore(state)
                observed = self.fitted.extent.events
            elif model is not link_model:
                model.state.reset()
                observed = 0
            if not model.stateless:
                missing = online.stream.events_since(observed)
                observe_all(model, missing, past, STRICT, observe_batch_size(model))
            try:
                yield model.eval(), past
            finally:
                if model is not link_model:
                    model.state.reset()

    @cached_property
    def _model(self) -> TemporalModel:
        fitted = self.fitted
        if self.head.training == "frozen":
            return fitted.evaluated
        return _copy_of_model(fitted, self.head.weights)


@dataclass(frozen=True)
class _HeadTraining:
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
        """The model that gives the embeddings; if it is trained too, it is a copy of the run's model."""
        fitted = self.fitted
        if self.training == "frozen":
            return fitted.evaluated
        if self.training == "from scratch":
            return build(self.run, fitted.task.dataset, fitted.task.split.train)
        return _copy_of_model(fitted, fitted.evaluated.state_dict())

    def train(self) -> tuple[TrainedHead, Snapshot, dict[str, Any]]:
        """The head, the state of the model after all events, and the time of each step."""
        model, start = self.backbone, time.perf_counter()
        past = self.fitted.task.full_past.to(model.device)
        batch_size = _batch_size(self.run, self.config, self.training)
        embedder = NodeEmbedder(model, self.nodes, past, self.run.protocol_rules, batch_size)
        timing: dict[str, Any] = {}
        if self.training == "frozen":
            x = embedder.embed_all()
            timing["embed_seconds"] = round(time.perf_counter() - start, 3)
            start, state = time.perf_counter(), model.state.fields_now()
            trained = fit_head(x, self.nodes, self.config, self.seed)
        else:
            trained = fit_end_to_end(embedder, self.config, self.seed)
            state = trained.state or {}
        timing["head_seconds"] = round(time.perf_counter() - start, 3)
        timing |= {"epochs": trained.epochs, "best_epoch": trained.best_epoch}
        return trained, {} if model.state_from_events else state, timing

    def saved_head(self, trained: TrainedHead, state: Snapshot) -> SavedHead:
        return SavedHead(
            head=trained.head.eval().cpu(),
            classes=self.nodes.names,
            asks=self.nodes.asks,
            visible=self.nodes.visible,
            training=self.training,
            seed=self.seed,
            data=self.fitted.extent.digest,
            run_weights=weights_digest(self.fitted.evaluated.state_dict()),
            weights=_copy_tensors({} if self.training == "frozen" else self.backbone.state_dict()),
            state=_copy_tensors(state),
        )

    def record(self, trained: TrainedHead, head: SavedHead, timing: dict[str, Any]) -> Record:
        nodes, task = self.nodes, self.fitted.task
        results = {
            part: measure(nodes.targets(part), trained.scores[part], nodes.names, seed=self.seed)
            for part in ("test", "val")
        }
        for part, metrics in results.items():
            metrics["with_past"] = round(100 * nodes.with_past(part, task.full_past), 4)
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
        record = {**make_record(self.run, task, self.backbone, results, {}, timing, **more), "task": "node"}
        record["config"] = {**record["config"], "head": asdict(self.config)}
        del record["digests"]["negatives"]  # there are none
        weights = weights_digest(self.backbone.state_dict())
        record["digests"] |= {"split": nodes.digest, "weights": weights, "head": head.digest}
        return record


def head_config(run: RunConfig, training: Training, overrides: Mapping[str, Any]) -> HeadConfig:
    """The published head with some settings replaced; if the model is trained too, with its learning rate."""
    config = HeadConfig()
    if training != "frozen":
        config = replace(config, lr=run.train.lr, epochs=JOINT_EPOCHS, patience=JOINT_PATIENCE)
    return overridden(config, overrides, prefix="head.")


def _node_classes(
    run: RunConfig, dataset: Dataset, asks: str | None, file: Path | None, data_dir: Path | None
) -> Tensor | None:
    """Classes of nodes from `file` or from the file next to the data; None if events have the labels."""
    if asks == "events":
        if file is not None:
            raise DsrdError(
                f"{file}: holds classes of nodes, but the questions are about events; leave one of them out"
            )
        return None
    file = file or label_file(run.dataset, data_dir)
    return None if file is None else read_node_labels(file, dataset)


def _batch_size(run: RunConfig, config: HeadConfig, training: Training) -> int:
    """Questions per batch: as in evaluation, or as in the training of the head if the model is trained too."""
    return run.evaluate.batch_size if training == "frozen" else config.batch_size


def _copy_of_model(fitted: Fitted, weights: Mapping[str, Tensor]) -> TemporalModel:
    """A copy of the run's model with these weights and an empty state."""
    model = build_for(fitted.run, fitted.evaluated.graph)
    load_weights(model, weights, fitted.folder)
    return placed(model, fitted.run).eval()


def _copy_tensors(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: value.detach().cpu().clone() for name, value in tensors.items()}
