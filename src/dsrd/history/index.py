"""Compiled look-ups in a per-node index of interactions.

The index is a pool of entries sorted by time inside each node's block: node n owns
``start[n] .. start[n] + length[n]``. Every random choice is a hash of (seed, node, time, draw): the same question
has the same answer, whoever else is asked in the same call.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dsrd.compiled import compiled

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


class Index(NamedTuple):
    """Every event under both of its endpoints, in time order inside each node's block."""

    start: Ints  # [N] where the node's block begins
    length: Ints  # [N] entries in the node's block
    node: Ints  # [P] the other endpoint
    event: Ints  # [P] id of the event
    time: Floats  # [P]
    outgoing: Bools  # [P] whether the node itself was the source


NEGLIGIBLE = 40.0
"""exp(-40) is lost in the rounding of a sum of float64: entries that much weaker are never drawn."""
UNCOUNTED = 18.42
"""Decayed counts skip events that weigh less than exp(-18.42), about 1e-8, of the newest one."""


@compiled
def first_not_before(time: Floats, low: int, high: int, at: float) -> int:
    """Where in the sorted time[low:high] the entries at or after `at` begin."""
    while low < high:
        middle = (low + high) // 2
        if time[middle] < at:
            low = middle + 1
        else:
            high = middle
    return low


@compiled
def mixed(value: Any) -> Any:
    """One round of a 64-bit mixing function (splitmix64's finaliser): neighbouring inputs, unrelated outputs."""
    z = (np.uint64(value) + np.uint64(0x9E3779B97F4A7C15)) & np.uint64(0xFFFFFFFFFFFFFFFF)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@compiled
def unit(seed: Any, node: int, time_bits: Any, draw: int) -> float:
    """A number in [0, 1) fixed by its four arguments."""
    h = mixed(mixed(mixed(np.uint64(seed) ^ np.uint64(node)) ^ np.uint64(time_bits)) ^ np.uint64(draw))
    return float(h >> np.uint64(11)) * (1.0 / 9007199254740992.0)


@compiled
def build(src: Ints, dst: Ints, time: Floats, id: Ints, num_nodes: int) -> Index:
    """Index every event under its source and under its target."""
    length = np.zeros(num_nodes, np.int64)
    for e in range(len(src)):
        length[src[e]] += 1
        length[dst[e]] += 1
    start = np.zeros(num_nodes, np.int64)
    for n in range(1, num_nodes):
        start[n] = start[n - 1] + length[n - 1]
    size = 2 * len(src)
    node, event = np.empty(size, np.int64), np.empty(size, np.int64)
    times, outgoing = np.empty(size, np.float64), np.empty(size, np.bool_)
    cursor = start.copy()
    for e in range(len(src)):
        for role in range(2):
            here, there = (src[e], dst[e]) if role == 0 else (dst[e], src[e])
            at = cursor[here]
            node[at], event[at], times[at], outgoing[at] = there, id[e], time[e], role == 0
            cursor[here] += 1
    return Index(start, length, node, event, times, outgoing)


@compiled
def enlarged(array: Any, size: int) -> Any:
    larger = np.empty(size, array.dtype)
    larger[: len(array)] = array
    return larger


@compiled
def append(src: Ints, dst: Ints, when: Floats, id: Ints, index: Index, capacity: Ints, used: int) -> Any:
    """Add events to blocks with room for growth; a full block moves to the pool's end at twice its size."""
    start, length, node, event, time, outgoing = index
    for e in range(len(src)):
        for role in range(2):
            here, there = (src[e], dst[e]) if role == 0 else (dst[e], src[e])
            if length[here] == capacity[here]:
                old, count, room = start[here], length[here], max(4, 2 * length[here])
                if used + room > len(node):
                    size = 2 * (used + room)
                    node, event = enlarged(node, size), enlarged(event, size)
                    time, outgoing = enlarged(time, size), enlarged(outgoing, size)
                for block in (node, event):
                    block[used : used + count] = block[old : old + count]
                time[used : used + count] = time[old : old + count]
                outgoing[used : used + count] = outgoing[old : old + count]
                start[here], capacity[here] = used, room
                used += room
            at = start[here] + length[here]
            node[at], event[at], time[at], outgoing[at] = there, id[e], when[e], role == 0
            length[here] += 1
    return Index(start, length, node, event, time, outgoing), used


@compiled
def history(index: Index, node: int, at: float) -> Any:
    """(first, stop) of a node's entries strictly before a time; a node never met has none."""
    if node >= len(index.start):
        return 0, 0
    first = index.start[node]
    return first, first_not_before(index.time, first, first + index.length[node], at)


@compiled
def degree(index: Index, asked: Ints, at: Floats) -> Ints:
    """How many interactions each node had strictly before each time."""
    count = np.empty(len(asked), np.int64)
    for q in range(len(asked)):
        first, stop = history(index, asked[q], at[q])
        count[q] = stop - first
    return count


@compiled
def last_met(index: Index, src: Ints, dst: Ints, at: Floats) -> Floats:
    """When each source last sent an event to each target, strictly before each time; -inf if it never did.

    Looks back through the history of the endpoint that has fewer earlier events.
    """
    node, time, outgoing = index.node, index.time, index.outgoing
    last = np.full(len(src), -np.inf)
    for q in range(len(src)):
        first, stop = history(index, src[q], at[q])
        from_dst, to_dst = history(index, dst[q], at[q])
        other, role = dst[q], True
        if to_dst - from_dst < stop - first:
            first, stop, other, role = from_dst, to_dst, src[q], False
        for i in range(stop - 1, first - 1, -1):
            if node[i] == other and outgoing[i] == role:
                last[q] = time[i]
                break
    return last


