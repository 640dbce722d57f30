"""LocalGlobal: first the source's own last partners, then the last targets of all sources.

The heuristic of that name on the leaderboard of the Temporal Graph Benchmark (tgbl-wiki), in its variant with
global recency. A rule without weights and without state.

    met before    score falls with the time since u last sent an event to v
    never met     below every pair that met; falls with the time since v was last a target of any source

Ages a enter as f(a) = 1 - log(1 + a / tick) / log(1 + 1e10), at least 0.01 and 0 for never; a tick is 1e-7 of the
training stream's span, so the unit of time does not matter. Logits are 1 + 6 f(pair) for pairs that met and
-8 + 7 f(v) for the others: far enough from the ends of the sigmoid for float32 to keep different ages apart.

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
class LocalGlobalConfig:
    """Nothing can be set."""


class LocalGlobal(TemporalModel):
    """Pairs by when they last met, pairs that never met by when v was last a target; learns nothing."""

    Config = LocalGlobalConfig
    card = ModelCard(
        paper="TGB leaderboard",
        reads="the pair's last meeting, or the target's last event as a target",
        cost="a scan of the shorter history of the two",
        rule=True,
        any_clock=True,
    )

    def __init__(self, config: LocalGlobalConfig, graph: GraphSpec) -> None:
        super().__init__(config, graph)
        self.fresh = Freshness()

    def calibrate(self, train: Events) -> None:
        self.fresh.calibrate(train)

    def score(self, query: Query, past: Past, head: str = "") -> Tensor:
        last = past.last_met(query.src, query.dst, query.time)  # [Q]
        pair = self.fresh(query.time - last)
        target = self.fresh(query.time - past.last_as_target(query.dst, query.time))
        return torch.where(last > -torch.inf, 1 + 6 * pair, -8 + 7 * target).float()
