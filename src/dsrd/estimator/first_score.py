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

HIDDEN = 31  # and one column for the linear map
SOURCES = 64  # whose scores the head is fitted to
POOL = 20_000  # targets among which the hard ones are sought
SCORED = 512  # targets of a source and round that are scored in full
STEPS = 400  # of Adam in each round, of `TOGETHER` sources each
TOGETHER = 8
AT_ONCE = 8_192  # targets whose features fit the cache
TOP = 10.0  # a target of rank r among those scored weighs 1 / (TOP + r)


@dataclass(frozen=True)
class Retriever:
    """Guesses scores from features of the source [S] and of targets [F]: one hidden layer beside a linear map."""

    low: Tensor  # [S + F]: of the features that the head was fitted to; others are taken as these
    high: Tensor  # [S + F]
    weight: Tensor  # [S + F, 1 + HIDDEN]: the linear map, the hidden layer
    shift: Tensor  # [1 + HIDDEN]
    last: Tensor  # [HIDDEN]

    def __call__(self, source: Tensor, features: Tensor) -> Tensor:
        """Guesses for many targets of one source; `features` may be changed.  # [S], [c, F] -> [c]"""
        width = len(source)
        known = source.clamp(self.low[:width], self.high[:width])
        shift = self.shift + known @ self.weight[:width]  # the same for all targets
        features = features.clamp_(self.low[width:], self.high[width:])
        both = torch.addmm(shift, features, self.weight[width:])  # [c, 1 + HIDDEN]
        return both[:, 0] + both[:, 1:].relu() @ self.last

    def guess(self, model: TemporalModel, source: int, targets: Tensor, time: float, past: Past) -> Tensor:
        """A first score of every target.  # [C] -> [C]"""
        guesses, start = torch.empty(len(targets)), 0
        about_source, pieces = model.first_features(source, torch.split(targets, AT_ONCE), time, past)
        for features in pieces:
            guesses[start : start + len(features)] = self(about_source, features)
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
    lists = [
        _scored(model, source, each, time, past) for source, each in zip(sources.tolist(), chosen, strict=True)
    ]
    retriever = _trained(lists, generator)
    if len(pool) > SCORED:
        for source in sources.tolist():
            guess = retriever.guess(model, source, pool, time, past)
            best = pool[guess.topk(min(SCORED, len(pool))).indices]
            lists.append(_scored(model, source, best, time, past))
        retriever = _trained(lists, generator)
    return retriever


def _scored(
    model: TemporalModel, source: int, targets: Tensor, time: float, past: Past
) -> tuple[Tensor, Tensor, Tensor]:
    """Features, scores and weights of a source's targets.  # [n, F], [n], [n]"""
    about_source, pieces = model.first_features(source, torch.split(targets, AT_ONCE), time, past)
    of_targets = torch.cat(list(pieces))
    features = torch.cat([about_source.expand(len(of_targets), -1), of_targets], dim=1)
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
    shift, second = (
        nn.Parameter(torch.zeros(HIDDEN)),
        nn.Parameter(torch.randn(HIDDEN, generator=generator) / HIDDEN),
    )
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
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            schedule.step()
    weight = torch.cat([linear[:, None], first], dim=1).detach() / scale[:, None]
    constants = torch.cat([constant[None], shift]).detach() - mean @ weight
    return Retriever(features.amin(0), features.amax(0), weight, constants, second.detach())
