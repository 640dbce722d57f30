"""One run, one record: a JSON object that says what was run, on what, and what came out."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import torch

from dsrd import machine
from dsrd.config import RunConfig, digest_of_json
from dsrd.evaluate.task import Task
from dsrd.models import TemporalModel

Record = dict[str, Any]


def identity(run: RunConfig, dataset: str) -> Record:
    """What was run on what."""
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
