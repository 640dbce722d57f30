"""Draw synthetic streams from a known law, so that the best possible score on them is known too.

An event is drawn from the events before it, in one of five ways (`Kind`):

* *newcomer*: a new node takes part. Nodes arrive over the whole stream, fast at first (as the root of time);
* *burst*: a pair whose burst is active meets again. A few bursts are active at any moment;
* *gradual*: a source returns to one of its few lifelong friends, which it meets along the whole stream;
* *closure*: a source meets a recent partner of a recent partner;
* *popular*: a source meets a target of the recent events, so that popular targets become more popular.

The source itself is the source of a recent event. A draw that fails (a friend who has not arrived, a walk that
comes back to its start) becomes a popular one. `dsrd.synthetic.oracle` computes the probability of every pair.

In snapshots, every event is drawn from the snapshots before its own. Only the first snapshot, which has none
before it, is drawn event by event.

Random numbers come from splitmix64, and floats only pass through operations that IEEE 754 rounds exactly: a seed
gives the same stream, bit for bit, on any machine.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from dsrd.compiled import compiled
from dsrd.data.dataset import Dataset
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
    Stream,
    Words,
    World,
    arrival_chances,
    below,
    catch_up,
    fixed_uniform,
    friend,
    generator,
    history_moves,
    is_known_target,
    law_of,
    new_world,
    next_target,
    note_event,
    uniform,
)
from dsrd.synthetic.settings import SynthConfig


class Kind(IntEnum):
    """The way in which an event was drawn."""

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


# --- Times: gaps with a heavy tail, stretched by the activity of the hour ----------------------------------------

_NIGHT, _MORNING = (0.5, 0.3, 0.2, 0.2, 0.2, 0.3), (0.5, 0.8, 1.1, 1.3, 1.4, 1.4)
_AFTERNOON, _EVENING = (1.3, 1.3, 1.4, 1.4, 1.4, 1.4), (1.5, 1.6, 1.6, 1.4, 1.1, 0.8)
_ACTIVITY = np.array(_NIGHT + _MORNING + _AFTERNOON + _EVENING)  # [24], per hour


def draw_times(config: SynthConfig) -> Floats:
    """Times of all events: strictly increasing seconds from 0, or snapshot numbers.  # [E]"""
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
    # The clock of activity: an hour takes as long as its activity says, the whole span `total`.
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


# --- Pairs: one draw per event -----------------------------------------------------------------------------------


def draw_pairs(law: Law, time: Floats) -> tuple[Ints, Ints, Flags]:
    """Source, target and `Kind` of the first events of the stream, one for each time."""
    src, dst = np.empty(len(time), dtype=np.int64), np.empty(len(time), dtype=np.int64)
    kind, starts_burst = np.empty(len(time), dtype=np.int8), np.empty(len(time), dtype=np.int8)
    _fill_pairs(law, new_world(law), Stream(src, dst, time, starts_burst), kind)
    return src, dst, kind


@compiled
def _fill_pairs(law: Law, world: World, stream: Stream, kind: Flags) -> None:
    src, dst, time, starts_burst = stream
    rng = generator(law.seed, WHO)
    recent_src, recent_dst = src[:0], dst[:0]
    for row in range(len(src)):
        if history_moves(law, time, row):
            catch_up(law, world, stream, row)
            recent_src, recent_dst = src[max(0, row - law.window) : row], dst[max(0, row - law.window) : row]
        src[row], dst[row], kind[row] = _draw_pair(law, world, rng, row, recent_src, recent_dst)
        starts_burst[row] = note_event(law, world, src[row], dst[row])


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
        if world.bursts[slot, 0] != NULL:
            return world.bursts[slot, 0], world.bursts[slot, 1], _BURST
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


# --- Edge features -----------------------------------------------------------------------------------------------


def draw_features(law: Law, kind: Flags, edge_dim: int) -> NDArray[np.float32]:
    """A code of +1 and -1 for each kind of event, plus noise of three times its variance.  # [E + 1, edge_dim]"""
    edge_x = np.zeros((len(kind) + 1, edge_dim), dtype=np.float32)
    _fill_features(law.seed, kind, edge_x)
    return edge_x


@compiled
def _fill_features(seed: np.uint64, kind: Flags, edge_x: NDArray[np.float32]) -> None:
    rng = generator(seed, NOISE)
    for row in range(len(kind)):
        for column in range(edge_x.shape[1]):
            code = 1.0 if fixed_uniform(seed, NOISE, kind[row], column) < 0.5 else -1.0
            edge_x[row + 1, column] = code + 6 * uniform(rng) - 3
