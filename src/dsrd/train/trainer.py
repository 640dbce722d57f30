"""Epochs and early stopping; a killed run goes on from its folder as if nothing had happened."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from dsrd.config import EvaluateConfig, RunConfig
from dsrd.evaluate.protocol import Protocol, protocol
from dsrd.evaluate.scoring import Progress, catch_up, draw, measure, score_pass, silent, to_end_of_training
from dsrd.evaluate.task import Task
from dsrd.models import Snapshot
from dsrd.train import checkpoint
from dsrd.train.build import build, load_weights, placed
from dsrd.train.learner import Learner
from dsrd.train.run_folder import RunFolder, check_note
from dsrd.train.stopping import Progressed

EpochCallback = Callable[[int, Mapping[str, float]], None]
"""Told (epoch, metrics) after every epoch: loss, val_ap, val_auc, best_epoch, seconds."""


class Fit:
    """Training of one model; `folder=None` keeps everything in memory."""

    def __init__(
        self,
        run: RunConfig,
        task: Task,
        folder: RunFolder | None = None,
        on_epoch: EpochCallback = lambda epoch, metrics: None,
    ) -> None:
        self.run, self.task, self.folder, self.on_epoch = run, task, folder, on_epoch
        self.rules: Protocol = protocol(run.protocol)
        begun = folder is not None and folder.last.exists()
        self.model = (
            placed(folder.build_model(folder.last, run), run)
            if folder is not None and begun
            else build(run, task.dataset, task.split.train)
        )
        self.learner = Learner(run, self.model, task.split.train, task.train_past)
        selection = EvaluateConfig(batch_size=run.evaluate.batch_size, order=run.evaluate.order)
        self.validation = draw(task.passes["val"], self.rules, selection, strategies=("random",))
        self.progressed = Progressed()
        self.best: tuple[dict[str, Tensor], Snapshot | None] | None = None

    @property
    def optimizer(self) -> torch.optim.Optimizer | None:
        return self.learner.optimizer

    def __call__(self, progress: Progress = silent) -> Progressed:
        """Train to the end (or go on from the last checkpoint), then take up the best weights and their state."""
        if self.folder is not None and self.folder.last.exists():
            self._resume(self.folder)
        while not self._finished():
            self._epoch(progress)
        weights, state = self._best()
        load_weights(self.model, weights, self.folder.best if self.folder else None)
        if state is None:
            to_end_of_training(self.model, self.task, self.rules, None)
        else:
            self.model.state.adopt(state)
        self.best = None
        return self.progressed

    def _finished(self) -> bool:
        if self.optimizer is None:  # one pass shows all there is to observe
            return self.progressed.epoch > 0
        return self.progressed.should_stop(self.run.train)

    def _epoch(self, progress: Progress) -> None:
        run, model, done = self.run, self.model, self.progressed
        began = time.perf_counter()
        label = f"epoch {done.epoch + 1}/{run.train.epochs}"
        loss = self.learner.epoch(done.epoch, lambda what, at, total: progress(f"{label} {what}", at, total))
        seconds = time.perf_counter() - began
        trained = None if model.state_from_events else model.state.snapshot()
        with self.learner.average.in_place():
            ap, auc = self._validate(lambda _, at, total: progress(f"{label} validation", at, total))
            learned = model.learned()  # of the weights that were judged
            model.state.reset()  # a state of many nodes is large: one less while the other is written
            done.epoch += 1
            if done.judge(ap, auc, run.train.keep):
                self._keep(trained)
        line: dict[str, Any] = {
            "epoch": done.epoch,
            "loss": loss,
            "val_ap": ap,
            "val_auc": auc,
            "seconds": seconds,
        }
        line |= {"learned": learned} if learned else {}
        line["seconds_with_validation"] = time.perf_counter() - began
        done.history.append(line)
        self._checkpoint()
        metrics = {name: line[name] for name in ("loss", "val_ap", "val_auc", "seconds")}
        self.on_epoch(done.epoch, {**metrics, "best_epoch": done.best_epoch})

    def _validate(self, progress: Progress) -> tuple[float, float]:
        """AP and AUC on the validation events, random negatives: what early stopping looks at.

        Under `strict` a model that is not exact takes these events in batches that end between timestamps: it
        lags, it does not leak, and an epoch does not take longer to judge than to train.
        """
        past = self.task.full_past.to(self.model.device)
        size = self.run.evaluate.batch_size
        catch_up(self.model, self.task, self.rules, self.run.evaluate)
        scores = score_pass(self.model, self.validation, past, self.rules.lagging(), size, progress)
        found = measure(self.validation, scores)["random"]
        return found["ap"], found["auc"]

    def _keep(self, trained: Snapshot | None) -> None:
        """Keep the weights, with the state that training left them; one that follows from events is made again."""
        weights = {name: value.detach().clone() for name, value in self.model.state_dict().items()}
        if self.folder is None:
            self.best = (weights, trained)
            return
        if trained is None:
            to_end_of_training(self.model, self.task, self.rules, None)
        state = self.model.state.fields_now() if trained is None else trained
        checkpoint.save(self.folder.best, {"weights": weights, "state": state}, self._note())
        self.model.state.reset()

    def _best(self) -> tuple[dict[str, Tensor], Snapshot | None]:
        if self.best is not None:
            return self.best
        assert self.folder is not None
        groups, note = checkpoint.load(self.folder.best)
        check_note(self.folder.best, note, self.run.model, self.task.dataset)
        return groups.get("weights", {}), groups.get("state", {})

    def _note(self) -> dict[str, Any]:
        return {
            "model": self.run.model,
            "run": self.run.digest,
            "data": self.task.dataset.digest,
            "events": len(self.task.dataset.events),
            "graph": asdict(self.model.graph),
            "progressed": asdict(self.progressed),
        }

    def _checkpoint(self) -> None:
        if self.folder is not None:
            checkpoint.save(self.folder.last, self.learner.tensors(), self._note())
            self.folder.log(self.progressed.history)

    def _resume(self, folder: RunFolder) -> None:
        groups, note = checkpoint.load(folder.last)
        check_note(folder.last, note, self.run.model, self.task.dataset)
        self.learner.restore(groups, folder.last)
        self.progressed = folder.progressed()
