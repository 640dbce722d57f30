"""Recency: the pair that met last meets next. A rule without weights and without state.

    met before    score falls with the time since u last sent an event to v
    never met     below every pair that met; falls with the time since u's last event and since v's, in any role

Ages a enter as f(a) = 1 - log(1 + a / tick) / log(1 + 1e10), at least 0.01 and 0 for never; a tick is 1e-7 of the
training stream's span, so the unit of time does not matter. Logits are 1 + 6 f(pair) for pairs that met and
-8 + 3.5 (f(u) + f(v)) for the others: far enough from the ends of the sigmoid for float32 to keep different ages
apart.

Everything is read from the past strictly before the query, so scores are exact in time under every protocol.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from dsrd.events import Events, Query
from dsrd.history.past import Past
from dsrd.models.base import GraphSpec, TemporalModel
from dsrd.models.card import ModelCard
from dsrd.nn.time import Freshness


@dataclass(frozen=True, kw_only=True)
class RecencyConfig:
    """Nothing can be set."""


class Recency(TemporalModel):
    """Pairs by when they last met, pairs that never met by when each endpoint was last active; learns nothing."""

    Config = RecencyConfig
    card = ModelCard(
        paper="a rule of this library",
        reads="the pair's last meeting, or each endpoint's last event",
        cost="a scan of the shorter history of the two",
        rule=True,
        any_clock=True,
    )

    def __init__(self, config: RecencyConfig, graph: GraphSpec) -> None:
        super().__init__(config, graph)
        self.fresh = Freshness()

    def calibrate(self, train: Events) -> None:
        self.fresh.calibrate(train)

    def score(self, query: Query, past: Past, head: str = "") -> Tensor:
        last = past.last_met(query.src, query.dst, query.time)  # [Q]
        pair = self.fresh(query.time - last)
        ends = self._active(query.src, query.time, past) + self._active(query.dst, query.time, past)
        return torch.where(last > -torch.inf, 1 + 6 * pair, -8 + 3.5 * ends).float()

    def _active(self, node: Tensor, time: Tensor, past: Past) -> Tensor:
        """How recent each node's last event is, from 0 (none) to 1 (now).  # [Q] -> [Q]"""
        newest = past.recent(node, time, 1)
        age = torch.where(newest.mask, time.unsqueeze(1) - newest.time, torch.inf)  # [Q, 1]
        fresh: Tensor = self.fresh(age).squeeze(1)
        return fresh
