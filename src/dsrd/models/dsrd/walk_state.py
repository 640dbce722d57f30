"""The retentive walk state, compiled: who met whom along walks of one and two steps, at several scales.

Every node i has a code r_i, a row of random signs made from its id: it costs no storage, and a node nobody has met
has one too. For each rate of decay a node u keeps

    S1_u = sum over its events  exp(-rate age)   r_partner          one step
    S2_u = sum over its events  exp(-2 rate age) S1_partner         two steps, the earlier one first

so that v's code contracted with S1_u tells how much u met v, with S2_u how much u met those who had met v, each up
to the noise of the codes. Meetings of one step are also counted exactly, in a hash table of directed pairs, and so
is how much a node sent and received, all of it and among strangers, at a finer set of rates.

Ages are counted in events, not in seconds: an event is as old as the number of events of the whole stream from its
timestamp on. A quiet month then fades no more than a busy hour, and what a state holds stays in the range it was
learned in when a stream slows down or speeds up. Where a state takes in every timestamp whole, the newest one it
knows is not counted, so that it is fresh when the next one is asked about: a snapshot of thousands is one moment,
and none but the slowest scales would know of it otherwise. Where a timestamp may be known in part, fresh is what
is known of the very time asked about.

What is asked of it, and how, is in `dsrd.models.dsrd.walk_queries`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dsrd.compiled import compiled
from dsrd.hashing import splitmix64
from dsrd.history.index import Floats, Ints
from dsrd.history.pair_table import EMPTY, slot_of
from dsrd.models.dsrd.bfloat16 import narrowed, widened

Singles = NDArray[np.float32]

ACTS_KEPT = 4  # sent, received, sent to a stranger, received from one

# A state is a tuple of arrays. Per node: step1 and step2 [N, rates, width] (single or half), acts [N, 4, fine]
# (sent, received, and the same between two who had never met), last [N]. Per directed pair, a hash table: key [P],
# met [P, fine], count [P], met_last [P]; size [1], its pairs. clock [3]: events so far, events before the newest
# timestamp, the newest timestamp. `last` and `met_last` are readings of the clock.
STEP1, STEP2, ACTS, LAST, KEY, MET, COUNT, MET_LAST, SIZE, CLOCK = range(10)


@compiled
def write_code(node: int, out: Singles) -> None:
    """The node's signs, scaled to length 1."""
    scale = np.float32(1.0 / np.sqrt(len(out)))
    for start in range(0, len(out), 64):
        word = splitmix64(splitmix64(np.uint64(node)) ^ np.uint64(start))
        for i in range(start, min(start + 64, len(out))):
            sign = np.int64((word >> np.uint64(i - start)) & np.uint64(1))
            out[i] = scale * np.float32(2 * sign - 1)


@compiled
def read_clock(clock: Floats, time: float, whole: bool) -> Any:
    """How many events came before `time`, those of the newest known timestamp left out if moments are `whole`.

    Events of one timestamp share a reading, whatever their order.
    """
    return clock[1] if whole or time <= clock[2] else clock[0]


@compiled
def advance_clock(clock: Floats, time: float) -> Any:
    """Count an event; the reading at its time."""
    if time > clock[2]:
        clock[1], clock[2] = clock[0], time
    clock[0] += 1
    return clock[1]


@compiled
def extend_walks(state: Any, src: int, dst: int, now: float, rate: Floats, codes: Singles, event: Any) -> None:
    """Bring both rows of codes forward to `now` and give each what the other one holds.

    Each number is rounded once, by chance where it is kept in bfloat16: a hash of the event and its own place.
    """
    step1, step2, last = state[0], state[1], state[3]
    width = step1.shape[2]
    for r in range(len(rate)):
        kept = np.float32(np.exp(-rate[r] * (now - last[src])))
        other_kept = np.float32(np.exp(-rate[r] * (now - last[dst])))
        for i in range(width):
            chance = splitmix64(event + np.uint64(r * width + i))
            one, two = widened(step1[src, r, i]) * kept, widened(step2[src, r, i]) * (kept * kept)
            other_one = widened(step1[dst, r, i]) * other_kept
            other_two = widened(step2[dst, r, i]) * (other_kept * other_kept)
            step1[src, r, i] = narrowed(one + codes[1, i], chance, step1[src, r, i])
            step2[src, r, i] = narrowed(two + other_one, chance >> np.uint64(16), step2[src, r, i])
            if src != dst:
                step1[dst, r, i] = narrowed(other_one + codes[0, i], chance >> np.uint64(32), step1[dst, r, i])
                step2[dst, r, i] = narrowed(other_two + one, chance >> np.uint64(48), step2[dst, r, i])


