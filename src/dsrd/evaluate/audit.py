"""What a benchmark measures besides models: false negatives, ceilings, rules that learn nothing, row order."""

from __future__ import annotations

from itertools import product
from typing import Any, get_args

import numpy as np

from dsrd.data.split import Split, split
from dsrd.evaluate.metrics import batch_means
from dsrd.evaluate.task import Pass, passes
from dsrd.evaluate.true_edges import TrueEdges
from dsrd.evaluate.unlearned import UnlearnedRules, given_away, rule_figures
from dsrd.events import Events, Query
from dsrd.negatives.pairs import Ids, PairIndex
from dsrd.negatives.sampling import NoNegativeError, Order, Strategy, draw_negatives, filled_up
from dsrd.reporter import step

GROUPED = 0.1
"""Rows count as grouped by node if similar rows are neighbours more often, by this share, than after a shuffle."""


def audit(
    dataset_name: str,
    events: Events,
    *,
    batch_size: int = 200,
    order: Order = "py37",
) -> dict[str, Any]:
    """Figures about the published test on a stream: shares from 0 to 1, AP and AUC in percent.

    >>> stream = Events.from_numpy([1, 2, 3, 4, 5] * 8, [6, 7, 8, 9, 10] * 8, np.arange(40) // 4)
    >>> report = audit("toy", stream, batch_size=5)
    >>> list(report["negatives"]["transductive"]["random"])
    ['filled_up', 'true_at_that_time', 'equal_to_positive', 'ceiling_ap', 'ceiling_auc']
    >>> list(report["unlearned"]["historical"])
    ['given_away', 'last_active_ap', 'last_active_auc', 'strangers_first_ap', 'strangers_first_auc']
    >>> report["repetition"]
    {'pair_in_train': 0.75, 'pair_before': 1.0, 'surprise': 0.25}
    """
    parts = split(events)
    truth = TrueEdges(events)
    rules = UnlearnedRules(events, truth)
    by_setting: dict[str, dict[str, Any]] = {}
    unlearned: dict[str, dict[str, float]] = {}
    tests = [each for each in passes(parts) if each.part == "test" and len(each.events)]
    for each, strategy in product(tests, get_args(Strategy)):
        step(f"{each.name}: {strategy} negatives")
        negative = _drawn(each, strategy, batch_size, order)
        figures = None if negative is None else _negatives(truth, each, strategy, negative, batch_size)
        by_setting.setdefault(each.setting, {})[strategy] = figures
        if negative is not None and each.setting == "transductive":
            unlearned[strategy] = {
                "given_away": given_away(each, strategy, batch_size),
                **rule_figures(rules, each.events.query(), negative, batch_size),
            }
    step("order and repetition")
    return {
        "dataset": dataset_name,
        "batch_size": batch_size,
        "order": order,
        "split": parts.digest,
        "negatives": by_setting,
        "unlearned": unlearned,
        "seen_timestamp_share": seen_timestamp_share(parts.test, batch_size),
        "grouping": grouping(events),
        "repetition": _repetition(truth, parts),
        "new_nodes": _new_nodes(parts),
    }


def _drawn(each: Pass, strategy: Strategy, batch_size: int, order: Order) -> Query | None:
    """The published negatives of a pass; None if no negative exists."""
    try:
        return draw_negatives(
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


def _negatives(
    truth: TrueEdges, each: Pass, strategy: Strategy, negative: Query, batch_size: int
) -> dict[str, float | None]:
    """Shares of a pass's negatives that are filled up at random, true or equal to the positive, and the ceiling.

    The ceiling is the AP and AUC of an oracle that knows which pairs occur at the time of the query.
    """
    positive = each.events.query()
    is_true = truth.at(negative)
    ap, auc = batch_means(truth.at(positive).astype(np.float32), is_true.astype(np.float32), batch_size)
    same = (negative.src == positive.src) & (negative.dst == positive.dst)
    random_share = None
    if strategy != "random":
        after = each.last_observed if strategy == "inductive" else None
        random_share = filled_up(each.events, each.pool, last_observed=after, batch_size=batch_size)
    return {
        "filled_up": random_share,
        "true_at_that_time": float(is_true.mean()),
        "equal_to_positive": float(same.double().mean()),
        "ceiling_ap": 100 * ap,
        "ceiling_auc": 100 * auc,
    }


def seen_timestamp_share(events: Events, batch_size: int) -> float:
    """Share of events with a timestamp that also occurs in an earlier batch.

    >>> seen_timestamp_share(Events.from_numpy([1, 1, 1, 1], [2, 3, 4, 5], [0, 7, 7, 7]), batch_size=2)
    0.5
    """
    time = events.time.numpy()
    first_with_that_time = np.searchsorted(time, time)
    return float((first_with_that_time // batch_size < np.arange(len(time)) // batch_size).mean())


def grouping(events: Events) -> dict[str, Any]:
    """Whether rows of one timestamp are sorted by node, so that a row gives away the next one.

    `rows` counts the rows that have the time of the row before. `observed` is the share of these that also have
    its source or its target, `expected` the same share if the rows of each timestamp were shuffled.

    >>> stream = Events.from_numpy([1, 1, 1, 2, 2, 2], [3, 4, 5, 6, 7, 8], [0] * 6)
    >>> grouping(stream)
    {'grouped': True, 'rows': 5, 'observed': 0.8, 'expected': 0.4}
    """
    src, dst, time, _ = events.numpy()
    same_time = np.diff(time) == 0
    if not same_time.any():
        return {"grouped": False, "rows": 0, "observed": None, "expected": None}
    similar = (np.diff(src) == 0) | (np.diff(dst) == 0)
    block = np.cumsum(np.append(False, ~same_time))  # [E] number of the timestamp
    # Rows with the same source and the same target are in both of the first two counts.
    by_chance = _equal_neighbours(block, src) + _equal_neighbours(block, dst)
    by_chance -= _equal_neighbours(block, PairIndex(events).ids)
    rows = int(same_time.sum())
    observed, expected = float(similar[same_time].mean()), by_chance / rows
    return {
        "grouped": observed - expected >= GROUPED,
        "rows": rows,
        "observed": observed,
        "expected": expected,
    }


def _equal_neighbours(block: Ids, key: Ids) -> float:
    """Expected number of neighbouring rows with equal keys, if the rows of each block are shuffled.

    Of the n (n - 1) / 2 pairs of n shuffled rows, n - 1 are neighbours: each with probability 2 / n.
    """
    width = int(key.max()) + 1
    groups, sizes = np.unique(block * width + key, return_counts=True)
    rows = np.bincount(block)[groups // width]
    return float((sizes * (sizes - 1) / rows).sum())


def _repetition(truth: TrueEdges, parts: Split) -> dict[str, float]:
    """Shares of test events whose pair is in training, or occurred before; of test pairs not in training."""
    train, test = PairIndex(parts.train), PairIndex(parts.test)
    in_train = train.find(*test.pairs()) >= 0  # [distinct test pairs]
    return {
        "pair_in_train": float(in_train[test.ids].mean()),
        "pair_before": float(truth.before(parts.test.query()).mean()),
        "surprise": float(1 - in_train.mean()),
    }


def _new_nodes(parts: Split) -> dict[str, float]:
    """Shares of test events with at least one node that is not in training, and with two."""
    src, dst, _, _ = parts.test.numpy()
    new_nodes = parts.new_nodes.numpy()
    count = np.isin(src, new_nodes).astype(np.int64) + np.isin(dst, new_nodes)  # [E] 0, 1 or 2
    return {"one_or_both": float((count > 0).mean()), "both": float((count == 2).mean())}
