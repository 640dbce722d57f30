"""Queries of single nodes, compiled: what the walk state says about the source of a pair, whoever it turns to."""

from __future__ import annotations

from typing import Any, Generic, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dsrd.compiled import compiled
from dsrd.history.index import Index, Ints
from dsrd.models.dsrd.clock import read_clock
from dsrd.models.dsrd.overlay import Queries, copied_row
from dsrd.models.dsrd.walk_products import length
from dsrd.models.dsrd.walk_queries import Pending, T, View, add_pending, empty_endpoint, load, state_row
from dsrd.models.dsrd.walk_rows import ROOM, stored_row
from dsrd.models.dsrd.walk_state import NodeRows, Singles
from dsrd.models.dsrd.windows import empty_windows, fill_window


class Latest(NamedTuple, Generic[T]):
    """What state and history say about single nodes."""

    node: T  # [Q, node_width]
    age: T  # [Q, n] of the node's latest events, newest first
    exists: T  # [Q, n]: 0 where a node has fewer events
    outgoing: T  # [Q, n]: 1 where the node was the source


@compiled
def read_sources(view: View, pending: Pending, index: Index, queries: Queries, out: Latest[NDArray[Any]]) -> None:
    """What is known about the first node of each pair, in the order of their times."""
    windows, added = empty_windows(out.age.shape[1]), 0
    source, codes = empty_endpoint(len(view.decay.rate), view.decay.columns[0])
    for q in queries.order:
        time, node = queries.time[q], queries.ends[0, q]
        added = add_pending(view, pending, added, time, codes)
        load(view, node, read_clock(view.overlay.clock, time, view.whole_moments), source, out.node[q])
        fill_window(index, node, time, 0, windows)
        for j in range(windows.size[0]):
            out.age[q, j] = time - windows.time[0, j]
            out.exists[q, j] = 1
            out.outgoing[q, j] = windows.outgoing[0, j]


@compiled
def write_directions(nodes: NodeRows, row: int, rate: int, columns: Ints, out: Singles) -> None:
    """S1 and S2 of a node at one rate, scaled to length 1; 0 without events.  # [2, width]"""
    for step, rows in enumerate((nodes.step1, nodes.step2)):
        vector = stored_row(rows[row, rate], rows, row, rate, columns, np.empty(out.shape[1], np.float32))
        size = length(vector)
        if size > 0:
            out[step] = vector / size


@compiled
def directions(view: View, pending: Pending, queries: Queries, out: Singles) -> None:
    """S1 and S2 of the first node of each pair at the slowest rate, as directions.  # [Q, 2, width]

    Nodes that meet the same partners have similar directions, up to the noise of the codes.
    """
    slowest, codes, added = int(np.argmin(view.decay.rate)), np.empty((2 + ROOM, out.shape[2]), np.float32), 0
    for q in queries.order:
        added = add_pending(view, pending, added, queries.time[q], codes)
        node = queries.ends[0, q]
        row = copied_row(view.copied, node)
        if row >= 0:
            write_directions(view.overlay.nodes, row, slowest, view.decay.columns, out[q])
        else:
            known = state_row(view.state.nodes, node)
            write_directions(view.state.nodes, known, slowest, view.decay.columns, out[q])
