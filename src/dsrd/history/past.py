"""`Past`: what was known strictly before a time."""

from __future__ import annotations

from copy import copy
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dsrd.errors import unknown
from dsrd.events import NULL, Events, Neighbors, as_tensor
from dsrd.history import index as index_kernels

Sampling = Literal["recent", "uniform", "decayed"]
"""How neighbours are picked: the last k, any k, or any k with recent ones likelier."""


class Past:
    """Every interaction of every node, in time order; answers only with what came strictly before a time.

    A node nobody has met has an empty past. Random choices are fixed by the seed and the question itself, so an
    answer depends neither on earlier calls nor on the other rows of the same call.

    >>> events = Events.from_numpy([1, 2, 1], [2, 3, 3], [1.0, 2.0, 3.0])
    >>> past = Past(events)
    >>> found = past.recent(torch.tensor([3, 1]), torch.tensor([3.0, 9.0]), k=2)
    >>> found.node.tolist(), found.time.tolist()
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
        self._index = index_kernels.build(*events.numpy(), rows)
        self._edge_x = torch.zeros(1, 0) if edge_x is None else edge_x
        self._node_x = torch.zeros(1, 0) if node_x is None else node_x
        self._seed = seed
        self.unobserved: Events | None = None
        """Events of the current pass that no state has seen yet; a model may fold in those before its query."""

    @property
    def index(self) -> index_kernels.Index:
        """The arrays that compiled look-ups read."""
        return self._index

    @property
    def seed(self) -> int:
        """What random choices depend on, beside the question."""
        return self._seed

    def redrawn(self, number: int) -> Past:
        """The same index with other random choices, different ones for every `number`."""
        other = copy(self)
        other._seed = int(index_kernels.mixed(np.uint64(self._seed) ^ index_kernels.mixed(np.uint64(number))))
        return other

    def during(self, events: Events) -> Past:
        """The same index while `events` are being scored and not yet observed."""
        other = copy(self)
        other.unobserved = events
        return other

    def recent(self, node: Tensor, time: Tensor, k: int) -> Neighbors:
        """The last k interactions of each node before each time.  [Q] -> [Q, k]"""
        return _neighbors(index_kernels.recent(self._index, *_arrays(node, time), k), node)

    def uniform(self, node: Tensor, time: Tensor, k: int) -> Neighbors:
        """k earlier interactions of each node, drawn with replacement, in time order.  [Q] -> [Q, k]"""
        return self._sampled(node, time, k, 0.0)

    def decayed(self, node: Tensor, time: Tensor, k: int, rate: float) -> Neighbors:
        """Like `uniform`, an interaction of age a being drawn with weight exp(-rate * a).  [Q] -> [Q, k]"""
        return self._sampled(node, time, k, rate)

    def sample(self, how: Sampling, node: Tensor, time: Tensor, k: int, rate: float = 0.0) -> Neighbors:
        """`recent`, `uniform` or `decayed`, by name."""
        if how == "recent":
            return self.recent(node, time, k)
        if how == "uniform":
            return self.uniform(node, time, k)
        if how == "decayed":
            return self.decayed(node, time, k, rate)
        raise unknown("sampling", how, ("recent", "uniform", "decayed"))

    def hops(
        self, node: Tensor, time: Tensor, k: tuple[int, ...], how: Sampling = "recent", rate: float = 0.0
    ) -> list[Neighbors]:
        """Neighbours, their neighbours before they met, and so on.  [Q] -> [Q, k0], [Q * k0, k1], ..."""
        found: list[Neighbors] = []
        for width in k:
            layer = self.sample(how, node, time, width, rate)
            found.append(layer)
            node, time = layer.node.reshape(-1), layer.time.reshape(-1)
        return found

    def walks(self, node: Tensor, time: Tensor, count: int, length: int, rate: float = 0.0) -> Neighbors:
        """Random walks back in time: step i + 1 lies strictly before step i.  [Q] -> [Q, count, length]

        Steps follow the queried node's most recent-first order; a walk that runs out of past ends in padding.
        """
        asked, at = _arrays(node, time)
        bits = at.view(np.uint64)
        seed = np.uint64(self._seed)
        return self._at(index_kernels.walked(self._index, asked, at, bits, count, length, float(rate), seed), node)

    def degree(self, node: Tensor, time: Tensor) -> Tensor:
        """How many interactions each node had before each time.  [Q] -> [Q]"""
        return as_tensor(index_kernels.degree(self._index, *_arrays(node, time))).to(node.device)

    def last_met(self, src: Tensor, dst: Tensor, time: Tensor) -> Tensor:
        """When each source last sent an event to each target before each time, -inf if never.  [Q] -> [Q] float64

        >>> past = Past(Events.from_numpy([1, 2, 1], [2, 1, 2], [1.0, 2.0, 3.0]))
        >>> src, dst, time = torch.tensor([1, 1, 2]), torch.tensor([2, 2, 9]), torch.tensor([9.0, 3.0, 9.0])
        >>> past.last_met(src, dst, time).tolist()  # strictly before the time, and only in this direction
        [3.0, 1.0, -inf]
        """
        target, at = _arrays(dst, time)
        source, _ = _arrays(src, time)
        return as_tensor(index_kernels.last_met(self._index, source, target, at)).to(src.device)

    def last_as_target(self, node: Tensor, time: Tensor) -> Tensor:
        """When each node was last a target before each time, -inf if never.  [Q] -> [Q] float64

        >>> past = Past(Events.from_numpy([1, 2], [2, 3], [1.0, 2.0]))
        >>> past.last_as_target(torch.tensor([2, 1]), torch.tensor([9.0, 9.0])).tolist()
        [1.0, -inf]
        """
        return as_tensor(index_kernels.last_as_target(self._index, *_arrays(node, time))).to(node.device)

    def log_decayed_in_degree(self, node: Tensor, time: Tensor, tau: float) -> Tensor:
        """log of the sum of exp(-age / tau) over each node's earlier events as a target.  [Q] -> [Q] float64

        -inf for a node that never was a target. The logarithm, because the sum itself would underflow after a
        long silence. Events that weigh less than 1e-8 of the node's newest one are not counted: one call costs at
        most the events in the last 18.42 tau before that one, of either role, and those after it.

        >>> past = Past(Events.from_numpy([1, 1], [2, 2], [1.0, 3.0]))
        >>> log_count = past.log_decayed_in_degree(torch.tensor([2, 1]), torch.tensor([4.0, 4.0]), tau=2.0)
        >>> [round(count, 4) for count in log_count.exp().tolist()]  # exp(-3/2) + exp(-1/2), and no event
        [0.8297, 0.0]
        """
        counted = index_kernels.log_decayed_in_degree(self._index, *_arrays(node, time), float(tau))
        return as_tensor(counted).to(node.device)

    def edge_x(self, event: Tensor) -> Tensor:
        """Features of events, zeros for padding.  [...] -> [..., edge_dim]"""
        return self._edge_x[event]

    def node_x(self, node: Tensor) -> Tensor:
        """Features of nodes, zeros for nodes that came without any.  [...] -> [..., node_dim]"""
        return self._node_x[torch.where(node < len(self._node_x), node, NULL)]

    def to(self, device: torch.device | str) -> Past:
        """The same past with its features on `device`; the index stays in main memory."""
        other = copy(self)
        other._edge_x, other._node_x = self._edge_x.to(device), self._node_x.to(device)
        return other

    def _sampled(self, node: Tensor, time: Tensor, k: int, rate: float) -> Neighbors:
        asked, at = _arrays(node, time)
        bits, seed = at.view(np.uint64), np.uint64(self._seed)
        return self._at(index_kernels.sampled(self._index, asked, at, bits, k, float(rate), seed), node)

    def _at(self, position: NDArray[np.int64], like: Tensor) -> Neighbors:
        parts = index_kernels.entries(self._index, position.reshape(-1))
        return _neighbors(tuple(part.reshape(position.shape) for part in parts), like)


def _neighbors(parts: tuple[NDArray[Any], ...], like: Tensor) -> Neighbors:
    there, event, time, outgoing = (as_tensor(part).to(like.device) for part in parts)
    return Neighbors(there, event, time, outgoing, mask=event != NULL)


def _arrays(node: Tensor, time: Tensor) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    asked = np.ascontiguousarray(node.cpu().numpy(), dtype=np.int64)
    at = np.ascontiguousarray(time.cpu().numpy(), dtype=np.float64)
    return asked, at
