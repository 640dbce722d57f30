"""Unobserved events, and the rows of the state that they change, copied.

A query at time t also sees the events before t that the state has not observed yet (`past.unobserved`). Scoring
must not write the state, not even for a moment: other threads may be reading it. So the rows of the nodes in these
events are copied, the events are added to the copies, and a query looks for a node among the copies first.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from dsrd.compiled import compiled, inlined
from dsrd.events import NULL, Events, Query
from dsrd.history.index import Floats, Ints
from dsrd.history.pair_table import EMPTY, slot_of
from dsrd.models.dsrd.walk_state import Arrivals, power_of_two

Arrays = TypeVar("Arrays", bound=tuple[Any, ...])


class CopiedNodes(NamedTuple):
    """Which nodes have a copied row, and where: a hash table from node to row."""

    key: Ints  # [slots]: the node, as the pair (node, NULL) that `slot_of` looks for, or EMPTY
    row: Ints  # [slots]


class Unobserved(NamedTuple):
    """Unobserved events that some query sees, and the nodes in them. Row i of every copy is that of `node[i]`."""

    events: Arrivals
    node: Ints  # [M]
    copied: CopiedNodes


class Queries(NamedTuple):
    """Pairs at their own times."""

    ends: Ints  # [2, Q]: sources, targets
    time: Floats  # [Q]
    order: Ints  # [Q]: by time


@inlined
def copied_row(copied: CopiedNodes, node: int) -> int:
    """The node's row among the copies, -1 if it has none."""
    if len(copied.key) == 1:  # no unobserved events
        return -1
    slot = slot_of(copied.key, node, NULL)
    return copied.row[slot] if copied.key[slot] != EMPTY else -1


@compiled
def enter_nodes(copied: CopiedNodes, node: Ints) -> None:
    """Number the nodes, in a table without any."""
    for row in range(len(node)):
        slot = slot_of(copied.key, node[row], NULL)
        copied.key[slot] = node[row] << 32
        copied.row[slot] = row


def queries_of(query: Query) -> Queries:
    """The query's columns as arrays."""
    time = query.time.cpu().numpy()
    ends = torch.stack([query.src, query.dst]).cpu().numpy()
    return Queries(ends, time, np.argsort(time, kind="stable"))


def unobserved(events: Events | None, time: Floats) -> Unobserved:
    """The unobserved events strictly before the latest of the queries' times: later ones change no answer."""
    if events is None or not len(time):
        return no_events()
    src, dst, event_time, _ = events.to("cpu").numpy()
    count = int(np.searchsorted(event_time, time.max())) if len(event_time) else 0
    src, dst, event_time = src[:count], dst[:count], event_time[:count]
    node, row = np.unique(np.concatenate([src, dst]), return_inverse=True)
    slots = power_of_two(4 * len(node))  # sparse: most queried nodes are not in it, and a miss should probe once
    copied = CopiedNodes(np.full(slots, EMPTY), np.zeros(slots, np.int64))
    enter_nodes(copied, node)
    return Unobserved(Arrivals(src, dst, event_time, row[:count], row[count:]), node, copied)


@cache
def no_events() -> Unobserved:
    """What queries see of unobserved events where there are none."""
    return unobserved(Events.from_numpy([], [], []), np.zeros(1))


def copied_rows(array: NDArray[Any], node: Ints) -> NDArray[Any]:
    """Copies of the nodes' rows; zeros for nodes that have none yet.  # [N, ...], [M] -> [M, ...]"""
    return array[np.where(node < len(array), node, NULL)]


def read_only(arrays: Arrays) -> Arrays:
    """The same memory without the right to write: numba refuses to compile a function that writes to it."""
    return type(arrays)(*(_read_only(item) for item in arrays))


def _read_only(item: Any) -> Any:
    if isinstance(item, tuple):
        return read_only(item)
    view = item.view()
    view.flags.writeable = False
    return view
