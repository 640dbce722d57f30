"""Queries of the walk state, compiled: every pair at its own time, from the state and from unobserved events.

`read` takes queries in time order. Before each query it adds the unobserved events strictly before the query's
time to an overlay (`overlay`), a copy of the rows and pairs that these events change. The state itself is read
only.
"""

from __future__ import annotations

from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from dsrd.compiled import compiled, inlined
from dsrd.events import NULL
from dsrd.history.index import Floats, Index, Ints, history
from dsrd.history.pair_table import EMPTY, slot_of
from dsrd.models.dsrd.clock import advance_clock, read_clock
from dsrd.models.dsrd.overlay import CopiedNodes, Queries, Unobserved, copied_row, copied_rows, read_only
from dsrd.models.dsrd.prefetch import ask_node, ask_partner
from dsrd.models.dsrd.walk_products import PRODUCTS, Endpoint, left, length, read_walks
from dsrd.models.dsrd.walk_rows import ROOM, stored_row
from dsrd.models.dsrd.walk_state import (
    ACT_KINDS,
    RECEIVED,
    SENT,
    Arrivals,
    Decay,
    Meeting,
    NodeRows,
    PairRows,
    Singles,
    WalkState,
    add,
    copy_pair,
    empty_table,
    entered,
    in_table,
    power_of_two,
    write_code,
)
from dsrd.models.dsrd.windows import Windows, compare, empty_windows, fill_window

MEETINGS = 2  # exact counts without decay: first node to second, second to first
FORTH, BACK, FOLLOWS, EVENTS = range(4)  # exact decayed counts: the same two, second right after first, of first
COUNTS = 4

T = TypeVar("T")


class View(NamedTuple):
    """The state as a query sees it: a node or pair is looked up in the overlay first, then in the state."""

    state: WalkState  # read only
    overlay: WalkState  # read only; with its own clock, which is the one to read
    copied: CopiedNodes  # nodes with a row in the overlay
    decay: Decay
    whole_moments: bool  # see `clock`


class Pending(NamedTuple):
    """Unobserved events, and the overlay they are added to: the memory of `View.overlay`, to be written."""

    events: Arrivals
    overlay: WalkState


class Reading(NamedTuple, Generic[T]):
    """What state and windows say about pairs, either endpoint first. Ages and counts are not scaled."""

    partner: (
        T  # [1 + U, pair]: each distinct partner of a window with its other endpoint; row 0 is zeros, for none
    )
    which: T  # [T]: the row of each event's partner; events of a window are side by side, the newest first
    counts: T  # [T, WINDOW]
    age: T  # [T]
    event: T  # [T]
    first: T  # [2 Q + 1]: where each window starts, those of the sources before those of the targets
    pair: T  # [Q, pair]
    node: T  # [2, Q, node]


def pair_width(rates: int, fine: int) -> int:
    """Numbers that `read` gives for a pair: products per rate, exact counts per rate, counts without decay."""
    return PRODUCTS * rates + COUNTS * fine + MEETINGS


def node_width(rates: int, fine: int) -> int:
    """Numbers that `read` gives for a node: lengths of S1 and S2 per rate, then counts of its events."""
    return 2 * rates + ACT_KINDS * fine


def view_of(state: WalkState, unobserved: Unobserved, decay: Decay, whole_moments: bool) -> tuple[View, Pending]:
    """The state with an overlay on top that holds no events yet, and the events to add to it."""
    nodes = NodeRows(*(copied_rows(array, unobserved.node) for array in state.nodes))
    slots = power_of_two(4 * len(unobserved.events.src))
    pairs, follows = empty_table(slots, len(decay.fine)), empty_table(2 * slots, len(decay.fine))
    overlay = WalkState(nodes, pairs, follows, state.clock.copy())
    view = View(read_only(state), read_only(overlay), unobserved.copied, decay, whole_moments)
    return view, Pending(unobserved.events, overlay)


# --- Unobserved events -------------------------------------------------------------------------------------------


