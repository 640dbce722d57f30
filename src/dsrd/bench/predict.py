"""Scores of any pairs at any times, from everything that happened strictly before each of them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from dsrd.errors import DsrdError
from dsrd.evaluate.evaluator import Progress, Task, observe_all, probability, silent
from dsrd.evaluate.protocol import PROTOCOLS
from dsrd.events import Query
from dsrd.models import TemporalModel

RULES = PROTOCOLS["strict"].lagging()


@torch.no_grad()
def predict(
    model: TemporalModel, task: Task, query: Query, batch_size: int = 200, progress: Progress = silent
) -> Tensor:
    """Probability of each pair; the model's state is left as it was.  # [Q]

    The stream is observed from its first event on: a pair asked at t is scored by a state that has seen everything
    before t, events that training withheld included, and nothing else.
    """
    if not len(query):
        return torch.empty(0)
    past = task.full_past.to(model.device)
    order = torch.argsort(query.time, stable=True)
    scores = torch.empty(len(query))
    seen = 0
    events = task.split.full
    with from_the_start(model):
        for rows in _moments(query.time[order]):
            upto = int(torch.searchsorted(events.time, query.time[order[rows.start]]))
            if upto > seen and not model.stateless:
                observe_all(model, events[seen:upto], past, RULES, batch_size, progress)
            seen = max(seen, upto)
            for start in range(rows.start, rows.stop, batch_size):
                part = order[start : min(start + batch_size, rows.stop)]
                scores[part] = probability(model, query[part], past)
                progress("scoring", start + len(part), len(query))
    return scores


def top_partners(
    model: TemporalModel,
    task: Task,
    node: int,
    time: float | None = None,
    k: int = 10,
    batch_size: int = 200,
    progress: Progress = silent,
) -> tuple[Tensor, Tensor]:
    """The k likeliest targets of a node at a time, likeliest first, and their probabilities.  # [k], [k]

    Candidates are all who were a target before that time, the node itself included if it was one: of others nobody
    could have known. Without a time the question is about the moment after the last event. Equal probabilities
    stand in the order of node ids.
    """
    if k < 1:
        raise DsrdError(f"top {k}: give 1 or more")
    at = after_last(task) if time is None else time
    events = task.dataset.events
    target = torch.unique(events.dst[events.time < at])  # sorted
    if not len(target):
        raise DsrdError(f"{task.dataset.name}: nobody was a target before {at}; ask about a later time")
    query = Query(torch.full_like(target, node), target, torch.full(target.shape, at, dtype=torch.float64))
    scores = predict(model, task, query, batch_size, progress)
    best = torch.sort(scores, descending=True, stable=True).indices[:k]
    return target[best], scores[best]


def after_last(task: Task) -> float:
    """The moment right after the stream's last event."""
    return math.nextafter(float(task.dataset.events.time[-1]), math.inf)


@contextmanager
def from_the_start(model: TemporalModel) -> Iterator[None]:
    """The model with an empty state, ready to be told the stream; its own state is back when the block ends.

    The state right after training lacks the events that training withheld: whoever asks wants them remembered.
    """
    before = model.state.snapshot()
    model.state.reset()
    model.eval()
    try:
        yield
    finally:
        model.state.restore(before)


def _moments(time: Tensor) -> Iterator[slice]:
    """Stretches of equal times."""
    cuts = np.flatnonzero(np.diff(time.numpy())) + 1
    bounds = [0, *cuts.tolist(), len(time)]
    yield from (slice(start, stop) for start, stop in pairwise(bounds) if stop > start)
