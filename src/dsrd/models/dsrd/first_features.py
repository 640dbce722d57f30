"""A few numbers about one source and any number of targets, compiled: what a small head needs to guess the score.

About a microsecond a target: no windows of targets, no layers, and of the targets' walks only S1 at two rates. The
windows of the source enter as sums, because products of walks are linear.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dsrd.compiled import compiled, inlined, vectorised
from dsrd.history.index import Index, Ints
from dsrd.models.dsrd.clock import read_clock
from dsrd.models.dsrd.memory import FADED
from dsrd.models.dsrd.overlay import copied_row
from dsrd.models.dsrd.vector_math import log
from dsrd.models.dsrd.walk_products import Endpoint, product
from dsrd.models.dsrd.walk_queries import (
    COUNTS,
    Pending,
    View,
    add_pending,
    empty_endpoint,
    load,
    read_counts,
    state_row,
)
from dsrd.models.dsrd.walk_rows import faded, stored_row
from dsrd.models.dsrd.walk_state import ACT_KINDS, RECEIVED, SENT, Decay, NodeRows, Singles, write_code
from dsrd.models.dsrd.windows import empty_windows, fill_window

WALK_RATES = 2  # rates of the grid at which walks are read: the slowest, and the one two decades faster
WALKS = 4  # products with walks at each of them
KINDS = 3  # of exact counts: forth, back, follows
LONGEST = np.float32(1e30)  # `log` takes finite numbers


class Asked(NamedTuple):
    """One source, many targets, one time."""

    source: int
    time: float
    targets: Ints  # [C]


class Guess(NamedTuple):
    """What `memory` has learned."""

    uniform: np.float32
    weight: Singles  # [KINDS, fine]
    num_targets: np.float32


class Source(NamedTuple):
    """The source, and sums over the events in its window."""

    node: int
    latest: int  # partner in its latest event
    total: Singles  # [KINDS, fine]: sums over all targets of the counts, as in `Memory`
    one: Singles  # [WALK_RATES, width]: S1 now
    two: Singles  # [WALK_RATES, width]: S2 now
    company: Singles  # [WALK_RATES, width]: mean S1 of its partners now
    rate: tuple[int, int]
    alone: Singles  # [ACT_KINDS * fine + 1]: decayed counts of its events, the time since the last one


@compiled
def feature_width(fine: int) -> int:
    return (ACT_KINDS + KINDS) * fine + WALKS * WALK_RATES + 3


@compiled
def summary_of(view: View, index: Index, asked: Asked, k: int) -> Source:
    """Read the source and its window once."""
    rates, fine, width = len(view.decay.rate), len(view.decay.fine), view.decay.columns[0]
    now = read_clock(view.overlay.clock, asked.time, view.whole_moments)
    windows, (room, _) = empty_windows(k), empty_endpoint(rates, width)
    fill_window(index, asked.source, asked.time, 0, windows)
    chosen = (max(rates - 3, 0), rates - 1)
    walks = np.zeros((3, WALK_RATES, width), np.float32)
    known, total = np.zeros(2 * rates + ACT_KINDS * fine, np.float32), np.zeros((KINDS, fine), np.float32)
    for j in range(windows.size[0]):
        load(view, windows.partner[0, j], now, room, known)
        for i in range(WALK_RATES):
            walks[2, i] += room.one[chosen[i]] * (room.kept[chosen[i]] / np.float32(windows.size[0]))
        if j == 0:
            acts = known[2 * rates :].reshape(fine, ACT_KINDS)
            total[2] = acts[:, SENT] + acts[:, RECEIVED]
    load(view, asked.source, now, room, known)
    acts = known[2 * rates :].reshape(fine, ACT_KINDS)
    total[0], total[1] = acts[:, SENT], acts[:, RECEIVED]
    for i in range(WALK_RATES):
        kept = room.kept[chosen[i]]
        walks[0, i], walks[1, i] = room.one[chosen[i]] * kept, room.two[chosen[i]] * (kept * kept)
    latest = windows.partner[0, 0] if windows.size[0] else 0
    alone = np.empty(ACT_KINDS * fine + 1, np.float32)
    alone[:-1] = known[2 * rates :]
    alone[-1] = now - last_of(view, asked.source)
    return Source(asked.source, latest, total, walks[0], walks[1], walks[2], chosen, alone)


@inlined
def last_of(view: View, node: int) -> float:
    """The clock's reading at a node's last event."""
    row = copied_row(view.copied, node)
    nodes = view.overlay.nodes if row >= 0 else view.state.nodes
    return float(nodes.last[row if row >= 0 else state_row(nodes, node)])


@inlined
def write_node(view: View, nodes: NodeRows, row: int, now: float, room: Endpoint, out: Singles) -> None:
    """Decayed counts of the target's events, the time since its last one; its S1 at the rates of walks."""
    fine, age = len(view.decay.fine), now - nodes.last[row]
    for r in range(fine):
        kept = faded(view.decay.fine[r], age)
        for kind in range(ACT_KINDS):
            out[ACT_KINDS * r + kind] = nodes.acts[row, kind, r] * kept
    out[len(out) - 2] = age


