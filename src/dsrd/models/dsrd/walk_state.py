"""The walk state, compiled: sums of node codes along walks of one and two steps, at several decay rates.

Every node i has a code r_i, a row of random signs computed from its id. A code costs no storage, and a node that
was never seen has one too. For each decay rate a node u keeps

    S1_u = sum over its events  exp(-rate age)   r_partner          walks of one step
    S2_u = sum over its events  exp(-2 rate age) S1_partner         walks of two steps, the earlier step first

The product of v's code with S1_u estimates how often u met v. Its product with S2_u estimates how often u met
nodes that had met v. Both are exact up to the noise of the codes. Meetings of one step are also counted exactly,
in a hash table of directed pairs. So are the events that each node sent and received, in total and with partners
it had never met before, and successions: how often v came right after w in the events of some node (`follows`),
which is what a session, a course or a reply looks like. Exact counts decay at a set of rates of their own.

Ages are readings of `clock`. `walk_queries` reads the state.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba.extending import overload
from numpy.typing import NDArray

from dsrd.compiled import compiled, inlined
from dsrd.events import NULL
from dsrd.hashing import splitmix64
from dsrd.history.index import Floats, Ints
from dsrd.history.pair_table import EMPTY, slot_of
from dsrd.models.dsrd.bfloat16 import narrowed, widened
from dsrd.models.dsrd.clock import Clock, advance_clock
from dsrd.models.dsrd.prefetch import ask_event
from dsrd.models.dsrd.walk_rows import INLINED, ROOM, extend_packed, faded

Singles = NDArray[np.float32]
Halves = NDArray[np.int16]  # bfloat16 as integers, see `bfloat16`
Bytes = NDArray[np.int8]  # see `walk_rows`

SENT, RECEIVED, SENT_TO_STRANGER, RECEIVED_FROM_STRANGER = range(4)
ACT_KINDS = 4
SIGNS = (2.0 * ((np.arange(256)[:, None] >> np.arange(8)) & 1) - 1).astype(np.float32)  # of the bits of a byte


class NodeRows(NamedTuple):
    """What is kept per node. Decayed values are those at the node's last event."""

    step1: Singles | Halves | Bytes  # [N, rates, width]: S1; or packed, [N, ...], see `walk_rows`
    step2: Singles | Halves | Bytes  # likewise: S2
    acts: Singles  # [N, ACT_KINDS, fine]: decayed counts of events, by kind
    last: Floats  # [N]: clock reading of the node's last event
    previous: Ints  # [N]: partner in the node's last event, NULL before the first one


class PairRows(NamedTuple):
    """What is kept per directed pair: a hash table with a power of two of slots, probed by `slot_of`."""

    key: Ints  # [P]: (source << 32) | target, or EMPTY
    met: Singles  # [P, fine]: decayed count of events, at the pair's last event
    meetings: Singles  # [P]: count of events
    met_last: Floats  # [P]: clock reading of the pair's last event
    size: Ints  # [1]: pairs in the table


class WalkState(NamedTuple):
    nodes: NodeRows
    pairs: PairRows  # meetings of source and target
    follows: PairRows  # (w, v): v came right after w among the partners of some node
    clock: Clock  # [3]


class Decay(NamedTuple):
    """Decay rates per event of the stream, and how wide walks are at each."""

    rate: Floats  # [rates]: of walks
    fine: Floats  # [fine]: of exact counts
    columns: Ints  # [rates]: numbers kept of walks; fewer than the first only in packed rows
    gain: Singles  # [rates]: sqrt(width / columns), by which signs of a code grow where fewer of them are used


class Arrivals(NamedTuple):
    """Events to add to a state, in time order, and the rows of their nodes in it."""

    src: Ints  # [E]
    dst: Ints  # [E]
    time: Floats  # [E]
    src_row: Ints  # [E]
    dst_row: Ints  # [E]


class Meeting(NamedTuple):
    """One event, ready to be added: where its two rows and its pair are."""

    src_row: int
    dst_row: int
    slot: int
    follow: tuple[int, int]  # slots in `follows`: the target after the source's previous partner, and vice versa
    now: float  # clock reading at its time
    strangers: bool  # whether its nodes had never met in either direction


