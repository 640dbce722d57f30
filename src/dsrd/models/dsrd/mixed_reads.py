"""Readings of the grid mixed by learned kernels, compiled: `log(1 + max(0, values) @ mixture)` in one pass.

A kernel mixes two neighbours of the grid (`kernels`), so each number that is read needs two of the grid's. The
plain form is `kernels.read_at`: a product with a matrix that is almost all zeros. Several blocks of columns, each
with its own rates and channels, are read side by side.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dsrd.compiled import compiled
from dsrd.models.dsrd import vector_math
from dsrd.models.dsrd.kernels import read_at

Singles = NDArray[np.float32]
Columns = NDArray[np.int64]
SHORT_SUM = 256  # rows whose gradients are summed in float32
AS_IT_IS = np.ones((1, 1), np.float32)


class Block(NamedTuple):
    """Columns of a reading: `channels` numbers at each rate of a grid, which kernels mix to as many per head."""

    channels: int
    kernel: Tensor  # [H, G]


class Mixture(NamedTuple):
    """For each column of the output, two columns of the input and their weights."""

    low: Columns  # [out]
    high: Columns  # [out]
    low_weight: Singles  # [out]
    high_weight: Singles  # [out]
    low_place: Columns  # [out]: of the weight among those of all kernels, one after the other; -1: it is no weight
    high_place: Columns  # [out]


def mixture_of(blocks: Sequence[Block], rest: int, layers: int) -> Mixture:
    """The mixture of these blocks, one after the other; `rest` more columns of each layer stay as they are."""
    columns = sum(block.channels * len(block.kernel) for block in blocks) + rest * layers
    weights, ints, per_layer = (
        np.empty((2, columns), np.float32),
        np.empty((4, columns), np.int64),
        len(blocks) // layers,
    )
    mixture, out, place = Mixture(ints[0], ints[1], weights[0], weights[1], ints[2], ints[3]), 0, 0
    for layer in range(layers):
        start = 0
        for channels, kernel in blocks[layer * per_layer : (layer + 1) * per_layer]:
            add_block(kernel.detach().cpu().numpy(), channels, (start, out, place), mixture)
            start, out = start + kernel.shape[1] * channels, out + len(kernel) * channels
            place += kernel.numel()
        if rest:
            add_block(AS_IT_IS, rest, (start, out, -1), mixture)
            out += rest
    return mixture


@compiled
def add_block(kernel: Singles, channels: int, first: tuple[int, int, int], mixture: Mixture) -> None:
    """The columns of a block, given the first one of the input, of the output, and of the weights.  # [H, G]"""
    rates = kernel.shape[1]
    for head in range(kernel.shape[0]):
        low = 0  # of the two rates with a weight above 0
        while low < rates - 1 and kernel[head, low] <= 0:
            low += 1
        high = min(low + 1, rates - 1)
        for channel in range(channels):
            column = first[1] + head * channels + channel
            mixture.low[column] = first[0] + low * channels + channel
            mixture.high[column] = first[0] + high * channels + channel
            mixture.low_weight[column] = kernel[head, low]
            mixture.high_weight[column] = kernel[head, high] if high > low else 0
            mixture.low_place[column] = first[2] + head * rates + low if first[2] >= 0 else -1
            mixture.high_place[column] = first[2] + head * rates + high if first[2] >= 0 and high > low else -1


@compiled
def mix(values: Singles, mixture: Mixture, out: Singles) -> None:
    """log(1 + max(0, values) @ mixture).  # [n, at least all columns of the input] -> [n, out]"""
    zero = np.float32(0)
    for n in range(len(values)):
        for j in range(out.shape[1]):
            low, high = max(values[n, mixture.low[j]], zero), max(values[n, mixture.high[j]], zero)
            out[n, j] = mixture.low_weight[j] * low + mixture.high_weight[j] * high
        for j in range(out.shape[1]):
            out[n, j] = vector_math.log1p(out[n, j])


