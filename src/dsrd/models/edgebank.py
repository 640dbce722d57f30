"""EdgeBank: a pair that met before will meet again.

Poursafaei, Huang, Pelrine, Rabbany: Towards Better Evaluation for Dynamic Link Prediction, NeurIPS 2022.

The bank holds pairs that met; a pair scores 1 if it is in the bank and 0 otherwise. Four banks: `unlimited` every
pair; `fixed_window` pairs that met in the last 15 % of the quantiles of event times; `repeat_window` pairs that
met within one mean repetition interval of the newest event; `threshold` pairs that met at least as often as the
mean pair.

Fidelity
--------
* The published rows pick the bank per data set *and* per kind of negatives, by their test score. With
  `variant="auto"` this choice is made under the protocol `dyglib`, for comparison with those tables; under any
  other protocol `auto` means `unlimited`.
* The repetition interval is the sum of repeated pairs' mean gaps over the number of *all* pairs, as published.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from numpy.typing import NDArray
from torch import Tensor

from dsrd.events import Events, Query, as_tensor
from dsrd.history import pair_table
from dsrd.history.past import Past
from dsrd.models.base import GraphSpec, TemporalModel
from dsrd.models.card import ModelCard
from dsrd.ranges import Share

Variant = Literal["auto", "unlimited", "fixed_window", "repeat_window", "threshold"]
MET, NOT_MET = 10.0, -10.0  # logits
TABLE = ("key", "first", "last", "count")  # the fields of the state that make up a `PairTable`, in its order


@dataclass(frozen=True, kw_only=True)
class EdgeBankConfig:
    variant: Variant = "auto"  # which bank; auto: as published for the data set, unlimited elsewhere
    window: Share = 0.15  # share of the history that fixed_window looks back on
    random: Variant = "unlimited"  # what auto means against random negatives under dyglib
    historical: Variant = "unlimited"  # the same against historical negatives
    inductive: Variant = "unlimited"  # the same against inductive negatives


def _fault(fields: Mapping[str, Tensor]) -> str | None:
    if not 0 <= int(fields["num_events"]) <= len(fields["times"]):
        return f"'num_events' is {int(fields['num_events'])} of {len(fields['times'])} times"
    return pair_table.fault(fields["key"].numpy(), int(fields["num_pairs"]))


def _empty_column(name: str, _: int) -> Tensor:
    column: NDArray[Any] = dict(zip(TABLE, pair_table.empty(), strict=True))[name]
    return as_tensor(column)


class EdgeBank(TemporalModel):
    """Scores 1 for pairs in the bank, 0 for others; learns nothing."""

    Config = EdgeBankConfig
    card = ModelCard(
        paper="Poursafaei et al., NeurIPS 2022",
        reads="the pair's own history",
        keeps={"slot of pairs": "32", "slot of times": "8", "rest": "24"},
        cost="one look-up",
        rule=True,
        any_clock=True,
    )

    def __init__(self, config: EdgeBankConfig, graph: GraphSpec) -> None:
        super().__init__(config, graph)
        self.variant: Variant = "unlimited" if config.variant == "auto" else config.variant
        declare = partial(self.state.declare, compiled=True)
        for name in TABLE:
            declare(name, partial(_empty_column, name), table="pairs")
        declare("num_pairs", lambda _: torch.zeros(1, dtype=torch.int64))
        declare("gaps", lambda _: torch.zeros(1, dtype=torch.float64))
        declare("times", lambda _: torch.zeros(1024, dtype=torch.float64), table="times")
        declare("num_events", lambda _: torch.zeros(1, dtype=torch.int64))
        self.state.require(_fault)

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
        in_bank = as_tensor(kept & (count > 0)).to(query.src.device)
        return torch.where(in_bank, MET, NOT_MET)

    def observe(self, events: Events, past: Past) -> None:
        src, dst, time = (column.cpu() for column in (events.src, events.dst, events.time))
        num_pairs, gaps = int(self.state["num_pairs"]), float(self.state["gaps"])
        table, num_pairs, gaps = pair_table.add(
            self._table(), num_pairs, gaps, src.numpy(), dst.numpy(), time.numpy()
        )
        for name, column in zip(TABLE, table, strict=True):
            self.state[name] = as_tensor(column)
        self.state["num_pairs"] = torch.tensor([num_pairs])
        self.state["gaps"] = torch.tensor([gaps], dtype=torch.float64)
        self._append_times(time)

    def _table(self) -> pair_table.PairTable:
        return pair_table.PairTable(*(self.state[name].numpy() for name in TABLE))

    def _append_times(self, time: Tensor) -> None:
        size = int(self.state["num_events"])
        times = self.state["times"]
        if size + len(time) > len(times):
            times = torch.cat([times[:size], time, times.new_zeros(size + len(time))])
        else:
            times[size : size + len(time)] = time
        self.state["times"] = times
        self.state["num_events"] = torch.tensor([size + len(time)])

    def _mean_count(self) -> float:
        return int(self.state["num_events"]) / max(int(self.state["num_pairs"]), 1)

    def _window_start(self) -> float:
        size = int(self.state["num_events"])
        if self.variant == "unlimited" or size == 0:
            return -math.inf
        times = self.state["times"]
        if self.variant == "repeat_window":
            return float(times[size - 1]) - float(self.state["gaps"]) / int(self.state["num_pairs"])
        return quantile(times[:size], 1 - self.config.window)


def quantile(values: Tensor, share: float) -> float:
    """numpy's linear quantile of sorted values, bit for bit, from two of them.

    >>> quantile(torch.tensor([0.0, 1.0, 2.0, 4.0]), 0.5)
    1.5
    """
    place = (len(values) - 1) * share
    below = math.floor(place)
    low, high = float(values[below]), float(values[min(below + 1, len(values) - 1)])
    weight = place - below
    return high - (high - low) * (1 - weight) if weight >= 0.5 else low + (high - low) * weight
