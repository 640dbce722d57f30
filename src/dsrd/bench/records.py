"""One run, one record: a JSON object on one line that says what was run, on what, and what came out."""

from __future__ import annotations

import json
import platform
import sys
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from dsrd.config import RunConfig, digest_of_json
from dsrd.errors import DsrdError
from dsrd.evaluate.evaluator import Task
from dsrd.files import append_line, json_text
from dsrd.models import TemporalModel

Record = dict[str, Any]


def versions() -> dict[str, str]:
    """What the figures were made with."""
    return {
        "python": platform.python_version(),
        **{name: version(name) for name in ("dsrd", "torch", "numpy", "numba")},
    }


def peak_rss_mb() -> float:
    """The most memory this process has held, in megabytes."""
    try:
        import resource
    except ImportError:  # Windows, where psutil tells the peak instead
        import psutil

        return round(float(psutil.Process().memory_info().peak_wset) / (1 << 20), 1)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(peak / (1 << 20 if sys.platform == "darwin" else 1 << 10), 1)


def load_average() -> float:
    """How busy the machine is: timings beside a high load mean little. On Windows 0 for the first seconds."""
    import psutil

    return round(float(psutil.getloadavg()[0]), 2)


def identity(run: RunConfig, dataset: str) -> Record:
    """What was run on what."""
    return {
        "dataset": dataset,
        "model": run.model,
        "preset": run.preset,
        "seed": run.seed,
        "protocol": run.protocol,
    }


def make(
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
        "peak_rss_mb": peak_rss_mb(),
        "parameters": model.num_parameters,
        "state_mb": round(model.state.nbytes() / (1 << 20), 3),
        "config": {**run.to_dict(), "model_args": asdict(model.config)},
        "versions": versions(),
        "digests": {
            "data": task.dataset.digest,
            "split": task.split.digest,
            "config": run.digest,
            "negatives": digest_of_json(negatives),
        },
        "machine": {"threads": torch.get_num_threads(), "load": load_average()},
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def append(path: Path, record: Record) -> None:
    """Add a record to a results file, unless it is there: a run that is asked for twice happened once."""
    line = json_text(record)
    if path.is_file() and line in path.read_text(encoding="utf-8").splitlines():
        return
    append_line(path, line)


def read(path: Path) -> Iterator[Record]:
    """The records of a results file, in order."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        raise DsrdError(f"{path}: no such results file") from None
    for number, line in enumerate(lines, start=1):
        try:
            yield json.loads(line)
        except ValueError:
            raise DsrdError(f"{path}: line {number} is not a JSON object; remove the line") from None
