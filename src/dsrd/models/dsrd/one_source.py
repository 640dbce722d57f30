"""Reads of one source with many targets at one time, compiled: what belongs to the source alone is read once.

The plain form is `walk_queries.read`, pair by pair. Here

* the source, and each distinct partner in its window, are loaded once for all targets (`Loaded`);
* a node in the windows of several targets is read with the source once (`Asked.place`);
* windows of targets are looked up once.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dsrd.compiled import compiled, inlined, row_function
from dsrd.history.index import Index, Ints
from dsrd.models.dsrd.bfloat16 import widened_row
from dsrd.models.dsrd.clock import read_clock
from dsrd.models.dsrd.overlay import copied_row
from dsrd.models.dsrd.walk_queries import (
    BACK,
    COUNTS,
    EVENTS,
    FOLLOWS,
    FORTH,
    PRODUCTS,
    Endpoint,
    Pending,
    View,
    add_pending,
    copy_values,
    empty_endpoint,
    load,
    node_width,
    read_counts,
    state_row,
)
from dsrd.models.dsrd.walk_state import RECEIVED, SENT, Decay, NodeRows, Singles, faded, write_code
from dsrd.models.dsrd.windows import (
    EVENTS_AT_TIME,
    IN_OTHER_WINDOW,
    IN_OTHER_WINDOW_AT_TIME,
    IN_THIS_WINDOW,
    IS_OTHER,
    OUTGOING,
    RANK,
    Windows,
    empty_windows,
    fill_window,
)

Places = NDArray[np.int32]


class Asked(NamedTuple):
    """One source, many targets, one time."""

    source: int
    time: float
    targets: Ints  # [C]
    place: Places  # [2, N] work space, -1 before and after a call: where a node is among the distinct partners of
    # the source, and among those of the targets


class Loaded(NamedTuple):
    """Nodes loaded once: the source, then the distinct partners in its window."""

    node: Ints  # [1 + k]
    code: Singles  # [1 + k, width]
    one: Singles  # [1 + k, rates, width]: S1 at the node's last event
    two: Singles  # [1 + k, rates, width]: S2 at its last event
    kept: Singles  # [1 + k, rates]: the factor by which S1 has decayed since
    events: Singles  # [1 + k, fine]: decayed number of the node's events


class First(NamedTuple):
    """One loaded node."""

    node: int
    code: Singles  # [width]
    one: Singles  # [rates, width]
    two: Singles  # [rates, width]
    kept: Singles  # [rates]
    events: Singles  # [fine]


class ManyReading(NamedTuple):
    """What state and windows say about a source and its targets. Ages and counts are not scaled."""

    source_node: Singles  # [node]
    source_age: Singles  # [k]
    source_event: Ints  # [k]: 0 where the window has fewer than k events
    source_place: Places  # [k]: which distinct partner an event of the source's window is with
    node: Singles  # [C, node]
    age: Singles  # [C, k]
    event: Ints  # [C, k]
    place: Places  # [C, k]: which of `met` an event of a target's window is with
    size: Ints  # [C]: events in a target's window
    counts: Singles  # [2, C, k, WINDOW]: of the source's window, of the target's
    loaded: Singles  # [1 + k, C, pair]: of the source, then of each of its distinct partners, and the target
    met: Singles  # [C k, pair]: of each distinct partner of any target and the source


@row_function
def dot(one: Singles, other: Singles) -> np.float32:
    total = np.float32(0)
    for i in range(len(one)):
        total += one[i] * other[i]
    return total


@row_function
def write_six(code: Singles, one: Singles, two: Singles, second: Endpoint, r: int, out: Singles) -> None:
    """`walk_queries.products` of the first node's rows at one rate, not decayed."""
    other_code, other_one, other_two = second.code, second.one[r], second.two[r]
    zero = np.float32(0)
    a, b, c, d, e, f = zero, zero, zero, zero, zero, zero
    for n in range(len(code)):
        a += code[n] * other_two[n]
        b += two[n] * other_code[n]
        c += one[n] * other_one[n]
        d += one[n] * other_two[n]
        e += two[n] * other_one[n]
        f += two[n] * other_two[n]
    out[0], out[1], out[2], out[3], out[4], out[5] = a, b, c, d, e, f


