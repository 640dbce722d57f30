"""The law of synthetic streams: its constants, its fixed random choices, and the summary of past events it reads.

`dsrd.synthetic.drawing` draws events from this law, `dsrd.synthetic.oracle` computes their probability. Both
replay the past with the functions here.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dsrd.compiled import compiled
from dsrd.hashing import STEP, mix_bits, unit_interval
from dsrd.synthetic.settings import SynthConfig

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Counts = NDArray[np.int32]
Flags = NDArray[np.int8]
Words = NDArray[np.uint64]

FRIENDS = 5
"""Lifelong friends of a source: targets it returns to along the whole stream."""
PARTNERS = 8
"""Recent partners kept for each node; a partner met several times in a row counts once."""
BURSTY = 0.05
"""Share of pairs whose meetings start a burst."""


class Law(NamedTuple):
    """The settings, as compiled code wants them."""

    seed: np.uint64
    events: int
    sources: int  # that arrive in all
    targets: int  # that arrive in all; the same nodes as the sources unless bipartite
    first_target: int  # id of the target that arrives first
    bipartite: bool
    snapshots: bool
    window: int  # number of recent events that sources and popular targets are drawn from
    slots: int  # bursts that can be active at a time
    burst: float  # share of the events without a new node
    gradual: float  # share of the events without a burst
    closure: float  # share of the events without a burst
    explore: float


def law_of(config: SynthConfig) -> Law:
    """The law of a config, with every derived size.

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


class Stream(NamedTuple):
    """The events of a stream, drawn so far or given."""

    src: Ints  # [E]
    dst: Ints  # [E]
    time: Floats  # [E]
    starts_burst: Flags  # [E] what `note_event` says


class World(NamedTuple):
    """Summary of the events before the one to draw. Changed in place."""

    tally: Ints  # [6]: the counts of the whole world, named below
    nodes: Counts  # [N, 16]: the partners of each node (a ring buffer), then its counts, named below
    bursts: Ints  # [slots, 2]: source and target of each active burst, NULL for none


SOURCES_ARRIVED, TARGETS_ARRIVED, SOURCES_KNOWN, TARGETS_KNOWN, EVENTS_KNOWN, ACTIVE_BURSTS = range(6)
# Arrived: before the event to draw. Known: in the history the draw may read, which in a snapshot ends earlier.

MET, SENT, RECEIVED, BURSTS = range(PARTNERS, PARTNERS + 4)
# Entries ever written to the ring; events in the window as source, and as target; active bursts as source.


def new_world(law: Law) -> World:
    """The world before the first event."""
    rows = law.first_target + law.targets
    return World(
        tally=np.zeros(6, dtype=np.int64),
        nodes=np.zeros((rows, 16), dtype=np.int32),  # a row fills one line of the processor's cache
        bursts=np.zeros((law.slots, 2), dtype=np.int64),
    )


# --- Random numbers ----------------------------------------------------------------------------------------------

_FRIEND, _BURSTY_PAIR, _SLOT = 1, 2, 3
WHO, WHEN, NOISE = 4, 5, 6
"""Topics: each has random numbers of its own."""


@compiled
def generator(seed: np.uint64, topic: int) -> Words:
    """A splitmix64 generator for one topic: the one word of its state."""
    return np.array([mix_bits(seed + STEP * np.uint64(topic))])  # [1]


@compiled
def uniform(rng: Words) -> float:
    """The next number in [0, 1) of a generator."""
    rng[0] += STEP
    return unit_interval(mix_bits(rng[0]))


@compiled
def below(rng: Words, count: int) -> int:
    """The next integer in 0 .. count - 1."""
    return int(uniform(rng) * count)


@compiled
def fixed_uniform(seed: np.uint64, topic: int, a: int, b: int) -> float:
    """A number in [0, 1) that is always the same for the same arguments."""
    word = mix_bits(seed + STEP * np.uint64(topic))
    word = mix_bits(word + STEP * np.uint64(a))
    word = mix_bits(word + STEP * np.uint64(b))
    return unit_interval(word)


@compiled
def friend(law: Law, source: int, number: int) -> int:
    """One of the `FRIENDS` lifelong friends of a source, arrived or not."""
    return law.first_target + int(fixed_uniform(law.seed, _FRIEND, source, number) * law.targets)


@compiled
def is_bursty(law: Law, source: int, target: int) -> bool:
    """Whether a meeting of the pair starts a burst."""
    return fixed_uniform(law.seed, _BURSTY_PAIR, source, target) < BURSTY


@compiled
def slot_of(law: Law, source: int, target: int) -> int:
    """The slot of the pair's burst. A burst ends when another pair takes its slot."""
    return int(fixed_uniform(law.seed, _SLOT, source, target) * law.slots)


