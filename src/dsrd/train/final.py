"""The last training before production: on every event, for as many epochs as validation found best."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Any

from dsrd.config import RunConfig
from dsrd.evaluate.scoring import Progress, silent
from dsrd.evaluate.task import Task
from dsrd.models import TemporalModel
from dsrd.train import checkpoint
from dsrd.train.build import build, load_weights
from dsrd.train.learner import Learner
from dsrd.train.run_folder import RunFolder, check_note


def fit_final(
    run: RunConfig, task: Task, epochs: int, folder: RunFolder | None, progress: Progress = silent
) -> tuple[TemporalModel, dict[str, Any]]:
    """A model from the same seed and settings, trained on the whole stream; and what its record says of it.

    There is nothing left to validate on: the weights after the last epoch are kept (their moving average, if
    the run keeps one). With a folder, a killed run goes on from its last epoch.
    """
    everything = task.split.full
    model = build(run, task.dataset, everything)
    learner, done, began = Learner(run, model, everything, task.full_past), 0, time.perf_counter()
    note = {"model": run.model, "run": run.digest, "data": task.dataset.digest, "graph": asdict(model.graph)}
    losses: list[float] = []
    if folder is not None and folder.final_last.exists():
        groups, stored = checkpoint.load(folder.final_last)
        check_note(folder.final_last, stored, run.model, task.dataset)
        learner.restore(groups, folder.final_last)
        done, losses = stored["epochs"], stored["losses"]
    while done < epochs and learner.optimizer is not None:
        label = f"final epoch {done + 1}/{epochs}"
        losses.append(learner.epoch(done, lambda _, at, total, label=label: progress(label, at, total)))  # type: ignore[misc]
        done += 1
        if folder is not None:
            checkpoint.save(folder.final_last, learner.tensors(), {**note, "epochs": done, "losses": losses})
    with learner.average.in_place():
        weights = {name: value.detach().clone() for name, value in model.state_dict().items()}
    load_weights(model, weights, None)
    about = {"epochs": done, "events": len(everything), "losses": losses}
    if folder is not None:
        checkpoint.save(folder.final, {"weights": weights}, {**note, **about})
        folder.final_last.unlink(missing_ok=True)
    return model, {**about, "seconds": round(time.perf_counter() - began, 3)}