@inlined
def copied_pair(overlay: PairRows, state: PairRows, src: int, dst: int) -> int:
    """The pair's slot in the overlay; at its first event there, its counts come from the state."""
    first = not in_table(overlay, src, dst)
    slot, known = entered(overlay, src, dst), slot_of(state.key, src, dst)
    if first and state.key[known] != EMPTY:
        copy_pair(state, known, overlay, slot)
    return slot


@inlined
def copied_follow(view: View, pending: Pending, e: int) -> tuple[int, int]:
    """Slots in the overlay for what event e makes follow what (see `Meeting`); -1 at a node's first event."""
    events, previous = pending.events, pending.overlay.nodes.previous
    src, dst, known, new = events.src[e], events.dst[e], view.state.follows, pending.overlay.follows
    after_src, after_dst = previous[events.src_row[e]], previous[events.dst_row[e]]
    follow_src = copied_pair(new, known, after_src, dst) if after_src != NULL else -1
    follow_dst = copied_pair(new, known, after_dst, src) if after_dst != NULL and src != dst else -1
    return follow_src, follow_dst


@inlined
def add_pending(view: View, pending: Pending, added: int, until: float, codes: Singles) -> int:
    """Add the events strictly before `until` to the overlay, the first `added` being in it; how many then are."""
    events, known, new = pending.events, view.state.pairs, pending.overlay.pairs
    while added < len(events.src) and events.time[added] < until:
        src, dst = events.src[added], events.dst[added]
        now = advance_clock(pending.overlay.clock, events.time[added])
        strangers = not in_table(known, src, dst) and not in_table(known, dst, src)
        strangers = strangers and not in_table(new, src, dst) and not in_table(new, dst, src)
        slot = copied_pair(new, known, src, dst)
        src_row, dst_row, follow = (
            events.src_row[added],
            events.dst_row[added],
            copied_follow(view, pending, added),
        )
        write_code(src, codes[0])
        write_code(dst, codes[1])
        add(pending.overlay, Meeting(src_row, dst_row, slot, follow, now, strangers), view.decay, codes)
        pending.overlay.nodes.previous[src_row], pending.overlay.nodes.previous[dst_row] = dst, src
        added += 1
    return added


# --- One node, one pair ------------------------------------------------------------------------------------------


@inlined
def state_row(nodes: NodeRows, node: int) -> int:
    """The node's row in the state; a node without one reads that of NULL, which is never written."""
    return node if node < len(nodes.last) else NULL


@inlined
def copy_values(values: Singles, out: Singles) -> None:
    for i in range(len(values)):
        out[i] = values[i]


@inlined
def write_counts(pairs: PairRows, slot: int, now: float, fine: Floats, out: Singles) -> np.float32:
    """Decayed counts of the pair in this slot, to every `COUNTS`-th entry; returns the count without decay."""
    for r in range(len(fine)):
        out[COUNTS * r] = pairs.met[slot, r] * left(fine[r], now - pairs.met_last[slot])
    return np.float32(pairs.meetings[slot])


@inlined
def read_counts(
    new: PairRows, known: PairRows, nodes: tuple[int, int], now: float, fine: Floats, out: Singles
) -> np.float32:
    """`write_counts` of a pair: from the overlay if it is there, else from the state.  # [COUNTS * fine]"""
    new_slot = slot_of(new.key, nodes[0], nodes[1])
    if new.key[new_slot] != EMPTY:
        return write_counts(new, new_slot, now, fine, out)
    slot = slot_of(known.key, nodes[0], nodes[1])
    if known.key[slot] != EMPTY:
        return write_counts(known, slot, now, fine, out)
    for r in range(len(fine)):
        out[COUNTS * r] = 0
    return np.float32(0)


