"""The record of a run: a JSON object with the settings, the data, the metrics and the environment."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Mapping
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import Any

import torch

from dsrd import machine
from dsrd.config import RunConfig, digest_of_json
from dsrd.data.dataset import digest_of_tensors
from dsrd.evaluate.ceiling import ceiling
from dsrd.evaluate.questions import questions_of_test
from dsrd.evaluate.scoring import evaluate, measured_heads
from dsrd.evaluate.task import Task
from dsrd.models import Snapshot, TemporalModel, rules
from dsrd.reporter import stage
from dsrd.train.build import build
from dsrd.train.stopping import TrainingProgress

Record = dict[str, Any]
CURVE = ("loss", "val_ap", "val_auc", "val_mrr")  # entries of the training log that the record keeps
PARTS = ("val", "test")


def evaluation_record(
    run: RunConfig, task: Task, model: TemporalModel, trained: Snapshot | None, progress: TrainingProgress
) -> Record:
    """Evaluate a model with the head in `run.evaluate`, or with all its heads, and make the record.

    Its `results` are those of the first head, or of the reading `law` if `run.evaluate` asks for it; `heads` has
    the other heads, and `law` where the model has an intensity.
    `trained` is its state right after training; None for a model whose state follows from events alone.
    """
    heads = measured_heads(model, run.evaluate)
    start = time.perf_counter()
    results, negatives = evaluate(model, task, run.protocol_rules, run.evaluate, trained, heads=heads, parts=PARTS)
    timing = {
        "evaluate_seconds": round(time.perf_counter() - start, 3),
        **_training_times(progress, len(task.split.train)),
    }
    by_label = {label: {"results": each["test"], "validation": each["val"]} for label, each in results.items()}
    head, main = next(iter(by_label.items()))
    more: dict[str, Any] = {"head": head, "validation": main["validation"]}
    if progress.history:
        logged = [key for key in CURVE if key in progress.history[-1]]
        more["curve"] = {key: [line[key] for line in progress.history] for key in logged}
    if progress.unsupported:
        more["unsupported"] = progress.unsupported
    if learned := model.learned():
        more["learned"] = learned
    if len(by_label) > 1:
        more["heads"] = {label: each for label, each in by_label.items() if label != head}
    if run.evaluate.questions:
        more["questions"] = questions_of_test(model, task, run.evaluate, trained)
    if model.num_parameters:
        more["rules"] = {name: _rule_results(name, run, task) for name in rules()}
    if task.dataset.law is not None:
        more["ceiling"] = ceiling(task.dataset.law, task, run.protocol_rules, run.evaluate)
    record = make_record(run, task, model, main["results"], negatives, timing, **more)
    record["machine"]["processes"] = progress.history[-1].get("processes", 1) if progress.history else 1
    record["digests"]["weights"] = weights_digest(model.state_dict())
    return record


def _rule_results(name: str, run: RunConfig, task: Task) -> dict[str, Any]:
    """Test and validation results of a rule that learns nothing, on the same passes."""
    plain = replace(run.evaluate, head="", reading="plain")
    rule_run = replace(run, model=name, preset="published", model_args={}, evaluate=plain)
    model = build(rule_run, task.dataset, task.split.train)
    with stage(name):
        results, _ = evaluate(model, task, run.protocol_rules, plain, parts=PARTS)
        asked = {"questions": questions_of_test(model, task, plain, None)} if plain.questions else {}
    return {"results": results[""]["test"], "validation": results[""]["val"], **asked}


def identity(run: RunConfig, dataset: str) -> Record:
    """The entries that name a run: model, settings and data."""
    return {
        "dataset": dataset,
        "model": run.model,
        "preset": run.preset,
        "seed": run.seed,
        "protocol": run.protocol,
    }


def make_record(
    run: RunConfig,
    task: Task,
    model: TemporalModel,
    results: dict[str, Any],
    negatives: dict[str, str],
    timing: dict[str, Any],
    **more: Any,
) -> Record:
    """Put a record together; `more` are further entries of the object."""
    return {
        **identity(run, task.dataset.name),
        "results": results,
        **more,
        "timing": timing,
        "peak_rss_mb": machine.peak_rss_mb(),
        "parameters": model.num_parameters,
        "state_mb": round(model.state.nbytes() / (1 << 20), 3),
        "config": {**run.to_dict(), "model_args": asdict(model.config)},
        "versions": machine.versions(),
        "digests": {
            "data": task.dataset.digest,
            "split": task.split.digest,
            "config": run.digest,
            "negatives": digest_of_json(negatives),
        },
        "machine": {"threads": torch.get_num_threads(), "load": machine.load_average()},
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def weights_digest(weights: Mapping[str, Any]) -> str:
    """A digest of a model's weights: equal weights, equal digest."""
    return digest_of_tensors(*(weights[name] for name in sorted(weights)))


def _training_times(progress: TrainingProgress, events: int) -> dict[str, Any]:
    # A run killed before it logged its first epoch can be evaluated too; its times are unknown.
    seconds = statistics.median([line["seconds"] for line in progress.history] or [math.nan])
    return {
        "seconds_per_epoch": round(seconds, 3),
        "events_per_second": round(events / max(seconds, 1e-9), 1),
        "epochs": progress.epoch,
        "best_epoch": progress.best_epoch,
        "train_seconds": round(sum(line["seconds_with_validation"] for line in progress.history), 3),
    }
