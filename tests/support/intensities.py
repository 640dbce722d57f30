"""A model with an intensity whose value is known: for tests of whatever reads one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from dsrd.events import Events, Query
from dsrd.history.past import Past
from dsrd.models import GraphSpec, ModelCard, TemporalModel

Score = Callable[[Query], Tensor]


@dataclass(frozen=True, kw_only=True)
class NoSettings:
    pass


class KnownIntensity(TemporalModel):
    """Answers with the functions it is given; remembers what it was asked and what it has observed."""

    Config = NoSettings
    card = ModelCard(paper="a test", reads="nothing", cost="none")
    heads = ("partner", "pair")

    def __init__(self, partner: Score, pair: Score, *, strict: bool = False) -> None:
        super().__init__(NoSettings(), GraphSpec())
        self.strict = strict  # refuse queries at a time that has been observed
        self.answers = {"": partner, "partner": partner, "pair": pair}
        self.asked: dict[str, list[Query]] = {"partner": [], "pair": []}
        self.state.declare("newest", lambda _: torch.full((1,), -torch.inf, dtype=torch.float64))

    def score(self, query: Query, past: Past, head: str = "") -> Tensor:
        assert not self.strict or bool((self.state["newest"] < query.time).all())
        self.asked[head or "partner"].append(query)
        return self.answers[head](query)

    def observe(self, events: Events, past: Past) -> None:
        if len(events):
            self.state["newest"][0] = events.time[-1]


def by_hash(query: Query) -> Tensor:
    """Scores in (-4, 4) that depend on the pair alone and look random."""
    return ((query.src * 7919 + query.dst * 104729) % 1009).float() / 1009 * 8 - 4


def constant(query: Query) -> Tensor:
    return torch.zeros(len(query))
