"""Compiled look-ups in the index: degrees, last times, the most recent entries.

Every function takes queries as two arrays, `node_ids` [Q] and `query_time` [Q], and reads only entries strictly
before the query's time.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dsrd.compiled import compiled
from dsrd.history.index import Bools, Floats, Index, Ints, history

NEGLIGIBLE_AGE = 18.42
"""Decayed counts skip events older than the newest by this many tau: they weigh less than exp(-18.42) = 1e-8."""


class Entries(NamedTuple):
    """Entries of the index, copied out; zeros (`NULL`) where there is none."""

    node: Ints
    event: Ints
    time: Floats
    outgoing: Bools


@compiled
def degree(index: Index, node_ids: Ints, query_time: Floats) -> Ints:
    """The number of earlier events of each node."""
    count = np.empty(len(node_ids), np.int64)
    for q in range(len(node_ids)):
        first, stop = history(index, node_ids[q], query_time[q])
        count[q] = stop - first
    return count


@compiled
def last_met(index: Index, src: Ints, dst: Ints, query_time: Floats) -> Floats:
    """When each source last sent an event to each target; -inf if it never did.

    Searches the history of the endpoint that has fewer earlier events.
    """
    last = np.full(len(src), -np.inf)
    for q in range(len(src)):
        first, stop = history(index, src[q], query_time[q])
        dst_first, dst_stop = history(index, dst[q], query_time[q])
        partner, outgoing = dst[q], True
        if dst_stop - dst_first < stop - first:
            first, stop, partner, outgoing = dst_first, dst_stop, src[q], False
        for place in range(stop - 1, first - 1, -1):
            if index.node[place] == partner and index.outgoing[place] == outgoing:
                last[q] = index.time[place]
                break
    return last


@compiled
def newest_incoming(outgoing: Bools, first: int, stop: int) -> int:
    """The last of the places first .. stop where the node was the target; first - 1 if there is none."""
    place = stop - 1
    while place >= first and outgoing[place]:
        place -= 1
    return place


@compiled
def last_as_target(index: Index, node_ids: Ints, query_time: Floats) -> Floats:
    """When each node was last a target; -inf if it never was."""
    last = np.full(len(node_ids), -np.inf)
    for q in range(len(node_ids)):
        first, stop = history(index, node_ids[q], query_time[q])
        place = newest_incoming(index.outgoing, first, stop)
        if place >= first:
            last[q] = index.time[place]
    return last


@compiled
def log_decayed_in_degree(index: Index, node_ids: Ints, query_time: Floats, tau: float) -> Floats:
    """log of the sum of exp(-age / tau) over each node's earlier events as a target; -inf if it has none.

    Summed relative to the newest event: the plain sum underflows to zero after a long silence.
    """
    log_count = np.full(len(node_ids), -np.inf)
    for q in range(len(node_ids)):
        first, stop = history(index, node_ids[q], query_time[q])
        place = newest_incoming(index.outgoing, first, stop)
        if place < first:
            continue
        newest, total = index.time[place], 0.0
        while place >= first and newest - index.time[place] <= NEGLIGIBLE_AGE * tau:
            if not index.outgoing[place]:
                total += np.exp((index.time[place] - newest) / tau)
            place -= 1
        log_count[q] = np.log(total) - (query_time[q] - newest) / tau
    return log_count


@compiled
def recent(index: Index, node_ids: Ints, query_time: Floats, k: int) -> Entries:
    """The last k entries of each node, right-aligned.  # [Q, k]

    Copies entries in the same loop that finds them, unlike `entries_at`: most models wait for this function.
    """
    shape = (len(node_ids), k)
    node, event = np.empty(shape, np.int64), np.empty(shape, np.int64)
    time, outgoing = np.empty(shape, np.float64), np.empty(shape, np.bool_)
    for q in range(len(node_ids)):
        first, stop = history(index, node_ids[q], query_time[q])
        padding = max(0, k - (stop - first))
        for j in range(padding):
            node[q, j], event[q, j], time[q, j], outgoing[q, j] = 0, 0, 0.0, False
        for j in range(padding, k):
            place = stop - k + j
            node[q, j], event[q, j] = index.node[place], index.event[place]
            time[q, j], outgoing[q, j] = index.time[place], index.outgoing[place]
    return Entries(node, event, time, outgoing)


@compiled
def entries_at(index: Index, places: Ints) -> Entries:
    """The entries at these places of the pool; -1 is padding.  # [P]"""
    size = len(places)
    node, event = np.zeros(size, np.int64), np.zeros(size, np.int64)
    time, outgoing = np.zeros(size, np.float64), np.zeros(size, np.bool_)
    for i in range(size):
        place = places[i]
        if place >= 0:
            node[i], event[i] = index.node[place], index.event[place]
            time[i], outgoing[i] = index.time[place], index.outgoing[place]
    return Entries(node, event, time, outgoing)
