"""Scores of any pairs at any times, from everything that happened strictly before each of them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from dsrd.evaluate.evaluator import Progress, Task, observe_all, probability, silent
from dsrd.evaluate.protocol import PROTOCOLS
from dsrd.events import Events, Query
from dsrd.models import TemporalModel

RULES = PROTOCOLS["strict"].lagging()


@torch.no_grad()
def predict(
    model: TemporalModel, task: Task, query: Query, batch_size: int = 200, progress: Progress = silent
) -> Tensor:
    """Probability of each pair; the model's state is, before and after, that right after training.  # [Q]

    Events are observed on the way: a pair asked at t is scored by a state that has seen what came before t, and
    nothing else. Questions about times before the end of training start over from an empty state.
    """
    if not len(query):
        return torch.empty(0)
    parts = task.split
    trained, early = model.state.snapshot(), bool(query.time.min() <= parts.train.time[-1])
    if early:
        model.state.reset()
    unseen = Events.cat(*((parts.train,) if early else ()), parts.val, parts.test)
    past = task.full_past.to(model.device)
    order = torch.argsort(query.time, stable=True)
    scores = torch.empty(len(query))
    seen = 0
    model.eval()
    for rows in _moments(query.time[order]):
        upto = int(torch.searchsorted(unseen.time, query.time[order[rows.start]]))
        if upto > seen and not model.stateless:
            observe_all(model, unseen[seen:upto], past, RULES, batch_size, progress)
        seen = max(seen, upto)
        for start in range(rows.start, rows.stop, batch_size):
            part = order[start : min(start + batch_size, rows.stop)]
            scores[part] = probability(model, query[part], past)
            progress("scoring", start + len(part), len(query))
    model.state.restore(trained)
    return scores


def _moments(time: Tensor) -> Iterator[slice]:
    """Stretches of equal times."""
    cuts = np.flatnonzero(np.diff(time.numpy())) + 1
    bounds = [0, *cuts.tolist(), len(time)]
    yield from (slice(start, stop) for start, stop in pairwise(bounds) if stop > start)
