"""How fast a model trains and scores, measured on a stream."""

from __future__ import annotations

import statistics
import time
from dataclasses import asdict, replace
from typing import Any

import torch

from dsrd import machine
from dsrd.config import RunConfig
from dsrd.evaluate.pass_queries import draw
from dsrd.evaluate.scoring import score_pass
from dsrd.evaluate.task import Task
from dsrd.events import Events
from dsrd.negatives.sampling import TrainingNegatives
from dsrd.train.loop import train_epoch
from dsrd.train.record import identity
from dsrd.train.trainer import Trainer

WARM_UP = 5  # batches: compilation, first allocations
BLOCKS = 5  # timed parts of the stream: histories are short at its start, and so is the work


def speed(run: RunConfig, task: Task, *, batches: int = 0, repeats: int = 1) -> dict[str, Any]:
    """Seconds per training epoch and per 1,000 scored pairs, true or negative.

    `batches` limits the timed batches. They are spread over the stream, and the events between them are observed
    untimed. The time of an epoch is then extrapolated, and the result says so.
    """
    trainer = Trainer(run, task)
    events, size = task.split.train, run.train.batch_size
    blocks = _blocks(len(events), size, batches)
    timed = sum(block.stop - block.start for block in blocks)
    _train_seconds(trainer, [slice(0, WARM_UP * size)])
    seconds = [_train_seconds(trainer, blocks) * len(events) / timed for _ in range(repeats)]
    score_seconds, pairs = _evaluation(trainer, batches)
    per_epoch = statistics.median(seconds)
    return {
        **identity(run, task.dataset.name),
        "batch_size": size,
        "timing": {
            "seconds_per_epoch": round(per_epoch, 4),
            "events_per_second": round(len(events) / per_epoch, 1),
            "epochs": [round(value, 4) for value in seconds],
            "extrapolated": timed < len(events),
            "seconds_per_1000_pairs": round(1000 * score_seconds / pairs, 6),
        },
        "peak_rss_mb": machine.peak_rss_mb(),
        "parameters": trainer.model.num_parameters,
        "state_mb": round(trainer.model.state.nbytes() / (1 << 20), 3),
        "config": {**run.to_dict(), "model_args": asdict(trainer.model.config)},
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


def _train_seconds(trainer: Trainer, blocks: list[slice]) -> float:
    """Seconds to train on these blocks; the events between them are observed untimed."""
    model, run, past = trainer.model, trainer.run, trainer.task.train_past
    events, size = trainer.task.split.train, run.train.batch_size
    negatives, seconds, seen = TrainingNegatives(events, run.seed), 0.0, 0
    model.state.reset()
    for block in blocks:
        _observe(trainer, events[seen : block.start])
        start = time.perf_counter()
        optimizer, protocol = trainer.learner.optimizer, trainer.protocol
        train_epoch(model, events[block], past, negatives, optimizer, protocol, size, reset=False)
        seconds, seen = seconds + time.perf_counter() - start, block.stop
    return seconds


@torch.no_grad()
def _observe(trainer: Trainer, events: Events) -> None:
    for batch in events.batches(trainer.run.train.batch_size):
        trainer.model.observe(batch.to(trainer.model.device), trainer.task.train_past)
        trainer.model.state.detach_()


def _evaluation(trainer: Trainer, batches: int) -> tuple[float, int]:
    """Seconds to score and observe test events with random negatives, and the number of scored pairs."""
    task, config = trainer.task, trainer.run.evaluate
    test = task.passes["test"]
    rows = batches * config.batch_size if batches else len(test.events)
    part = replace(test, events=test.events[:rows])
    queries = draw(part, trainer.protocol, config, strategies=("random",))
    start = time.perf_counter()
    score_pass(trainer.model, queries, task.full_past, trainer.protocol, config.batch_size)
    return time.perf_counter() - start, 2 * len(part.events)
