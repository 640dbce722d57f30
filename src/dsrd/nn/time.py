"""Time as features: cosines with rates over nine decades; ages mapped to a number from 0 to 1."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from dsrd.events import Events

TICKS = 1e7  # in the training stream's span: on the benchmarks about a second
OLDEST = 1e3  # spans; older ages count as about this old


class CosineTime(nn.Module):
    """cos(dt * w + b) with w from 1 down to 1e-9, to tell apart seconds as well as days.

    `trainable` as in TGAT and TGN; fixed as in GraphMixer. Differences are taken in float64 by the caller.
    """

    def __init__(self, dim: int, trainable: bool = True) -> None:
        super().__init__()
        rate = 10.0 ** -torch.linspace(0, 9, dim, dtype=torch.float64)
        self.rate = nn.Parameter(rate.float(), requires_grad=trainable)  # [dim]
        self.phase = nn.Parameter(torch.zeros(dim), requires_grad=trainable)  # [dim]

    def forward(self, dt: Tensor) -> Tensor:  # [...] -> [..., dim]
        return torch.cos(dt.float().unsqueeze(-1) * self.rate + self.phase)


class Freshness(nn.Module):
    """Ages mapped to 1 (now) down to 0.01 (a thousand training spans), linear in log(1 + age); 0 for never.

    Ages count in ticks, a fixed share of the training stream's span, so the unit of time does not matter.

    >>> fresh = Freshness()
    >>> fresh.calibrate(Events.from_numpy([1, 1], [2, 2], [0.0, 1e7]))
    >>> [round(value, 3) for value in fresh(torch.tensor([0.0, 1e7, torch.inf]).double()).tolist()]
    [1.0, 0.3, 0.0]
    """

    def __init__(self) -> None:
        super().__init__()
        self.tick: Tensor  # the age that counts as 1
        self.register_buffer("tick", torch.ones((), dtype=torch.float64))

    def calibrate(self, train: Events) -> None:
        """Measure the tick on the training stream."""
        self.tick = torch.tensor(span(train) / TICKS, dtype=torch.float64, device=self.tick.device)

    def forward(self, age: Tensor) -> Tensor:  # [...] float64 -> [...] float64
        old = torch.log1p(age.clamp(min=0) / self.tick.to(age.device)) / math.log1p(TICKS * OLDEST)
        return torch.where(age < torch.inf, 1 - old.clamp(max=0.99), 0.0)


def span(events: Events) -> float:
    """Time from the first event to the last; 1 if there is none.

    >>> span(Events.from_numpy([1, 1], [2, 2], [3.0, 5.0]))
    2.0
    """
    return float(events.time[-1] - events.time[0]) or 1.0 if len(events) else 1.0