@inlined
def write_code(node: int, out: Singles) -> None:
    """The node's random signs, scaled to length 1."""
    scale, word = np.float32(1.0 / np.sqrt(len(out))), np.uint64(0)
    for start in range(0, len(out), 8):
        if start % 64 == 0:
            word = splitmix64(splitmix64(np.uint64(node)) ^ np.uint64(start))
        byte = np.int64(word & np.uint64(255))
        word = word >> np.uint64(8)
        if len(out) - start >= 8:
            for i in range(8):  # of a fixed length: one instruction
                out[start + i] = scale * SIGNS[byte, i]
        else:
            for i in range(len(out) - start):
                out[start + i] = scale * SIGNS[byte, i]


@inlined
def extend_walks(nodes: NodeRows, event: Meeting, rate: Floats, codes: Singles, bits: np.uint64) -> None:
    """Decay the walk rows of both nodes to now; then add the partner's code to S1 and the partner's S1 to S2.

    In bfloat16 each value is rounded once, up or down at random. `bits` identify the event, so the same event is
    always rounded in the same way.
    """
    step1, step2, last, src, dst = nodes.step1, nodes.step2, nodes.last, event.src_row, event.dst_row
    width = step1.shape[2]
    for r in range(len(rate)):
        src_kept = faded(rate[r], event.now - last[src])
        dst_kept = faded(rate[r], event.now - last[dst])
        for i in range(width):
            random = splitmix64(bits + np.uint64(r * width + i))
            src_one, src_two = (
                widened(step1[src, r, i]) * src_kept,
                widened(step2[src, r, i]) * (src_kept * src_kept),
            )
            dst_one = widened(step1[dst, r, i]) * dst_kept
            dst_two = widened(step2[dst, r, i]) * (dst_kept * dst_kept)
            step1[src, r, i] = narrowed(src_one + codes[1, i], random, step1[src, r, i])
            step2[src, r, i] = narrowed(src_two + dst_one, random >> np.uint64(16), step2[src, r, i])
            if src != dst:
                step1[dst, r, i] = narrowed(dst_one + codes[0, i], random >> np.uint64(32), step1[dst, r, i])
                step2[dst, r, i] = narrowed(dst_two + src_one, random >> np.uint64(48), step2[dst, r, i])


def extend(nodes: NodeRows, event: Meeting, decay: Decay, codes: Singles, bits: np.uint64) -> None:
    """`extend_walks`, or for packed rows `extend_packed`."""
    if nodes.step1.ndim == 3:
        extend_walks(nodes, event, decay.rate, codes, bits)
    else:
        extend_packed(nodes, event, decay, codes, bits)


@overload(extend, strict=False, jit_options=INLINED)
def _extend(nodes: Any, event: Any, decay: Any, codes: Any, bits: Any) -> Any:
    if nodes.types[nodes.fields.index("step1")].ndim == 3:
        return lambda nodes, event, decay, codes, bits: extend_walks(nodes, event, decay.rate, codes, bits)
    return lambda nodes, event, decay, codes, bits: extend_packed(nodes, event, decay, codes, bits)


@inlined
def decay_acts(nodes: NodeRows, row: int, now: float, fine: Floats) -> None:
    """Decay a node's counts to now. Comes after `extend_walks`: it moves the reading that decays start from."""
    for r in range(len(fine)):
        kept = faded(fine[r], now - nodes.last[row])
        for kind in range(ACT_KINDS):
            nodes.acts[row, kind, r] *= kept
    nodes.last[row] = now


@inlined
def add(state: WalkState, event: Meeting, decay: Decay, codes: Singles) -> None:
    """Add one event; `codes` hold those of its source and its target, then work space."""
    nodes, pairs, slot = state.nodes, state.pairs, event.slot
    bits = splitmix64(splitmix64(pairs.key[slot]) ^ np.uint64(pairs.meetings[slot]))  # unique in the stream
    extend(nodes, event, decay, codes, bits)
    decay_acts(nodes, event.src_row, event.now, decay.fine)
    decay_acts(nodes, event.dst_row, event.now, decay.fine)
    for r in range(len(decay.fine)):
        nodes.acts[event.src_row, SENT, r] += 1
        nodes.acts[event.dst_row, RECEIVED, r] += 1
        if event.strangers:
            nodes.acts[event.src_row, SENT_TO_STRANGER, r] += 1
            nodes.acts[event.dst_row, RECEIVED_FROM_STRANGER, r] += 1
    count(pairs, slot, event.now, decay.fine)
    for end in range(2):
        if event.follow[end] >= 0:
            count(state.follows, event.follow[end], event.now, decay.fine)


