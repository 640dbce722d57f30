"""How fast a model trains and answers, measured on the stream it is meant for."""

from __future__ import annotations

import statistics
import time
from dataclasses import asdict
from typing import Any

import torch

from dsrd.bench import records
from dsrd.config import RunConfig
from dsrd.evaluate.evaluator import Progress, Task, draw, score_pass, silent
from dsrd.evaluate.protocol import Pass, protocol
from dsrd.graph.negatives import TrainingNegatives
from dsrd.train.fit import Fit
from dsrd.train.loop import train_epoch

WARM_UP = 5  # batches: compilation, first allocations


def speed(
    run: RunConfig, task: Task, *, batches: int = 0, repeats: int = 1, progress: Progress = silent
) -> dict[str, Any]:
    """Seconds per training epoch and per 1,000 evaluated pairs (a pair: one query, true or not).

    `batches` limits what is timed; the epoch is then extrapolated from them, and the result says so.
    """
    fit = Fit(run, task)
    events, size = task.split.train, run.train.batch_size
    timed = events[: batches * size] if batches else events

    def epoch(of: Any) -> float:
        began = time.perf_counter()
        negatives = TrainingNegatives(events, run.seed)
        train_epoch(fit.model, of, task.train_past, negatives, fit.optimizer, fit.rules, size, progress)
        return time.perf_counter() - began

    epoch(events[: WARM_UP * size])
    seconds = [epoch(timed) * len(events) / len(timed) for _ in range(repeats)]
    scored, pairs = _evaluation(fit, task, run, batches, progress)
    per_epoch = statistics.median(seconds)
    return {
        **records.identity(run, task),
        "batch_size": size,
        "timing": {
            "seconds_per_epoch": round(per_epoch, 4),
            "events_per_second": round(len(events) / per_epoch, 1),
            "epochs": [round(value, 4) for value in seconds],
            "extrapolated": len(timed) < len(events),
            "seconds_per_1000_pairs": round(1000 * scored / pairs, 6),
        },
        "peak_rss_mb": records.peak_rss_mb(),
        "parameters": fit.model.num_parameters,
        "state_mb": round(fit.model.state.nbytes() / (1 << 20), 3),
        "config": {**run.to_dict(), "model_args": asdict(fit.model.config)},
        "digests": {"data": task.dataset.digest, "split": task.split.digest, "config": run.digest},
        "machine": {"threads": torch.get_num_threads(), "load": records.load_average()},
        "versions": records.versions(),
    }


def _evaluation(fit: Fit, task: Task, run: RunConfig, batches: int, progress: Progress) -> tuple[float, int]:
    """Seconds to score and observe test events against random negatives, and the pairs scored."""
    whole = task.passes["test"]
    rows = batches * run.evaluate.batch_size if batches else len(whole.events)
    part = Pass(**{**vars(whole), "events": whole.events[:rows]})
    rules = protocol(run.protocol)
    drawn = draw(part, rules, run.evaluate, strategies=("random",))
    began = time.perf_counter()
    score_pass(fit.model, drawn, task.full_past, rules, run.evaluate.batch_size, progress)
    return time.perf_counter() - began, 2 * len(part.events)
