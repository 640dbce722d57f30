"""Popularity: targets that had many events lately. A rule without weights and without state.

    c(v, t) = sum of exp(-(t - t_i) / tau) over v's earlier events as a target, from any source
    score   = asinh(log c(v, t))

tau is a share of the training stream's span, so the unit of time does not matter. log c runs from -1000 and less
(long silence) to about 10; asinh keeps the order and brings that into a range in which the float32 sigmoid of the
score still tells different counts apart. A target without earlier events scores -20, below every other.
The default tau has the best mean validation AP against random negatives on uci, enron and wikipedia, of ten values
from 1e-4 to 10: 85.8, against 84.9 with 0.01 and 78.5 with 0.1.

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
from dsrd.nn.time import span
from dsrd.ranges import AboveZero

NEVER = -20.0  # the logit of a target without a past
LEAST = -1e8  # of log c: its asinh is above NEVER


@dataclass(frozen=True, kw_only=True)
class PopularityConfig:
    tau: AboveZero = 0.001  # after this share of the training stream's span an event counts 1 / e


class Popularity(TemporalModel):
    """Targets by the decayed count of their events; learns nothing."""

    Config = PopularityConfig
    card = ModelCard(
        paper="a rule of this library",
        reads="the target's events as a target",
        cost="a scan of the target's events of the last 18 tau",
        rule=True,
        any_clock=True,
    )

    def __init__(self, config: PopularityConfig, graph: GraphSpec) -> None:
        super().__init__(config, graph)
        self.tau: Tensor  # in the stream's unit of time
        self.register_buffer("tau", torch.tensor(config.tau, dtype=torch.float64))

    def calibrate(self, train: Events) -> None:
        self.tau = torch.tensor(self.config.tau * span(train), dtype=torch.float64, device=self.tau.device)

    def score(self, query: Query, past: Past, head: str = "") -> Tensor:
        count = past.log_decayed_in_degree(query.dst, query.time, float(self.tau))  # [Q]
        return torch.where(count > -torch.inf, count.clamp(min=LEAST).asinh(), NEVER).float()
