"""Which synthetic stream to draw: `SynthConfig`, like real streams, or `MemoryConfig`, with a known memory.

Loads without numba, so files can name the law they came from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from dsrd.errors import DsrdError
from dsrd.ranges import AboveZero, Chance, Positive, Range, Share, checked


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


@dataclass(frozen=True, kw_only=True)
class MemoryConfig:
    """Which stream with a known memory to draw; `dsrd.synthetic.memory` states its law.

    >>> MemoryConfig(taus=(10, 1000), novelty=0.2).taus
    (10, 1000)
    >>> MemoryConfig(taus=())
    Traceback (most recent call last):
    ...
    dsrd.errors.DsrdError: memory.taus=(): give one number above 0 or more
    """

    events: Annotated[int, Range(100)] = 20_000
    """How many events to draw; event i happens at time i."""
    sources: Positive = 10
    """Number of sources. A source must act several times within tau, or tau leaves no trace."""
    targets: Annotated[int, Range(2)] = 200
    """Number of targets."""
    taus: tuple[float, ...] = (100.0,)
    """Time constants of the memory, in events of the whole stream; with several, each event picks one."""
    novelty: Share = 0.1
    """Share of events with a uniformly random target; 1: nothing can be known."""
    structure: Share = 0.0
    """Share of events whose target comes from the memory of a fellow; the rest comes from the source's own."""
    skew: Annotated[float, Range(0)] = 0.0
    """The k-th source acts in proportion to 1 / k^skew; 0: all sources act equally often."""
    seed: Annotated[int, Range(0, 2**63 - 1)] = 0
    """Another seed draws another stream from the same law."""

    def __post_init__(self) -> None:
        checked(self, "memory.")

    def check(self) -> None:
        """Time constants above 0, and shares that add up to 1 at most."""
        if not self.taus or not all(0 < tau < np.inf for tau in self.taus):
            raise DsrdError(f"memory.taus={self.taus}: give one number above 0 or more")
        shares = self.novelty + self.structure
        if shares > 1 + 1e-9:
            raise DsrdError(
                f"memory.structure={self.structure}: with novelty {shares:.4g}; give 1 together at most"
            )


SyntheticLaw = SynthConfig | MemoryConfig


def law_from(settings: Mapping[str, Any]) -> SyntheticLaw:
    """The law with these settings, as a file stores them.

    >>> law_from({"taus": [10.0], "seed": 3})
    MemoryConfig(events=20000, sources=10, targets=200, taus=(10.0,), novelty=0.1, structure=0.0, skew=0.0, seed=3)
    """
    if "taus" in settings:
        return MemoryConfig(**{**settings, "taus": tuple(settings["taus"])})
    return SynthConfig(**settings)
