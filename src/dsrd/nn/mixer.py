"""The MLP-mixer block: mix over tokens, then over channels."""

from __future__ import annotations

from torch import Tensor, nn

from dsrd.nn.feed_forward import FeedForward
from dsrd.nn.pool import Pool
from dsrd.nn.residual import fed, fed_and_pooled
from dsrd.nn.token_mix import tokens_mixed


class MixerBlock(nn.Module):
    """Residual feed-forward nets along the tokens and along the channels, each behind a layer norm."""

    def __init__(
        self,
        tokens: int,
        channels: int,
        token_factor: float = 0.5,
        channel_factor: float = 4.0,
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        self.token_norm = nn.LayerNorm(tokens)
        self.token_mix = FeedForward(tokens, token_factor, dropout)
        self.channel_norm = nn.LayerNorm(channels)
        self.channel_mix = FeedForward(channels, channel_factor, dropout)

    def forward(self, x: Tensor) -> Tensor:  # [Q, tokens, channels]
        x = tokens_mixed(x, self.token_norm, self.token_mix)
        return fed(x.flatten(0, 1), self.channel_norm, self.channel_mix, norm_first=True).view(x.shape)

    def mean(self, x: Tensor) -> Tensor:
        """self(x).mean(dim=1), cheaper: for the last block.  # [Q, tokens, channels] -> [Q, channels]"""
        x = tokens_mixed(x, self.token_norm, self.token_mix)
        pool = Pool.of_equal(len(x), x.shape[1], x)
        return fed_and_pooled(x.flatten(0, 1), self.channel_norm, self.channel_mix, pool)
