"""Does a trained model know anything about who acts next? Each factor of an intensity, on validation events.

A network always answers something, and ranks show the smallest differences: on a stream of uniformly random
events its answers are an accident of its training events, and a column can be far from chance. So each factor is
asked to pick the validation events out of uniformly random candidates. A factor that says next to nothing, and is
no better than a blind choice beyond the error of the sample, has nothing to say. One that says much and is wrong
is another case: it may still rank well, and its log loss shows it (`calibration`).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dsrd.config import EvaluateConfig
from dsrd.evaluate.calibration import Factor, evenly_spaced, factors
from dsrd.evaluate.scoring import catch_up, scored_batches
from dsrd.evaluate.task import Task
from dsrd.events import Query, as_tensor
from dsrd.models import TemporalModel
from dsrd.protocol import Protocol

LEAST = 3.0  # standard errors above a blind choice
QUIET = 0.25  # nats: deviation of the gains below which a factor says next to nothing
FEWEST = 300  # validation events without which nothing can be told
ASKED = 5_000  # validation events at most, evenly spaced
OTHERS = 4  # random candidates beside each


def unsupported_factors(
    model: TemporalModel, task: Task, protocol: Protocol, config: EvaluateConfig, seed: int = 0
) -> list[str]:
    """The factors of the model's intensity that validation events do not support. Moves the model's state."""
    if not model.has_intensity:
        return []
    gains = validation_gains(model, task, protocol, config, seed)
    return [name for name, gain in gains.items() if is_unsupported(gain)]


def is_unsupported(gain: NDArray[np.float64]) -> bool:
    """Whether gains of this kind are those of a factor that knows nothing.  # [n]

    >>> noise = np.random.default_rng(0).normal(0, 0.02, 5_000)
    >>> is_unsupported(noise), is_unsupported(noise + 0.01), is_unsupported(50 * noise), is_unsupported(noise[:99])
    (True, False, False, False)
    """
    return len(gain) >= FEWEST and bool(gain.std() < QUIET) and standard_errors(gain) < LEAST


def standard_errors(gain: NDArray[np.float64]) -> float:
    """The mean, in units of its standard error; 0 if all are 0.  # [n]

    >>> standard_errors(np.array([1.0, 3.0]))
    2.0
    >>> standard_errors(np.zeros(5))
    0.0
    """
    error = gain.std(ddof=1) / np.sqrt(len(gain)) if len(gain) > 1 else np.inf
    return float(gain.mean() / error) if error > 0 else float(np.inf * np.sign(gain.mean()) if gain.any() else 0)


@torch.no_grad()
def validation_gains(
    model: TemporalModel, task: Task, protocol: Protocol, config: EvaluateConfig, seed: int
) -> dict[str, NDArray[np.float64]]:
    """By factor, how many nats better than blind each event is picked out of a few candidates.  # [n] each"""
    asked, rng = evenly_spaced(task.split.val, ASKED), np.random.default_rng(seed)
    asked_of = factors(model, task.split.train)
    scores: dict[str, list[Tensor]] = {}
    catch_up(model, task, protocol, config)
    model.eval()
    past, val = task.full_past.to(model.device), task.split.val
    for rows, now in scored_batches(model, "evidence", val, val, past, protocol.lagging(), config.batch_size):
        places = slice(*np.searchsorted(asked.rows, [rows.start, rows.stop]).tolist())
        true = asked.events[places].query()
        for factor in asked_of if len(true) else ():
            query = _with_others(factor, true, rng)
            score = factor.score(query.to(model.device), now).float().cpu().view(-1, len(true))
            scores.setdefault(factor.name, []).append(score)
    return {name: _gain(torch.cat(parts, dim=1)) for name, parts in scores.items()}


def _with_others(factor: Factor, true: Query, rng: np.random.Generator) -> Query:
    """The events, then as many queries with a random candidate, `OTHERS` times.  # [n] -> [(1 + OTHERS) n]"""
    others = [true]
    for _ in range(OTHERS):
        drawn = as_tensor(rng.choice(factor.candidates, len(true)))
        others.append(replace(true, src=drawn) if factor.is_source else replace(true, dst=drawn))
    return Query.cat(*others)


def _gain(scores: Tensor) -> NDArray[np.float64]:
    """Nats above a blind choice; the first row has the scores of the events.  # [1 + OTHERS, n] -> [n]"""
    log_p = torch.log_softmax(scores.double(), dim=0)[0]
    gain: NDArray[np.float64] = (log_p + np.log(len(scores))).numpy()
    return gain
