"""What a benchmark measures besides models: wrong negatives, ceilings, order in the file, repetition."""

from __future__ import annotations

from itertools import product
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from dsrd.data.split import Split, split
from dsrd.evaluate.metrics import batch_means
from dsrd.evaluate.task import Pass, passes
from dsrd.events import Events, Query
from dsrd.negatives.pairs import Ids, PairIndex
from dsrd.negatives.sampling import NoNegativeError, Order, Strategy, draw_negatives, filled_up
from dsrd.reporter import step

GROUPED = 0.1
"""Rows count as grouped by node when so much larger a share of neighbouring rows is alike than by chance."""


def audit(
    dataset_name: str,
    events: Events,
    *,
    batch_size: int = 200,
    order: Order = "py37",
) -> dict[str, Any]:
    """Figures about the published test on a stream, as plain numbers: shares from 0 to 1, AP and AUC in percent.

    >>> stream = Events.from_numpy([1, 2, 3, 4, 5] * 8, [6, 7, 8, 9, 10] * 8, np.arange(40) // 4)
    >>> report = audit("toy", stream, batch_size=5)
    >>> list(report["negatives"]["transductive"]["random"])
    ['filled_up', 'true_at_that_time', 'equal_to_positive', 'ceiling_ap', 'ceiling_auc']
    >>> report["repetition"]
    {'pair_in_train': 0.75, 'pair_before': 1.0, 'surprise': 0.25}
    """
    parts = split(events)
    truth = TrueEdges(events)
    found: dict[str, dict[str, Any]] = {}
    tests = [each for each in passes(parts) if each.part == "test" and len(each.events)]
    for each, strategy in product(tests, get_args(Strategy)):
        step(f"{each.name}: {strategy} negatives")
        found.setdefault(each.setting, {})[strategy] = _negatives(truth, each, strategy, batch_size, order)
    step("order and repetition")
    return {
        "dataset": dataset_name,
        "batch_size": batch_size,
        "order": order,
        "split": parts.digest,
        "negatives": found,
        "seen_timestamp_share": seen_timestamp_share(parts.test, batch_size),
        "grouping": grouping(events),
        "repetition": _repetition(truth, parts),
        "new_nodes": _new_nodes(parts),
    }


class TrueEdges:
    """Which directed pairs happened when.

    >>> truth = TrueEdges(Events.from_numpy([1, 2], [3, 3], [0.0, 5.0]))
    >>> asked = Events.from_numpy([1, 1, 2], [3, 3, 3], [0.0, 5.0, 5.0]).query()
    >>> truth.at(asked).tolist(), truth.before(asked).tolist()
    ([True, False, True], [False, True, False])
    """

    def __init__(self, events: Events) -> None:
        time = events.time.numpy()
        self._index = PairIndex(events)
        self._first_time = time[np.flatnonzero(np.diff(self._index.distinct))]  # [pairs]
        self._times = time[np.diff(time, prepend=-np.inf) > 0]
        self._codes = self._code(self._index.ids, time)

    def at(self, query: Query) -> NDArray[np.bool_]:
        """Whether the pair happens at the very time of the query (one of the stream's)."""
        ids = self._index.find(query.src.numpy(), query.dst.numpy())
        return (ids >= 0) & np.isin(self._code(ids, query.time.numpy()), self._codes)

    def before(self, query: Query) -> NDArray[np.bool_]:
        """Whether the pair happened at any earlier time."""
        ids = self._index.find(query.src.numpy(), query.dst.numpy())
        return (ids >= 0) & (self._first_time[ids] < query.time.numpy())

    def _code(self, ids: Ids, time: NDArray[np.float64]) -> Ids:
        return ids * len(self._times) + np.searchsorted(self._times, time)