@inlined
def read_events(nodes: NodeRows, row: int, now: float, decay: Decay, walks_kept: Singles, out: Singles) -> None:
    """Decayed counts of a node's events, sent and received, to every `COUNTS`-th entry.

    `walks_kept` is what is left of its walks at each rate: of the counts too, where both have the same rate.
    """
    for r in range(len(decay.fine)):
        if r < len(decay.rate) and decay.rate[r] == decay.fine[r]:
            kept = walks_kept[r]
        else:
            kept = left(decay.fine[r], now - nodes.last[row])
        out[COUNTS * r] = (nodes.acts[row, SENT, r] + nodes.acts[row, RECEIVED, r]) * kept


@inlined
def read_pair(view: View, node: int, other_node: int, other: Endpoint, now: float, out: Singles) -> None:
    """Products of the two nodes' walks, then exact counts (see `COUNTS`), then `MEETINGS`.  # [pair_width]"""
    write_code(node, other.first_code)
    row, fine, new, known = copied_row(view.copied, node), view.decay.fine, view.overlay, view.state
    at = PRODUCTS * len(view.decay.rate)
    end = at + COUNTS * len(fine)
    if row >= 0:
        read_walks(new.nodes, row, other, now, view.decay, out)
        read_events(new.nodes, row, now, view.decay, other.first_kept, out[at + EVENTS :])
    else:
        known_row = state_row(known.nodes, node)
        read_walks(known.nodes, known_row, other, now, view.decay, out)
        read_events(known.nodes, known_row, now, view.decay, other.first_kept, out[at + EVENTS :])
    out[end] = read_counts(new.pairs, known.pairs, (node, other_node), now, fine, out[at + FORTH :])
    out[end + 1] = read_counts(new.pairs, known.pairs, (other_node, node), now, fine, out[at + BACK :])
    read_counts(new.follows, known.follows, (node, other_node), now, fine, out[at + FOLLOWS :])


@inlined
def read_partners(view: View, windows: Windows, side: int, other: Endpoint, now: float, at: Places) -> int:
    """`read_pair` once for every distinct partner of a window; how many rows are then taken."""
    partner, taken = windows.partner, at.taken
    for j in range(windows.size[side]):
        first = 0
        while partner[side, first] != partner[side, j]:
            first += 1
        if first < j:
            at.which[at.first + j] = at.which[at.first + first]
        else:
            read_pair(view, partner[side, j], at.other_node, other, now, at.rows[taken])
            at.which[at.first + j] = taken
            taken += 1
    return taken


@inlined
def ask_partners(view: View, windows: Windows, side: int, other_node: int) -> None:
    """Begin to fetch what `read_partners` will look up: all at once instead of one after the other."""
    known = view.state
    for j in range(windows.size[side]):
        partner = windows.partner[side, j]
        if j == 0 or partner != windows.partner[side, j - 1]:
            ask_partner(known.pairs, known.follows, partner, other_node)
            ask_node(known.nodes, state_row(known.nodes, partner))


@inlined
def load_rows(nodes: NodeRows, row: int, decay: Decay, now: float, endpoint: Endpoint, out: Singles) -> None:
    """Copy a node's walks; write their lengths, then decayed counts of the node's events.  # [node_width]"""
    rates = len(decay.rate)
    for r in range(rates):
        kept = left(decay.rate[r], now - nodes.last[row])
        endpoint.kept[r] = kept
        if kept == 0:
            out[2 * r] = out[2 * r + 1] = 0
            continue
        copy_values(
            stored_row(nodes.step1[row, r], nodes.step1, row, r, decay.columns, endpoint.room[0]), endpoint.one[r]
        )
        copy_values(
            stored_row(nodes.step2[row, r], nodes.step2, row, r, decay.columns, endpoint.room[0]), endpoint.two[r]
        )
        out[2 * r] = length(endpoint.one[r]) * kept
        out[2 * r + 1] = length(endpoint.two[r]) * kept * kept
    for r in range(len(decay.fine)):
        kept = left(decay.fine[r], now - nodes.last[row])
        for kind in range(ACT_KINDS):
            out[2 * rates + ACT_KINDS * r + kind] = nodes.acts[row, kind, r] * kept


