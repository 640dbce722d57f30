"""Learned retention of the walk state: each head reads the state at a decay rate of its own.

The state is stored at a grid of decay rates. A head's kernel is a mixture of the two exponentials of the grid that
are next to its learned time constant, so its half-life moves continuously between the ends of the grid and has a
gradient everywhere. Products and counts are linear in the kernel: the reading of a mixture is the mixture of
readings.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from dsrd.compiled import compiled
from dsrd.models.dsrd.settings import DSRDConfig

Singles = NDArray[np.float32]


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
        mixed: Tensor = _Mixtures.apply(raw_place, log_scales, places)  # type: ignore[no-untyped-call]
        return mixed
    return mixtures_plainly(raw_place, log_scales, places)


def mixtures_plainly(raw_place: Tensor, log_scales: Tensor, places: Tensor) -> Tensor:
    """The same in plain torch."""
    wanted = (places[0] + torch.sigmoid(raw_place) * (places[-1] - places[0])).unsqueeze(-1)  # [..., H, 1]
    passed = ((wanted - log_scales[:-1]) / log_scales.diff()).clamp(
        0, 1
    )  # [..., H, G - 1]: share of each interval
    first, last = 1 - passed[..., :1], passed[..., -1:]
    return torch.cat([first, passed[..., :-1] - passed[..., 1:], last], dim=-1)


@compiled
def mix_places(raw: Singles, scales: Singles, ends: tuple[float, float], out: tuple[Singles, Singles]) -> None:
    """The weights of each head, and the slopes of the shares of intervals.  # [n], [G] -> [n, G], [n, G - 1]"""
    weight, slope = out
    for n in range(len(raw)):
        share = 1 / (1 + np.exp(-raw[n]))
        wanted = ends[0] + share * (ends[1] - ends[0])
        weight[n, 0] = 1
        for i in range(len(scales) - 1):
            step = scales[i + 1] - scales[i]
            part = (wanted - scales[i]) / step
            passed = min(max(part, 0), 1)
            weight[n, i] -= passed
            weight[n, i + 1] = passed
            slope[n, i] = share * (1 - share) * (ends[1] - ends[0]) / step if passed == part else 0


class _Mixtures(torch.autograd.Function):
    """`mixtures_plainly` as one step of autograd, where it would be a dozen."""

    @staticmethod
    def forward(ctx: Any, raw_place: Tensor, log_scales: Tensor, places: Tensor) -> Tensor:
        heads, rates, ends = raw_place.numel(), len(log_scales), places.numpy()
        weight, slope = np.empty((heads, rates), np.float32), np.empty((heads, rates - 1), np.float32)
        raw = raw_place.detach().reshape(-1).numpy()
        mix_places(raw, log_scales.numpy(), (float(ends[0]), float(ends[-1])), (weight, slope))
        ctx.slope = slope
        return torch.from_numpy(weight).view(*raw_place.shape, rates)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        grad = grads[0].reshape(-1, grads[0].shape[-1]).numpy()
        to_raw = ((grad[:, 1:] - grad[:, :-1]) * ctx.slope).sum(1)
        return torch.from_numpy(to_raw).view(grads[0].shape[:-1]), None, None


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
