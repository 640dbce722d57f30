"""`Past`: what was known strictly before a time."""

from __future__ import annotations

from copy import copy
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from dsrd.errors import unknown
from dsrd.events import NULL, Events, Neighbors, as_tensor
from dsrd.hashing import splitmix64
from dsrd.history import lookups, sampling
from dsrd.history.index import Floats, Index, Ints, build

Sampling = Literal["recent", "uniform", "decayed"]
"""How to pick neighbours: the last k; k drawn uniformly; k drawn with larger weights for recent ones."""


class Past:
    """Every event of every node, in time order; answers only from events strictly before a query's time.

    An unknown node has an empty past. Random choices are fixed by the seed and the query itself: an answer depends
    neither on earlier calls nor on the other rows of the same call.

    >>> events = Events.from_numpy([1, 2, 1], [2, 3, 3], [1.0, 2.0, 3.0])
    >>> past = Past(events)
    >>> neighbors = past.recent(torch.tensor([3, 1]), torch.tensor([3.0, 9.0]), k=2)
    >>> neighbors.node.tolist(), neighbors.time.tolist()
    ([[0, 2], [2, 3]], [[0.0, 2.0], [1.0, 3.0]])
    """

    def __init__(
        self,
        events: Events,
        *,
        edge_x: Tensor | None = None,
        node_x: Tensor | None = None,
        num_nodes: int = 0,
        seed: int = 0,
    ) -> None:
        rows = max(num_nodes, events.num_nodes)
        self._index = build(events.numpy(), rows)
        self._edge_x = torch.zeros(1, 0) if edge_x is None else edge_x
        self._node_x = torch.zeros(1, 0) if node_x is None else node_x
        self._seed = seed
        self.unobserved: Events | None = None
        """Events being scored, which no state has observed yet; a model may read those before its query."""

    @property
    def index(self) -> Index:
        """The arrays that compiled look-ups read."""
        return self._index

    @property
    def seed(self) -> int:
        """Random choices depend on this seed and on the query."""
        return self._seed

    def redrawn(self, number: int) -> Past:
        """The same past with other random choices, different ones for every `number`."""
        other = copy(self)
        other._seed = int(splitmix64(np.uint64(self._seed) ^ np.uint64(splitmix64(number))))
        return other

    def during(self, events: Events) -> Past:
        """The same past while `events` are being scored and not yet observed."""
        other = copy(self)
        other.unobserved = events
        return other

    def recent(self, node: Tensor, time: Tensor, k: int) -> Neighbors:
        """The last k events of each node before each time.  [Q] -> [Q, k]"""
        return _neighbors(lookups.recent(self._index, *_arrays(node, time), k), (len(node), k), node.device)

    def uniform(self, node: Tensor, time: Tensor, k: int) -> Neighbors:
        """k earlier events of each node, drawn with replacement, in time order.  [Q] -> [Q, k]"""
        return self._sample(node, time, k, 0.0)

    def decayed(self, node: Tensor, time: Tensor, k: int, rate: float) -> Neighbors:
        """Like `uniform`, but an event of age a is drawn with weight exp(-rate * a).  [Q] -> [Q, k]"""
        return self._sample(node, time, k, rate)

    def sample(self, strategy: Sampling, node: Tensor, time: Tensor, k: int, rate: float = 0.0) -> Neighbors:
        """`recent`, `uniform` or `decayed`, by name."""
        if strategy == "recent":
            return self.recent(node, time, k)
        if strategy == "uniform":
            return self.uniform(node, time, k)
        if strategy == "decayed":
            return self.decayed(node, time, k, rate)
        raise unknown("sampling", strategy, ("recent", "uniform", "decayed"))

    def hops(
        self, node: Tensor, time: Tensor, k: tuple[int, ...], strategy: Sampling = "recent", rate: float = 0.0
    ) -> list[Neighbors]:
        """Neighbours, their neighbours before that event, and so on.  [Q] -> [Q, k0], [Q * k0, k1], ..."""
        layers: list[Neighbors] = []
        for width in k:
            layer = self.sample(strategy, node, time, width, rate)
            layers.append(layer)
            node, time = layer.node.reshape(-1), layer.time.reshape(-1)
        return layers

    def walks(self, node: Tensor, time: Tensor, count: int, length: int, rate: float = 0.0) -> Neighbors:
        """Random walks back in time: step i + 1 lies strictly before step i.  [Q] -> [Q, count, length]

        A walk that reaches a node without earlier events ends in padding.
        """
        places = sampling.walk(self._index, *_arrays(node, time), count, length, self._draw(rate))
        return self._entries_at(places, node)

    def degree(self, node: Tensor, time: Tensor) -> Tensor:
        """The number of events each node had before each time.  [Q] -> [Q]"""
        return as_tensor(lookups.degree(self._index, *_arrays(node, time))).to(node.device)

    def last_met(self, src: Tensor, dst: Tensor, time: Tensor) -> Tensor:
        """When each source last sent an event to each target before each time, -inf if never.  [Q] -> [Q] float64

        >>> past = Past(Events.from_numpy([1, 2, 1], [2, 1, 2], [1.0, 2.0, 3.0]))
        >>> src, dst, time = torch.tensor([1, 1, 2]), torch.tensor([2, 2, 9]), torch.tensor([9.0, 3.0, 9.0])
        >>> past.last_met(src, dst, time).tolist()  # strictly before the time, and only in this direction
        [3.0, 1.0, -inf]
        """
        src_ids, query_time = _arrays(src, time)
        dst_ids, _ = _arrays(dst, time)
        return as_tensor(lookups.last_met(self._index, src_ids, dst_ids, query_time)).to(src.device)

    def last_as_target(self, node: Tensor, time: Tensor) -> Tensor:
        """When each node was last a target before each time, -inf if never.  [Q] -> [Q] float64

        >>> past = Past(Events.from_numpy([1, 2], [2, 3], [1.0, 2.0]))
        >>> past.last_as_target(torch.tensor([2, 1]), torch.tensor([9.0, 9.0])).tolist()
        [1.0, -inf]
        """
        return as_tensor(lookups.last_as_target(self._index, *_arrays(node, time))).to(node.device)

    def log_decayed_in_degree(self, node: Tensor, time: Tensor, tau: float) -> Tensor:
        """log of the sum of exp(-age / tau) over each node's earlier events as a target.  [Q] -> [Q] float64

        -inf for a node that was never a target. The sum itself would underflow after a long silence, its logarithm
        does not. Events that weigh less than 1e-8 of the node's newest event as a target are not counted, so a
        query reads only the node's events since 18.42 tau before that newest event.

        >>> past = Past(Events.from_numpy([1, 1], [2, 2], [1.0, 3.0]))
        >>> log_count = past.log_decayed_in_degree(torch.tensor([2, 1]), torch.tensor([4.0, 4.0]), tau=2.0)
        >>> [round(count, 4) for count in log_count.exp().tolist()]  # exp(-3/2) + exp(-1/2), and no event
        [0.8297, 0.0]
        """
        log_count = lookups.log_decayed_in_degree(self._index, *_arrays(node, time), float(tau))
        return as_tensor(log_count).to(node.device)

    def edge_x(self, event: Tensor) -> Tensor:
        """Features of events, zeros for padding.  [...] -> [..., edge_dim]"""
        return self._edge_x[event]

    def node_x(self, node: Tensor) -> Tensor:
        """Features of nodes, zeros for nodes without features.  [...] -> [..., node_dim]"""
        return self._node_x[torch.where(node < len(self._node_x), node, NULL)]

    def to(self, device: torch.device | str) -> Past:
        """The same past with its features on `device`; the index stays in main memory."""
        other = copy(self)
        other._edge_x, other._node_x = self._edge_x.to(device), self._node_x.to(device)
        return other

    def _sample(self, node: Tensor, time: Tensor, k: int, rate: float) -> Neighbors:
        places = sampling.sample(self._index, *_arrays(node, time), k, self._draw(rate))
        return self._entries_at(places, node)

    def _draw(self, rate: float) -> sampling.Draw:
        return sampling.Draw(float(rate), np.uint64(self._seed))

    def _entries_at(self, places: Ints, node: Tensor) -> Neighbors:
        return _neighbors(lookups.entries_at(self._index, places.reshape(-1)), places.shape, node.device)


def _neighbors(entries: lookups.Entries, shape: tuple[int, ...], device: torch.device) -> Neighbors:
    node, event, time, outgoing = (as_tensor(column).view(shape).to(device) for column in entries)
    return Neighbors(node, event, time, outgoing, mask=event != NULL)


def _arrays(node: Tensor, time: Tensor) -> tuple[Ints, Floats]:
    node_ids = np.ascontiguousarray(node.cpu().numpy(), dtype=np.int64)
    query_time = np.ascontiguousarray(time.cpu().numpy(), dtype=np.float64)
    return node_ids, query_time