@compiled
def decay_acts(state: Any, node: int, now: float, fine: Floats) -> None:
    """Bring a node's counts forward to `now`, the last of its row that is."""
    acts, last = state[2], state[3]
    for r in range(len(fine)):
        kept = np.float32(np.exp(-fine[r] * (now - last[node])))
        for kind in range(ACTS_KEPT):
            acts[node, kind, r] *= kept
    last[node] = now


@compiled
def add(state: Any, src: int, dst: int, time: float, rate: Floats, fine: Floats, codes: Singles) -> None:
    """Fold one event in."""
    acts, key, met, count, met_last, size = state[2], state[4], state[5], state[6], state[7], state[8]
    now = advance_clock(state[9], time)
    slot = slot_of(key, src, dst)
    strange = key[slot] == EMPTY and key[slot_of(key, dst, src)] == EMPTY
    if key[slot] == EMPTY:
        key[slot] = (src << 32) | dst
        met[slot, :] = 0
        count[slot] = 0
        size[0] += 1
    write_code(src, codes[0])
    write_code(dst, codes[1])
    event = splitmix64(splitmix64(key[slot]) ^ np.uint64(count[slot]))  # no two events of a stream share it
    extend_walks(state, src, dst, now, rate, codes, event)
    decay_acts(state, src, now, fine)
    decay_acts(state, dst, now, fine)
    for r in range(len(fine)):
        acts[src, 0, r] += 1
        acts[dst, 1, r] += 1
        if strange:
            acts[src, 2, r] += 1
            acts[dst, 3, r] += 1
        met[slot, r] = met[slot, r] * np.float32(np.exp(-fine[r] * (now - met_last[slot]))) + 1
    count[slot] += 1
    met_last[slot] = now


@compiled
def observe(state: Any, src: Ints, dst: Ints, time: Floats, rate: Floats, fine: Floats) -> None:
    """Fold events in, in their order. The table must have room (see `with_room`)."""
    codes = np.empty((2, state[0].shape[2]), np.float32)
    for e in range(len(src)):
        add(state, src[e], dst[e], time[e], rate, fine, codes)


@compiled
def rehash(key: Ints, met: Singles, count: Singles, met_last: Floats, table: Any) -> None:
    """Enter every pair into an empty, larger table."""
    for old in range(len(key)):
        if key[old] != EMPTY:
            new = slot_of(table[0], key[old] >> 32, key[old] & 0xFFFFFFFF)
            table[0][new], table[1][new], table[2][new], table[3][new] = (
                key[old],
                met[old],
                count[old],
                met_last[old],
            )


def empty_table(slots: int, rates: int) -> tuple[NDArray[Any], ...]:
    """(key, met, count, met_last) with room for slots / 2 pairs; `slots` is a power of two."""
    met, count = np.zeros((slots, rates), np.float32), np.zeros(slots, np.float32)
    return np.full(slots, EMPTY), met, count, np.zeros(slots)


def with_room(state: tuple[NDArray[Any], ...], more: int) -> tuple[NDArray[Any], ...]:
    """The state, its table enlarged if `more` further pairs would fill it by more than half."""
    key, met, count, met_last, size, clock = state[KEY:]
    slots = len(key)
    while 2 * (int(size[0]) + more) > slots:
        slots *= 2
    if slots == len(key):
        return state
    table = empty_table(slots, met.shape[1])
    rehash(key, met, count, met_last, table)
    return (*state[:KEY], *table, size, clock)
