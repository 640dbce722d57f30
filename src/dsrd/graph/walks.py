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

`read` answers questions at time t from the state *and* from events before t that the state has not seen: it folds
them in, answers, and takes them out again. What it leaves behind is bit for bit what it found.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dsrd.compiled import compiled, vectorised
from dsrd.graph.halves import narrowed, singles, widened
from dsrd.graph.kernels import Floats, Ints, history, mixed
from dsrd.graph.meetings import EMPTY, slot_of

Singles = NDArray[np.float32]

ACTS_KEPT = 4  # sent, received, sent to a stranger, received from one
WINDOW = 5  # last columns of a token: four that compare windows, and whether the node was the source
PRODUCTS = 6  # of {r, S1, S2} of one node with those of another, the exactly known ones left out

# A state is a tuple of arrays. Per node: step1 and step2 [N, rates, width] (single or half), acts [N, 4, fine]
# (sent, received, and the same between two who had never met), last [N]. Per directed pair, a hash table: key [P],
# met [P, fine], count [P], met_last [P]; size [1], its pairs. clock [3]: events so far, events before the newest
# timestamp, the newest timestamp. `last` and `met_last` are readings of the clock.
STEP1, STEP2, ACTS, LAST, KEY, MET, COUNT, MET_LAST, SIZE, CLOCK = range(10)


def pair_width(rates: int, fine: int) -> int:
    """Numbers that `read` gives for a pair: products per rate, then exact meetings in both directions."""
    return PRODUCTS * rates + 2 * (fine + 1)


def node_width(rates: int, fine: int) -> int:
    """Numbers that `read` gives for a node: lengths of S1 and S2 per rate, then its acts per fine rate."""
    return 2 * rates + ACTS_KEPT * fine


@compiled
def write_code(node: int, out: Singles) -> None:
    """The node's signs, scaled to length 1."""
    scale = np.float32(1.0 / np.sqrt(len(out)))
    for start in range(0, len(out), 64):
        word = mixed(mixed(np.uint64(node)) ^ np.uint64(start))
        for i in range(start, min(start + 64, len(out))):
            sign = np.int64((word >> np.uint64(i - start)) & np.uint64(1))
            out[i] = scale * np.float32(2 * sign - 1)


@vectorised
def length(row: Singles) -> Any:
    total = np.float32(0)
    for i in range(len(row)):
        total += row[i] * row[i]
    return np.sqrt(total)


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
            chance = mixed(event + np.uint64(r * width + i))
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
    event = mixed(mixed(key[slot]) ^ np.uint64(count[slot]))  # no two events of a stream share it
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
def row_of(state: Any, node: int) -> int:
    """A node without a row reads that of nobody, which is never written."""
    return node if node < len(state[3]) else 0


@compiled
def observe(state: Any, src: Ints, dst: Ints, time: Floats, rate: Floats, fine: Floats) -> None:
    """Fold events in, in their order. The table must have room (see `with_room`)."""
    codes = np.empty((2, state[0].shape[2]), np.float32)
    for e in range(len(src)):
        add(state, src[e], dst[e], time[e], rate, fine, codes)


@compiled
def meetings(state: Any, src: int, dst: int, now: float, rate: Floats, out: Singles) -> None:
    """Exact decayed counts of src -> dst, then the plain count.  # [rates + 1]"""
    key, met, count, met_last = state[4], state[5], state[6], state[7]
    slot = slot_of(key, src, dst)
    if key[slot] == EMPTY:
        out[:] = 0
        return
    for r in range(len(rate)):
        out[r] = met[slot, r] * np.float32(np.exp(-rate[r] * (now - met_last[slot])))
    out[len(rate)] = count[slot]


@vectorised
def products(one: Singles, two: Singles, other_one: Singles, other_two: Singles, codes: Singles, out: Any) -> None:
    """r_i S2_j, S2_i r_j, S1_i S1_j, S1_i S2_j, S2_i S1_j, S2_i S2_j at one rate, in one pass."""
    zero = np.float32(0)
    a, b, c, d, e, f = zero, zero, zero, zero, zero, zero
    for n in range(len(one)):
        a += codes[0, n] * other_two[n]
        b += two[n] * codes[1, n]
        c += one[n] * other_one[n]
        d += one[n] * other_two[n]
        e += two[n] * other_one[n]
        f += two[n] * other_two[n]
    out[0], out[1], out[2], out[3], out[4], out[5] = a, b, c, d, e, f


@compiled
def read_pair(
    state: Any,
    a: int,
    b: int,
    now: float,
    rate: Floats,
    fine: Floats,
    codes: Singles,
    kept: Singles,
    out: Singles,
) -> None:
    """Products of a's and b's walks, and their meetings.  # [pair_width]

    `codes[1]` is b's code and `kept[r]` what b's row has decayed to: both serve many a. `codes[2:]` is room to
    widen rows in.
    """
    last = state[3]
    i, j = row_of(state, a), row_of(state, b)
    write_code(a, codes[0])
    for r in range(len(rate)):
        mine, other = np.float32(np.exp(-rate[r] * (now - last[i]))), kept[r]
        at = PRODUCTS * r
        products(
            singles(state[0][i, r], codes[2]),
            singles(state[1][i, r], codes[3]),
            singles(state[0][j, r], codes[4]),
            singles(state[1][j, r], codes[5]),
            codes,
            out[at : at + PRODUCTS],
        )
        out[at] *= other * other
        out[at + 1] *= mine * mine
        out[at + 2] *= mine * other
        out[at + 3] *= mine * other * other
        out[at + 4] *= mine * mine * other
        out[at + 5] *= mine * mine * other * other
    at, width = PRODUCTS * len(rate), len(fine) + 1
    meetings(state, a, b, now, fine, out[at : at + width])
    meetings(state, b, a, now, fine, out[at + width : at + 2 * width])


