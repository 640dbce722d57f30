"""Retrieve before ranking: a small head that guesses the score of a model from a few cheap features.

A model that has `first_features` can be asked about the few best of a million targets without scoring them all.
The head is distilled from the model's own scores: no event is used as a label, and nothing after the time of
fitting is read. The same stream and weights give the same head.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import relu

from dsrd.history.past import Past
from dsrd.models.base import TemporalModel

HIDDEN = 32
SOURCES = 64  # whose scores the head is fitted to
POOL = 20_000  # targets among which the hard ones are sought
SCORED = 512  # targets of a source and round that are scored in full
STEPS = 400  # of Adam in each round, of `TOGETHER` sources each
TOGETHER = 8
AT_ONCE = 8_192  # targets whose features fit the cache
TOP = 10.0  # a target of rank r among those scored weighs 1 / (TOP + r)


@dataclass(frozen=True)
class Retriever:
    """Guesses scores, up to a constant per source, from features; [F] -> [HIDDEN] -> 1."""

    first: Tensor  # [F, HIDDEN]
    shift: Tensor  # [HIDDEN]
    second: Tensor  # [HIDDEN]
    linear: Tensor  # [F]
    constant: float

    def __call__(self, features: Tensor) -> Tensor:
        """# [n, F] -> [n]"""
        hidden = torch.addmm(self.shift, features, self.first).relu_()
        return (features @ self.linear).add_(hidden @ self.second).add_(self.constant)

    def guess(self, model: TemporalModel, source: int, targets: Tensor, time: float, past: Past) -> Tensor:
        """A first score of every target.  # [C] -> [C]"""
        guesses = torch.empty(len(targets))
        start = 0
        for features in model.first_features(source, targets.split(AT_ONCE), time, past):
            guesses[start : start + len(features)] = self(features)
            start += len(features)
        return guesses


def evenly(values: Tensor, count: int) -> Tensor:
    """At most `count` of the values, evenly spaced.

    >>> evenly(torch.arange(10), 3).tolist(), evenly(torch.arange(2), 3).tolist()
    ([0, 3, 6], [0, 1])
    """
    if len(values) <= count:
        return values
    return values[torch.arange(count) * len(values) // count]


@torch.no_grad()
def fitted(model: TemporalModel, sources: Tensor, targets: Tensor, time: float, past: Past) -> Retriever:
    """A head fitted to the scores of these sources with a sample of these targets, at one time.

    Two rounds: to random targets, then also to those that the first head takes for the best of a larger sample.
    """
    generator = torch.Generator().manual_seed(0)
    pool = targets[torch.randperm(len(targets), generator=generator)[:POOL]]
    chosen = [pool[torch.randperm(len(pool), generator=generator)[:SCORED]] for _ in range(len(sources))]
    lists = [_scored(model, source, each, time, past) for source, each in zip(sources.tolist(), chosen, strict=True)]
    retriever = _trained(lists, generator)
    if len(pool) > SCORED:
        for source in sources.tolist():
            guess = retriever.guess(model, source, pool, time, past)
            best = pool[guess.topk(min(SCORED, len(pool))).indices]
            lists.append(_scored(model, source, best, time, past))
        retriever = _trained(lists, generator)
    return retriever


def _scored(model: TemporalModel, source: int, targets: Tensor, time: float, past: Past) -> tuple[Tensor, Tensor, Tensor]:
    """Features, scores and weights of a source's targets.  # [n, F], [n], [n]"""
    features = torch.cat(list(model.first_features(source, targets.split(AT_ONCE), time, past)))
    score = model.score_many(source, targets, time, past).float()
    rank = torch.empty(len(score))
    rank[score.argsort(descending=True)] = torch.arange(len(score), dtype=torch.float32)
    weight = 1 / (TOP + rank)
    return features, score, weight / weight.sum()


def _trained(lists: Sequence[tuple[Tensor, Tensor, Tensor]], generator: torch.Generator) -> Retriever:
    """Least squares by Adam, each list's errors weighted towards its best targets."""
    features = torch.cat([each[0] for each in lists])
    mean, scale = features.mean(0), features.std(0).clamp(min=1e-3)
    level = torch.cat([each[1] for each in lists]).mean()
    width = features.shape[1]
    first = nn.Parameter(torch.randn(width, HIDDEN, generator=generator) / width**0.5)
    shift, second = nn.Parameter(torch.zeros(HIDDEN)), nn.Parameter(torch.randn(HIDDEN, generator=generator) / HIDDEN)
    linear, constant = nn.Parameter(torch.zeros(width)), nn.Parameter(level.clone())
    weights = [first, shift, second, linear, constant]
    optimizer = torch.optim.Adam(weights, lr=1e-2)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-2, total_steps=STEPS)
    with torch.enable_grad():
        for _ in range(STEPS):
            rows = torch.randint(len(lists), (TOGETHER,), generator=generator).tolist()
            x = (torch.cat([lists[row][0] for row in rows]) - mean) / scale
            score, weight = (torch.cat([lists[row][part] for row in rows]) for part in (1, 2))
            guess = relu(x @ first + shift) @ second + x @ linear + constant
            loss = ((guess - score).square() * weight).sum() / TOGETHER
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    first_, shift_, second_, linear_ = (weight.detach() for weight in weights[:4])
    raw = first_ / scale[:, None]
    return Retriever(
        raw,
        shift_ - mean @ raw,
        second_,
        linear_ / scale,
        float(constant.detach() - (mean / scale * linear_).sum()),
    )
