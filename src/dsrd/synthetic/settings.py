"""`SynthConfig`: which synthetic stream to draw. Loads without numba, so files can name the law they came from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dsrd.errors import DsrdError


@dataclass(frozen=True, kw_only=True)
class SynthConfig:
    """Which stream to draw; equal settings give equal streams.

    >>> SynthConfig(events=1000).num_nodes
    40
    >>> SynthConfig(events=50)
    Traceback (most recent call last):
    ...
    dsrd.errors.DsrdError: synth: events is 50; ask for 100 or more
    """

    events: int = 20_000
    """How many events to draw."""
    nodes: int = 0
    """How many nodes arrive over the whole stream (0: one for every 25 events)."""
    bipartite: bool = False
    """Sources and targets are two kinds of nodes, four sources to a target, like users and items."""
    snapshots: int = 0
    """Times are the integers 0 .. snapshots - 1 instead of seconds (0: continuous time)."""
    days: float = 30.0
    """The span of the stream; in continuous time the clock counts seconds."""
    seed: int = 0
    """Another seed draws another stream from the same law."""
    edge_dim: int = 0
    """Width of the edge features, which tell through noise in which way an event was drawn (0: none)."""
    burst: float = 0.25
    """Share of events in which a pair with an active burst meets again."""
    gradual: float = 0.30
    """Share of events in which a source returns to one of its lifelong friends."""
    closure: float = 0.20
    """Share of events in which a source meets a partner of a partner; the rest of the events is popular."""
    explore: float = 0.10
    """Share of sources, and of popular targets, drawn from all known nodes instead of the recent events."""

    def __post_init__(self) -> None:
        for field in ("events", "nodes", "snapshots", "seed", "edge_dim"):
            self._require(field, isinstance(getattr(self, field), int | np.integer), "give an integer")
        for field in ("burst", "gradual", "closure", "explore"):
            self._require(field, 0 <= getattr(self, field) <= 1, "a share lies between 0 and 1")
        shares, most = self.burst + self.gradual + self.closure, f"{self.events} (the events)"
        self._require("events", self.events >= 100, "ask for 100 or more")
        self._require("nodes", self.nodes == 0 or 10 <= self.nodes <= self.events, f"give 0, or 10 to {most}")
        self._require(
            "snapshots", self.snapshots == 0 or 2 <= self.snapshots <= self.events, f"give 0, or 2 to {most}"
        )
        self._require("days", 0 < self.days < float("inf"), "give a positive number")
        self._require("seed", 0 <= self.seed < 2**63, "give 0 or more, below 2**63")
        self._require("edge_dim", self.edge_dim >= 0, "give a width, or 0 for no features")
        self._require("explore", self.explore > 0, "give more than 0, or the same few nodes meet forever")
        self._require("burst", self.burst < 1, "give less than 1: only other events can start a burst")
        self._require("burst", shares < 1 + 1e-9, f"with gradual and closure {shares:.4g}; together at most 1")

    def _require(self, field: str, valid: bool, remedy: str) -> None:
        if not valid:
            raise DsrdError(f"synth: {field} is {getattr(self, field)}; {remedy}")

    @property
    def num_nodes(self) -> int:
        """Nodes that have arrived when the stream ends."""
        return self.nodes or max(10, self.events // 25)