@compiled
def read_node(state: Any, node: int, now: float, kept: Singles, fine: Floats, room: Singles, out: Singles) -> None:
    """How long the node's walk vectors are, and how much it sent and received lately.  # [node_width]"""
    step1, step2, acts = state[0], state[1], state[2]
    for r in range(len(kept)):
        k = kept[r]
        out[2 * r] = length(singles(step1[node, r], room)) * k
        out[2 * r + 1] = length(singles(step2[node, r], room)) * k * k
    at = 2 * len(kept)
    for r in range(len(fine)):
        k = np.float32(np.exp(-fine[r] * (now - state[3][node])))
        for kind in range(ACTS_KEPT):
            out[at + ACTS_KEPT * r + kind] = acts[node, kind, r] * k


@compiled
def compare(partner: Ints, count: Ints, other: int, side: int, token: Singles) -> None:
    """Columns that compare windows: is it the other endpoint; how often in this window; in the other's; rank."""
    for j in range(count[side]):
        same = across = 0
        for i in range(count[side]):
            same += partner[side, i] == partner[side, j]
        for i in range(count[1 - side]):
            across += partner[1 - side, i] == partner[side, j]
        token[j, -WINDOW] = partner[side, j] == other
        token[j, 1 - WINDOW] = same
        token[j, 2 - WINDOW] = across
        token[j, 3 - WINDOW] = j / token.shape[0]


@compiled
def answer(
    state: Any,
    index: Any,
    ends: Ints,
    time: float,
    rate: Floats,
    fine: Floats,
    whole: bool,
    k: int,
    q: int,
    out: Any,
) -> None:
    """Everything the state and the windows say about one pair at one time, from either end."""
    tokens, age, event, pair, node_x = out
    now = read_clock(state[9], time, whole)
    codes = np.empty((6, state[0].shape[2]), np.float32)
    kept = np.empty(len(rate), np.float32)
    partner, count = np.zeros((2, k), np.int64), np.zeros(2, np.int64)
    for side in range(2):
        first, stop = history(index, ends[side], time)
        count[side] = min(k, stop - first)
        for j in range(count[side]):  # newest first
            entry = stop - 1 - j
            partner[side, j] = index[2][entry]
            age[side, q, j] = time - index[4][entry]
            event[side, q, j] = index[3][entry]
            tokens[side, q, j, -1] = index[5][entry]
    for side in range(2):
        other = ends[1 - side]
        write_code(other, codes[1])
        for r in range(len(rate)):
            kept[r] = np.exp(-rate[r] * (now - state[3][row_of(state, other)]))
        read_node(state, row_of(state, other), now, kept, fine, codes[2], node_x[1 - side, q])
        if side == 0:
            read_pair(state, ends[0], other, now, rate, fine, codes, kept, pair[q])
        for j in range(count[side]):
            first = 0
            while partner[side, first] != partner[side, j]:
                first += 1
            if first < j:  # asked already: in a window partners come again and again
                tokens[side, q, j, :-WINDOW] = tokens[side, q, first, :-WINDOW]
            else:
                read_pair(state, partner[side, j], other, now, rate, fine, codes, kept, tokens[side, q, j])
        compare(partner, count, other, side, tokens[side, q])


@compiled
def undo(state: Any, log: Any, count: int) -> None:
    """Take the last `count` events back out of the pair table, newest first, so that probing chains stay whole."""
    slots, met, fresh, when = log
    for e in range(count - 1, -1, -1):
        at = slots[e]
        state[5][at] = met[e]
        state[7][at] = when[e]
        state[6][at] -= 1
        if fresh[e]:
            state[4][at] = EMPTY
            state[8][0] -= 1


@compiled
def read(
    state: Any, index: Any, rate: Floats, fine: Floats, whole: bool, k: int,
    src: Ints, dst: Ints, time: Floats, order: Ints,
    new_src: Ints, new_dst: Ints, new_time: Floats,
    out: Any,
) -> None:  # fmt: skip
    """Answer pairs, in the order of their times, each from the state and the new events strictly before it.

    The caller puts the rows of the new events' nodes back; the pair table and the clock are restored here.
    """
    codes = np.empty((2, state[0].shape[2]), np.float32)
    log = (
        np.empty(len(new_src), np.int64),
        np.empty((len(new_src), len(fine)), np.float32),
        np.empty(len(new_src), np.bool_),
        np.empty(len(new_src), np.float64),
    )
    folded, clock = 0, state[9].copy()
    ends = np.empty(2, np.int64)
    for q in order:
        while folded < len(new_src) and new_time[folded] < time[q]:
            a, b = new_src[folded], new_dst[folded]
            at = slot_of(state[4], a, b)
            log[0][folded], log[1][folded] = at, state[5][at]
            log[2][folded], log[3][folded] = state[4][at] == EMPTY, state[7][at]
            add(state, a, b, new_time[folded], rate, fine, codes)
            folded += 1
        ends[0], ends[1] = src[q], dst[q]
        answer(state, index, ends, time[q], rate, fine, whole, k, q, out)
    undo(state, log, folded)
    state[9][:] = clock


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
