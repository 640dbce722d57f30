"""`Live`: a `Past` to which new events can be appended."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from dsrd.errors import DsrdError
from dsrd.events import Events
from dsrd.history.index import append
from dsrd.history.past import Past


class Live(Past):
    """A `Past` to which new events can be appended; gives the same answers as a `Past` over all of them.

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
    ) -> None:
        start = Events.from_numpy([], [], []) if events is None else events
        super().__init__(start, edge_x=edge_x, node_x=node_x, seed=seed)
        self._capacity = self._index.length.copy()  # [N] room in each node's block
        self._used = len(self._index.node)  # places of the pool that belong to blocks
        self.now = float(start.time[-1]) if len(start) else -np.inf
        """Time of the newest event; older ones are refused."""

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
