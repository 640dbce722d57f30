"""From a configuration to a record: train, evaluate, write down."""

from __future__ import annotations

import json
import math
import statistics
import time
from pathlib import Path
from typing import Any

from dsrd.bench import records
from dsrd.bench.records import Record
from dsrd.config import RunConfig
from dsrd.data.dataset import Dataset
from dsrd.data.read import load_with
from dsrd.errors import DsrdError
from dsrd.evaluate.ceiling import ceiling
from dsrd.evaluate.evaluator import Progress, Task, evaluate, silent
from dsrd.evaluate.protocol import protocol
from dsrd.files import write_json
from dsrd.models import TemporalModel, settings
from dsrd.train.fit import Fit, Progressed, RunFolder, build, check_data, load_model

CURVE = ("loss", "val_ap", "val_auc")  # of a run's log, in its record


def prepare(
    run: RunConfig, data_dir: str | Path | None = None, progress: Progress = silent
) -> tuple[Dataset, Task]:
    """Open the run's data set and make it ready; a name nobody knows is found before a large file is read."""
    protocol(run.protocol)
    settings(run.model, "", run.preset, run.model_args)
    progress(f"reading {Path(run.dataset).name}", 0, 0)
    source = load_with(run.dataset, run.data, data_dir=data_dir)
    progress("splitting", 0, 0)
    try:
        return source, Task.of(source)
    except DsrdError as error:
        raise DsrdError(f"{run.dataset}: {error}") from error


def train(
    run: RunConfig, folder: RunFolder | None, source: Dataset, task: Task, progress: Progress = silent
) -> Record:
    """Train to the end, or go on where a killed run stopped; then measure the best weights on the test events.

    A run that came to its end before is not repeated: its record is returned as it was written.
    """
    if folder is None:
        fit = Fit(run, task)
        return measured(run, source, task, fit.model, fit(progress), progress)
    build(run, task)  # a setting the model refuses is found before the folder is made
    with folder.claimed(run):
        record = _stored_record(folder, task)
        if record is None:
            fit = Fit(run, task, folder)
            record = measured(run, source, task, fit.model, fit(progress), progress)
            write_json(folder.record, record)
        return record


def _stored_record(folder: RunFolder, task: Task) -> Record | None:
    if not folder.record.exists():
        return None
    try:
        record: Record = json.loads(folder.record.read_text(encoding="utf-8"))
        check_data(folder.record, record["digests"]["data"], task)
    except (ValueError, KeyError, TypeError) as error:
        raise DsrdError(f"{folder.record}: damaged ({error}); remove it and run again") from error
    return record


def evaluate_folder(
    folder: RunFolder, run: RunConfig, source: Dataset, task: Task, progress: Progress = silent
) -> Record:
    """Measure the best weights of a trained run, under `run`'s protocol and negatives."""
    stored = folder.config()
    model = load_model(folder, stored, task)
    record = measured(run, source, task, model, folder.progressed(), progress)
    return {**record, "trained": {"protocol": stored.protocol, "config": stored.digest}}


def evaluate_untrained(run: RunConfig, source: Dataset, task: Task, progress: Progress = silent) -> Record:
    """Measure a model that has nothing to learn."""
    if build(run, task).num_parameters:
        raise DsrdError(
            f"{run.model} has weights to learn; run `dsrd train --model {run.model} --dataset {run.dataset} "
            "--out RUN` first, then `dsrd evaluate RUN`"
        )
    return train(run, None, source, task, progress)


def measured(
    run: RunConfig,
    source: Dataset,
    task: Task,
    model: TemporalModel,
    progressed: Progressed,
    progress: Progress,
) -> Record:
    """The record of a model whose state is that right after training, for the head asked for or for every one."""
    rules = protocol(run.protocol)
    began = time.perf_counter()
    snapshots = {"train": model.state.snapshot()}
    heads: dict[str, dict[str, Any]] = {}
    for head in (run.evaluate.head,) if run.evaluate.head else model.heads:
        model.ask(head)
        results, negatives = evaluate(model, task, rules, run.evaluate, snapshots, ("val", "test"), progress)
        heads[head] = {"results": results["test"], "validation": results["val"]}
    main, *others = heads
    model.ask(main)
    timing = {
        "evaluate_seconds": round(time.perf_counter() - began, 3),
        **_training_times(progressed, len(task.split.train)),
    }
    more: dict[str, Any] = {"head": main, "validation": heads[main]["validation"]}
    if progressed.history:
        more["curve"] = {key: [line[key] for line in progressed.history] for key in CURVE}
    if others:
        more["heads"] = {head: heads[head] for head in others}
    if source.law is not None:
        more["ceiling"] = ceiling(source.law, task, rules, run.evaluate, progress)
    return records.make(run, task, model, heads[main]["results"], negatives, timing, **more)


def _training_times(progressed: Progressed, events: int) -> dict[str, Any]:
    # A run killed before its first epoch was logged can be measured, too: its times are unknown.
    seconds = statistics.median([line["seconds"] for line in progressed.history] or [math.nan])
    return {
        "seconds_per_epoch": round(seconds, 3),
        "events_per_second": round(events / max(seconds, 1e-9), 1),
        "epochs": progressed.epoch,
        "best_epoch": progressed.best_epoch,
        "train_seconds": round(sum(line["seconds_with_validation"] for line in progressed.history), 3),
    }
