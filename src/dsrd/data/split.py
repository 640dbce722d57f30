"""The chronological split: training, validation and test events, and the events of nodes unseen in training."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from numpy.typing import NDArray
from torch import Tensor

from dsrd.data.dataset import digest_of
from dsrd.errors import DsrdError
from dsrd.events import Events, as_tensor

FEWEST_EVENTS = 10
"""A stream with fewer events is not split."""


@dataclass(frozen=True)
class Split:
    """Parts of one stream. `train` lacks every event of a withheld node; `val` and `test` are complete."""

    full: Events
    train: Events
    val: Events
    test: Events
    val_new: Events  # val events with at least one endpoint in `new_nodes`
    test_new: Events  # test events with at least one endpoint in `new_nodes`
    val_time: float  # of the last event before validation
    test_time: float  # of the last event before test
    withheld: Tensor  # sorted ids of nodes drawn to be unseen in training
    new_nodes: Tensor  # sorted ids of all nodes absent from `train`, withheld or not
    digest: str  # of the event ids of the five parts


def split(
    events: Events,
    *,
    val_ratio: float = 0.15,
    test_ratio: float = 0.15,
    withhold: float = 0.1,
    seed: int = 2020,
) -> Split:
    """Cut a stream at two times; events with equal timestamps stay in the same part (see `cut`).

    A share `withhold` of all nodes is drawn from those active after the training period, and their events are
    removed from training. The defaults give exactly the published splits, on every Python version.

    >>> stream = Events.from_numpy([1, 2, 3, 4, 5] * 8, [6, 7, 8, 9, 10] * 8, range(40))
    >>> parts = split(stream)
    >>> len(parts.train), len(parts.val), len(parts.test), parts.withheld.tolist()
    (23, 6, 6, [10])
    """
    if min(val_ratio, test_ratio) <= 0 or val_ratio + test_ratio >= 1 or not 0 <= withhold < 1:
        raise DsrdError(
            f"split: val_ratio {val_ratio}, test_ratio {test_ratio}, withhold {withhold}: the first two must be "
            "above 0 and together below 1, the last from 0 to below 1"
        )
    src, dst, time, _ = events.numpy()
    if len(events) < FEWEST_EVENTS:
        raise DsrdError(f"split: {len(events)} events are too few; give at least {FEWEST_EVENTS}")
    val_start, test_start = cut(time, val_ratio, test_ratio)
    _refuse_empty(val_start, test_start - val_start, len(events) - test_start, withheld=0)

    nodes = _table(events.num_nodes, src, dst)
    withheld = _table(len(nodes), _withheld(events[val_start:], int(withhold * nodes.sum()), seed))
    kept = np.flatnonzero(~(withheld[src[:val_start]] | withheld[dst[:val_start]]))
    _refuse_empty(len(kept), test_start - val_start, len(events) - test_start, withheld=val_start - len(kept))
    return _views(events, kept, val_start, test_start, np.flatnonzero(withheld))


def split_from_masks(events: Events, masks: Mapping[str, Any]) -> Split:
    """A split made elsewhere, as boolean masks [E] of `train`, `val` and `test`. No node is withheld.

    Validation and test must be the last events of the stream, in this order; training may omit some of the
    events before them.

    >>> stream = Events.from_numpy([1, 2, 1, 3], [4, 5, 4, 5], range(4))
    >>> row = np.arange(4)
    >>> parts = split_from_masks(stream, {"train": row < 2, "val": row == 2, "test": row == 3})
    >>> len(parts.train), parts.new_nodes.tolist()
    (2, [3])
    """
    checked = {part: np.asarray(masks[part], dtype=np.bool_) for part in ("train", "val", "test")}
    for part, mask in checked.items():
        if mask.shape != (len(events),):
            raise DsrdError(f"split: the mask of {part} has shape {mask.shape}; give one entry per event")
    kept, val, test = (np.flatnonzero(mask) for mask in checked.values())
    _refuse_empty(len(kept), len(val), len(test), withheld=0)
    val_start, test_start = int(val[0]), int(test[0])
    late = np.concatenate([val, test])
    if kept[-1] >= val_start or not np.array_equal(late, np.arange(val_start, len(events))):
        raise DsrdError(
            "split: validation and test must be the last events of the stream, in this order, with training "
            "before them; sort the events by time and cut them twice"
        )
    return _views(events, kept, val_start, test_start, np.zeros(0, np.int64))


def _views(
    events: Events, kept: NDArray[np.int64], val_start: int, test_start: int, withheld: NDArray[np.int64]
) -> Split:
    train, val, test = events[as_tensor(kept)], events[val_start:test_start], events[test_start:]
    src, dst, time, _ = events.numpy()
    new = _table(events.num_nodes, src, dst) & ~_table(events.num_nodes, *train.numpy()[:2])
    val_new, test_new = _touching(new, val), _touching(new, test)
    return Split(
        full=events,
        train=train,
        val=val,
        test=test,
        val_new=val_new,
        test_new=test_new,
        val_time=float(time[val_start - 1]),
        test_time=float(time[test_start - 1]),
        withheld=as_tensor(withheld),
        new_nodes=as_tensor(np.flatnonzero(new)),
        digest=digest_of(*(view.id.numpy() for view in (train, val, test, val_new, test_new))),
    )


def cut(time: NDArray[np.float64], val_ratio: float = 0.15, test_ratio: float = 0.15) -> tuple[int, int]:
    """The rows at which validation and test begin: after the published quantiles of time.

    In a stream with few distinct times both quantiles can be the same time, which would leave a part empty. Such a
    stream is cut between the timestamps that come nearest to the requested shares, if it has three or more.

    >>> cut(np.arange(20.0))
    (14, 17)
    >>> cut(np.array([0.0, 1.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 3.0]))
    (2, 8)
    """
    shares = (1 - val_ratio - test_ratio, 1 - test_ratio)
    first, second = np.searchsorted(time, np.quantile(time, shares), side="right").tolist()
    borders = np.flatnonzero(np.diff(time)) + 1  # rows at which a new timestamp begins
    if 0 < first < second < len(time) or len(borders) < 2:
        return first, second
    train, both = (share * len(time) for share in shares)
    begin = np.arange(len(borders) - 1)
    end = np.maximum(int(np.abs(borders - both).argmin()), begin + 1)  # best second border for each first
    best = int((np.abs(borders[begin] - train) + np.abs(borders[end] - both)).argmin())
    return int(borders[begin[best]]), int(borders[end[best]])


def _refuse_empty(train: int, val: int, test: int, withheld: int) -> None:
    if not (train and val and test):
        raise DsrdError(
            f"split: {train} training, {val} validation and {test} test events ({withheld} withheld from "
            "training); no part may be empty: give a longer stream, more distinct times, or other ratios"
        )


def _withheld(late: Events, count: int, seed: int) -> NDArray[np.int64]:
    """Nodes drawn from those of the late events.

    `sample` picks by position, so the published split depends on the iteration order of its set: the set of all
    late sources, united with the set of all late targets. Adding an element twice does not change the order, so
    first occurrences are enough to build the same set.
    """
    sources, targets = (set(_first_occurrences(ids)) for ids in late.numpy()[:2])
    population = tuple(sources.union(targets))
    if count > len(population):
        raise DsrdError(
            f"split: cannot withhold {count} nodes, only {len(population)} are active after training; "
            "lower `withhold`"
        )
    return np.array(random.Random(seed).sample(population, count), dtype=np.int64)


def _first_occurrences(ids: NDArray[np.int64]) -> list[int]:
    distinct: list[int] = pc.unique(pa.array(ids)).to_pylist()
    return distinct


def _table(size: int, *ids: NDArray[np.int64]) -> NDArray[np.bool_]:
    """A boolean per node id: whether it is among `ids`."""
    table = np.zeros(size, dtype=np.bool_)
    for some in ids:
        table[some] = True
    return table


def _touching(nodes: NDArray[np.bool_], events: Events) -> Events:
    src, dst, _, _ = events.numpy()
    return events[torch.from_numpy(np.flatnonzero(nodes[src] | nodes[dst]))]