@inlined
def write_products(first: First, r: int, second: Endpoint, room: Singles, out: Singles) -> None:
    """`walk_queries.read_walks` at one rate. Rows of what has faded to nothing are not read."""
    kept, other_kept = first.kept[r], second.kept[r]
    if kept > 0 and other_kept > 0:
        one, two = widened_row(first.one[r], room[0]), widened_row(first.two[r], room[1])
        write_six(first.code, one, two, second, r, out)
        out[0] *= other_kept * other_kept
        out[1] *= kept * kept
        out[2] *= kept * other_kept
        out[3] *= kept * other_kept * other_kept
        out[4] *= kept * kept * other_kept
        out[5] *= kept * kept * other_kept * other_kept
        return
    for i in range(PRODUCTS):
        out[i] = 0
    if other_kept > 0:
        out[0] = dot(first.code, second.two[r]) * (other_kept * other_kept)
    if kept > 0:
        out[1] = dot(widened_row(first.two[r], room[1]), second.code) * (kept * kept)


@inlined
def read_first(view: View, first: First, ends: tuple[int, Endpoint], now: float, out: Singles) -> None:
    """`walk_queries.read_pair` of a first node and a second one, given as its id and what was loaded of it."""
    other_node, other = ends
    for r in range(len(view.decay.rate)):
        write_products(first, r, other, other.room, out[PRODUCTS * r :])
    at, fine, new, known = PRODUCTS * len(view.decay.rate), view.decay.fine, view.overlay, view.state
    end, node = at + COUNTS * len(fine), first.node
    for r in range(len(fine)):
        out[at + COUNTS * r + EVENTS] = first.events[r]
    out[end] = read_counts(new.pairs, known.pairs, (node, other_node), now, fine, out[at + FORTH :])
    out[end + 1] = read_counts(new.pairs, known.pairs, (other_node, node), now, fine, out[at + BACK :])
    read_counts(new.follows, known.follows, (node, other_node), now, fine, out[at + FOLLOWS :])


@inlined
def read_row(
    view: View,
    nodes: NodeRows,
    first: tuple[int, int],
    ends: tuple[int, Endpoint, Singles],
    now: float,
    out: Singles,
) -> None:
    """`read_first` of a node that is not loaded, given as its id and its row."""
    node, row = first
    _, other, events = ends
    age = now - nodes.last[row]
    write_code(node, other.first_code)
    for r in range(len(view.decay.rate)):
        other.first_kept[r] = faded(view.decay.rate[r], age)
    for r in range(len(view.decay.fine)):
        events[r] = (nodes.acts[row, SENT, r] + nodes.acts[row, RECEIVED, r]) * faded(view.decay.fine[r], age)
    known = First(node, other.first_code, nodes.step1[row], nodes.step2[row], other.first_kept, events)
    read_first(view, known, (ends[0], other), now, out)


@inlined
def read_met(view: View, node: int, ends: tuple[int, Endpoint, Singles], now: float, out: Singles) -> None:
    row = copied_row(view.copied, node)
    nodes = view.overlay.nodes if row >= 0 else view.state.nodes
    read_row(view, nodes, (node, row if row >= 0 else state_row(nodes, node)), ends, now, out)


@inlined
def read_loaded(view: View, loaded: Loaded, i: int, ends: tuple[int, Endpoint], now: float, out: Singles) -> None:
    """`read_first` of node number i."""
    first = First(loaded.node[i], loaded.code[i], loaded.one[i], loaded.two[i], loaded.kept[i], loaded.events[i])
    read_first(view, first, ends, now, out)


@compiled
def empty_loaded(count: int, decay: Decay, width: int) -> Loaded:
    walks = np.empty((2, count, len(decay.rate), width), np.float32)
    return Loaded(
        np.empty(count, np.int64),
        np.empty((count, width), np.float32),
        walks[0],
        walks[1],
        np.empty((count, len(decay.rate)), np.float32),
        np.empty((count, len(decay.fine)), np.float32),
    )


