"""What the published columns give away: two rules that learn nothing, and the share of events that are certain.

    last active        rank of the source's last event as a source + rank of the target's last event in any role
    strangers first    pairs that never met before the query, then the others; each by when they were last active

Both read only events strictly before the query. Ages are ranked among all queries of the column, events and
negatives alike: the lowest rank for nodes without an event, one more for every newer age, one rank for equal ages.
Ranks are used because a sum of ages is decided by the larger one.

An event is given away if the law of the negatives cannot draw its pair (`dsrd.evaluate.readings`).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dsrd.evaluate.metrics import batch_means
from dsrd.evaluate.readings import NegativesLaw
from dsrd.evaluate.task import Pass
from dsrd.evaluate.true_edges import TrueEdges
from dsrd.events import Events, Query
from dsrd.negatives.pairs import Ids

Floats = NDArray[np.float64]


class LastSeen:
    """The last event of each node before a time, as a source, as a target or in any role.

    >>> stream = Events.from_numpy([1, 2], [2, 3], [1.0, 2.0])
    >>> LastSeen(stream.src.numpy(), stream.time.numpy()).before(np.array([1, 2, 3]), np.array([9.0, 2.0, 9.0]))
    array([  1., -inf, -inf])
    """

    def __init__(self, nodes: Ids, time: Floats) -> None:
        self._times = np.unique(time)
        self._codes = np.unique(self._code(nodes, time))

    def before(self, nodes: Ids, time: Floats) -> Floats:
        """The time of each node's last event strictly before each time, -inf if there is none.  # [Q]"""
        place = np.searchsorted(self._codes, self._code(nodes, time)) - 1
        code = self._codes[np.maximum(place, 0)]
        found = (place >= 0) & (code // len(self._times) == nodes)
        return np.where(found, self._times[code % len(self._times)], -np.inf)

    def _code(self, nodes: Ids, time: Floats) -> Ids:
        return nodes * len(self._times) + np.searchsorted(self._times, time)


class UnlearnedRules:
    """Scores queries by the two rules, from the events of a stream before each query."""

    def __init__(self, stream: Events, truth: TrueEdges) -> None:
        self._truth = truth
        src, dst, time, _ = stream.numpy()
        self._as_source = LastSeen(src, time)
        self._in_any_role = LastSeen(np.append(src, dst), np.append(time, time))

    def scores(self, query: Query) -> dict[str, Floats]:
        """Scores by rule; ages are ranked among all rows of the query.  # [Q]"""
        src, dst, time = query.src.numpy(), query.dst.numpy(), query.time.numpy()
        source_rank = _dense_rank(self._as_source.before(src, time) - time)
        last_active = source_rank + _dense_rank(self._in_any_role.before(dst, time) - time)
        stranger = ~self._truth.before(query)
        before_all = last_active.max(initial=0.0) + 1
        return {"last_active": last_active, "strangers_first": last_active + stranger * before_all}


def _dense_rank(values: Floats) -> Floats:
    return np.unique(values, return_inverse=True)[1].astype(np.float64)


def given_away(pass_: Pass, strategy: str, batch_size: int) -> float:
    """Share of the events of a pass that the law of these negatives cannot draw."""
    log_law = NegativesLaw(pass_, batch_size).log_probability(strategy, pass_.events.query())
    return float(log_law.isneginf().double().mean())


def rule_figures(rules: UnlearnedRules, positive: Query, negative: Query, batch_size: int) -> dict[str, float]:
    """AP and AUC of both rules in percent, as batch mean."""
    figures: dict[str, float] = {}
    for rule, scores in rules.scores(Query.cat(positive, negative)).items():
        true, wrong = np.split(scores, [len(positive)])
        ap, auc = batch_means(true, wrong, batch_size)
        figures |= {f"{rule}_ap": 100 * ap, f"{rule}_auc": 100 * auc}
    return figures
