"""From a trained model to a record: the passes of a protocol, with the rules that learn nothing beside them."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dsrd.config import RunConfig
from dsrd.data.dataset import digest_of_tensors
from dsrd.evaluate.ceiling import ceiling
from dsrd.evaluate.protocol import protocol
from dsrd.evaluate.scoring import Progress, evaluate, silent
from dsrd.evaluate.task import Task
from dsrd.models import Snapshot, TemporalModel, rules
from dsrd.train.build import build
from dsrd.train.record import Record, make_record
from dsrd.train.stopping import Progressed

CURVE = ("loss", "val_ap", "val_auc")  # of a run's log, in its record
PARTS = ("val", "test")


def measured(
    run: RunConfig,
    task: Task,
    model: TemporalModel,
    trained: Snapshot | None,
    progressed: Progressed,
    progress: Progress = silent,
) -> Record:
    """The record of a model, for the head asked for or for every one.

    `trained` is its state right after training; none for a model whose state follows from events alone.
    """
    asked = run.evaluate.head
    heads = (model.head_called(asked),) if asked else model.heads
    began = time.perf_counter()
    found, negatives = evaluate(
        model, task, protocol(run.protocol), run.evaluate, trained, heads=heads, parts=PARTS, progress=progress
    )
    timing = {
        "evaluate_seconds": round(time.perf_counter() - began, 3),
        **_training_times(progressed, len(task.split.train)),
    }
    main, *others = ({"results": found[head]["test"], "validation": found[head]["val"]} for head in heads)
    more: dict[str, Any] = {"head": heads[0], "validation": main["validation"]}
    if progressed.history:
        more["curve"] = {key: [line[key] for line in progressed.history] for key in CURVE}
    if others:
        more["heads"] = dict(zip(heads[1:], others, strict=True))
    if model.num_parameters:
        more["rules"] = {name: ruled(name, run, task, progress) for name in rules()}
    if task.dataset.law is not None:
        more["ceiling"] = ceiling(task.dataset.law, task, protocol(run.protocol), run.evaluate, progress)
    record = make_record(run, task, model, main["results"], negatives, timing, **more)
    record["digests"]["weights"] = weights_digest(model.state_dict())
    return record


def ruled(name: str, run: RunConfig, task: Task, progress: Progress = silent) -> dict[str, Any]:
    """What a rule that learns nothing reaches on the same passes: test and validation."""
    own = replace(run, model=name, preset="published", model_args={}, evaluate=replace(run.evaluate, head=""))
    model = build(own, task.dataset, task.split.train)
    found, _ = evaluate(
        model,
        task,
        protocol(run.protocol),
        own.evaluate,
        parts=PARTS,
        progress=lambda what, done, total: progress(f"{name}, {what}", done, total),
    )
    results = found[""]
    return {"results": results["test"], "validation": results["val"]}


def weights_digest(weights: Mapping[str, Any]) -> str:
    """A short name of a model's weights: equal weights, equal digest."""
    return digest_of_tensors(*(weights[name] for name in sorted(weights)))


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