@compiled
def load_node(view: View, node: int, now: float, room: Endpoint, loaded: Loaded, i: int) -> Singles:
    """Load a node as number i; returns what the state says about it alone.  # [node_width]"""
    rates, fine = len(view.decay.rate), len(view.decay.fine)
    known = np.empty(node_width_of(rates, fine), np.float32)
    load(view, node, now, room, known)
    loaded.node[i] = node
    loaded.code[i], loaded.one[i], loaded.two[i], loaded.kept[i] = room.code, room.one, room.two, room.kept
    acts = known[2 * rates :].reshape(fine, -1)
    loaded.events[i] = acts[:, SENT] + acts[:, RECEIVED]
    return known


node_width_of = compiled(node_width)


@inlined
def find_partners(window: Windows, side: int, place: Places, place_of: Places, found: tuple[Ints, int]) -> int:
    """Number the distinct partners in a window, those found before included; how many there are then.

    `place_of` says for each event of the window where its partner is.
    """
    nodes, count = found
    for j in range(window.size[side]):
        node = window.partner[side, j]
        if place[node] < 0:
            place[node], nodes[count] = count, node
            count += 1
        place_of[j] = place[node]
    return count


@inlined
def write_window(windows: Windows, side: int, time: float, age: Singles, event: Ints) -> None:
    """Ages and events of a window.  # [k] each"""
    for j in range(len(age)):
        inside = j < windows.size[side]
        age[j] = time - windows.time[side, j] if inside else 0
        event[j] = windows.event[side, j] if inside else 0


@compiled
def forget_places(place: Places, nodes: Ints) -> None:
    for node in nodes:
        place[node] = -1


@inlined
def count_alone(window: Windows, side: int, place_of: Places, tally: Ints, counts: Singles) -> None:
    """`windows.compare` of a window with itself: what it says whatever the other window is.  # [k, WINDOW]

    `place_of` numbers the partners; `tally` is work space of zeros. Equal times are next to each other.
    """
    size, first = window.size[side], 0
    for j in range(size):
        tally[place_of[j]] += 1
    for j in range(size):
        if window.time[side, j] != window.time[side, first]:
            for i in range(first, j):
                counts[i, EVENTS_AT_TIME] = j - first
            first = j
        counts[j, IS_OTHER] = counts[j, IN_OTHER_WINDOW] = counts[j, IN_OTHER_WINDOW_AT_TIME] = 0
        counts[j, IN_THIS_WINDOW] = tally[place_of[j]]
        counts[j, RANK] = j / counts.shape[0]
        counts[j, OUTGOING] = window.outgoing[side, j]
    for i in range(first, size):
        counts[i, EVENTS_AT_TIME] = size - first
    for j in range(size):
        tally[place_of[j]] = 0
    for j in range(size, len(counts)):
        for i in range(counts.shape[1]):
            counts[j, i] = 0


@inlined
def count_across(windows: Windows, asked: Asked, target: int, mine: Singles, theirs: Singles) -> None:
    """Add the counts that depend on both windows to those of the source's and the target's.  # [k, WINDOW]"""
    for i in range(windows.size[0]):
        mine[i, IS_OTHER] = windows.partner[0, i] == target
    for j in range(windows.size[1]):
        partner = windows.partner[1, j]
        theirs[j, IS_OTHER] = partner == asked.source
        if asked.place[0, partner] < 0:
            continue
        for i in range(windows.size[0]):
            if windows.partner[0, i] == partner:
                mine[i, IN_OTHER_WINDOW] += 1
                theirs[j, IN_OTHER_WINDOW] += 1
                if windows.time[0, i] == windows.time[1, j]:
                    mine[i, IN_OTHER_WINDOW_AT_TIME] += 1
                    theirs[j, IN_OTHER_WINDOW_AT_TIME] += 1


