"""From a configuration to a record: train, evaluate, write down."""

from __future__ import annotations

import statistics
import time
from pathlib import Path
from typing import Any

from dsrd.bench import records
from dsrd.bench.records import Record
from dsrd.config import RunConfig
from dsrd.data.source import Source, open_dataset
from dsrd.errors import DsrdError
from dsrd.evaluate.ceiling import ceiling
from dsrd.evaluate.evaluator import Progress, Task, evaluate, silent
from dsrd.evaluate.protocol import protocol
from dsrd.files import write_json
from dsrd.models import TemporalModel
from dsrd.train.fit import Fit, Progressed, RunFolder, build, load_model


def prepare(run: RunConfig, data_dir: str | Path | None = None) -> tuple[Source, Task]:
    """Open the run's data set and make it ready."""
    source = open_dataset(run.dataset, run.data, data_dir)
    return source, Task.of(source.dataset)


def train(
    run: RunConfig, folder: RunFolder | None, source: Source, task: Task, progress: Progress = silent
) -> Record:
    """Train to the end, or go on where a killed run stopped; then measure the best weights on the test events."""
    protocol(run.protocol)
    if folder is not None:
        build(run, task)  # a setting the model refuses is found before the folder is made
        folder.claim(run)
    fit = Fit(run, task, folder)
    progressed = fit(progress)
    record = measured(run, source, task, fit.model, progressed, progress)
    if folder is not None:
        write_json(folder.record, record)
    return record


def evaluate_folder(
    folder: RunFolder, run: RunConfig, source: Source, task: Task, progress: Progress = silent
) -> Record:
    """Measure the best weights of a trained run, under `run`'s protocol and negatives."""
    model = load_model(folder, folder.config(), task)
    return measured(run, source, task, model, None, progress)


def evaluate_untrained(run: RunConfig, source: Source, task: Task, progress: Progress = silent) -> Record:
    """Measure a model that has nothing to learn."""
    if build(run, task).num_parameters:
        raise DsrdError(
            f"{run.model} has weights to learn; run `dsrd train --model {run.model} --dataset {run.dataset} "
            "--out RUN` first, then `dsrd evaluate RUN`"
        )
    return train(run, None, source, task, progress)


def measured(
    run: RunConfig,
    source: Source,
    task: Task,
    model: TemporalModel,
    progressed: Progressed | None,
    progress: Progress,
) -> Record:
    """The record of a model whose state is that right after training."""
    rules = protocol(run.protocol)
    began = time.perf_counter()
    snapshots = {"train": model.state.snapshot()}
    results, negatives = evaluate(model, task, rules, run.evaluate, snapshots, ("val", "test"), progress)
    timing: dict[str, Any] = {"evaluate_seconds": round(time.perf_counter() - began, 3)}
    if progressed is not None:
        timing |= _training_times(progressed, len(task.split.train))
    more: dict[str, Any] = {"validation": results["val"]}
    if source.law is not None:
        more["ceiling"] = ceiling(source.law, task, rules, run.evaluate)
    return records.make(run, task, model, results["test"], negatives, timing, **more)


def _training_times(progressed: Progressed, events: int) -> dict[str, Any]:
    seconds = statistics.median(line["seconds"] for line in progressed.history)
    return {
        "seconds_per_epoch": round(seconds, 3),
        "events_per_second": round(events / max(seconds, 1e-9), 1),
        "epochs": progressed.epoch,
        "best_epoch": progressed.best_epoch,
        "train_seconds": round(sum(line["seconds_with_validation"] for line in progressed.history), 3),
    }
