"""Streams drawn from a known law, so that the best possible score on them is known too.

An event is drawn from the events before it, in one of five ways (`Kind`):

* a *newcomer* meets somebody: `nodes` arrive over the stream, fast at first (as the square root of time);
* *burst*: a few pairs burn at any moment, and one of them meets again;
* *gradual*: a source returns to one of its few lifelong friends, now and then, all along the stream;
* *closure*: a source meets a recent partner of a recent partner;
* *popular*: a source meets a target of the recent past, so that fame breeds fame.

The source itself is one of the recent sources. A draw that leads nowhere (a friend who has not arrived, a walk
that comes back) becomes a popular one. `dsrd.synthetic.oracle` evaluates the probability of all this exactly.

In snapshots, every event is drawn from the snapshots before its own. Only the first snapshot, which has nothing
before it, is drawn event by event.

Random numbers are our own (splitmix64), and floats only meet operations that IEEE 754 rounds exactly: a seed
gives the same stream, bit by bit, on any machine.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from dsrd.compiled import compiled
from dsrd.data.dataset import Dataset
from dsrd.errors import DsrdError
from dsrd.events import NULL
from dsrd.synthetic.law import (
    FRIENDS,
    MET,
    NOISE,
    PARTNERS,
    SOURCES_ARRIVED,
    SOURCES_KNOWN,
    TARGETS_KNOWN,
    WHEN,
    WHO,
    Counts,
    Flags,
    Floats,
    Ints,
    Law,
    Words,
    World,
    arrival_chances,
    below,
    catch_up,
    friend,
    generator,
    history_moves,
    is_known_target,
    new_world,
    next_target,
    note_event,
    taste,
    uniform,
)


@dataclass(frozen=True, kw_only=True)
class SynthConfig:
    """What stream to draw; equal settings give equal streams.

    >>> SynthConfig(events=1000).num_nodes
    40
    >>> SynthConfig(events=50)
    Traceback (most recent call last):
    ...
    dsrd.errors.DsrdError: synth: events is 50; ask for 100 or more
    """

    events: int = 20_000
    """How many interactions to draw."""
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
    """Share of events in which a pair that burns meets again."""
    gradual: float = 0.30
    """Share of events in which a source returns to a lifelong friend."""
    closure: float = 0.20
    """Share of events in which a source meets a partner of a partner; the rest of the events is popular."""
    explore: float = 0.10
    """Share of sources, and of popular targets, drawn from everybody instead of the recent past."""

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
        self._require("explore", self.explore > 0, "give more than 0, or the same few meet forever")
        self._require("burst", self.burst < 1, "leave some events that can start a burst")
        self._require("burst", shares < 1 + 1e-9, f"with gradual and closure {shares:.4g}; together at most 1")

    def _require(self, field: str, valid: bool, remedy: str) -> None:
        if not valid:
            raise DsrdError(f"synth: {field} is {getattr(self, field)}; {remedy}")

    @property
    def num_nodes(self) -> int:
        """Nodes that have arrived when the stream ends."""
        return self.nodes or max(10, self.events // 25)


class Kind(IntEnum):
    """In which way the target of an event was drawn."""

    NEWCOMER = 0
    BURST = 1
    GRADUAL = 2
    CLOSURE = 3
    POPULAR = 4


_NEWCOMER, _BURST, _GRADUAL, _CLOSURE, _POPULAR = (kind.value for kind in Kind)  # numba wants plain integers


def synth(config: SynthConfig | None = None, name: str = "synth") -> Dataset:
    """Draw the stream of a config, the default one if none is given.

    Nodes are numbered from 1 in order of arrival; in a bipartite stream the targets follow the sources. The label
    of an event is 1 if a burst drew it.

    >>> data = synth(SynthConfig(events=1000, bipartite=True, seed=7))
    >>> len(data.events), data.num_nodes, int(data.events.src.max()), int(data.events.dst.min())
    (1000, 41, 32, 33)
    """
    config = config or SynthConfig()
    law = law_of(config)
    time = draw_times(config)  # [E]
    src, dst, kind = draw_pairs(law, time)  # [E] each
    return Dataset.from_arrays(
        name,
        src,
        dst,
        time,
        edge_x=draw_features(law, kind, config.edge_dim) if config.edge_dim else None,
        label=(kind == Kind.BURST).astype(np.float32),
        bipartite=config.bipartite,
        law=config,
    )


def law_of(config: SynthConfig) -> Law:
    """The law of a config; every derived size is decided here.

    Sizes grow with the number of nodes, so that a long stream has the statistics of a short one.
    """
    nodes = config.num_nodes
    targets = nodes // 5 if config.bipartite else nodes
    return Law(
        seed=np.uint64(config.seed),
        events=config.events,
        sources=nodes - targets if config.bipartite else nodes,
        targets=targets,
        first_target=nodes - targets + 1,
        bipartite=config.bipartite,
        snapshots=config.snapshots > 0,
        window=nodes,
        slots=max(8, nodes // 50),
        burst=config.burst,
        gradual=config.gradual / (1 - config.burst),
        closure=config.closure / (1 - config.burst),
        explore=config.explore,
    )


# --- When: gaps with a heavy tail, run through the rhythm of a day -----------------------------------------------

_NIGHT, _MORNING = (0.5, 0.3, 0.2, 0.2, 0.2, 0.3), (0.5, 0.8, 1.1, 1.3, 1.4, 1.4)
_AFTERNOON, _EVENING = (1.3, 1.3, 1.4, 1.4, 1.4, 1.4), (1.5, 1.6, 1.6, 1.4, 1.1, 0.8)
_ACTIVITY = np.array(_NIGHT + _MORNING + _AFTERNOON + _EVENING)  # [24], per hour


def draw_times(config: SynthConfig) -> Floats:
    """[E] times: strictly increasing seconds from 0, or the numbers of snapshots."""
    time = np.empty(config.events)
    _fill_times(np.uint64(config.seed), float(config.days * 24), _ACTIVITY, time)
    if config.snapshots:
        time *= config.snapshots / (config.days * 86_400)
        np.floor(time, out=time)
        np.minimum(time, config.snapshots - 1, out=time)
    return time


@compiled
def _fill_times(seed: np.uint64, hours: float, activity: Floats, time: Floats) -> None:
    rng = generator(seed, WHEN)
    gaps = 0.0
    for row in range(len(time)):
        time[row] = gaps
        chance = uniform(rng)
        gaps += 0.05 + chance / (1.02 - chance)  # no logarithm: its last bit depends on the machine
    # From here on time is counted in activity, of which there is `total` in the whole span.
    total = activity[int(hours) % 24] * (hours - int(hours))
    for hour in range(int(hours)):
        total += activity[hour % 24]
    hour, before = 0, 0.0
    for row in range(len(time)):
        done = time[row] / gaps * total
        while done >= before + activity[hour % 24]:
            before += activity[hour % 24]
            hour += 1
        time[row] = 3600 * (hour + (done - before) / activity[hour % 24])


# --- Who: one draw per event -------------------------------------------------------------------------------------


def draw_pairs(law: Law, time: Floats) -> tuple[Ints, Ints, Flags]:
    """Source, target and `Kind` of the first events of the stream, as many as there are times."""
    src, dst = np.empty(len(time), dtype=np.int64), np.empty(len(time), dtype=np.int64)
    kind, kindles = np.empty(len(time), dtype=np.int8), np.empty(len(time), dtype=np.int8)
    _fill_pairs(law, new_world(law), time, src, dst, kind, kindles)
    return src, dst, kind


@compiled
def _fill_pairs(law: Law, world: World, time: Floats, src: Ints, dst: Ints, kind: Flags, kindles: Flags) -> None:
    rng = generator(law.seed, WHO)
    recent_src, recent_dst = src[:0], dst[:0]
    for row in range(len(time)):
        if history_moves(law, time, row):
            catch_up(law, world, src, dst, kindles, row)
            recent_src, recent_dst = src[max(0, row - law.window) : row], dst[max(0, row - law.window) : row]
        src[row], dst[row], kind[row] = _draw_pair(law, world, rng, row, recent_src, recent_dst)
        kindles[row] = note_event(law, world, src[row], dst[row])


@compiled
def _draw_pair(
    law: Law, world: World, rng: Words, row: int, recent_src: Ints, recent_dst: Ints
) -> tuple[int, int, int]:
    both, source_only, target_only, _ = arrival_chances(law, world.tally, row)
    chance = uniform(rng)
    source_is_new = chance < both + source_only
    target_is_new = chance < both or both + source_only <= chance < both + source_only + target_only
    if not source_is_new and not target_is_new and uniform(rng) < law.burst:
        slot = below(rng, law.slots)
        if world.burning[slot, 0] != NULL:
            return world.burning[slot, 0], world.burning[slot, 1], _BURST
    if source_is_new:
        source = world.tally[SOURCES_ARRIVED] + 1
    else:
        source = _draw_recent(law, rng, recent_src, 1, world.tally[SOURCES_KNOWN])
    if target_is_new:
        return source, next_target(law, world.tally, source), _NEWCOMER
    target, kind = _draw_target(law, world, rng, source, recent_dst)
    return source, target, kind


@compiled
def _draw_target(law: Law, world: World, rng: Words, source: int, recent_dst: Ints) -> tuple[int, int]:
    chance = uniform(rng)
    if chance < law.gradual:
        target = friend(law, source, below(rng, FRIENDS))
        if target != source and is_known_target(law, world.tally, target):
            return target, _GRADUAL
    elif chance < law.gradual + law.closure and world.nodes[source, MET]:
        target = _draw_partner(world.nodes, rng, _draw_partner(world.nodes, rng, source))
        if law.bipartite:
            target = _draw_partner(world.nodes, rng, target)
        if target != source:
            return target, _CLOSURE
    while True:
        target = _draw_recent(law, rng, recent_dst, law.first_target, world.tally[TARGETS_KNOWN])
        if target != source:
            return target, _POPULAR


@compiled
def _draw_partner(nodes: Counts, rng: Words, node: int) -> int:
    return int(nodes[node, below(rng, min(nodes[node, MET], PARTNERS))])


@compiled
def _draw_recent(law: Law, rng: Words, recent: Ints, first: int, known: int) -> int:
    if uniform(rng) < law.explore:
        return first + below(rng, known)
    return int(recent[below(rng, len(recent))])


# --- What comes along --------------------------------------------------------------------------------------------


def draw_features(law: Law, kind: Flags, edge_dim: int) -> NDArray[np.float32]:
    """[E + 1, edge_dim]: a code of +1 and -1 for each kind of event, in noise of three times its variance."""
    edge_x = np.zeros((len(kind) + 1, edge_dim), dtype=np.float32)
    _fill_features(law.seed, kind, edge_x)
    return edge_x


@compiled
def _fill_features(seed: np.uint64, kind: Flags, edge_x: NDArray[np.float32]) -> None:
    rng = generator(seed, NOISE)
    for row in range(len(kind)):
        for column in range(edge_x.shape[1]):
            code = 1.0 if taste(seed, NOISE, kind[row], column) < 0.5 else -1.0
            edge_x[row + 1, column] = code + 6 * uniform(rng) - 3
