"""The best possible score on a synthetic stream, from the true probability of every pair."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from dsrd.config import EvaluateConfig
from dsrd.evaluate.scoring import PassQueries, Scores, draw, measure
from dsrd.evaluate.task import Task
from dsrd.protocol import Protocol
from dsrd.reporter import step
from dsrd.synthetic.oracle import true_probability
from dsrd.synthetic.settings import SyntheticLaw


def ceiling(
    law: SyntheticLaw, task: Task, protocol: Protocol, config: EvaluateConfig
) -> dict[str, dict[str, Any]]:
    """AP and AUC on the test events of a scorer that knows the law, by setting and kind of negatives.

    Against random negatives it ranks by p(target | source), against others by p(source, target). That is the best
    possible score if negatives are uniform. Historical and inductive ones are uniform only among earlier pairs.
    """
    by_setting: dict[str, dict[str, Any]] = {}
    for each in task.passes.values():
        if each.part == "test" and len(each.events):
            drawn = draw(each, protocol, config)
            step(f"{each.name}: best possible score")
            by_setting[each.setting] = measure(drawn, _true_scores(law, task, drawn))
    return by_setting


def _true_scores(law: SyntheticLaw, task: Task, drawn: PassQueries) -> Scores:
    events = drawn.pass_.events
    row = events.id.numpy() - 1
    positive: dict[str, Tensor] = {}
    negative: dict[str, Tensor] = {}
    for strategy, wrong in drawn.negatives.items():
        src = np.concatenate([events.src.numpy(), wrong.src.numpy()])
        dst = np.concatenate([events.dst.numpy(), wrong.dst.numpy()])
        truth = true_probability(law, task.split.full, np.tile(row, 2), src, dst)
        chance = truth.partner if strategy == "random" else truth.pair
        positive[strategy], negative[strategy] = torch.from_numpy(np.asarray(chance)).chunk(2)
    return Scores(positive, negative, ranked=None)
