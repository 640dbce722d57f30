"""Dropout between a linear map and a sum, at the cost of what is dropped rather than of what is kept."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from dsrd.compiled import compiled, vectorised
from dsrd.hashing import splitmix64, unit_interval
from dsrd.history.index import enlarged


def dropped_sum(x: Tensor, weight: Tensor, group: Tensor, groups: int, p: float) -> Tensor:
    """What dropout takes from the sum over each group of `weight @ x`.  # [E, w], [J, w], [E] -> [groups, J]

    Every entry of the [E, J] products is dropped with probability p, independently. The sum of the products is one
    product of the sum; only the dropped ones have to be made one by one, and no [E, J] table is ever made:

        sum of dropout(weight @ x) = (weight @ sum of x - dropped_sum) / (1 - p)

    Torch's generator is asked for one seed per call.
    """
    seed = int(torch.randint(2**62, (1,)))
    taken: Tensor = _Dropped.apply(x, weight, group, groups, p, seed)  # type: ignore[no-untyped-call]
    return taken


class _Dropped(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, group: Tensor, groups: int, p: float, seed: int) -> Tensor:
        x_, weight_, group_ = (part.detach().cpu().contiguous().numpy() for part in (x, weight, group))
        row, column = places(len(x), len(weight), p, np.uint64(seed))
        taken = np.zeros((groups, len(weight)), x_.dtype)
        add_dropped(x_, weight_, group_, row, column, taken)
        ctx.walked = x_, weight_, group_, row, column
        return torch.from_numpy(taken).to(x.device)

    @staticmethod
    def backward(ctx: Any, *grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, group, row, column = ctx.walked
        to_x, to_weight = np.zeros_like(x), np.zeros_like(weight)
        add_gradients(x, weight, group, row, column, grad[0].cpu().contiguous().numpy(), to_x, to_weight)
        device = grad[0].device
        return torch.from_numpy(to_x).to(device), torch.from_numpy(to_weight).to(device), None, None, None, None


@compiled
def places(rows: int, columns: int, p: float, seed: Any) -> Any:
    """Each place of a table with probability p: (row, column), in order.

    Leaps of geometric length, the number of places passed over, instead of a coin for each.
    """
    rate, expected = -np.log1p(-p), p * rows * columns
    row_of = np.empty(int(expected + 4 * np.sqrt(expected)) + 16, np.int32)
    column_of = np.empty_like(row_of)
    row, column, count = 0, 0, 0
    while True:
        seed += np.uint64(0x9E3779B97F4A7C15)
        chance = unit_interval(splitmix64(seed))
        leap = -np.log(1.0 - chance) / rate
        column += int(min(leap, float(rows) * columns))
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
def add_dropped(x: Any, weight: Any, group: Any, row: Any, column: Any, taken: Any) -> None:
    """Add the products at these places to their group's sum."""
    for place in range(len(row)):
        e, j = row[place], column[place]
        product = x[e, 0] * weight[j, 0]
        for i in range(1, x.shape[1]):
            product += x[e, i] * weight[j, i]
        taken[group[e], j] += product


@vectorised
def add_gradients(
    x: Any, weight: Any, group: Any, row: Any, column: Any, grad: Any, grad_x: Any, grad_weight: Any
) -> None:
    """What the products at these places owe to x and to the weights."""
    for place in range(len(row)):
        e, j = row[place], column[place]
        g = grad[group[e], j]
        for i in range(x.shape[1]):
            grad_x[e, i] += g * weight[j, i]
            grad_weight[j, i] += g * x[e, i]