def _negatives(
    truth: TrueEdges, each: Pass, strategy: Strategy, batch_size: int, order: Order
) -> dict[str, float | None] | None:
    """How many of a pass's negatives are not what they are called, how wrong they are, and the scores of an oracle
    that knows exactly what is true at t."""
    positive = each.events.query()
    try:
        negative = draw_negatives(
            strategy,
            each.events,
            each.pool,
            seed=each.seed,
            last_observed=each.last_observed,
            batch_size=batch_size,
            order=order,
        )
    except NoNegativeError:
        return None
    true = truth.at(negative)
    ap, auc = batch_means(truth.at(positive).astype(np.float32), true.astype(np.float32), batch_size)
    same = (negative.src == positive.src) & (negative.dst == positive.dst)
    filled = None
    if strategy != "random":
        known = each.last_observed if strategy == "inductive" else None
        filled = filled_up(each.events, each.pool, last_observed=known, batch_size=batch_size)
    return {
        "filled_up": filled,
        "true_at_that_time": float(true.mean()),
        "equal_to_positive": float(same.double().mean()),
        "ceiling_ap": 100 * ap,
        "ceiling_auc": 100 * auc,
    }


def seen_timestamp_share(events: Events, batch_size: int) -> float:
    """Share of events scored after an earlier batch held events of the same timestamp.

    >>> seen_timestamp_share(Events.from_numpy([1, 1, 1, 1], [2, 3, 4, 5], [0, 7, 7, 7]), batch_size=2)
    0.5
    """
    time = events.time.numpy()
    first_with_that_time = np.searchsorted(time, time)
    return float((first_with_that_time // batch_size < np.arange(len(time)) // batch_size).mean())


def grouping(events: Events) -> dict[str, Any]:
    """Whether rows of one timestamp are listed node by node, so that a row tells about the next one.

    `rows` counts the rows with the time of the row before, `observed` is the share of them that has the source or
    the target in common with it, `expected` the same if the rows of each timestamp were shuffled.

    >>> stream = Events.from_numpy([1, 1, 1, 2, 2, 2], [3, 4, 5, 6, 7, 8], [0] * 6)
    >>> grouping(stream)
    {'grouped': True, 'rows': 5, 'observed': 0.8, 'expected': 0.4}
    """
    src, dst, time, _ = events.numpy()
    together = np.diff(time) == 0
    if not together.any():
        return {"grouped": False, "rows": 0, "observed": None, "expected": None}
    alike = (np.diff(src) == 0) | (np.diff(dst) == 0)
    block = np.cumsum(np.append(False, ~together))  # [E] number of the timestamp
    # Rows with the same source and the same target are in both of the first two counts.
    alike_by_chance = _neighbours(block, src) + _neighbours(block, dst) - _neighbours(block, PairIndex(events).ids)
    rows = int(together.sum())
    observed, expected = float(alike[together].mean()), alike_by_chance / rows
    return {
        "grouped": observed - expected >= GROUPED,
        "rows": rows,
        "observed": observed,
        "expected": expected,
    }


def _neighbours(block: Ids, key: Ids) -> float:
    """Expected count of neighbouring rows with the same key, if the rows of each block are shuffled.

    Of n shuffled rows n - 1 pairs are neighbours, out of n (n - 1) / 2: two rows meet with chance 2 / n.
    """
    width = int(key.max()) + 1
    groups, sizes = np.unique(block * width + key, return_counts=True)
    rows = np.bincount(block)[groups // width]
    return float((sizes * (sizes - 1) / rows).sum())


def _repetition(truth: TrueEdges, parts: Split) -> dict[str, float]:
    """Test events whose pair was trained on, or happened before; distinct test pairs not trained on (surprise)."""
    train, test = PairIndex(parts.train), PairIndex(parts.test)
    known = train.find(*test.pairs()) >= 0  # [distinct test pairs]
    return {
        "pair_in_train": float(known[test.ids].mean()),
        "pair_before": float(truth.before(parts.test.query()).mean()),
        "surprise": float(1 - known.mean()),
    }


def _new_nodes(parts: Split) -> dict[str, float]:
    """Shares of test events with a node absent from training, and with two."""
    src, dst, _, _ = parts.test.numpy()
    new = np.isin(src, parts.new_nodes.numpy()).astype(np.int64) + np.isin(dst, parts.new_nodes.numpy())
    return {"one_or_both": float((new > 0).mean()), "both": float((new == 2).mean())}
