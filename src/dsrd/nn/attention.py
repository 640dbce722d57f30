"""Attention from a node at a time to its past interactions, and a stack of such layers."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from dsrd.events import Neighbors
from dsrd.nn.distinct import distinct
from dsrd.nn.linear import BlockLinear, Merge


def links_of_layers(neighbors: int, layers: int) -> int:
    """Interactions that so many layers read for a node: its neighbours, theirs, ...

    >>> links_of_layers(20, 2)
    420
    """
    links: int = sum(neighbors**layer for layer in range(1, layers + 1))
    return min(links, 1 << 62)


class TemporalAttention(nn.Module):
    """Multi-head attention with node, edge and time features as keys and values (TGAT, TGN).

    A node without history attends to nothing: its attention is zero and only the residual remains. With
    `attend_padding` it attends to its padding instead, as the public code does.
    """

    def __init__(
        self, node_dim: int, edge_dim: int, time_dim: int, heads: int, dropout: float, attend_padding: bool = False
    ) -> None:
        super().__init__()
        self.heads = heads
        self.attend_padding = attend_padding
        width = node_dim + time_dim
        self.head_dim = math.ceil(width / heads)
        inner = heads * self.head_dim
        self.query = nn.Linear(width, inner, bias=False)
        self.key = BlockLinear([node_dim, time_dim, edge_dim], inner, bias=False)
        self.value = BlockLinear([node_dim, time_dim, edge_dim], inner, bias=False)
        self.mix = nn.Linear(inner, width)
        self.norm = nn.LayerNorm(width)
        self.dropout = nn.Dropout(dropout)

    def forward(
        self, node: Tensor, now: Tensor, neighbor: Tensor, age: Tensor, edge: Tensor, mask: Tensor
    ) -> Tensor:  # [Q, n], [Q, t], [Q, k, n], [Q, k, t], [Q, k, e], [Q, k] -> [Q, n + t]
        center = torch.cat([node, now], dim=-1)  # [Q, n + t]
        query = self.query(center).unflatten(-1, (self.heads, self.head_dim))  # [Q, h, d]
        # with one query per row it is cheaper to map the query and the sum than all k neighbours
        links = torch.cat([neighbor, age, edge], dim=-1)  # [Q, k, w]
        key, value = (
            part.columns(neighbor, age, edge).view(self.heads, self.head_dim, links.shape[-1])  # [h, d, w]
            for part in (self.key, self.value)
        )
        probe = torch.einsum("qhd,hdw->qhw", query, key) / math.sqrt(self.head_dim)
        logits = torch.bmm(probe, links.transpose(1, 2))  # [Q, h, k]
        logits = logits.masked_fill(~mask.unsqueeze(1), -1e10)
        weight = self.dropout(logits.softmax(dim=-1))
        if not self.attend_padding:
            weight = weight * mask.unsqueeze(1)
        read = torch.einsum("qhw,hdw->qhd", torch.bmm(weight, links), value).flatten(1)  # [Q, h * d]
        mixed: Tensor = self.norm(self.dropout(self.mix(read)) + center)
        return mixed


def attention_layers(
    dim: int, time_dim: int, layers: int, heads: int, dropout: float, attend_padding: bool
) -> tuple[nn.ModuleList, nn.ModuleList]:
    """The two parts of each layer of `StackedAttention`: the attention, and what merges it with the node."""
    attention = nn.ModuleList(
        TemporalAttention(dim, dim, time_dim, heads, dropout, attend_padding) for _ in range(layers)
    )
    return attention, nn.ModuleList(Merge([dim + time_dim, dim], dim, dim) for _ in range(layers))


@dataclass(frozen=True)
class StackedAttention:
    """Embeds nodes at times by layers of attention: over neighbours, over their neighbours, and so on.

        h_0(u, t) = start(u)
        h_l(u, t) = merge( attention( h_{l-1}(u, t); { h_{l-1}(v, t_v), x(e), clock(t - t_v) } ), start(u) )

    over the interactions e = (u, v, t_v) that `neighbors` picks. A neighbour at the time it was met is embedded
    once, however many nodes have met it then.
    """

    dim: int
    attention: nn.ModuleList
    merge: nn.ModuleList
    clock: nn.Module  # encodes ages: [...] -> [..., time_dim]
    start: Callable[[Tensor], Tensor]  # features of nodes before any layer: [n] -> [n, at most dim]
    neighbors: Callable[[Tensor, Tensor], Neighbors]  # of nodes before times: [Q], [Q] -> [Q, k]
    edge_x: Callable[[Tensor], Tensor]  # features of events

    def __call__(self, node: Tensor, time: Tensor) -> Tensor:  # [Q], [Q] -> [Q, dim]
        return self._embed(node, time, len(self.attention))

    def _embed(self, node: Tensor, time: Tensor, layer: int) -> Tensor:
        if layer == 0:
            return self.start(node)
        links = self.neighbors(node, time)
        below = self._below(node, time, links, layer)  # [Q + Q * k, d]
        center, neighbor = below[: len(node)], below[len(node) :].view(*links.node.shape, below.shape[-1])
        first = center if layer == 1 else self.start(node)
        attention, merge = self.attention[layer - 1], self.merge[layer - 1]
        now, age = self.clock(torch.zeros_like(time)), self.clock(time.unsqueeze(1) - links.time)
        if center.shape[-1] < self.dim:  # features may be narrower than embeddings
            center = nn.functional.pad(center, (0, self.dim - center.shape[-1]))
        read = attention(center, now, neighbor, age, self.edge_x(links.event), links.mask)
        embedded: Tensor = merge(read, first)
        return embedded

    def _below(self, node: Tensor, time: Tensor, links: Neighbors, layer: int) -> Tensor:
        """The layer below, of the nodes and then of all their neighbours."""
        nodes = torch.cat([node, links.node.flatten()])
        if layer == 1:  # without layers a node is the same at all times
            return self.start(nodes)
        node, time, where = distinct(nodes, torch.cat([time, links.time.flatten()]))
        return self._embed(node, time, layer - 1)[where]