# --- New nodes and known nodes -----------------------------------------------------------------------------------


@compiled
def arrival_chance(law: Law, row: int, arrived: int, total: int) -> float:
    """The probability that one of the nodes still to come arrives with event `row`.

    Arrivals follow the square root of time: of those still to come, the share (√(row+1) - √row) / (√events - √row)
    arrives, written so that it is never rounded below 1 / (events - row). So all nodes arrive before the end.
    """
    left = law.events - row
    speed = (np.sqrt(law.events) + np.sqrt(row)) / (np.sqrt(row + 1) + np.sqrt(row))
    return float(min(1.0, speed * ((total - arrived) / left)))


@compiled
def arrival_chances(law: Law, tally: Ints, row: int) -> tuple[float, float, float, float]:
    """The probabilities that both ends of event `row` are new, only the source, only the target, none."""
    if row == 0:
        return 1.0, 0.0, 0.0, 0.0
    source = arrival_chance(law, row, tally[SOURCES_ARRIVED], law.sources)
    if not law.bipartite:
        return 0.0, source / 2, source / 2, 1.0 - source
    target = arrival_chance(law, row, tally[TARGETS_ARRIVED], law.targets)
    return source * target, source * (1 - target), (1 - source) * target, (1 - source) * (1 - target)


@compiled
def next_target(law: Law, tally: Ints, source: int) -> int:
    """The id that a new target gets in an event of `source`, which may be new as well."""
    if not law.bipartite and source > tally[SOURCES_ARRIVED]:
        return source + 1
    return int(law.first_target + tally[TARGETS_ARRIVED])


@compiled
def is_known_target(law: Law, tally: Ints, node: int) -> bool:
    return bool(law.first_target <= node < law.first_target + tally[TARGETS_KNOWN])


@compiled
def has_burst(law: Law, world: World, source: int, target: int) -> bool:
    """Whether a burst of the pair is active."""
    slot = slot_of(law, source, target)
    return bool(world.bursts[slot, 0] == source and world.bursts[slot, 1] == target)


# --- Events become history ---------------------------------------------------------------------------------------


@compiled
def history_moves(law: Law, time: Floats, row: int) -> bool:
    """Whether event `row` is drawn from all events before it; if not, it has the history of its predecessor."""
    return not law.snapshots or time[row] == time[0] or time[row] != time[row - 1]


@compiled
def note_event(law: Law, world: World, source: int, target: int) -> bool:
    """Count the new nodes of an event; whether it starts a burst."""
    tally = world.tally
    if law.bipartite:
        tally[SOURCES_ARRIVED] = max(tally[SOURCES_ARRIVED], source)
        tally[TARGETS_ARRIVED] = max(tally[TARGETS_ARRIVED], target - law.first_target + 1)
    else:
        tally[SOURCES_ARRIVED] = max(tally[SOURCES_ARRIVED], source, target)
        tally[TARGETS_ARRIVED] = tally[SOURCES_ARRIVED]
    return is_bursty(law, source, target) and not has_burst(law, world, source, target)


@compiled
def catch_up(law: Law, world: World, stream: Stream, row: int) -> None:
    """Add the events before `row` to the history that draws may read."""
    tally, src, dst = world.tally, stream.src, stream.dst
    for past in range(tally[EVENTS_KNOWN], row):
        source, target = src[past], dst[past]
        world.nodes[source, SENT] += 1
        world.nodes[target, RECEIVED] += 1
        if past >= law.window:
            world.nodes[src[past - law.window], SENT] -= 1
            world.nodes[dst[past - law.window], RECEIVED] -= 1
        _remember_partner(world.nodes, source, target)
        _remember_partner(world.nodes, target, source)
        if stream.starts_burst[past]:
            _start_burst(law, world, source, target)
    tally[EVENTS_KNOWN] = row
    tally[SOURCES_KNOWN] = tally[SOURCES_ARRIVED]
    tally[TARGETS_KNOWN] = tally[TARGETS_ARRIVED]


@compiled
def _remember_partner(nodes: Counts, node: int, partner: int) -> None:
    met = nodes[node, MET]
    if met == 0 or nodes[node, (met - 1) % PARTNERS] != partner:
        nodes[node, met % PARTNERS] = partner
        nodes[node, MET] = met + 1


@compiled
def _start_burst(law: Law, world: World, source: int, target: int) -> None:
    slot = slot_of(law, source, target)
    replaced_source = world.bursts[slot, 0]
    if replaced_source:
        world.nodes[replaced_source, BURSTS] -= 1
    else:
        world.tally[ACTIVE_BURSTS] += 1
    world.nodes[source, BURSTS] += 1
    world.bursts[slot, 0], world.bursts[slot, 1] = source, target
