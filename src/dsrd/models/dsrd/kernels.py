"""Learned retention of the walk state: each head reads the state at a decay rate of its own.

The state is stored at a grid of decay rates. A head's kernel is a mixture of the two exponentials of the grid that
are next to its learned time constant, so its half-life moves continuously between the ends of the grid and has a
gradient everywhere. Products and counts are linear in the kernel: the reading of a mixture is the mixture of
readings.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from dsrd.models.dsrd.settings import DSRDConfig


class Kernels(nn.Module):
    """Time constants, one per head, as places on the grid: 0 is its fastest rate, 1 its slowest."""

    def __init__(self, config: DSRDConfig) -> None:
        super().__init__()
        self.fixed = config.ablate == "no_temporal_decay"
        place = (torch.arange(config.heads) + 0.5) / config.heads
        self.raw_place = nn.Parameter(torch.logit(place))

    def log_scale(self, log_scales: Tensor) -> Tensor:
        """The logarithm of each head's time constant, given those of the grid, ascending.  # [G] -> [H]"""
        return log_scales[0] + torch.sigmoid(self.raw_place) * (log_scales[-1] - log_scales[0])

    def weights(self, log_scales: Tensor, places: Tensor) -> Tensor:
        """The weight of each grid rate in each head's kernel; rows sum to 1.  # [G] -> [H, G]

        `places` are the log scales that places refer to. Without temporal decay only the slowest rate is read.
        """
        return mixtures(self.raw_place, log_scales, places, self.fixed)


def mixtures(raw_place: Tensor, log_scales: Tensor, places: Tensor, fixed: bool = False) -> Tensor:
    """`Kernels.weights` of several layers at once, or of one.  # [..., H], [G], [P] -> [..., H, G]"""
    if fixed or len(log_scales) == 1:
        weight = raw_place.new_zeros(*raw_place.shape, len(log_scales))
        weight[..., -1] = 1
        return weight
    if raw_place.device.type == "cpu":
        weight = _Mixtures.apply(raw_place, log_scales, places)  # type: ignore[no-untyped-call]
        return weight
    return mixtures_plainly(raw_place, log_scales, places)


def mixtures_plainly(raw_place: Tensor, log_scales: Tensor, places: Tensor) -> Tensor:
    """The same in plain torch."""
    wanted = (places[0] + torch.sigmoid(raw_place) * (places[-1] - places[0])).unsqueeze(-1)  # [..., H, 1]
    passed = ((wanted - log_scales[:-1]) / log_scales.diff()).clamp(
        0, 1
    )  # [..., H, G - 1]: share of each interval
    first, last = 1 - passed[..., :1], passed[..., -1:]
    return torch.cat([first, passed[..., :-1] - passed[..., 1:], last], dim=-1)


class _Mixtures(torch.autograd.Function):
    """`mixtures` as one step of autograd, where it would be a dozen."""

    @staticmethod
    def forward(ctx: Any, raw_place: Tensor, log_scales: Tensor, places: Tensor) -> Tensor:
        share = torch.sigmoid(raw_place)
        slope = share * (1 - share) * (places[-1] - places[0])
        wanted, steps = places[0] + share * (places[-1] - places[0]), log_scales.diff()
        part = (wanted.unsqueeze(-1) - log_scales[:-1]) / steps
        passed = part.clamp(0, 1)  # [..., H, G - 1]: share of each interval
        weight = torch.zeros(*raw_place.shape, len(log_scales))
        weight[..., 0] = 1
        weight[..., :-1] -= passed
        weight[..., 1:] += passed
        ctx.slope = (passed == part) / steps * slope.unsqueeze(-1)
        return weight

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        grad = grads[0]
        return ((grad[..., 1:] - grad[..., :-1]) * ctx.slope).sum(-1), None, None


def read_at(values: Tensor, weight: Tensor) -> Tensor:
    """Mix the readings of the grid by the kernels.  # [..., G * C], [H, G] -> [..., H * C]"""
    channels = values.shape[-1] // weight.shape[1]
    mix = torch.kron(
        weight.t().clone(memory_format=torch.contiguous_format),
        torch.eye(channels, dtype=weight.dtype, device=weight.device),
    )  # [G * C, H * C]
    return values @ mix


def half_lives(weight: Tensor, scales: Tensor) -> Tensor:
    """The age at which each kernel, a mixture of exponentials with these scales, is 1/2.  # [H, G], [G] -> [H]"""
    low, high = scales[0] * math.log(2), scales[-1] * math.log(2)
    low, high = low.expand(len(weight)), high.expand(len(weight))
    for _ in range(60):  # bisection on a logarithmic scale
        middle = (low * high).sqrt()
        above = (weight * torch.exp(-middle.unsqueeze(1) / scales)).sum(1) > 0.5
        low, high = torch.where(above, middle, low), torch.where(above, high, middle)
    return high