@compiled
def weight_gradients(values: Singles, mixture: Mixture, grad: Singles) -> NDArray[np.float64]:
    """The gradient of each column's two weights, given that of log(1 + .).  # [n, in], [n, out] -> [2, out]"""
    zero, one, columns = np.float32(0), np.float32(1), grad.shape[1]
    sums, few = np.zeros((2, columns)), np.zeros((2, columns), np.float32)
    for n in range(len(values)):
        for j in range(columns):
            low, high = max(values[n, mixture.low[j]], zero), max(values[n, mixture.high[j]], zero)
            each = grad[n, j] / (one + mixture.low_weight[j] * low + mixture.high_weight[j] * high)
            few[0, j] += each * low
            few[1, j] += each * high
        if n % SHORT_SUM == SHORT_SUM - 1 or n == len(values) - 1:  # short sums lose no digits
            sums += few
            few[:] = 0
    return sums


@compiled
def kernel_gradients(mixture: Mixture, sums: NDArray[np.float64], out: Singles) -> None:
    """The gradients of all kernels, one after the other, from those of the columns' weights.  # [2, out] -> [n]"""
    total = np.zeros(len(out))
    for column in range(sums.shape[1]):
        if mixture.low_place[column] >= 0:
            total[mixture.low_place[column]] += sums[0, column]
        if mixture.high_place[column] >= 0:
            total[mixture.high_place[column]] += sums[1, column]
    for n in range(len(out)):
        out[n] = total[n]


class _MixedReads(torch.autograd.Function):
    """No gradient to the values: what the state says is data."""

    @staticmethod
    def forward(
        ctx: Any, values: Tensor, rest: int, layers: int, channels: Sequence[int], *kernels: Tensor
    ) -> Tensor:
        rows = values.reshape(-1, values.shape[-1]).numpy()
        blocks = [Block(*each) for each in zip(channels, kernels, strict=True)]
        mixture = mixture_of(blocks, rest, layers)
        out = torch.empty(*values.shape[:-1], len(mixture.low))
        mix(rows, mixture, out.view(-1, len(mixture.low)).numpy())
        ctx.rows, ctx.mixture, ctx.shapes = rows, mixture, [each.shape for each in kernels]
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        sums = weight_gradients(ctx.rows, ctx.mixture, grads[0].reshape(-1, len(ctx.mixture.low)).numpy())
        sizes = [heads * rates for heads, rates in ctx.shapes]
        flat = torch.empty(sum(sizes))
        kernel_gradients(ctx.mixture, sums, flat.numpy())
        parts = zip(torch.split(flat, sizes), ctx.shapes, strict=True)
        return (None, None, None, None, *(part.view(shape) for part, shape in parts))


def mixed_reads(values: Tensor, blocks: Sequence[Block], rest: int = 0, layers: int = 1) -> Tensor:
    """log(1 + reads) of the blocks' columns, then of `rest` more that are not mixed.  # [..., in] -> [..., out]

    Columns of `values` after these are ignored. Several layers read the same columns, each by its share of the
    blocks, and their outputs stand side by side.
    """
    channels, kernels = [each.channels for each in blocks], [each.kernel for each in blocks]
    if values.device.type == "cpu":
        out: Tensor = _MixedReads.apply(values, rest, layers, channels, *kernels)  # type: ignore[no-untyped-call]
        return out
    parts, per_layer = list[Tensor](), len(blocks) // layers
    for layer in range(layers):
        start = 0
        for block in blocks[layer * per_layer : (layer + 1) * per_layer]:
            stop = start + block.channels * block.kernel.shape[1]
            parts.append(read_at(values[..., start:stop].clamp(min=0), block.kernel))
            start = stop
        parts.append(values[..., start : start + rest].clamp(min=0))
    return torch.log1p(torch.cat(parts, dim=-1))
