"""Dropout with a hash instead of a random generator: several times faster than torch's on one core."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from dsrd.compiled import compiled
from dsrd.hashing import splitmix64


@compiled
def drop(x: NDArray[Any], seed: int, first: int, threshold: int, scale: float) -> None:
    """Multiply by `scale` where a 32-bit hash of seed and position reaches `threshold`, by zero elsewhere.

    Positions count from `first`, so that a piece of an array is treated like that part of the whole. All of the
    hash is in 32 bits: the compiler then computes eight positions at a time.
    """
    low, high = np.uint32(seed & 0xFFFFFFFF), np.uint32(seed >> 32)
    start, least = np.uint32(first & 0xFFFFFFFF), np.uint32(threshold)
    factor, zero = x.dtype.type(scale), x.dtype.type(0)
    for i in range(len(x)):
        h = np.uint32(start + np.uint32(i)) ^ low
        h = np.uint32((h ^ (h >> np.uint32(17))) * np.uint32(0xED5AD4BB))
        h = np.uint32((h ^ (h >> np.uint32(11))) * np.uint32(0xAC4C1B51) + high)
        h = np.uint32((h ^ (h >> np.uint32(15))) * np.uint32(0x31848BAB))
        h = h ^ (h >> np.uint32(14))
        x[i] *= factor if h >= least else zero


class _HashedDropout(torch.autograd.Function):
    """The backward pass computes the same hashes again, so that no mask is kept."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, seed: int, p: float) -> Tensor:
        ctx.seed, ctx.p = seed, p
        return dropout_(x.clone(memory_format=torch.contiguous_format), seed, p)

    @staticmethod
    def backward(ctx: Any, *grad: Tensor) -> tuple[Tensor, None, None]:
        return dropout_(grad[0].clone(memory_format=torch.contiguous_format), ctx.seed, ctx.p), None, None


def dropout_(x: Tensor, seed: int, p: float, first: int = 0) -> Tensor:
    """Dropout of a contiguous tensor, in place; `first` is the position of its first number in the whole."""
    drop(x.detach().view(-1).numpy(), seed, first, int(p * 2**32), 1 / (1 - p))
    return x


class Dropout(nn.Module):
    """`nn.Dropout` that draws one seed per call from torch's generator: a seeded run can still be repeated.

    >>> Dropout(0.5).eval()(torch.ones(2)).tolist()
    [1.0, 1.0]
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p
        self.rank = 0  # of this process, where several train together: each has masks of its own

    @property
    def active(self) -> bool:
        """Whether a call would change anything."""
        return self.training and self.p > 0

    def seeds(self, count: int) -> list[int]:
        """Seeds for `count` masks, drawn from torch's generator: a seeded run can be repeated.

        The generator moves on by as much in every process, so that whatever else is drawn from it stays the same.
        """
        drawn: list[int] = torch.randint(2**62, (count,)).tolist()
        return [int(splitmix64(seed ^ self.rank)) >> 2 for seed in drawn] if self.rank else drawn

    def forward(self, x: Tensor) -> Tensor:
        if not self.active:
            return x
        if x.device.type != "cpu" or self.p >= 1:
            return nn.functional.dropout(x, self.p)
        dropped: Tensor = _HashedDropout.apply(x, *self.seeds(1), self.p)  # type: ignore[no-untyped-call]
        return dropped

    def extra_repr(self) -> str:
        return f"p={self.p}"
