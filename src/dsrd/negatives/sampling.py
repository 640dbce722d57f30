"""Negative sampling: pairs that did not happen, for evaluation and for training.

Evaluation negatives follow the published protocol: three strategies, one negative per positive, drawn batch by
batch. The public code draws by position in `list(set)`, whose order depends on the Python version: `py37` gives
the negatives of the published tables, `py38` those of the public code on Python 3.8 and later. `fast` draws from
the same candidates by the same rules with numpy's newer generator; it is for streams of millions of events.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor

from dsrd.errors import DsrdError, unknown
from dsrd.events import NULL, Events, Query, as_tensor
from dsrd.negatives.noise import MET_SHARE, Noise, with_times
from dsrd.negatives.pairs import Candidates, Grid, Ids, PairIndex, Positions, distinct_nodes, sorted_distinct
from dsrd.negatives.permutation import first_of_permutation

Strategy = Literal["random", "historical", "inductive"]
Order = Literal["py37", "py38", "fast"]


class NoNegativeError(DsrdError):
    """Every pair of the pool's nodes is an event of the batch, as can happen on very small streams."""


def draw_negatives(
    strategy: Strategy,
    events: Events,
    pool: Events,
    *,
    seed: int,
    last_observed: float | None = None,
    batch_size: int = 200,
    order: Order = "py37",
) -> Query:
    """One negative for each of `events`, at the same time, from the nodes and pairs of `pool`.

    - `random`: the event's source with any target of the pool, possibly the true one. The same in every order.
    - `historical`: pairs that occurred before the batch and do not occur during it.
    - `inductive`: those historical pairs that first occurred after `last_observed`.

    The last two replace both endpoints. If a batch has fewer candidates than events, all of them are taken, after
    as many random pairs of the pool's nodes as are missing (none of them an event of the batch).

    >>> stream = Events.from_numpy([1, 2, 1, 2, 1], [3, 3, 4, 4, 3], [0, 1, 2, 3, 4])
    >>> query = draw_negatives("historical", stream[3:], stream, seed=0, batch_size=1)
    >>> list(zip(query.src.tolist(), query.dst.tolist(), query.time.tolist()))
    [(1, 4, 3.0), (1, 4, 4.0)]
    """
    for kind, name, valid in (("negatives", strategy, get_args(Strategy)), ("order", order, get_args(Order))):
        if name not in valid:
            raise unknown(kind, name, valid)
    if strategy == "inductive" and last_observed is None:
        raise DsrdError("inductive negatives need `last_observed`, the time up to which pairs count as observed")
    if not len(events):
        return events.query()
    if not len(pool):
        raise NoNegativeError("no negative exists: there are no events to draw from; give a longer stream")
    if strategy == "random":
        sampler = TrainingNegatives(pool, seed)
        return Query.cat(*(sampler.sample(batch) for batch in events.batches(batch_size)))
    after = last_observed if strategy == "inductive" else None
    pairs = list(_draw_past_pairs(events, pool, seed, after, batch_size, order))
    src, dst = (as_tensor(np.concatenate(nodes)) for nodes in zip(*pairs, strict=True))
    return Query(src, dst, events.time)


def filled_up(events: Events, pool: Events, *, last_observed: float | None = None, batch_size: int = 200) -> float:
    """Share of historical negatives (with `last_observed`: of inductive ones) that are random pairs.

    They fill up batches for which too few pairs qualify. The share is the same in every order.

    >>> stream = Events.from_numpy([1, 2, 1, 2], [3, 3, 4, 4], [0, 0, 1, 1])
    >>> filled_up(stream, stream, batch_size=2)
    0.5
    """
    index = PairIndex(pool)
    counts = num_candidates(index, events, pool, last_observed=last_observed, batch_size=batch_size)
    missing = [max(0, len(b) - int(c)) for b, c in zip(events.batches(batch_size), counts, strict=True)]
    return sum(missing) / max(len(events), 1)


