"""What the walk state is asked, compiled: pairs and nodes at their own times, whatever of the stream it has seen.

`read` answers questions at time t from the state *and* from events before t that the state has not seen: it folds
them in, answers, and takes them out again. What it leaves behind is bit for bit what it found.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dsrd.compiled import compiled, inlined, vectorised
from dsrd.history.index import Floats, Ints, history
from dsrd.history.pair_table import EMPTY, slot_of
from dsrd.models.dsrd.bfloat16 import singles
from dsrd.models.dsrd.walk_state import ACTS_KEPT, Singles, add, read_clock, write_code

WINDOW = 7  # last columns of a token: six that compare windows, and whether the node was the source
PRODUCTS = 6  # of {r, S1, S2} of one node with those of another, the exactly known ones left out


def pair_width(rates: int, fine: int) -> int:
    """Numbers that `read` gives for a pair: products per rate, then exact meetings in both directions."""
    return PRODUCTS * rates + 2 * (fine + 1)


def node_width(rates: int, fine: int) -> int:
    """Numbers that `read` gives for a node: lengths of S1 and S2 per rate, then its acts per fine rate."""
    return 2 * rates + ACTS_KEPT * fine


@vectorised
def length(row: Singles) -> Any:
    total = np.float32(0)
    for i in range(len(row)):
        total += row[i] * row[i]
    return np.sqrt(total)


@compiled
def row_of(state: Any, node: int) -> int:
    """A node without a row reads that of nobody, which is never written."""
    return node if node < len(state[3]) else 0


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


@inlined
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
def compare(partner: Ints, moment: Floats, count: Ints, other: int, side: int, token: Singles) -> None:
    """Columns that compare windows: is it the other endpoint; how often in this window; in the other's; there at
    the same moment, as those are who got one letter; how many events of this window are of that moment; rank."""
    for j in range(count[side]):
        same = crowd = across = along = 0
        for i in range(count[side]):
            same += partner[side, i] == partner[side, j]
            crowd += moment[side, i] == moment[side, j]
        for i in range(count[1 - side]):
            if partner[1 - side, i] == partner[side, j]:
                across += 1
                along += moment[1 - side, i] == moment[side, j]
        token[j, -WINDOW] = partner[side, j] == other
        token[j, 1 - WINDOW] = same
        token[j, 2 - WINDOW] = across
        token[j, 3 - WINDOW] = along
        token[j, 4 - WINDOW] = crowd
        token[j, 5 - WINDOW] = j / token.shape[0]


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
    partner, moment, count = np.zeros((2, k), np.int64), np.zeros((2, k)), np.zeros(2, np.int64)
    for side in range(2):
        first, stop = history(index, ends[side], time)
        count[side] = min(k, stop - first)
        for j in range(count[side]):  # newest first
            entry = stop - 1 - j
            partner[side, j] = index[2][entry]
            moment[side, j] = index[4][entry]
            age[side, q, j] = time - moment[side, j]
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
        compare(partner, moment, count, other, side, tokens[side, q])


@compiled
def fresh_log(count: int, fine: int) -> Any:
    """Room to note what new events do to the pair table: the slot, what it held, whether it was empty, when."""
    return (
        np.empty(count, np.int64),
        np.empty((count, fine), np.float32),
        np.empty(count, np.bool_),
        np.empty(count, np.float64),
    )


@compiled
def fold(state: Any, new: Any, log: Any, folded: int, until: float, rate: Floats, fine: Floats, codes: Any) -> Any:
    """Fold in the new events strictly before `until`, of which `folded` are in already; how many are in then."""
    src, dst, time = new
    while folded < len(src) and time[folded] < until:
        at = slot_of(state[4], src[folded], dst[folded])
        log[0][folded], log[1][folded] = at, state[5][at]
        log[2][folded], log[3][folded] = state[4][at] == EMPTY, state[7][at]
        add(state, src[folded], dst[folded], time[folded], rate, fine, codes)
        folded += 1
    return folded


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
    src: Ints, dst: Ints, time: Floats, order: Ints, new: Any, out: Any,
) -> None:  # fmt: skip
    """Answer pairs, in the order of their times, each from the state and the new events strictly before it.

    The caller puts the rows of the new events' nodes back; the pair table and the clock are restored here.
    """
    codes = np.empty((2, state[0].shape[2]), np.float32)
    folded, log, clock = 0, fresh_log(len(new[0]), len(fine)), state[9].copy()
    ends = np.empty(2, np.int64)
    for q in order:
        folded = fold(state, new, log, folded, time[q], rate, fine, codes)
        ends[0], ends[1] = src[q], dst[q]
        answer(state, index, ends, time[q], rate, fine, whole, k, q, out)
    undo(state, log, folded)
    state[9][:] = clock


@compiled
def write_direction(vector: Singles, out: Singles) -> None:
    size = length(vector)
    if size > 0:
        out[:] = vector / size


@compiled
def directions(
    state: Any, rate: Floats, fine: Floats, node: Ints, time: Floats, order: Ints, new: Any, out: Singles
) -> None:
    """Where the slowest walks of each node point, one step and two, as vectors of length 1: 0 without any.

    Whoever meets the same others points the same way, up to the noise of the codes.  # [n, 2, width]
    """
    slowest, width = np.argmin(rate), state[0].shape[2]
    codes, room = np.empty((2, width), np.float32), np.empty(width, np.float32)
    folded, log, clock = 0, fresh_log(len(new[0]), len(fine)), state[9].copy()
    for q in order:
        folded = fold(state, new, log, folded, time[q], rate, fine, codes)
        row = row_of(state, node[q])
        write_direction(singles(state[0][row, slowest], room), out[q, 0])
        write_direction(singles(state[1][row, slowest], room), out[q, 1])
    undo(state, log, folded)
    state[9][:] = clock
