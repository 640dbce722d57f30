"""The steps of a batch: state updates of nodes, ordered so that all states can be computed together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from dsrd.events import Events


@dataclass(frozen=True)
class Steps:
    """Each event is one step of each endpoint (a self-loop is one step). Sorted by node, then in stream order."""

    node: Tensor  # [E]
    partner: Tensor  # [E]
    time: Tensor  # [E]
    event: Tensor  # [E]
    position: Tensor  # [E]: number of earlier steps of the same node in the batch

    @staticmethod
    def of(events: Events) -> Steps:
        no_loop = events.src != events.dst
        order = torch.arange(len(events), device=events.src.device)
        row = torch.cat([order, order[no_loop]])
        node, partner = (
            torch.cat([one, other[no_loop]]) for one, other in ((events.src, events.dst), (events.dst, events.src))
        )
        by_node = torch.argsort(node * max(len(events), 1) + row)
        node, row = node[by_node], row[by_node]
        position = torch.arange(len(node), device=node.device) - torch.searchsorted(node, node)
        return Steps(node, partner[by_node], events.time[row], events.id[row], position)

    def __len__(self) -> int:
        return self.node.shape[0]

    def latest(self, node: Tensor, time: Tensor) -> Tensor:
        """The last step of each node strictly before each time, -1 where there is none.  # [...] -> [...]"""
        if not len(self):
            return torch.full_like(node, -1)
        moment = torch.unique(self.time)
        size = len(moment) + 1
        key = self.node * size + torch.searchsorted(moment, self.time)  # ascending, as the steps are sorted
        at = torch.searchsorted(key, node * size + torch.searchsorted(moment, time)) - 1
        return torch.where((at >= 0) & (self.node[at.clamp(min=0)] == node), at, -1)

    def by_node(self, size: int) -> Iterator[Steps]:
        """Parts of about `size` steps; all steps of a node are in one part."""
        start = 0
        while start < len(self):
            after = min(start + size, len(self)) - 1
            end = int(torch.searchsorted(self.node, self.node[after], right=True))
            rows = slice(start, end)
            yield Steps(*(getattr(self, field.name)[rows] for field in fields(self)))
            start = end

    def last(self) -> Tensor:
        """The last step of every node.  # [nodes that step]"""
        ends = torch.ones(len(self), dtype=torch.bool, device=self.node.device)
        ends[:-1] = self.node[1:] != self.node[:-1]
        return ends.nonzero().squeeze(1)


@dataclass(frozen=True)
class Rows:
    """The rows of a table of states: first each node before the batch, then its state after each step."""

    node: Tensor  # [U] ascending
    steps: Steps

    def before(self, node: Tensor, time: Tensor) -> Tensor:
        """The row with the state of each node strictly before each time.  # [...] -> [...]"""
        step = self.steps.latest(node, time)
        return torch.where(step >= 0, len(self.node) + step, torch.searchsorted(self.node, node))


def retained(increment: Tensor, gamma: Tensor, position: Tensor) -> Tensor:
    """S_s = gamma S_(s-1) + increment_s along each node's steps, in closed form (Proposition 1).

    After round r a row holds the sum of its last 2^r increments, each times its power of gamma. The number of
    rounds is the logarithm of the longest chain of steps.  # [E, H, d, d], [H, 1, 1], [E] -> [E, H, d, d]
    """
    state, reach, longest = increment, 1, int(position.max()) if len(position) else 0
    while reach <= longest:
        same_node = (position[reach:] >= reach).to(state.dtype).view(-1, 1, 1, 1)  # as the row `reach` above
        grown = state[reach:] + same_node * gamma**reach * state[:-reach]
        state, reach = torch.cat([state[:reach], grown]), 2 * reach
    return state


def weighted_rows(table: Tensor, row: Tensor, weight: Tensor) -> Tensor:
    """Weighted sums of rows of a table, head by head.  # [R, H, d, d], [E, k], [E, H, k] -> [E, H, d, d]"""
    heads = table.shape[1]
    head = torch.arange(heads, device=row.device).view(1, heads, 1)
    index = row.unsqueeze(1) * heads + head  # [E, H, k]
    sums = embedding_bag(
        index.flatten(0, 1), table.flatten(0, 1).flatten(1), per_sample_weights=weight.flatten(0, 1), mode="sum"
    )
    return sums.view(len(row), *table.shape[1:])


def in_pieces(events: Events, size: int) -> Iterator[list[Steps]]:
    """The steps of events in pieces of about `size` events, each piece as a list of parts.

    A timestamp is never split between pieces, because its events must not see each other. If one has more than
    `size` events, it is a piece of several parts, split by node. All parts of a piece must be computed before the
    first is written.
    """
    start = 0
    while start < len(events):
        end = len(events)
        if start + size < end:
            end = int(torch.searchsorted(events.time, events.time[start + size]))
        if end == start:  # more than `size` at one time
            end = int(torch.searchsorted(events.time, events.time[start], right=True))
        steps = Steps.of(events[start:end])
        one_timestamp = bool(events.time[start] == events.time[end - 1])
        yield list(steps.by_node(2 * size)) if one_timestamp else [steps]
        start = end
