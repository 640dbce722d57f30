"""EdgeBank: a pair that met before will meet again.

Poursafaei, Huang, Pelrine, Rabbany: Towards Better Evaluation for Dynamic Link Prediction, NeurIPS 2022.

The bank holds the pairs met so far; a pair scores 1 if it is in the bank and 0 otherwise. Four banks:
`unlimited` every pair; `fixed_window` pairs met in the last 15 % of the events' time quantile;
`repeat_window` pairs met within one mean repetition interval of the newest event; `threshold` pairs met at
least as often as the mean pair.

Fidelity
--------
* The published rows pick the variant per data set *and* per kind of negatives, by their test score. With
  `variant="auto"` this choice is made under the protocol `dyglib`, for comparison with those tables; under any
  other protocol `auto` means `unlimited`.
* The repetition interval is the sum of repeated pairs' mean gaps over the number of *all* pairs, as published.
"""

from __future__ import annotations

import math
from copy import copy
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor

from dsrd.events import Events, Query, as_tensor
from dsrd.history import pair_table
from dsrd.history.past import Past
from dsrd.models.base import GraphSpec, TemporalModel
from dsrd.models.card import ModelCard

Variant = Literal["auto", "unlimited", "fixed_window", "repeat_window", "threshold"]
MET, NOT_MET = 10.0, -10.0  # logits
TABLE = ("key", "first", "last", "count")  # the columns of `meetings`


@dataclass(frozen=True, kw_only=True)
class EdgeBankConfig:
    variant: Variant = "auto"  # which pairs count; auto: as published for the data set, unlimited elsewhere
    window: float = 0.15  # share of the history that fixed_window looks back on
    random: Variant = "unlimited"  # what auto means against random negatives under dyglib
    historical: Variant = "unlimited"  # the same against historical negatives
    inductive: Variant = "unlimited"  # the same against inductive negatives


def _empty_column(column: int, _: int) -> Tensor:
    return as_tensor(pair_table.empty()[column])


class EdgeBank(TemporalModel):
    """Scores 1 for pairs in the bank, 0 for others; learns nothing."""

    Config = EdgeBankConfig
    card = ModelCard(
        paper="Poursafaei et al., NeurIPS 2022",
        reads="the pair's own history",
        cost="one look-up",
        rule=True,
        any_clock=True,
    )

    def __init__(self, config: EdgeBankConfig, graph: GraphSpec) -> None:
        super().__init__(config, graph)
        self.variant: Variant = "unlimited" if config.variant == "auto" else config.variant
        declare = partial(self.state.declare, compiled=True)
        for column, name in enumerate(TABLE):
            declare(name, partial(_empty_column, column))
        declare("num_pairs", lambda _: torch.zeros(1, dtype=torch.int64))
        declare("gaps", lambda _: torch.zeros(1, dtype=torch.float64))
        declare("times", lambda _: torch.zeros(1024, dtype=torch.float64))
        declare("num_events", lambda _: torch.zeros(1, dtype=torch.int64))

    @property
    def state_from_events(self) -> bool:
        return True

    def for_negatives(self, strategy: str, protocol: str) -> EdgeBank:
        if self.config.variant != "auto" or protocol != "dyglib":
            return self
        other = copy(self)
        other.variant = getattr(self.config, strategy)
        return other

    def score(self, query: Query, past: Past, head: str = "") -> Tensor:
        last, count = pair_table.find(self._table(), query.src.cpu().numpy(), query.dst.cpu().numpy())
        kept = count >= self._mean_count() if self.variant == "threshold" else last >= self._window_start()
        met = as_tensor(kept & (count > 0)).to(query.src.device)
        return torch.where(met, MET, NOT_MET)

    def observe(self, events: Events, past: Past) -> None:
        src, dst, time = (column.cpu() for column in (events.src, events.dst, events.time))
        known, gaps = int(self.state["num_pairs"]), float(self.state["gaps"])
        table, known, gaps = pair_table.add(self._table(), known, gaps, src.numpy(), dst.numpy(), time.numpy())
        for name, column in zip(TABLE, table, strict=True):
            self.state[name] = as_tensor(column)
        self.state["num_pairs"] = torch.tensor([known])
        self.state["gaps"] = torch.tensor([gaps], dtype=torch.float64)
        self._remember(time)

    def _table(self) -> tuple[Any, ...]:
        return tuple(self.state[name].numpy() for name in TABLE)

    def _remember(self, time: Tensor) -> None:
        have = int(self.state["num_events"])
        times = self.state["times"]
        if have + len(time) > len(times):
            times = torch.cat([times[:have], time, times.new_zeros(have + len(time))])
        else:
            times[have : have + len(time)] = time
        self.state["times"] = times
        self.state["num_events"] = torch.tensor([have + len(time)])

    def _mean_count(self) -> float:
        return int(self.state["num_events"]) / max(int(self.state["num_pairs"]), 1)

    def _window_start(self) -> float:
        have = int(self.state["num_events"])
        if self.variant == "unlimited" or have == 0:
            return -math.inf
        times = self.state["times"]
        if self.variant == "repeat_window":
            return float(times[have - 1]) - float(self.state["gaps"]) / int(self.state["num_pairs"])
        return quantile(times[:have], 1 - self.config.window)


def quantile(values: Tensor, share: float) -> float:
    """numpy's linear quantile of sorted values, bit for bit, without looking at more than two of them.

    >>> quantile(torch.tensor([0.0, 1.0, 2.0, 4.0]), 0.5)
    1.5
    """
    place = (len(values) - 1) * share
    below = math.floor(place)
    low, high = float(values[below]), float(values[min(below + 1, len(values) - 1)])
    weight = place - below
    return high - (high - low) * (1 - weight) if weight >= 0.5 else low + (high - low) * weight
