"""Dropout between a linear map and a sum, at the cost of what is dropped rather than of what is kept."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dsrd.compiled import compiled, vectorised
from dsrd.hashing import STEP, splitmix64, unit_interval
from dsrd.history.index import Ints, enlarged

Reals = NDArray[Any]  # float32 or float64, like the weights
Places = NDArray[np.int32]


class Dropped(NamedTuple):
    """The products `weight[j] . x[e]` that dropout drops."""

    x: Reals  # [E, w]
    weight: Reals  # [J, w]
    group: Ints  # [E] the sum that each row of x belongs to
    row: Places  # [D] e of each dropped product
    column: Places  # [D] j of each


def dropped_sum(x: Tensor, weight: Tensor, group: Tensor, groups: int, p: float, seed: int) -> Tensor:
    """By group, the sum of the dropped entries of `weight @ x`, to be subtracted.

    # [E, w], [J, w], [E] -> [groups, J]

    Every entry of the [E, J] products is dropped with probability p, independently. The sum of all products is one
    product of the sum; only the dropped ones are computed one by one, and no [E, J] table is made:

        sum of dropout(weight @ x) = (weight @ sum of x - dropped_sum) / (1 - p)
    """
    dropped: Tensor = _DroppedSum.apply(x, weight, group, groups, p, seed)  # type: ignore[no-untyped-call]
    return dropped


class _DroppedSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, group: Tensor, groups: int, p: float, seed: int) -> Tensor:
        x_, weight_, group_ = (part.detach().cpu().contiguous().numpy() for part in (x, weight, group))
        row, column = places(len(x), len(weight), p, np.uint64(seed))
        ctx.dropped = dropped = Dropped(x_, weight_, group_, row, column)
        sums = np.zeros((groups, len(weight)), dropped.x.dtype)
        add_dropped(dropped, sums)
        return torch.from_numpy(sums).to(x.device)

    @staticmethod
    def backward(ctx: Any, *grad: Tensor) -> tuple[Tensor | None, ...]:
        dropped: Dropped = ctx.dropped
        to_x, to_weight = np.zeros_like(dropped.x), np.zeros_like(dropped.weight)
        add_gradients(dropped, grad[0].cpu().contiguous().numpy(), to_x, to_weight)
        device = grad[0].device
        return torch.from_numpy(to_x).to(device), torch.from_numpy(to_weight).to(device), None, None, None, None


@compiled
def places(rows: int, columns: int, p: float, seed: np.uint64) -> tuple[Places, Places]:
    """Places of a table, each with probability p: (row, column), in order.

    The gaps between them are drawn, of geometric length, instead of a number for each place.
    """
    rate, expected = -np.log1p(-p), p * rows * columns
    row_of = np.empty(int(expected + 4 * np.sqrt(expected)) + 16, np.int32)
    column_of = np.empty_like(row_of)
    row, column, count = 0, 0, 0
    while True:
        seed += STEP
        gap = -np.log(1.0 - unit_interval(splitmix64(seed))) / rate
        column += int(min(gap, float(rows) * columns))
        while column >= columns:
            column -= columns
            row += 1
        if row >= rows:
            return row_of[:count], column_of[:count]
        if count == len(row_of):
            row_of, column_of = enlarged(row_of, 2 * count), enlarged(column_of, 2 * count)
        row_of[count], column_of[count] = row, column
        count += 1
        column += 1


@vectorised
def add_dropped(dropped: Dropped, sums: Reals) -> None:
    """Add each dropped product to the sum of its group."""
    x, weight = dropped.x, dropped.weight
    for d in range(len(dropped.row)):
        e, j = dropped.row[d], dropped.column[d]
        product = x[e, 0] * weight[j, 0]
        for i in range(1, x.shape[1]):
            product += x[e, i] * weight[j, i]
        sums[dropped.group[e], j] += product


@vectorised
def add_gradients(dropped: Dropped, grad: Reals, to_x: Reals, to_weight: Reals) -> None:
    """Add the gradients of the dropped products with respect to x and to the weights."""
    x, weight = dropped.x, dropped.weight
    for d in range(len(dropped.row)):
        e, j = dropped.row[d], dropped.column[d]
        g = grad[dropped.group[e], j]
        for i in range(x.shape[1]):
            to_x[e, i] += g * weight[j, i]
            to_weight[j, i] += g * x[e, i]