def num_candidates(
    index: PairIndex, events: Events, pool: Events, *, last_observed: float | None = None, batch_size: int = 200
) -> Ids:
    """How many pairs the historical (with `last_observed`: inductive) negatives of each batch are drawn from.

    `index` is that of the pool.

    >>> stream = Events.from_numpy([1, 2, 1, 2], [3, 3, 4, 4], [0, 0, 1, 1])
    >>> num_candidates(PairIndex(stream), stream, stream, batch_size=2).tolist()
    [0, 2]
    """
    per_batch = _candidates_per_batch(index, events, pool, last_observed, batch_size, None)
    return np.array([len(pairs) for pairs in per_batch], dtype=np.int64)


def _draw_past_pairs(
    events: Events, pool: Events, seed: int, last_observed: float | None, batch_size: int, order: Order
) -> Iterator[tuple[Ids, Ids]]:
    """For each batch the drawn sources and targets, historical or (with `last_observed`) inductive."""
    python = None if order == "fast" else order
    rng = np.random.default_rng(seed) if order == "fast" else np.random.RandomState(seed)
    index, grid = PairIndex(pool), Grid(pool, python)
    batches = events.batches(batch_size)
    per_batch = _candidates_per_batch(index, events, pool, last_observed, batch_size, python)
    for batch, candidates in zip(batches, per_batch, strict=True):
        missing = len(batch) - len(candidates)
        if missing <= 0:
            yield index.pairs(candidates[_draw(rng, len(candidates), len(batch))])
            continue
        others = grid.without(batch.src.numpy(), batch.dst.numpy())
        if not len(others):
            raise NoNegativeError(
                f"no negative exists: a batch of {len(batch)} events holds every pair of the nodes in the "
                f"{len(pool)} events to draw from; give a longer stream or smaller batches"
            )
        random_src, random_dst = grid.pairs(others[_draw(rng, len(others), missing)])
        past_src, past_dst = index.pairs(candidates[np.arange(len(candidates))])
        yield np.append(random_src, past_src), np.append(random_dst, past_dst)


def _draw(rng: np.random.RandomState | np.random.Generator, count: int, size: int) -> Ids:
    """`size` positions below `count`, without replacement if there are enough."""
    if count < size:
        return rng.choice(count, size, replace=True)
    if isinstance(rng, np.random.RandomState):
        return first_of_permutation(rng, count, size)
    return rng.choice(count, size, replace=False)


def _candidates_per_batch(
    index: PairIndex,
    events: Events,
    pool: Events,
    last_observed: float | None,
    batch_size: int,
    python: str | None,
) -> Iterator[Positions]:
    """For each batch the pairs that occur in the pool up to its first time, but not within its span of time."""
    pool_time, time = pool.time.numpy(), events.time.numpy()
    first = time[::batch_size]
    last = np.append(time[batch_size - 1 :: batch_size], time[-1])[: len(first)]
    span_start, span_stop = np.searchsorted(pool_time, first), np.searchsorted(pool_time, last, side="right")
    seen = index.distinct[np.searchsorted(pool_time, first, side="right")]
    observed = (
        None
        if last_observed is None
        else int(index.distinct[np.searchsorted(pool_time, last_observed, side="right")])
    )

    candidates = Candidates(index, observed, python)
    previous, pairs = None, None
    for span in zip(seen.tolist(), span_start.tolist(), span_stop.tolist(), strict=True):
        if pairs is None or span != previous:  # many batches may share one timestamp
            previous, pairs = span, candidates(span[0], sorted_distinct(index.ids[span[1] : span[2]]))
        yield pairs


