"""Training with early stopping. A killed run continues from its folder and ends in the same weights."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from dsrd.config import EvaluateConfig, RunConfig
from dsrd.data.own_split import OtherTargets
from dsrd.evaluate.evidence import unsupported_factors
from dsrd.evaluate.pass_queries import PassQueries, draw, ranked_among
from dsrd.evaluate.scoring import catch_up, measure, score_pass, to_end_of_training
from dsrd.evaluate.task import Task
from dsrd.models import Snapshot, TemporalModel
from dsrd.negatives.sampling import candidates
from dsrd.processes import ALONE, Processes
from dsrd.reporter import current, stage
from dsrd.train import checkpoint
from dsrd.train.build import build, load_weights, placed, verify_state
from dsrd.train.loop import Learner
from dsrd.train.run_folder import RunFolder, check_note
from dsrd.train.stopping import TrainingProgress

EpochCallback = Callable[[int, Mapping[str, float]], None]
"""Called with (epoch, metrics) after every epoch: loss, val_ap, val_auc, best_epoch, seconds; val_mrr if it
decides which epoch is best."""


class Trainer:
    """Trains one model; `folder=None` keeps everything in memory."""

    def __init__(
        self,
        run: RunConfig,
        task: Task,
        folder: RunFolder | None = None,
        callbacks: Sequence[EpochCallback] = (),
        processes: Processes = ALONE,
    ) -> None:
        """Of several `processes`, all read the folder, and the first one writes it and calls the callbacks."""
        self.run, self.task, self.folder, self.callbacks = run, task, folder, callbacks
        self.processes = processes
        self.protocol = run.protocol_rules
        if folder is not None and folder.last.exists():
            self.model = placed(folder.build_model(folder.last, run), run)
        else:
            self.model = build(run, task.dataset, task.split.train)
        self.learner = Learner(run, self.model, task.split.train, task.train_past, processes)
        self.validation = validation_queries(run, task)
        self.progress = TrainingProgress()
        self.best: tuple[dict[str, Tensor], Snapshot | None] | None = None

    def train(self) -> TrainingProgress:
        """Train to the end, or continue from the last checkpoint; then load the best weights and their state."""
        if self.folder is not None and self.folder.last.exists():
            self._resume(self.folder)
        self.processes.check_equal(torch.tensor([self.progress.epoch]), "the number of finished epochs")
        while not self._finished():
            with stage(f"epoch {self.progress.epoch + 1}/{self.run.train.epochs}"):
                self._epoch()
        self.processes.wait()  # for the first one, which writes the weights that all read
        weights, state = self._best()
        load_weights(self.model, weights, self.folder.best if self.folder else None)
        self._set_aside_unsupported()
        if state is None:
            to_end_of_training(self.model, self.task, self.protocol, None)
        else:
            self.model.state.adopt(state)
        self.best = None
        return self.progress

    def _finished(self) -> bool:
        if self.learner.optimizer is None:  # nothing to learn: one pass observes all events
            return self.progress.epoch > 0
        train = self.run.train
        return self.progress.should_stop(epochs=train.epochs, patience=train.patience, minutes=train.minutes)

    def _epoch(self) -> None:
        model, progress, start = self.model, self.progress, time.perf_counter()
        loss = self.learner.epoch(progress.epoch)
        seconds = time.perf_counter() - start
        trained = None if model.state_from_events else model.state.snapshot()
        with self.learner.average.in_place():
            metrics = self.processes.from_first(self._validate())
            if not all(map(math.isfinite, metrics.values())):
                raise self.learner.diverged(progress.epoch, "the validation score is nan")
            learned = model.learned()  # of the weights that were validated
            model.state.reset()  # the state of many nodes is large: free it before the other one is written
            if progress.finish_epoch(**metrics, keep=self.run.train.keep):
                self._keep(trained)
        metrics = {"loss": loss, **{f"val_{name}": value for name, value in metrics.items()}, "seconds": seconds}
        line: dict[str, Any] = {"epoch": progress.epoch, **metrics}
        line |= {"learned": learned} if learned else {}
        line |= {"processes": self.processes.count} if self.processes.count > 1 else {}
        line["seconds_with_validation"] = time.perf_counter() - start
        progress.history.append(self.processes.from_first(line))  # its times decide when to stop
        self._checkpoint()
        if not self.processes.is_first:
            return
        for callback in (current().epoch, *self.callbacks):
            callback(progress.epoch, {**metrics, "best_epoch": progress.best_epoch})

    def _validate(self) -> dict[str, float]:
        """`ap` and `auc` on the validation events against random negatives, and `mrr` if it decides; in percent.

        Under `strict` a model that is not exact observes these events in batches that end between timestamps. Its
        state lags but does not leak, and validation takes no longer than training.
        """
        past = self.task.full_past.to(self.model.device)
        batch_size = self.run.evaluate.batch_size
        catch_up(self.model, self.task, self.protocol, self.run.evaluate)
        protocol = self.protocol.lagging()
        scores = score_pass(self.model, self.validation, past, protocol, batch_size, processes=self.processes)
        results = measure(self.validation, scores.probabilities())
        metrics = {name: results["random"][name] for name in ("ap", "auc")}
        return metrics | ({"mrr": results["ranking"]["mrr"]} if "ranking" in results else {})

    def _keep(self, trained: Snapshot | None) -> None:
        """Keep the weights and the state after training; a state that follows from events is rebuilt later."""
        weights = {name: value.detach().clone() for name, value in self.model.state_dict().items()}
        if self.folder is None:
            self.best = (weights, trained)
            return
        if not self.processes.is_first:
            return
        if trained is None:
            to_end_of_training(self.model, self.task, self.protocol, None)
        state = self.model.state.fields_now() if trained is None else trained
        checkpoint.save(self.folder.best, {"weights": weights, "state": state}, self._note())
        self.model.state.reset()

    def _best(self) -> tuple[dict[str, Tensor], Snapshot | None]:
        if self.best is not None:
            return self.best
        assert self.folder is not None
        groups, note = checkpoint.load(self.folder.best)
        check_note(self.folder.best, note, self.run.model, self.task.dataset)
        events = len(self.task.dataset.events)
        return groups.get("weights", {}), verify_state(
            self.model, groups.get("state", {}), self.folder.best, events
        )

    def _set_aside_unsupported(self) -> None:
        """Let factors of the intensity that validation does not support answer uniformly, also in the folder."""
        model, progress = self.model, self.progress
        names = unsupported_factors(model, self.task, self.protocol, self.run.evaluate)
        for name in names:
            model.answer_uniformly(name)
            current().note(
                f"`{name}` picks validation events no better than blind choice does: it answers uniformly"
            )
        if names != progress.unsupported:
            progress.unsupported = names
            if self.folder is not None and self.processes.is_first:
                groups, note = checkpoint.load(self.folder.best)
                checkpoint.save(self.folder.best, {**groups, "weights": model.state_dict()}, note)
                self._checkpoint()

    def _note(self) -> dict[str, Any]:
        return {
            **model_note(self.run, self.task, self.model),
            "events": len(self.task.dataset.events),
            "progressed": asdict(self.progress),
        }

    def _checkpoint(self) -> None:
        if self.folder is not None and self.processes.is_first:
            checkpoint.save(self.folder.last, self.learner.tensors(), self._note())
            self.folder.log(self.progress.history)

    def _resume(self, folder: RunFolder) -> None:
        groups, note = checkpoint.load(folder.last)
        check_note(folder.last, note, self.run.model, self.task.dataset)
        self.learner.restore(groups, folder.last)
        self.progress = folder.progress()


def validation_queries(run: RunConfig, task: Task) -> PassQueries:
    """What is asked after every epoch: the validation events against random negatives and, if MRR decides, some of
    them ranked among the candidates of the data, `evaluate.candidates`, or all targets before the test."""
    pass_, protocol = task.passes["val"], run.protocol_rules
    selection = EvaluateConfig(batch_size=run.evaluate.batch_size, order=run.evaluate.order)
    queries = draw(pass_, protocol, selection, strategies=("random",))
    if run.train.keep != "mrr":
        return queries
    wrong = pass_.candidates
    if wrong is None and run.evaluate.candidates:
        wrong = candidates(pass_.events, pass_.pool, count=run.evaluate.candidates, seed=pass_.seed)
    if wrong is None:
        known = task.split.full[: len(task.split.full) - len(task.split.test)]
        wrong = OtherTargets(pass_.events.dst, known.dst)
    return ranked_among(queries, wrong, run.train.ranked_events)


def train_on_all_events(
    run: RunConfig,
    task: Task,
    progress: TrainingProgress,
    folder: RunFolder | None,
    processes: Processes = ALONE,
) -> tuple[TemporalModel, dict[str, Any]]:
    """The last training before production: the same seed and settings on the whole stream, for the best number of
    epochs, and with the same factors set aside.

    There are no events left to validate on, so the weights after the last epoch are kept (their moving average, if
    the run keeps one). With a folder, a killed run continues from its last epoch. Also returns the entries for the
    record.
    """
    events, epochs, start = task.split.full, progress.best_epoch, time.perf_counter()
    model = build(run, task.dataset, events)
    learner = Learner(run, model, events, task.full_past, processes)
    note = model_note(run, task, model)
    done, losses = 0, list[float]()
    if folder is not None and folder.final_last.exists():
        groups, stored = checkpoint.load(folder.final_last)
        check_note(folder.final_last, stored, run.model, task.dataset)
        learner.restore(groups, folder.final_last)
        done, losses = stored["epochs"], stored["losses"]
    processes.check_equal(torch.tensor([done]), "the number of finished epochs")
    while done < epochs and learner.optimizer is not None:
        with stage(f"final epoch {done + 1}/{epochs}"):
            losses.append(learner.epoch(done))
        done += 1
        if folder is not None and processes.is_first:
            checkpoint.save(folder.final_last, learner.tensors(), {**note, "epochs": done, "losses": losses})
    with learner.average.in_place():
        weights = {name: value.detach().clone() for name, value in model.state_dict().items()}
    load_weights(model, weights, None)
    for name in progress.unsupported:
        model.answer_uniformly(name)
    about = {"epochs": done, "events": len(events), "losses": losses}
    if folder is not None and processes.is_first:
        checkpoint.save(folder.final, {"weights": model.state_dict()}, {**note, **about})
        folder.final_last.unlink(missing_ok=True)
    return model, {**about, "seconds": round(time.perf_counter() - start, 3)}


def model_note(run: RunConfig, task: Task, model: TemporalModel) -> dict[str, Any]:
    """What every checkpoint says about its model."""
    return {"model": run.model, "run": run.digest, "data": task.dataset.digest, "graph": asdict(model.graph)}
