"""The MLP-mixer block: mix over tokens, then over channels."""

from __future__ import annotations

from torch import Tensor, nn


class FeedForward(nn.Sequential):
    """Linear, GELU, linear, with dropout after each."""

    def __init__(self, dim: int, factor: float, dropout: float) -> None:
        hidden = max(1, int(factor * dim))
        super().__init__(
            nn.Linear(dim, hidden), nn.GELU(), nn.Dropout(dropout), nn.Linear(hidden, dim), nn.Dropout(dropout)
        )


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
        by_channel = x.transpose(1, 2)  # [Q, channels, tokens]
        x = x + self.token_mix(self.token_norm(by_channel)).transpose(1, 2)
        mixed: Tensor = x + self.channel_mix(self.channel_norm(x))
        return mixed