class Room(NamedTuple):
    """What reading targets one after the other keeps."""

    windows: Windows  # of the source, filled; of the target
    nodes: Ints  # [C k]: the distinct nodes in the targets' windows so far
    tally: Ints  # zeros
    counts: Singles  # [k, WINDOW]: `count_alone` of the source
    loaded: Loaded
    target: Endpoint


@inlined
def read_target(
    view: View, index: Index, asked: Asked, at: tuple[int, int, float], room: Room, out: ManyReading
) -> int:
    """Read target number c, given the distinct nodes so far; how many there are then."""
    c, met, now = at
    target, windows = asked.targets[c], room.windows
    fill_window(index, target, asked.time, 1, windows)
    write_window(windows, 1, asked.time, out.age[c], out.event[c])
    out.size[c] = windows.size[1]
    met = find_partners(windows, 1, asked.place[1], out.place[c], (room.nodes, met))
    for j in range(len(room.counts)):
        copy_values(room.counts[j], out.counts[0, c, j])
    count_alone(windows, 1, out.place[c], room.tally, out.counts[1, c])
    count_across(windows, asked, target, out.counts[0, c], out.counts[1, c])
    load(view, target, now, room.target, out.node[c])
    for i in range(len(room.loaded.node)):
        read_loaded(view, room.loaded, i, (target, room.target), now, out.loaded[i, c])
    return met


@compiled
def read_many(view: View, pending: Pending, index: Index, asked: Asked, out: ManyReading) -> tuple[int, int, int]:
    """Read the source with every target.

    Returns the number of events in the source's window, of its distinct partners, and of rows of `met`.
    """
    k, width, time = out.age.shape[1], view.state.nodes.step1.shape[2], asked.time
    windows, nodes = empty_windows(k), np.empty(k, np.int64)
    room, codes = empty_endpoint(len(view.decay.rate), width)
    add_pending(view, pending, 0, time, codes)
    now = read_clock(view.overlay.clock, time, view.whole_moments)
    fill_window(index, asked.source, time, 0, windows)
    write_window(windows, 0, time, out.source_age, out.source_event)
    partners = find_partners(windows, 0, asked.place[0], out.source_place, (nodes, 0))
    loaded = empty_loaded(1 + partners, view.decay, width)
    for i in range(partners):
        load_node(view, nodes[i], now, room, loaded, 1 + i)
    out.source_node[:] = load_node(view, asked.source, now, room, loaded, 0)
    met = read_targets(view, index, asked, loaded, windows, out)
    forget_places(asked.place[0], nodes[:partners])
    return windows.size[0], partners, met


@compiled
def read_targets(
    view: View, index: Index, asked: Asked, loaded: Loaded, windows: Windows, out: ManyReading
) -> int:
    """Everything that depends on the targets; the number of distinct nodes in their windows."""
    nodes, met = np.empty(len(out.met), np.int64), 0
    other, _ = empty_endpoint(len(view.decay.rate), view.state.nodes.step1.shape[2])
    now = read_clock(view.overlay.clock, asked.time, view.whole_moments)
    tally, mine = np.zeros(len(out.met) + 1, np.int64), np.empty_like(out.counts[0, 0])
    count_alone(windows, 0, out.source_place, tally, mine)
    room = Room(windows, nodes, tally, mine, loaded, other)
    for c in range(len(asked.targets)):
        met = read_target(view, index, asked, (c, met, now), room, out)
    forget_places(asked.place[1], nodes[:met])
    reload(loaded, other)
    events = np.empty(len(view.decay.fine), np.float32)
    for i in range(met):
        read_met(view, nodes[i], (asked.source, other, events), now, out.met[i])
    return met


@inlined
def reload(loaded: Loaded, endpoint: Endpoint) -> None:
    """The source as an endpoint."""
    copy_values(loaded.code[0], endpoint.code)
    copy_values(loaded.kept[0], endpoint.kept)
    for r in range(len(endpoint.one)):
        copy_values(loaded.one[0, r], endpoint.one[r])
        copy_values(loaded.two[0, r], endpoint.two[r])
