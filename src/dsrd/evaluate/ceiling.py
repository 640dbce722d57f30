"""The best possible score on a synthetic stream, from the true probability of every pair."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from dsrd.config import EvaluateConfig
from dsrd.evaluate.protocol import Protocol
from dsrd.evaluate.scoring import Drawn, Progress, Scores, draw, measure, silent
from dsrd.evaluate.task import Task
from dsrd.synthetic.oracle import true_probability
from dsrd.synthetic.settings import SynthConfig


def ceiling(
    law: SynthConfig, task: Task, rules: Protocol, config: EvaluateConfig, progress: Progress = silent
) -> dict[str, dict[str, Any]]:
    """AP and AUC on the test events of a scorer that knows the law, by setting and kind of negatives.

    Against random negatives it ranks by p(target | source), against others by p(source, target). That is the best
    possible score if negatives are uniform. Historical and inductive ones are uniform only among earlier pairs.
    """
    found: dict[str, dict[str, Any]] = {}
    for each in task.passes.values():
        if each.part == "test" and len(each.events):
            drawn = draw(each, rules, config, progress=progress)
            progress(f"{each.name}: best possible score", 0, 0)
            found[each.setting] = measure(drawn, _true_scores(law, task, drawn))
    return found


def _true_scores(law: SynthConfig, task: Task, drawn: Drawn) -> Scores:
    events = drawn.events.events
    row = events.id.numpy() - 1
    positive: dict[str, Tensor] = {}
    negative: dict[str, Tensor] = {}
    for strategy, wrong in drawn.against.items():
        src = np.concatenate([events.src.numpy(), wrong.src.numpy()])
        dst = np.concatenate([events.dst.numpy(), wrong.dst.numpy()])
        truth = true_probability(law, task.split.full, np.tile(row, 2), src, dst)
        chance = truth.partner if strategy == "random" else truth.pair
        positive[strategy], negative[strategy] = torch.from_numpy(np.asarray(chance)).chunk(2)
    return Scores(positive, negative, ranked=None)
