"""The best of all targets of a source: all of them scored, or those that a cheap first score puts in front.

Where a model has a cheap first score and there are many targets, the full model ranks a shortlist. What the source
does is then normalised by the shortlist and by an estimate of the rest: a sample of it is scored in full too, each
target drawn with the probability that the first score gives it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from dsrd.estimator import first_score
from dsrd.estimator.first_score import Retriever
from dsrd.events import Query
from dsrd.history.index import Index
from dsrd.history.past import Past
from dsrd.models import TemporalModel
from dsrd.models.base import with_null_partner

SHORTLIST = 512  # targets that the full model ranks
SAMPLED = 256  # others that it scores to estimate their sum
RETRIEVED_FROM = 4_000  # targets; fewer are all scored


@dataclass
class Retrieval:
    """A model's first score at the end of a stream: fitted when needed, and again when the stream has doubled."""

    _fitted: tuple[int, Retriever] | None = field(default=None)

    def __call__(self, model: TemporalModel, targets: Tensor, time: float, past: Past) -> Retriever:
        """The first score, given the model in its state at the end of the stream, just before `time`."""
        num_events = int(past.index.length.sum()) // 2
        if self._fitted is None or num_events >= 2 * self._fitted[0]:
            sources = recent_sources(past.index, first_score.SOURCES)
            self._fitted = num_events, first_score.fitted(model, sources, targets, time, past)
        return self._fitted[1]


def is_retrieved(model: TemporalModel, num_targets: int, k: int, exact: bool) -> bool:
    """Whether the best k of so many targets are retrieved instead of scoring all."""
    return not exact and model.has_first_features and num_targets >= max(RETRIEVED_FROM, 2 * shortlist_for(k))


def shortlist_for(k: int) -> int:
    return max(SHORTLIST, 4 * k)


def recent_sources(index: Index, count: int) -> Tensor:
    """Nodes that may be asked about: the last to act or be met, as many of the others, evenly spaced, one unknown.

    Where no node is both source and target, only nodes that have been a source.
    """
    node = np.flatnonzero(index.length)
    before = np.concatenate([[0], np.cumsum(index.outgoing)])  # sent events, in order of places
    num_sent = before[index.start[node] + index.length[node]] - before[index.start[node]]
    sent, received = num_sent > 0, num_sent < index.length[node]
    if not (sent & received).any():
        node = node[sent]
    time = index.time[index.start[node] + index.length[node] - 1]
    ordered = torch.from_numpy(node[np.argsort(-time, kind="stable")])
    fresh, others = ordered[: count // 2], ordered[count // 2 :]
    unknown = torch.tensor([len(index.start)])
    return torch.cat([fresh, first_score.evenly(others, count - len(fresh) - 1), unknown])


@torch.no_grad()
def read_ranked(
    model: TemporalModel, query: Query, past: Past, head: str, first: Retriever | None, k: int
) -> Tensor:
    """One source with many targets at one time: log(S p(source)) or 0, scores, and the logarithm of their sum.

    With a first score, targets beyond the shortlist score -inf, and the sum of the rest is estimated.
    # [C] -> [C, 3] float64
    """
    source, time, targets = int(query.src[0]), float(query.time[0]), query.dst
    asked = "partner" if model.has_intensity else head

    def scored(rows: Tensor) -> Tensor:
        return model.score_many(source, targets[rows], time, past, asked).double()

    if first is None or shortlist_for(k) >= len(targets):
        score = scored(torch.arange(len(targets)))
        total = torch.logsumexp(score, dim=0)
    else:
        guess = first.guess(model, source, targets, time, past).double()
        best = guess.topk(shortlist_for(k)).indices.sort().values
        score = torch.full(guess.shape, -torch.inf, dtype=torch.float64)
        score[best] = scored(best)
        guess[best] = -torch.inf
        rest = drawn(guess)
        ratio = torch.logsumexp(scored(rest) - guess[rest], dim=0) - np.log(len(rest))
        total = torch.logaddexp(torch.logsumexp(score[best], dim=0), torch.logsumexp(guess, dim=0) + ratio)
    activity = torch.zeros(1, dtype=torch.float64)
    if model.has_intensity:
        alone = with_null_partner(query.src[:1], query.time[:1]).to(model.device)
        activity = model.activity(alone, past).double().cpu()
    return torch.stack([activity.expand(len(score)), score, total.expand(len(score))], dim=1)


def drawn(logits: Tensor) -> Tensor:
    """`SAMPLED` rows drawn with replacement, with probabilities proportional to exp(logits), at even spaces.

    >>> drawn(torch.tensor([0.0, -torch.inf, 0.0]).double()).unique(return_counts=True)
    (tensor([0, 2]), tensor([128, 128]))
    """
    share = torch.softmax(logits, dim=0).cumsum(dim=0)
    places = (torch.arange(SAMPLED, dtype=torch.float64) + 0.5) / SAMPLED * share[-1]
    return torch.searchsorted(share, places).clamp(max=len(logits) - 1)