class TrainingNegatives:
    """Random negatives for one batch after another, from one generator that is not reset between epochs.

    >>> stream = Events.from_numpy([1, 2], [3, 4], [0, 1])
    >>> sampler = TrainingNegatives(stream, seed=0)
    >>> saved = sampler.state()
    >>> first = sampler.sample(stream)
    >>> sampler.restore(saved)
    >>> first.src.tolist(), bool((sampler.sample(stream).dst == first.dst).all())
    ([1, 2], True)
    """

    def __init__(self, pool: Events, seed: int) -> None:
        src, dst, _, _ = pool.numpy()
        self._num_sources = len(distinct_nodes(src))
        self._targets = distinct_nodes(dst)
        self._pool = pool
        self._rng = np.random.RandomState(seed)

    def sample(self, batch: Events) -> Query:
        """Each event's source at its time with a target drawn from the pool; it may be the true one."""
        self._rng.randint(0, self._num_sources, len(batch))  # the protocol draws sources first and drops them
        targets = self._targets[self._rng.randint(0, len(self._targets), len(batch))]
        return Query(batch.src, as_tensor(targets), batch.time)

    def sample_many(self, batch: Events, count: int) -> Query:
        """`sample`, `count` times: the sources of all events with one target each, then with another.

        >>> stream = Events.from_numpy([1, 2], [3, 4], [0, 1])
        >>> TrainingNegatives(stream, seed=0).sample_many(stream, 3).src.tolist()
        [1, 2, 1, 2, 1, 2]
        """
        return Query.cat(*(self.sample(batch) for _ in range(count)))

    def met(self, batch: Events) -> Query:
        """For a random half of the events, their source with one of the targets it has met before the batch."""
        start, src = self.noise.start(batch), batch.src.numpy()
        targets = self.noise.met_targets(src, start, self._rng)
        drawn = as_tensor((self._rng.random_sample(len(src)) < MET_SHARE) & (targets >= 0))
        return Query(batch.src[drawn], as_tensor(targets)[drawn], batch.time[drawn])

    def sources(self, batch: Events) -> Query:
        """Two sources per event: one uniform, one that of an earlier event. There are no targets.  # [2 B]"""
        start = self.noise.start(batch)
        src = [self.noise.uniform_sources(len(batch), self._rng)]
        src.append(self.noise.active_sources(len(batch), start, self._rng))
        nobody = [np.full(len(part), NULL) for part in src]
        return Query.cat(*(with_times(part, none, batch) for part, none in zip(src, nobody, strict=True)))

    @cached_property
    def noise(self) -> Noise:
        """The law of `met` and `sources`."""
        return Noise(self._pool)

    def state(self) -> dict[str, Tensor]:
        """The generator's state as tensors; after `restore` the draws continue bit for bit."""
        _, key, position, _, _ = self._rng.get_state(legacy=True)
        return {"key": torch.from_numpy(np.asarray(key, dtype=np.int64)), "position": torch.tensor(position)}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Continue from a saved `state()`."""
        key, position = state["key"].numpy().astype(np.uint32), int(state["position"])
        self._rng.set_state(("MT19937", key, position, 0, 0.0))


def candidates(events: Events, pool: Events, *, count: int, seed: int) -> Tensor:
    """Wrong targets to rank each event's true target against, uniform over the pool's targets.  # [E, count]

    Draws are independent, so a wrong target can occur twice. The true target never occurs.

    >>> stream = Events.from_numpy([1, 1, 2], [3, 4, 5], [0, 1, 2])
    >>> wrong = candidates(stream, stream, count=100, seed=0)
    >>> wrong.shape, bool((wrong == stream.dst[:, None]).any())
    (torch.Size([3, 100]), False)
    """
    targets = distinct_nodes(pool.dst.numpy())
    true = events.dst.numpy()
    true_position = np.searchsorted(targets, true)
    true_position[~np.isin(true, targets)] = len(targets)  # nothing to skip
    choices = len(targets) - (true_position < len(targets))  # [E]
    if len(events) and choices.min() < 1:
        raise DsrdError("no wrong target to rank against: the pool has one target only; give a larger pool")
    position = np.random.default_rng(seed).integers(0, choices[:, None], size=(len(events), count))
    position += position >= true_position[:, None]  # skips the true target
    return as_tensor(targets[position])
