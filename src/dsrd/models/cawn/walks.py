"""Walks from the endpoints of pairs, and how often each node occurs in them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from dsrd.events import NULL
from dsrd.nn.ragged import spans

WALKS_AT_ONCE = 4096


@dataclass(frozen=True)
class Walks:
    """The walks of every start, those of one start side by side; step 0 is the start itself."""

    start: Tensor  # [F] index of the start, in rising order
    node: Tensor  # [F, L + 1], NULL after a walk's end
    event: Tensor  # [F, L + 1], NULL at step 0
    age: Tensor  # [F, L + 1]
    copies: Tensor  # [F] how often the walk was drawn
    per_start: Tensor  # [E] walks of each start


@dataclass(frozen=True)
class Sides:
    """Distinct (endpoint, partner) sides of pairs to encode, those with few walks first, their walks end to end.

    All that a side knows of the partner are hits: how often the partner's walks are at a node. Sides whose walks
    share no node with the partner's are the same for every partner.
    """

    walk: Tensor  # [D] rows of `Walks`
    length: Tensor  # [S] walks of each side
    trail: Tensor  # [D] row of `hits` of each walk: walks with equal hits share one
    hits: Tensor  # [T, L + 1, 2] rows of `shares`: hits by the side's own walks, and by the partner's
    shares: Tensor  # [C, L + 1] distinct hits: share of walks that are at a node after each number of steps

    def batches(self) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """(length, walk, trail) of a few sides at a time, of similar length: little padding, bounded memory."""
        stop = self.length.cumsum(0)  # [S]
        side = walk = 0
        while side < len(stop):
            last = max(int(torch.searchsorted(stop, walk + WALKS_AT_ONCE, right=True)), side + 1)
            end = int(stop[last - 1])
            yield self.length[side:last], self.walk[walk:end], self.trail[walk:end]
            side, walk = last, end


class Hits:
    """How often the walks of each start are at each node, by number of steps: packed into one integer, a code."""

    def __init__(self, walks: Walks, count: int) -> None:
        steps = walks.node.shape[1]
        self.count = count  # walks of each start, copies included
        self.unit = (count + 1) ** torch.arange(steps, device=walks.node.device)  # [L + 1]
        self.num_nodes = int(walks.node.max()) + 1
        key = walks.start.unsqueeze(1) * self.num_nodes + walks.node  # [F, L + 1]
        self.key, where = torch.unique(key, return_inverse=True)
        hits = walks.copies.unsqueeze(1) * self.unit * (walks.node != NULL)
        self.code = torch.zeros_like(self.key).index_add_(0, where.flatten(), hits.flatten())
        self.by_own_walks = self.code[where]  # [F, L + 1]

    def of(self, start: Tensor, node: Tensor) -> Tensor:
        """Codes of nodes in the walks of other starts.  # [n], [n, L + 1] -> [n, L + 1]"""
        key = start.unsqueeze(1) * self.num_nodes + node
        at = torch.searchsorted(self.key, key).clamp(max=len(self.key) - 1)
        return torch.where(self.key[at] == key, self.code[at], 0)

    def shares(self, code: Tensor) -> Tensor:
        """Unpack codes.  # [C] -> [C, L + 1]"""
        return (code.unsqueeze(1) // self.unit % (self.count + 1)).double() / self.count


def sides_of(walks: Walks, hits: Hits, endpoint: Tensor, partner: Tensor) -> tuple[Sides, Tensor]:
    """The distinct sides of pairs of starts, and for each pair the index of its side.  # [n], [n] -> [n]"""
    per_pair = walks.per_start[endpoint]  # [n]
    first = walks.per_start.cumsum(0) - walks.per_start  # [E] first walk of each start
    pair = torch.arange(len(endpoint), device=endpoint.device).repeat_interleave(per_pair)
    by_partner = hits.of(partner[pair], walks.node[spans(first[endpoint], per_pair)])  # [., L + 1]
    touched = torch.zeros_like(endpoint).index_add_(0, pair, (by_partner > 0).any(dim=1).long()) > 0
    # with any partner whose walks share no node with its own, an endpoint looks the same
    key = endpoint * (len(first) + 1) + torch.where(touched, partner + 1, 0)
    keys, where = torch.unique(key, return_inverse=True)
    example = torch.empty_like(keys).scatter_(
        0, where, torch.arange(len(key), device=key.device)
    )  # [S] a pair each
    length, order = per_pair[example].sort(stable=True)
    example, where = example[order], torch.argsort(order)[where]
    walk = spans(first[endpoint[example]], length)
    begin = per_pair.cumsum(0) - per_pair
    codes = torch.stack(
        [hits.by_own_walks[walk], by_partner[spans(begin[example], length)]], dim=-1
    )  # [D, L + 1, 2]
    code, row = torch.unique(codes, return_inverse=True)
    trail_example, trail = grouped(row.flatten(1).T)
    return Sides(walk, length, trail, row[trail_example], hits.shares(code)), where


def grouped(columns: Iterable[Tensor]) -> tuple[Tensor, Tensor]:
    """One row of each distinct kind, kinds sorted by column, and every row's kind.  # [n] each -> [m], [n]"""
    kind: Tensor | None = None
    for column in columns:
        key = column if kind is None else kind * (int(column.max()) + 1) + column
        kind = torch.unique(key, return_inverse=True)[1]
    assert kind is not None
    example = torch.empty_like(kind[: int(kind.max()) + 1])
    return example.scatter_(0, kind, torch.arange(len(kind), device=kind.device)), kind