@inlined
def write_walks(nodes: NodeRows, row: int, source: Source, decay: Decay, room: Endpoint, out: Singles) -> None:
    """Products with the target's S1 and with its code.  # [WALKS * WALK_RATES]"""
    for i in range(WALK_RATES):
        at, r, kept = WALKS * i, source.rate[i], room.kept[i]
        one = stored_row(nodes.step1[row, r], nodes.step1, row, r, decay.columns, room.room[0])
        out[at] = product(source.company[i], one) * kept
        out[at + 1] = product(source.one[i], one) * kept
        out[at + 2] = decay.gain[r] * product(source.two[i], room.code)
        out[at + 3] = decay.gain[r] * product(source.company[i], room.code)


@inlined
def write_guess(guess: Guess, source: Source, counts: Singles) -> np.float32:
    """log(D p0), from the counts by rate and kind.  # [fine, COUNTS]"""
    share = np.float32(0)
    for kind in range(KINDS):
        for r in range(guess.weight.shape[1]):
            part = counts[COUNTS * r + kind] / (source.total[kind, r] + np.float32(FADED))
            share += guess.weight[kind, r] * min(part, np.float32(1))
    return np.float32(log(guess.uniform + guess.num_targets * share))


@vectorised
def log1p_row(x: Singles) -> None:
    """log(1 + max(0, x)) of every number, in place; the age of a node that was never seen is infinite.  # [n]"""
    for i in range(len(x)):
        x[i] = log(np.float32(1) + min(max(x[i], np.float32(0)), LONGEST))


@inlined
def write_target(
    view: View,
    source: Source,
    target: tuple[int, float],
    guess: Guess,
    room: tuple[Endpoint, Singles],
    out: Singles,
) -> None:
    """The features of one target, before their logarithm; the last one is `write_guess`."""
    node, now = target
    endpoint, counts = room
    fine, new, known = len(view.decay.fine), view.overlay, view.state
    write_code(node, endpoint.code)
    at = ACT_KINDS * fine
    row = copied_row(view.copied, node)
    nodes = new.nodes if row >= 0 else known.nodes
    row = row if row >= 0 else state_row(nodes, node)
    write_node(view, nodes, row, now, endpoint, out)
    fade_walks(view, nodes.last[row], now, source, endpoint.kept)
    write_walks(nodes, row, source, view.decay, endpoint, out[at + KINDS * fine :])
    read_counts(new.pairs, known.pairs, (source.node, node), now, view.decay.fine, counts)
    read_counts(new.pairs, known.pairs, (node, source.node), now, view.decay.fine, counts[1:])
    read_counts(new.follows, known.follows, (source.latest, node), now, view.decay.fine, counts[2:])
    for r in range(fine):
        for kind in range(KINDS):
            out[at + KINDS * r + kind] = counts[COUNTS * r + kind]
    out[len(out) - 3] = nodes.previous[row] == source.node
    out[len(out) - 1] = write_guess(guess, source, counts)


@inlined
def fade_walks(view: View, last: float, now: float, source: Source, kept: Singles) -> None:
    for i in range(WALK_RATES):
        kept[i] = faded(view.decay.rate[source.rate[i]], now - last)


@compiled
def write_features(view: View, source: Source, asked: Asked, guess: Guess, out: Singles) -> None:
    """Features of every target.  # [C, feature_width]"""
    rates, fine, width = len(view.decay.rate), len(view.decay.fine), view.decay.columns[0]
    now = read_clock(view.overlay.clock, asked.time, view.whole_moments)
    room, counts = empty_endpoint(rates, width)[0], np.zeros(COUNTS * fine, np.float32)
    for c in range(len(asked.targets)):
        write_target(view, source, (asked.targets[c], now), guess, (room, counts), out[c])
        log1p_row(out[c, : out.shape[1] - 1])


@compiled
def advance(view: View, pending: Pending, time: float) -> None:
    """Add the unobserved events before a time to the overlay."""
    codes = empty_endpoint(len(view.decay.rate), view.decay.columns[0])[1]
    add_pending(view, pending, 0, time, codes)
