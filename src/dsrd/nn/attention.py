"""Attention from a node at a time to its past interactions."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from dsrd.nn.linear import BlockLinear


class TemporalAttention(nn.Module):
    """Multi-head attention with node, edge and time features as keys and values (TGAT, TGN).

    A node without history attends to nothing: its attention is zero and the residual passes alone. With
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
        self, node: Tensor, now: Tensor, there: Tensor, age: Tensor, edge: Tensor, mask: Tensor
    ) -> Tensor:  # [Q, n], [Q, t], [Q, k, n], [Q, k, t], [Q, k, e], [Q, k] -> [Q, n + t]
        own = torch.cat([node, now], dim=-1)  # [Q, n + t]
        query = self.query(own).unflatten(-1, (self.heads, self.head_dim))  # [Q, h, d]
        # with one query per row, mapping the query back and the sum forth spares mapping all k neighbours
        met = torch.cat([there, age, edge], dim=-1)  # [Q, k, w]
        key, value = (
            part.columns(there, age, edge).view(self.heads, self.head_dim, met.shape[-1])  # [h, d, w]
            for part in (self.key, self.value)
        )
        probe = torch.einsum("qhd,hdw->qhw", query, key) / math.sqrt(self.head_dim)
        logits = torch.bmm(probe, met.transpose(1, 2))  # [Q, h, k]
        logits = logits.masked_fill(~mask.unsqueeze(1), -1e10)
        weight = self.dropout(logits.softmax(dim=-1))
        if not self.attend_padding:
            weight = weight * mask.unsqueeze(1)
        read = torch.einsum("qhw,hdw->qhd", torch.bmm(weight, met), value).flatten(1)  # [Q, h * d]
        mixed: Tensor = self.norm(self.dropout(self.mix(read)) + own)
        return mixed


class Merge(nn.Module):
    """Two inputs, one hidden layer."""

    def __init__(self, widths: list[int], hidden_dim: int, out_dim: int) -> None:
        super().__init__()
        self.hidden = BlockLinear(widths, hidden_dim)
        self.out = nn.Linear(hidden_dim, out_dim)

    def forward(self, *blocks: Tensor) -> Tensor:
        merged: Tensor = self.out(torch.relu(self.hidden(*blocks)))
        return merged