@compiled
def newest_incoming(outgoing: Bools, first: int, stop: int) -> int:
    """The last of the entries first .. stop in which the node was the target; first - 1 if there is none."""
    i = stop - 1
    while i >= first and outgoing[i]:
        i -= 1
    return i


@compiled
def last_as_target(index: Index, asked: Ints, at: Floats) -> Floats:
    """When each node was last a target, strictly before each time; -inf if it never was."""
    time, outgoing = index.time, index.outgoing
    last = np.full(len(asked), -np.inf)
    for q in range(len(asked)):
        first, stop = history(index, asked[q], at[q])
        i = newest_incoming(outgoing, first, stop)
        if i >= first:
            last[q] = time[i]
    return last


@compiled
def log_decayed_in_degree(index: Index, asked: Ints, at: Floats, tau: float) -> Floats:
    """log of the sum of exp(-(at - t_i) / tau) over each node's earlier events as a target; -inf if it has none.

    Summed relative to the newest event, so that a long silence does not underflow to zero.
    """
    time, outgoing = index.time, index.outgoing
    found = np.full(len(asked), -np.inf)
    for q in range(len(asked)):
        first, stop = history(index, asked[q], at[q])
        i = newest_incoming(outgoing, first, stop)
        if i < first:
            continue
        newest, total = time[i], 0.0
        while i >= first and newest - time[i] <= UNCOUNTED * tau:
            if not outgoing[i]:
                total += np.exp((time[i] - newest) / tau)
            i -= 1
        found[q] = np.log(total) - (at[q] - newest) / tau
    return found


@compiled
def recent(index: Index, asked: Ints, at: Floats, k: int) -> Any:
    """The last k entries before each time, right-aligned: (node, event, time, outgoing), zeros where none is.

    Written at once rather than by position as below: this is the look-up that everything waits for.
    """
    node, event, time, outgoing = index.node, index.event, index.time, index.outgoing
    shape = (len(asked), k)
    there, which = np.empty(shape, np.int64), np.empty(shape, np.int64)
    when, out = np.empty(shape, np.float64), np.empty(shape, np.bool_)
    for q in range(len(asked)):
        first, stop = history(index, asked[q], at[q])
        missing = max(0, k - (stop - first))
        for j in range(missing):
            there[q, j], which[q, j], when[q, j], out[q, j] = 0, 0, 0.0, False
        for j in range(missing, k):
            entry = stop - k + j
            there[q, j], which[q, j] = node[entry], event[entry]
            when[q, j], out[q, j] = time[entry], outgoing[entry]
    return there, which, when, out


@compiled
def weigh(time: Floats, first: int, stop: int, rate: float, weights: Floats) -> int:
    """Fill `weights` with the running sum of exp(rate * time) over the entries that count; the first of them.

    Scaled so that the newest entry weighs 1; rate 0 weighs all alike.
    """
    newest = time[stop - 1]
    if rate > 0:
        first = first_not_before(time, first, stop, newest - NEGLIGIBLE / rate)
    total = 0.0
    for i in range(first, stop):
        total += np.exp(rate * (time[i] - newest))
        weights[i - first] = total
    return first


@compiled
def drawn(weights: Floats, count: int, chance: float) -> int:
    """The place of quantile `chance` in `count` running sums of weights."""
    at = first_not_before(weights, 0, count, chance * weights[count - 1])
    return min(at, count - 1)


@compiled
def sampled(index: Index, asked: Ints, at: Floats, bits: Any, k: int, rate: float, seed: Any) -> Ints:
    """k entries before each time, drawn with replacement, oldest first; -1 where there is no history."""
    time = index.time
    weights = np.empty(max(1, index.length.max()), np.float64)
    found = np.full((len(asked), k), -1, np.int64)  # [Q, k]
    for q in range(len(asked)):
        first, stop = history(index, asked[q], at[q])
        if stop == first:
            continue
        if rate > 0:
            first = weigh(time, first, stop, rate, weights)
        for j in range(k):
            chance = unit(seed, asked[q], bits[q], j)
            pick = drawn(weights, stop - first, chance) if rate > 0 else int(chance * (stop - first))
            found[q, j] = first + pick
        found[q].sort()
    return found


@compiled
def walked(
    index: Index, asked: Ints, at: Floats, bits: Any, count: int, length: int, rate: float, seed: Any
) -> Ints:
    """`count` walks of `length` steps from each node, each step strictly before the one it follows."""
    node, time = index.node, index.time
    weights = np.empty(max(1, index.length.max()), np.float64)
    found = np.full((len(asked), count, length), -1, np.int64)  # [Q, count, length]
    for q in range(len(asked)):
        for walk in range(count):
            here, now = asked[q], at[q]
            for step in range(length):
                first, stop = history(index, here, now)
                if stop == first:
                    break
                chance = unit(seed, asked[q], bits[q], walk * length + step)
                if rate > 0:
                    first = weigh(time, first, stop, rate, weights)
                pick = drawn(weights, stop - first, chance) if rate > 0 else int(chance * (stop - first))
                found[q, walk, step] = first + pick
                here, now = node[first + pick], time[first + pick]
    return found


@compiled
def entries(index: Index, position: Ints) -> Any:
    """What the pool holds at each position: (node, event, time, outgoing), zeros at -1."""
    node, event, time, outgoing = index.node, index.event, index.time, index.outgoing
    size = len(position)
    there, which = np.zeros(size, np.int64), np.zeros(size, np.int64)
    when, out = np.zeros(size, np.float64), np.zeros(size, np.bool_)
    for i in range(size):
        p = position[i]
        if p >= 0:
            there[i], which[i], when[i], out[i] = node[p], event[p], time[p], outgoing[p]
    return there, which, when, out