@inlined
def count(pairs: PairRows, slot: int, now: float, fine: Floats) -> None:
    """Count one event of the pair in this slot."""
    for r in range(len(fine)):
        kept = faded(fine[r], now - pairs.met_last[slot])
        pairs.met[slot, r] = pairs.met[slot, r] * kept + 1
    pairs.meetings[slot] += 1
    pairs.met_last[slot] = now


@inlined
def in_table(pairs: PairRows, src: int, dst: int) -> bool:
    return bool(pairs.key[slot_of(pairs.key, src, dst)] != EMPTY)


@inlined
def entered(pairs: PairRows, src: int, dst: int) -> int:
    """The pair's slot; a new pair gets one, with counts of 0. The table must have room (see `with_room`)."""
    slot = slot_of(pairs.key, src, dst)
    if pairs.key[slot] == EMPTY:
        pairs.key[slot] = (src << 32) | dst
        pairs.met[slot, :] = 0
        pairs.meetings[slot] = 0
        pairs.size[0] += 1
    return slot


@compiled
def observe(state: WalkState, events: Arrivals, decay: Decay) -> None:
    """Add events in their order."""
    codes = np.empty((2 + ROOM, decay.columns[0]), np.float32)
    for e in range(len(events.src)):
        ask_event(state, events, e + 1)
        src, dst = events.src[e], events.dst[e]
        now = advance_clock(state.clock, events.time[e])
        strangers = not in_table(state.pairs, src, dst) and not in_table(state.pairs, dst, src)
        slot = entered(state.pairs, src, dst)
        src_row, dst_row = events.src_row[e], events.dst_row[e]
        after_src, after_dst = state.nodes.previous[src_row], state.nodes.previous[dst_row]
        follow_src = entered(state.follows, after_src, dst) if after_src != NULL else -1
        follow_dst = entered(state.follows, after_dst, src) if after_dst != NULL and src != dst else -1
        write_code(src, codes[0])
        write_code(dst, codes[1])
        add(state, Meeting(src_row, dst_row, slot, (follow_src, follow_dst), now, strangers), decay, codes)
        state.nodes.previous[src_row], state.nodes.previous[dst_row] = dst, src


@inlined
def copy_pair(old: PairRows, old_slot: int, new: PairRows, new_slot: int) -> None:
    """Copy a pair's counts from one table to another."""
    for r in range(old.met.shape[1]):
        new.met[new_slot, r] = old.met[old_slot, r]
    new.meetings[new_slot] = old.meetings[old_slot]
    new.met_last[new_slot] = old.met_last[old_slot]


@compiled
def rehash(old: PairRows, new: PairRows) -> None:
    """Enter every pair of a table into an empty, larger one."""
    for slot in range(len(old.key)):
        if old.key[slot] != EMPTY:
            new_slot = entered(new, old.key[slot] >> 32, old.key[slot] & 0xFFFFFFFF)
            copy_pair(old, slot, new, new_slot)


def empty_table(slots: int, fine: int) -> PairRows:
    """A table with room for slots / 2 pairs; `slots` is a power of two."""
    return PairRows(
        key=np.full(slots, EMPTY),
        met=np.zeros((slots, fine), np.float32),
        meetings=np.zeros(slots, np.float32),
        met_last=np.zeros(slots),
        size=np.zeros(1, np.int64),
    )


def with_room(pairs: PairRows, more: int) -> PairRows:
    """The table itself, or a larger copy if `more` new pairs would fill it by more than half."""
    needed, slots = 2 * (int(pairs.size[0]) + more), len(pairs.key)
    if needed <= slots:
        return pairs
    larger = empty_table(max(slots, power_of_two(needed)), pairs.met.shape[1])
    rehash(pairs, larger)
    return larger


def power_of_two(least: int) -> int:
    """The smallest power of two that is at least `least`.

    >>> [power_of_two(least) for least in (0, 1, 2, 3, 1000)]
    [1, 1, 2, 4, 1024]
    """
    return 1 << max(least - 1, 0).bit_length()
