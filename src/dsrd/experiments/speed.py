"""How fast a model trains and answers, measured on the stream it is meant for."""

from __future__ import annotations

import statistics
import time
from dataclasses import asdict
from functools import partial
from typing import Any

import torch

from dsrd import machine
from dsrd.config import RunConfig
from dsrd.evaluate.protocol import Pass, protocol
from dsrd.evaluate.scoring import Progress, draw, score_pass, silent
from dsrd.evaluate.task import Task
from dsrd.events import Events
from dsrd.negatives.sampling import TrainingNegatives
from dsrd.train.loop import train_epoch
from dsrd.train.record import identity
from dsrd.train.trainer import Fit

WARM_UP = 5  # batches: compilation, first allocations
BLOCKS = 5  # of a part of the batches: histories are short early in a stream, and so is the work


def speed(
    run: RunConfig, task: Task, *, batches: int = 0, repeats: int = 1, progress: Progress = silent
) -> dict[str, Any]:
    """Seconds per training epoch and per 1,000 evaluated pairs (a pair: one query, true or not).

    `batches` limits what is timed: so many, spread over the stream, whose other events are observed untimed. The
    epoch is then extrapolated from them, and the result says so.
    """
    fit = Fit(run, task)
    events, size = task.split.train, run.train.batch_size
    blocks = _blocks(len(events), size, batches)
    timed = sum(block.stop - block.start for block in blocks)

    learn = partial(train_epoch, fit.model, fresh=False)

    def epoch(of: list[slice]) -> float:
        negatives, seconds, seen = TrainingNegatives(events, run.seed), 0.0, 0
        fit.model.state.reset()
        for block in of:
            _observe(fit, events[seen : block.start], task, size)
            began = time.perf_counter()
            learn(events[block], task.train_past, negatives, fit.optimizer, fit.rules, size, progress)
            seconds, seen = seconds + time.perf_counter() - began, block.stop
        return seconds

    epoch([slice(0, WARM_UP * size)])
    seconds = [epoch(blocks) * len(events) / timed for _ in range(repeats)]
    scored, pairs = _evaluation(fit, task, run, batches, progress)
    per_epoch = statistics.median(seconds)
    return {
        **identity(run, task.dataset.name),
        "batch_size": size,
        "timing": {
            "seconds_per_epoch": round(per_epoch, 4),
            "events_per_second": round(len(events) / per_epoch, 1),
            "epochs": [round(value, 4) for value in seconds],
            "extrapolated": timed < len(events),
            "seconds_per_1000_pairs": round(1000 * scored / pairs, 6),
        },
        "peak_rss_mb": machine.peak_rss_mb(),
        "parameters": fit.model.num_parameters,
        "state_mb": round(fit.model.state.nbytes() / (1 << 20), 3),
        "config": {**run.to_dict(), "model_args": asdict(fit.model.config)},
        "digests": {"data": task.dataset.digest, "split": task.split.digest, "config": run.digest},
        "machine": {"threads": torch.get_num_threads(), "load": machine.load_average()},
        "versions": machine.versions(),
    }


def _blocks(events: int, size: int, batches: int) -> list[slice]:
    """Rows to time: all of them, or `batches` batches in up to five blocks that are evenly spread.

    >>> _blocks(1000, 10, 4)
    [slice(240, 250, None), slice(490, 500, None), slice(740, 750, None), slice(990, 1000, None)]
    """
    if not 0 < batches * size < events:
        return [slice(0, events)]
    count = min(BLOCKS, batches)
    lengths = [size * (batches * (i + 1) // count - batches * i // count) for i in range(count)]
    stops = [events * (i + 1) // count for i in range(count)]
    return [slice(stop - length, stop) for stop, length in zip(stops, lengths, strict=True)]


@torch.no_grad()
def _observe(fit: Fit, events: Events, task: Task, size: int) -> None:
    for batch in events.batches(size):
        fit.model.observe(batch.to(fit.model.device), task.train_past)
        fit.model.state.detach_()


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
