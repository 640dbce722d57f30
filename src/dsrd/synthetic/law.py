"""The law synthetic streams follow: its settings, the tastes it fixes, and the memory of the past it looks at.

`synthetic.py` draws from this law, `oracle.py` evaluates it; both replay the past with the functions here.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dsrd.compiled import compiled

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Counts = NDArray[np.int32]
Flags = NDArray[np.int8]
Words = NDArray[np.uint64]

FRIENDS = 5
"""Lifelong friends of a source."""
PARTNERS = 8
"""Recent partners a node is known by; a partner met several times in a row counts once."""
BURSTY = 0.05
"""Share of pairs that start to burn when they meet."""


class Law(NamedTuple):
    """The settings, as compiled code wants them."""

    seed: np.uint64
    events: int
    sources: int  # that arrive in all
    targets: int  # that arrive in all; the same nodes as the sources unless bipartite
    first_target: int  # id of the target that arrives first
    bipartite: bool
    snapshots: bool
    window: int  # events that make up the recent past
    slots: int  # pairs that can burn at a time
    burst: float  # share of the events without a newcomer
    gradual: float  # share of the events without a burst
    closure: float  # share of the events without a burst
    explore: float


class World(NamedTuple):
    """What the law looks at: the events before the one to draw, summarised. Changed in place."""

    tally: Ints  # [6]: the counts of the whole world, named below
    nodes: Counts  # [N, 16]: the partners of each node (a ring), then its counts, named below
    burning: Ints  # [slots, 2]: the pairs that burn, NULL for none


SOURCES_ARRIVED, TARGETS_ARRIVED, SOURCES_KNOWN, TARGETS_KNOWN, EVENTS_KNOWN, PAIRS_BURNING = range(6)
# Arrived: up to the event to draw. Known: in the history the draw may look at, which in a snapshot ends earlier.

MET, SENT, RECEIVED, BURNING = range(PARTNERS, PARTNERS + 4)
# Entries ever written to the ring; events in the window as source, and as target; pairs that burn as source.


def new_world(law: Law) -> World:
    """The world before the first event."""
    rows = law.first_target + law.targets
    return World(
        tally=np.zeros(6, dtype=np.int64),
        nodes=np.zeros((rows, 16), dtype=np.int32),  # a row fills one line of the processor's cache
        burning=np.zeros((law.slots, 2), dtype=np.int64),
    )


# --- Chance ------------------------------------------------------------------------------------------------------

_STEP = np.uint64(0x9E3779B97F4A7C15)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_S30, _S27, _S31, _S11 = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(11)
_ULP = 2.0**-53


@compiled
def scramble(word: np.uint64) -> np.uint64:
    """The output function of splitmix64 (Steele, Lea and Flood, 2014)."""
    word = (word ^ (word >> _S30)) * _FIRST
    word = (word ^ (word >> _S27)) * _SECOND
    return word ^ (word >> _S31)


@compiled
def generator(seed: np.uint64, topic: int) -> Words:
    """A sequence of random numbers for one topic: the one word of its state."""
    return np.array([scramble(seed + _STEP * np.uint64(topic))])  # [1]


@compiled
def uniform(rng: Words) -> float:
    """The next number in [0, 1) of a generator."""
    rng[0] += _STEP
    return (scramble(rng[0]) >> _S11) * _ULP


@compiled
def below(rng: Words, count: int) -> int:
    """The next integer in 0 .. count - 1."""
    return int(uniform(rng) * count)


@compiled
def taste(seed: np.uint64, topic: int, a: int, b: int) -> float:
    """A number in [0, 1) that is always the same for the same arguments."""
    word = scramble(seed + _STEP * np.uint64(topic))
    word = scramble(word + _STEP * np.uint64(a))
    word = scramble(word + _STEP * np.uint64(b))
    return (word >> _S11) * _ULP


_FRIENDSHIP, _TEMPER, _PLACE = 1, 2, 3
WHO, WHEN, NOISE = 4, 5, 6
"""Topics of the generators."""


@compiled
def friend(law: Law, source: int, which: int) -> int:
    """A lifelong friend of a source, arrived or not."""
    return law.first_target + int(taste(law.seed, _FRIENDSHIP, source, which) * law.targets)


@compiled
def is_bursty(law: Law, source: int, target: int) -> bool:
    """Whether a meeting of the pair starts a burst."""
    return taste(law.seed, _TEMPER, source, target) < BURSTY


@compiled
def slot_of(law: Law, source: int, target: int) -> int:
    """Where the pair burns, if it does. A burst ends when another pair takes its slot."""
    return int(taste(law.seed, _PLACE, source, target) * law.slots)


# --- Who may come next -------------------------------------------------------------------------------------------


@compiled
def newcomer_chance(law: Law, row: int, arrived: int, total: int) -> float:
    """The chance that one of the nodes still to come arrives with event `row`.

    Arrivals follow the square root of time: of those still to come, the share (√(row+1) - √row) / (√events - √row)
    arrives, written so that it is never rounded below 1 / (events - row). Hence everybody arrives in the end.
    """
    left = law.events - row
    speed = (np.sqrt(law.events) + np.sqrt(row)) / (np.sqrt(row + 1) + np.sqrt(row))
    return float(min(1.0, speed * ((total - arrived) / left)))


@compiled
def arrival_chances(law: Law, tally: Ints, row: int) -> tuple[float, float, float, float]:
    """The chances that both ends of event `row` are new, the source only, the target only, none."""
    if row == 0:
        return 1.0, 0.0, 0.0, 0.0
    source = newcomer_chance(law, row, tally[SOURCES_ARRIVED], law.sources)
    if not law.bipartite:
        return 0.0, source / 2, source / 2, 1.0 - source
    target = newcomer_chance(law, row, tally[TARGETS_ARRIVED], law.targets)
    return source * target, source * (1 - target), (1 - source) * target, (1 - source) * (1 - target)


@compiled
def next_target(law: Law, tally: Ints, source: int) -> int:
    """The id a target gets that is new in an event of `source`, who may be new as well."""
    if not law.bipartite and source > tally[SOURCES_ARRIVED]:
        return source + 1
    return int(law.first_target + tally[TARGETS_ARRIVED])


@compiled
def is_known_target(law: Law, tally: Ints, node: int) -> bool:
    return bool(law.first_target <= node < law.first_target + tally[TARGETS_KNOWN])


@compiled
def burns(law: Law, world: World, source: int, target: int) -> bool:
    slot = slot_of(law, source, target)
    return bool(world.burning[slot, 0] == source and world.burning[slot, 1] == target)


# --- The passing of time -----------------------------------------------------------------------------------------


@compiled
def history_moves(law: Law, time: Floats, row: int) -> bool:
    """Whether event `row` is drawn from all events before it; if not, from what its predecessor was drawn from."""
    return not law.snapshots or time[row] == time[0] or time[row] != time[row - 1]


@compiled
def note_event(law: Law, world: World, source: int, target: int) -> bool:
    """Count newcomers, and say whether the event starts a burst."""
    tally = world.tally
    if law.bipartite:
        tally[SOURCES_ARRIVED] = max(tally[SOURCES_ARRIVED], source)
        tally[TARGETS_ARRIVED] = max(tally[TARGETS_ARRIVED], target - law.first_target + 1)
    else:
        tally[SOURCES_ARRIVED] = max(tally[SOURCES_ARRIVED], source, target)
        tally[TARGETS_ARRIVED] = tally[SOURCES_ARRIVED]
    return is_bursty(law, source, target) and not burns(law, world, source, target)


@compiled
def catch_up(law: Law, world: World, src: Ints, dst: Ints, kindles: Flags, row: int) -> None:
    """Make the events before `row` known."""
    tally = world.tally
    for past in range(tally[EVENTS_KNOWN], row):
        source, target = src[past], dst[past]
        world.nodes[source, SENT] += 1
        world.nodes[target, RECEIVED] += 1
        if past >= law.window:
            world.nodes[src[past - law.window], SENT] -= 1
            world.nodes[dst[past - law.window], RECEIVED] -= 1
        _remember_partner(world.nodes, source, target)
        _remember_partner(world.nodes, target, source)
        if kindles[past]:
            _kindle(law, world, source, target)
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
def _kindle(law: Law, world: World, source: int, target: int) -> None:
    slot = slot_of(law, source, target)
    ousted = world.burning[slot, 0]
    if ousted:
        world.nodes[ousted, BURNING] -= 1
    else:
        world.tally[PAIRS_BURNING] += 1
    world.nodes[source, BURNING] += 1
    world.burning[slot, 0], world.burning[slot, 1] = source, target
