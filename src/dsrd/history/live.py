"""`Live`: a `Past` to which new events can be appended."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from dsrd import mapped
from dsrd.errors import DsrdError
from dsrd.events import Events
from dsrd.history.index import Index, append
from dsrd.history.past import Past

POOL = ("node", "event", "time", "outgoing")  # the columns of the index with an entry per event and endpoint


class Live(Past):
    """A `Past` to which new events can be appended; gives the same answers as a `Past` over all of them.

    With `on_disk`, the entries of its index are in temporary files that are mapped into memory (see
    `dsrd.mapped`), so that a history may be longer than memory. Features of events stay in memory.

    >>> import torch
    >>> live = Live()
    >>> live.append(Events.from_numpy([1], [2], [0.5]))
    >>> live.recent(torch.tensor([2]), torch.tensor([1.0]), k=1).node.tolist()
    [[1]]
    """

    def __init__(
        self,
        events: Events | None = None,
        *,
        edge_x: Tensor | None = None,
        node_x: Tensor | None = None,
        seed: int = 0,
        on_disk: bool = False,
    ) -> None:
        start = Events.from_numpy([], [], []) if events is None else events
        super().__init__(start, edge_x=edge_x, node_x=node_x, seed=seed)
        self._capacity = self._index.length.copy()  # [N] room in each node's block
        self._used = len(self._index.node)  # places of the pool that belong to blocks
        self.now = float(start.time[-1]) if len(start) else -np.inf
        """Time of the newest event; older ones are refused."""
        self._on_disk = on_disk
        if on_disk:
            self._index = _to_disk(self._index)

    def append(self, events: Events, edge_x: Tensor | None = None) -> None:
        """Add events, none older than the newest so far; `edge_x` has one row for each."""
        if not len(events):
            return
        if float(events.time[0]) < self.now:
            raise DsrdError(
                f"event at time {float(events.time[0])} is older than the newest one ({self.now}); "
                "append events in time order"
            )
        if edge_x is not None and edge_x.shape != (len(events), self._edge_x.shape[1]) and self.now > -np.inf:
            raise DsrdError(
                f"features of shape {tuple(edge_x.shape)} for {len(events)} events, earlier ones had "
                f"{self._edge_x.shape[1]} columns; give one row per event and the same columns throughout"
            )
        self._make_room(events.num_nodes)
        if self._on_disk:
            self._make_places(events)
        self._index, self._used = append(self._index, self._capacity, self._used, events.numpy())
        self._add_features(events.id, edge_x)
        self.now = float(events.time[-1])

    def _make_room(self, num_nodes: int) -> None:
        start, length = self._index.start, self._index.length
        if num_nodes > len(start):
            more = max(num_nodes, 2 * len(start)) - len(start)
            start, length, self._capacity = (
                np.concatenate([rows, np.zeros(more, np.int64)]) for rows in (start, length, self._capacity)
            )
            self._index = self._index._replace(start=start, length=length)

    def _make_places(self, events: Events) -> None:
        """Enlarge the files if this batch may need it: compiled code would copy them into memory."""
        owner, count = np.unique(np.concatenate(events.numpy()[:2]), return_counts=True)
        length = self._index.length[owner] + count
        # a block moves to twice its room until it is large enough: the rooms add up to less than this
        needed = self._used + int((4 * length + 8)[length > self._capacity[owner]].sum())
        if needed > len(self._index.node):
            pool = {name: mapped.grown(getattr(self._index, name), 2 * needed) for name in POOL}
            self._index = self._index._replace(**pool)

    def release(self) -> None:
        """Give back the memory of a history on disk; what is asked for is read again."""
        if self._on_disk:
            for name in POOL:
                mapped.release(getattr(self._index, name))

    def _add_features(self, id: Tensor, edge_x: Tensor | None) -> None:
        """Rows for new events; zeros for events that come without features."""
        if edge_x is not None and not self._edge_x.numel():
            self._edge_x = edge_x.new_zeros(1, edge_x.shape[1])  # the first features set the width
        rows = int(id.max()) + 1
        if rows > len(self._edge_x):
            larger = self._edge_x.new_zeros(max(rows, 2 * len(self._edge_x)), self._edge_x.shape[1])
            larger[: len(self._edge_x)] = self._edge_x
            self._edge_x = larger
        if edge_x is not None:
            self._edge_x[id] = edge_x.to(self._edge_x.dtype)


def _to_disk(index: Index) -> Index:
    pool = {}
    for name in POOL:
        column = getattr(index, name)
        pool[name] = mapped.mapped_zeros((max(len(column), 1),), column.dtype)
        pool[name][: len(column)] = column
    return index._replace(**pool)
