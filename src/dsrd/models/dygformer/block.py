"""A transformer block with the layer norms in front."""

from __future__ import annotations

from torch import Tensor, nn

from dsrd.nn.dropout import Dropout
from dsrd.nn.feed_forward import FeedForward
from dsrd.nn.pool import Pool
from dsrd.nn.ragged import Layout
from dsrd.nn.residual import added, fed, fed_and_pooled
from dsrd.nn.transformer import MultiHead


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
        return fed(x, self.norm_mid, self.feed, norm_first=True)

    def pooled(self, x: Tensor, layout: Layout, pool: Pool) -> Tensor:
        """pool.mean(self(x)), cheaper: for the last block of a stack."""
        return fed_and_pooled(self._attended(x, layout), self.norm_mid, self.feed, pool)

    def _attended(self, x: Tensor, layout: Layout) -> Tensor:
        return added(x, self.attention(self.norm_in(x), layout), self.attention.mix, self.dropout)
