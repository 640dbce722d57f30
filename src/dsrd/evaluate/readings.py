"""Two readings of a score: `plain`, the score itself, and `law`, against the known law of the negatives.

The best test between events and negatives whose law is known is the likelihood ratio (Neyman and Pearson):

    log p(u, v | an event happens at t) - log q(u, v)

p is the model's intensity, q the law that drew the negatives of the batch. A pair that the law cannot draw (q = 0)
is true for certain. The evaluator computes the ratio, for every model with an intensity; no model knows of it.

    random        keeps the source: q is uniform over the targets of the pool, p the model's p(v | u, t)
    historical    uniform over the pairs that met before the batch
    inductive     uniform over those of them that first met after `last_observed`
    filled up     a batch with too few such pairs takes them all, and random pairs of the pool's nodes

Historical and inductive negatives also leave out the pairs that occur during the batch. Which ones these are is
the answer itself, so q does not use it: every pair that met before the batch counts as one that can be drawn. How
many candidates a batch had is part of its law, and is used.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dsrd.evaluate.task import Pass
from dsrd.events import Query
from dsrd.negatives.pairs import Ids, PairIndex, distinct_nodes
from dsrd.negatives.sampling import num_candidates

LAW = "law"
"""The name of this reading, and of its results beside those of the heads."""

HEADS_OF_LAW = {"random": "partner", "historical": "pair", "inductive": "pair"}
"""The head whose score is log p, up to a constant, by kind of negatives."""


class NegativesLaw:
    """The law of the negatives of a pass, drawn in batches of `batch_size` events."""

    def __init__(self, pass_: Pass, batch_size: int) -> None:
        self._pass, self._batch_size = pass_, batch_size

    def log_probability(self, strategy: str, query: Query) -> Tensor:
        """log q of each pair under the law of its row's batch; -inf where it cannot be drawn.  # [E] float64

        `query` has a row for each event of the pass, in the same order.
        """
        if strategy == "random":
            return torch.full((len(query),), -np.log(self._num_targets), dtype=torch.float64)
        seen, observed = self._met(strategy)
        batch = np.arange(len(query)) // self._batch_size  # [E]
        past_share = self._past_share(strategy)[batch]
        ids = self._index.find(query.src.numpy(), query.dst.numpy())
        can_be_drawn = (ids >= observed) & (ids < seen[batch])
        drawn_from_past = np.where(can_be_drawn, past_share / np.maximum(seen[batch] - observed, 1), 0.0)
        drawn_at_random = (1 - past_share) / (self._num_sources * self._num_targets)
        with np.errstate(divide="ignore"):
            return torch.from_numpy(np.log(drawn_from_past + drawn_at_random))

    def _met(self, strategy: str) -> tuple[Ids, int]:
        """Pairs of the pool with ids from `observed` to below `seen` [batches] met before the batch, and count."""
        pool_time = self._pass.pool.time.numpy()
        batch_start = self._pass.events.time.numpy()[:: self._batch_size]
        seen = self._index.distinct[np.searchsorted(pool_time, batch_start)]
        if strategy == "historical":
            return seen, 0
        return seen, int(self._index.distinct[np.searchsorted(pool_time, self._pass.last_observed, side="right")])

    def _past_share(self, strategy: str) -> NDArray[np.float64]:
        """Share of each batch's negatives that are earlier pairs; the others are random ones.  # [batches]"""
        events = self._pass.events
        candidates = num_candidates(
            self._index,
            events,
            self._pass.pool,
            last_observed=self._pass.last_observed if strategy == "inductive" else None,
            batch_size=self._batch_size,
        )
        size = np.diff(np.append(np.arange(0, len(events), self._batch_size), len(events)))
        return np.minimum(candidates / size, 1.0)

    @cached_property
    def _index(self) -> PairIndex:
        return PairIndex(self._pass.pool)

    @cached_property
    def _num_sources(self) -> int:
        return len(distinct_nodes(self._pass.pool.src.numpy()))

    @cached_property
    def _num_targets(self) -> int:
        return len(distinct_nodes(self._pass.pool.dst.numpy()))


def likelihood_ratio(log_intensity: Tensor, log_law: Tensor) -> Tensor:
    """log p - log q; +inf where q is 0, whatever p is.  # [E] float64

    >>> likelihood_ratio(torch.tensor([1.0, -torch.inf]), torch.tensor([-2.0, -torch.inf])).tolist()
    [3.0, inf]
    """
    return torch.where(log_law.isneginf(), torch.inf, log_intensity.double() - log_law)
