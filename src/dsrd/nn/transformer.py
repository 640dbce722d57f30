"""Attention over sequences of unequal lengths, without computing padding, and a transformer block."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from dsrd.errors import DsrdError
from dsrd.nn.dropout import Dropout
from dsrd.nn.feed_forward import FeedForward
from dsrd.nn.products import linear
from dsrd.nn.ragged import Layout
from dsrd.nn.ragged_attention import Reading, attend
from dsrd.nn.residual import added, fed


class MultiHead(nn.Module):
    """Multi-head attention; initialised like, and equal to, `nn.MultiheadAttention`, without its last map."""

    def __init__(self, dim: int, heads: int, dropout: float) -> None:
        super().__init__()
        if dim % heads:
            raise DsrdError(f"model.heads={heads}: does not divide the width {dim}; give a divisor of it")
        self.heads = heads
        self.weight = nn.Parameter(torch.empty(3 * dim, dim))  # of queries, keys, values
        self.bias = nn.Parameter(torch.zeros(3 * dim))
        self.mix = nn.Linear(dim, dim)
        self.dropout = Dropout(dropout)
        nn.init.xavier_uniform_(self.weight)
        nn.init.zeros_(self.mix.bias)

    def forward(
        self, x: Tensor, layout: Layout, other: Tensor | None = None, other_layout: Layout | None = None
    ) -> Tensor:
        """Every token attends to its own sequence, or to the sequence of `other` at the same position.

        The last linear map, `mix`, is left to the caller.  # [T, dim] -> [T, dim]
        """
        seed = self.dropout.seeds(1)[0] if self.dropout.active else None
        how = Reading(self.heads, layout, other_layout or layout, self.dropout.p, seed)
        if other is None:
            return attend(self._projected(x, 0, 3), None, how)
        return attend(self._projected(x, 0, 1), self._projected(other, 1, 3), how)

    def _projected(self, x: Tensor, first: int, last: int) -> Tensor:
        dim = x.shape[-1]
        part = slice(first * dim, last * dim)
        return linear(x, self.weight[part], self.bias[part])


class PostNormBlock(nn.Module):
    """norm(x + attention(x, other)), then norm(x + feed_forward(x)); ReLU inside."""

    def __init__(self, dim: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.norm_mid, self.norm_out = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attention = MultiHead(dim, heads, dropout)
        self.feed = FeedForward(dim, 4, dropout, activation=nn.ReLU)
        self.dropout = Dropout(dropout)

    def forward(
        self, x: Tensor, layout: Layout, other: Tensor | None = None, other_layout: Layout | None = None
    ) -> Tensor:  # [T, dim] -> [T, dim]
        read = self.attention(x, layout, other, other_layout)
        x = self.norm_mid(added(x, read, self.attention.mix, self.dropout))
        return fed(x, self.norm_out, self.feed, norm_first=False)