@inlined
def load(view: View, node: int, now: float, endpoint: Endpoint, out: Singles) -> None:
    """Load an endpoint; write what the state says about it alone.  # [node_width]"""
    write_code(node, endpoint.code)
    row = copied_row(view.copied, node)
    if row >= 0:
        load_rows(view.overlay.nodes, row, view.decay, now, endpoint, out)
    else:
        load_rows(view.state.nodes, state_row(view.state.nodes, node), view.decay, now, endpoint, out)


# --- All queries -------------------------------------------------------------------------------------------------


class Places(NamedTuple):
    """Where a window's partners go."""

    rows: Singles  # [1 + U, pair]
    which: Ints  # [T]
    taken: int  # rows in use
    first: int  # of the window's events
    other_node: int


@inlined
def write_windows(windows: Windows, time: float, firsts: tuple[int, int], out: Reading[NDArray[Any]]) -> None:
    for side in range(2):
        for j in range(windows.size[side]):
            out.age[firsts[side] + j] = time - windows.time[side, j]
            out.event[firsts[side] + j] = windows.event[side, j]


@inlined
def answer(
    view: View,
    queries: Queries,
    at: tuple[int, int],
    windows: Windows,
    other: Endpoint,
    out: Reading[NDArray[Any]],
) -> int:
    """Everything that state and windows say about one pair at one time, from either endpoint.

    `at` is the number of the pair, and of the rows of partners in use; how many are then.
    """
    q, taken = at
    now = read_clock(view.overlay.clock, queries.time[q], view.whole_moments)
    firsts = (out.first[q], out.first[len(queries.time) + q])
    write_windows(windows, queries.time[q], firsts, out)
    for side in range(2):
        ask_node(view.state.nodes, state_row(view.state.nodes, queries.ends[side, q]))
        ask_partners(view, windows, side, queries.ends[1 - side, q])
    for side in range(2):
        node, other_node, first = queries.ends[side, q], queries.ends[1 - side, q], firsts[side]
        load(view, other_node, now, other, out.node[1 - side, q])
        if side == 0:
            read_pair(view, node, other_node, other, now, out.pair[q])
        places = Places(out.partner, out.which, taken, first, other_node)
        taken = read_partners(view, windows, side, other, now, places)
        compare(windows, side, other_node, out.counts[first : first + windows.size[side]])
    return taken


@compiled
def empty_endpoint(rates: int, width: int) -> tuple[Endpoint, Singles]:
    """Work space for an endpoint, and for adding an event.  # ..., [2 + ROOM, width]"""
    vectors, walks = np.empty((6 + ROOM, width), np.float32), np.empty((2, rates, width), np.float32)
    kept = np.empty((2, rates), np.float32)
    return Endpoint(vectors[0], walks[0], walks[1], kept[0], vectors[1], kept[1], vectors[2:4]), vectors[4:]


@compiled
def first_events(index: Index, queries: Queries, k: int) -> Ints:
    """Where the windows start of up to k events each, one after the other.  # [2 Q + 1]"""
    count = len(queries.time)
    out = np.zeros(2 * count + 1, np.int64)
    for side in range(2):
        for q in range(count):
            first, stop = history(index, queries.ends[side, q], queries.time[q])
            row = side * count + q
            out[row + 1] = out[row] + min(k, stop - first)
    return out


@compiled
def read(view: View, pending: Pending, index: Index, queries: Queries, k: int, out: Reading[NDArray[Any]]) -> int:
    """Answer pairs in the order of their times, each from the state and the pending events strictly before it.

    Windows hold up to k events. Returns how many rows of `out.partner` are in use.
    """
    windows, added, taken = empty_windows(k), 0, 1
    other, codes = empty_endpoint(len(view.decay.rate), view.decay.columns[0])
    for q in queries.order:
        added = add_pending(view, pending, added, queries.time[q], codes)
        for side in range(2):
            fill_window(index, queries.ends[side, q], queries.time[q], side, windows)
        taken = answer(view, queries, (q, taken), windows, other, out)
    return taken
