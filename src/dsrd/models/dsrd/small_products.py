"""Products of tall and narrow matrices, compiled; the default library, made for large ones, takes twice as long.

Eight rows of a result are summed at a time, sixteen columns of each in one register (`lanes`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from dsrd.compiled import compiled, inlined
from dsrd.models.dsrd.lanes import LANES, element, filled, load, plus, store
from dsrd.models.dsrd.walk_state import Singles

ROWS = 8
SHORT_SUM = 256  # rows that are summed before they are added to the total: fewer digits are lost
NONE = np.zeros(0, np.float32)


class Tile(NamedTuple):
    """Where a result is computed: rows and columns of it, and how many numbers each is a sum of."""

    row: int
    column: int
    columns: int  # that exist; up to `LANES` of them are computed
    first: int  # of the numbers that are summed
    stop: int


@inlined
def rows_times(a: Singles, weight: Singles, bias: Singles, out: Singles, at: Tile) -> None:
    """Eight rows of a, times some columns of the weights, plus the bias if there is one."""
    r, n, count = at.row, at.column, at.columns
    start = load(bias, (n,), count) if len(bias) else filled(0.0)
    s0, s1, s2, s3, s4, s5, s6, s7 = start, start, start, start, start, start, start, start
    for k in range(at.first, at.stop):
        w = load(weight, (k, n), count)
        s0 = plus(s0, element(a, (r, k)), w)
        s1 = plus(s1, element(a, (r + 1, k)), w)
        s2 = plus(s2, element(a, (r + 2, k)), w)
        s3 = plus(s3, element(a, (r + 3, k)), w)
        s4 = plus(s4, element(a, (r + 4, k)), w)
        s5 = plus(s5, element(a, (r + 5, k)), w)
        s6 = plus(s6, element(a, (r + 6, k)), w)
        s7 = plus(s7, element(a, (r + 7, k)), w)
    store(out, (r, n), s0, count)
    store(out, (r + 1, n), s1, count)
    store(out, (r + 2, n), s2, count)
    store(out, (r + 3, n), s3, count)
    store(out, (r + 4, n), s4, count)
    store(out, (r + 5, n), s5, count)
    store(out, (r + 6, n), s6, count)
    store(out, (r + 7, n), s7, count)


@inlined
def row_times(a: Singles, weight: Singles, bias: Singles, out: Singles, at: Tile) -> None:
    """One row, where there are not eight."""
    total = load(bias, (at.column,), at.columns) if len(bias) else filled(0.0)
    for k in range(at.first, at.stop):
        total = plus(total, element(a, (at.row, k)), load(weight, (k, at.column), at.columns))
    store(out, (at.row, at.column), total, at.columns)


@compiled
def multiply(a: Singles, weight: Singles, bias: Singles, out: Singles) -> None:
    """out = a weight + bias; without numbers in `bias`, without it.  # [n, k], [k, m], [m or 0] -> [n, m]"""
    count, depth, width = len(a), weight.shape[0], weight.shape[1]
    whole = width - width % LANES
    for start in range(0, count if count >= ROWS else 0, ROWS):
        row = min(start, count - ROWS)  # the last eight rows may be in part those before
        for column in range(0, whole, LANES):
            rows_times(a, weight, bias, out, Tile(row, column, LANES, 0, depth))
        if whole < width:
            rows_times(a, weight, bias, out, Tile(row, whole, width - whole, 0, depth))
    for row in range(count if count < ROWS else 0):
        for column in range(0, width, LANES):
            row_times(a, weight, bias, out, Tile(row, column, width - column, 0, depth))


@compiled
def multiply_transposed(a: Singles, b: Singles, out: Singles) -> None:
    """out = the transpose of a, times b.  # [n, k], [n, m] -> [k, m]"""
    depth, width = out.shape
    columns = a.T
    few, whole = np.zeros((depth, width), np.float32), width - width % LANES
    out[:] = 0
    for first in range(0, len(a), SHORT_SUM):
        stop = min(first + SHORT_SUM, len(a))
        for start in range(0, depth if depth >= ROWS else 0, ROWS):
            row = min(start, depth - ROWS)
            for column in range(0, whole, LANES):
                rows_times(columns, b, NONE, few, Tile(row, column, LANES, first, stop))
            if whole < width:
                rows_times(columns, b, NONE, few, Tile(row, whole, width - whole, first, stop))
        for row in range(depth if depth < ROWS else 0):
            for column in range(0, width, LANES):
                row_times(columns, b, NONE, few, Tile(row, column, width - column, first, stop))
        out += few


@compiled
def multiply_heads(a: Singles, weight: Singles, out: Singles) -> None:
    """Each head's columns of a, times its weights.  # [n, H k], [H, k, m] -> [n, H m]"""
    heads, depth, width = weight.shape
    for h in range(heads):
        multiply(a[:, h * depth : (h + 1) * depth], weight[h], NONE, out[:, h * width : (h + 1) * width])


@compiled
def multiply_heads_transposed(a: Singles, b: Singles, out: Singles) -> None:
    """The transpose of each head's columns of a, times its columns of b.  # [n, H k], [n, H m] -> [H, k, m]"""
    heads, depth, width = out.shape
    for h in range(heads):
        multiply_transposed(a[:, h * depth : (h + 1) * depth], b[:, h * width : (h + 1) * width], out[h])


def product(a: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """a weight + bias, without gradients.  # [n, k], [k, m] -> [n, m]"""
    out = torch.empty(len(a), weight.shape[1])
    multiply(a.numpy(), weight.contiguous().numpy(), NONE if bias is None else bias.numpy(), out.numpy())
    return out


def transposed_product(a: Tensor, b: Tensor) -> Tensor:
    """The transpose of a, times b.  # [n, k], [n, m] -> [k, m]"""
    out = torch.empty(a.shape[1], b.shape[1])
    multiply_transposed(a.numpy(), b.numpy(), out.numpy())
    return out


def heads_product(a: Tensor, weight: Tensor) -> Tensor:
    """# [n, H k], [H, k, m] -> [n, H m]"""
    out = torch.empty(len(a), weight.shape[0] * weight.shape[2])
    multiply_heads(a.numpy(), weight.contiguous().numpy(), out.numpy())
    return out


def transposed_heads_product(a: Tensor, b: Tensor, heads: int) -> Tensor:
    """# [n, H k], [n, H m] -> [H, k, m]"""
    out = torch.empty(heads, a.shape[1] // heads, b.shape[1] // heads)
    multiply_heads_transposed(a.numpy(), b.numpy(), out.numpy())
    return out
