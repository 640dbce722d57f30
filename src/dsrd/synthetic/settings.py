"""`SynthConfig`: which synthetic stream to draw. Loads without numba, so files can name the law they came from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from dsrd.errors import DsrdError
from dsrd.ranges import AboveZero, Chance, Range, Share, checked


@dataclass(frozen=True, kw_only=True)
class SynthConfig:
    """Which stream to draw; equal settings give equal streams.

    >>> SynthConfig(events=1000).num_nodes
    40
    >>> SynthConfig(events=50)
    Traceback (most recent call last):
    ...
    dsrd.errors.DsrdError: synth.events=50: give 100 or more
    """

    events: Annotated[int, Range(100)] = 20_000
    """How many events to draw."""
    nodes: int = 0
    """How many nodes arrive over the whole stream (0: one for every 25 events)."""
    bipartite: bool = False
    """Sources and targets are two kinds of nodes, four sources to a target, like users and items."""
    snapshots: int = 0
    """Times are the integers 0 .. snapshots - 1 instead of seconds (0: continuous time)."""
    days: AboveZero = 30.0
    """The span of the stream; in continuous time the clock counts seconds."""
    seed: Annotated[int, Range(0, 2**63 - 1)] = 0
    """Another seed draws another stream from the same law."""
    edge_dim: int = 0
    """Width of the edge features, which tell through noise in which way an event was drawn (0: none)."""
    burst: Chance = 0.25
    """Share of events in which a pair with an active burst meets again."""
    gradual: Share = 0.30
    """Share of events in which a source returns to one of its lifelong friends."""
    closure: Share = 0.20
    """Share of events in which a source meets a partner of a partner; the rest of the events is popular."""
    explore: Annotated[float, Range(0, 1, excluded=(0,))] = 0.10
    """Share of sources, and of popular targets, drawn from all known nodes instead of the recent events."""

    def __post_init__(self) -> None:
        checked(self, "synth.")

    def check(self) -> None:
        """Whole numbers, no more nodes or snapshots than events, and shares that add up to 1 at most."""
        for field in ("events", "nodes", "snapshots", "seed", "edge_dim"):
            self._require(field, isinstance(getattr(self, field), int | np.integer), "give a whole number")
        for field, least in (("nodes", 10), ("snapshots", 2)):
            allowed = getattr(self, field) == 0 or least <= getattr(self, field) <= self.events
            self._require(field, allowed, f"give 0, or {least} to {self.events} (the events)")
        shares = self.burst + self.gradual + self.closure
        self._require(
            "burst", shares < 1 + 1e-9, f"with gradual and closure {shares:.4g}; give 1 together at most"
        )

    def _require(self, field: str, valid: bool, remedy: str) -> None:
        if not valid:
            raise DsrdError(f"synth.{field}={getattr(self, field)}: {remedy}")

    @property
    def num_nodes(self) -> int:
        """Nodes that have arrived when the stream ends."""
        return self.nodes or max(10, self.events // 25)
