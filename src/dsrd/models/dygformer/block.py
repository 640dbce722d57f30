"""A transformer block with the layer norms in front."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from dsrd.nn.dropout import Dropout
from dsrd.nn.feed_forward import FeedForward
from dsrd.nn.transformer import Layout, MultiHead


class PreNormBlock(nn.Module):
    """x + attention(norm(x)), then x + feed_forward(norm(x)); GELU inside."""

    def __init__(self, dim: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.norm_in, self.norm_mid = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attention = MultiHead(dim, heads, dropout)
        self.feed = FeedForward(dim, 4, dropout)
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor, layout: Layout) -> Tensor:  # [T, dim] -> [T, dim]
        x = self._attended(x, layout)
        out: Tensor = x + self.feed(self.norm_mid(x))
        return out

    def pooled(self, x: Tensor, layout: Layout, pool: Callable[[Tensor], Tensor]) -> Tensor:
        """pool(self(x)) for means over tokens, cheaper: for the last block of a stack."""
        x = self._attended(x, layout)
        return pool(x) + self.feed.pooled(self.norm_mid(x), pool)

    def _attended(self, x: Tensor, layout: Layout) -> Tensor:
        attended: Tensor = x + self.dropout(self.attention(self.norm_in(x), layout))
        return attended
