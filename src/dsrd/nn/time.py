"""Time as features: cosines at frequencies spread over nine decades."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class CosineTime(nn.Module):
    """cos(dt * w + b) with w from 1 down to 1e-9: a day and a second both show.

    `trainable` as in TGAT and TGN; fixed as in GraphMixer. Differences are taken in float64 by the caller.
    """

    def __init__(self, dim: int, trainable: bool = True) -> None:
        super().__init__()
        rate = 10.0 ** -torch.linspace(0, 9, dim, dtype=torch.float64)
        self.rate = nn.Parameter(rate.float(), requires_grad=trainable)  # [dim]
        self.phase = nn.Parameter(torch.zeros(dim), requires_grad=trainable)  # [dim]

    def forward(self, dt: Tensor) -> Tensor:  # [...] -> [..., dim]
        return torch.cos(dt.float().unsqueeze(-1) * self.rate + self.phase)
