"""The settings of DSRD, and the learned constants that each ablation leaves unused."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from dsrd.errors import DsrdError
from dsrd.ranges import Chance, Heads, LayersOrNone, Links, Positive, Spread, Width, WidthOrNone, at_least

Ablation = Literal["none", "no_block", "no_temporal_decay", "no_age_features", "no_diffusion", "no_state"]
UNUSED: Mapping[Ablation, tuple[str, ...]] = {  # constants that an ablation leaves at their initial values
    "none": (),
    "no_block": ("lambda", "alpha", "gamma", "delta"),
    "no_temporal_decay": ("lambda", "alpha"),
    "no_age_features": (),  # decays stay, the second road by which ages reach the heads is closed (walks)
    "no_diffusion": ("delta",),
    "no_state": ("gamma", "delta"),
}


LONG_STREAM = 150_000  # training events from which on more width pays


@dataclass(frozen=True, kw_only=True)
class DSRDConfig:
    state: Literal["walks", "dense"] = "walks"  # walks: codes of node ids; dense: the paper's matrices
    dim: WidthOrNone = 0  # width of tokens and of node vectors; 0: 32, for more than 150,000 training events 64
    heads: Heads = 4
    layers: LayersOrNone = 2
    neighbors: Links = 20  # events in a node's window
    code_dim: Width = 128  # signs in a node's code; more make the walk counts less noisy (walks)
    precision: Literal["float32", "bfloat16", "int8"] = "float32"  # of stored walks: 4, 2, 1 bytes (walks)
    slow_code_dim: WidthOrNone = 0  # signs at the slower half of `scales`; 0: `code_dim` (walks)
    rows_on_disk: bool = False  # keep rows of nodes in a temporary file that is mapped into memory (walks)
    scales: tuple[float, ...] = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0)  # grid of walks, shares of the events (walks)
    count_scales: tuple[float, ...] = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0)  # of exact counts, likewise (walks)
    time_dim: WidthOrNone = 32  # features of an age; in walks half cosines, half soft steps
    dropout: Chance = 0.1
    stretch: Spread = 1.0  # in training, each batch's ages are multiplied by exp(stretch * normal) (walks)
    negatives: Positive = 1  # uniformly random targets per event in training; more help ranking and take longer
    ablate: Ablation = "none"  # leave one part out

    def sized(self, num_events: int) -> DSRDConfig:
        """The settings with a width: the one that is set, or by the number of training events."""
        return self if self.dim else replace(self, dim=64 if num_events > LONG_STREAM else 32)

    @property
    def columns(self) -> tuple[int, ...]:
        """Numbers kept of walks at each of the scales."""
        slow = len(self.scales) // 2
        narrow = self.slow_code_dim or self.code_dim
        return (self.code_dim,) * (len(self.scales) - slow) + (narrow,) * slow

    @property
    def packed(self) -> bool:
        """Whether rows of walks are packed (see `walk_rows`)."""
        return self.precision == "int8" or min(self.columns) < self.code_dim

    @property
    def walk_bytes(self) -> int:
        """Bytes of a node's walks of one kind; in 8 bits a scale has two more, for the step."""
        element = {"float32": 4, "bfloat16": 2, "int8": 1}[self.precision]
        return element * sum(self.columns) + (2 * len(self.scales) if element == 1 else 0)

    def check(self) -> None:
        """Heads share the width, scales are positive shares of the training events, dense needs a layer."""
        if self.slow_code_dim > self.code_dim:
            raise DsrdError(
                f"model.slow_code_dim={self.slow_code_dim}: give at most model.code_dim={self.code_dim}"
            )
        at_least(self, layers=1, dim=0)
        if self.state == "dense" and self.ablate == "no_age_features":
            raise DsrdError("model.ablate=no_age_features: is for model.state=walks; choose another")
        if self.dim % self.heads:
            raise DsrdError(f"model.heads={self.heads}: give a divisor of model.dim={self.dim}")
        for name in ("scales", "count_scales"):
            values = getattr(self, name)
            if not values or not all(0 < value < math.inf for value in values):
                text = ",".join(map(str, values))
                raise DsrdError(f"model.{name}={text}: give one number above 0 or more")
            if sorted(set(values)) != list(values):
                text = ",".join(map(str, values))
                raise DsrdError(f"model.{name}={text}: give each number once, in ascending order")
