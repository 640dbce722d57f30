"""Weighted means over rows that belong together."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dsrd.compiled import compiled
from dsrd.history.index import Ints


class Pool(NamedTuple):
    """Q means of T rows."""

    owner: Tensor  # [T] the mean that each row belongs to
    weight: Tensor  # [T] of the row in the mean
    means: int  # Q

    @classmethod
    def of_equal(cls, count: int, rows: int, like: Tensor) -> Pool:
        """Means over `rows` rows each.

        >>> Pool.of_equal(2, 3, torch.ones(())).owner.tolist()
        [0, 0, 0, 1, 1, 1]
        """
        owner = torch.arange(count, device=like.device).repeat_interleave(rows)
        return cls(owner, like.new_full((count * rows,), 1 / rows), count)

    def part(self, rows: slice) -> Pool:
        """The same means, of some of the rows."""
        return Pool(self.owner[rows], self.weight[rows], self.means)

    def mean(self, x: Tensor) -> Tensor:  # [T, d] -> [Q, d]
        mean: Tensor = _Mean.apply(x, self)  # type: ignore[no-untyped-call]
        return mean

    def spread(self, grad: Tensor) -> Tensor:
        """What a gradient of the means is to the rows.  # [Q, d] -> [T, d]"""
        return grad.index_select(0, self.owner).mul_(self.weight.unsqueeze(1))


class _Mean(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, pool: Pool) -> Tensor:
        ctx.pool = pool
        out = x.new_zeros(pool.means, x.shape[1])
        add_pooled(out, x, pool)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return ctx.pool.spread(grads[0]), None


def add_pooled(out: Tensor, x: Tensor, pool: Pool) -> None:
    """Add rows to the means that they belong to.  # [Q, d], [T, d]"""
    if x.device.type == "cpu":
        _add_rows(*(part.detach().numpy() for part in (out, x, pool.owner, pool.weight)))
    else:
        out.index_add_(0, pool.owner, x * pool.weight.unsqueeze(1))


@compiled
def _add_rows(out: NDArray[np.float32], x: NDArray[np.float32], owner: Ints, weight: NDArray[np.float32]) -> None:
    for row in range(len(x)):
        total, share = out[owner[row]], weight[row]
        for i in range(x.shape[1]):
            total[i] += share * x[row, i]
