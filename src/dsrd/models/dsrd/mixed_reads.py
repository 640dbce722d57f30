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


def mixture_of(blocks: Sequence[Block], rest: int, layers: int) -> Mixture:
    """The mixture of these blocks, one after the other; `rest` more columns of each layer stay as they are."""
    columns = sum(block.channels * len(block.kernel) for block in blocks) + rest * layers
    weights, out, per_layer = np.empty((2, columns), np.float32), 0, len(blocks) // layers
    mixture = Mixture(np.empty(columns, np.int64), np.empty(columns, np.int64), weights[0], weights[1])
    for layer in range(layers):
        start = 0
        for channels, kernel in blocks[layer * per_layer : (layer + 1) * per_layer]:
            add_block(kernel.detach().cpu().numpy(), channels, start, out, mixture)
            start, out = start + kernel.shape[1] * channels, out + len(kernel) * channels
        if rest:
            add_block(AS_IT_IS, rest, start, out, mixture)
            out += rest
    return mixture


@compiled
def add_block(kernel: Singles, channels: int, start: int, out: int, mixture: Mixture) -> None:
    """The columns of a block from `out` on, which read those of the grid from `start` on.  # [H, G]"""
    for head in range(kernel.shape[0]):
        first = 0  # of the two rates with a weight above 0
        while first < kernel.shape[1] - 1 and kernel[head, first] <= 0:
            first += 1
        second = min(first + 1, kernel.shape[1] - 1)
        for channel in range(channels):
            column = out + head * channels + channel
            mixture.low[column], mixture.high[column] = (
                start + first * channels + channel,
                start + second * channels + channel,
            )
            mixture.low_weight[column] = kernel[head, first]
            mixture.high_weight[column] = kernel[head, second] if second > first else 0


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
        ctx.rows, ctx.mixture, ctx.channels, ctx.shapes = rows, mixture, channels, [each.shape for each in kernels]
        ctx.rest, ctx.layers = rest, layers
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        columns = (ctx.mixture.low, ctx.mixture.high)
        sums = weight_gradients(ctx.rows, ctx.mixture, grads[0].reshape(-1, len(columns[0])).numpy())
        gradients, first_in, first_out, per_layer = list[Tensor](), 0, 0, len(ctx.channels) // ctx.layers
        for number, (channels, (heads, rates)) in enumerate(zip(ctx.channels, ctx.shapes, strict=True)):
            if number and number % per_layer == 0:
                first_in, first_out = 0, first_out + ctx.rest
            gradient, block = np.zeros((heads, rates)), slice(first_out, first_out + heads * channels)
            for read, summed in zip(columns, sums, strict=True):
                rate = (read[block][::channels] - first_in) // channels  # [H]
                gradient[np.arange(heads), rate] = summed[block].reshape(heads, channels).sum(1)
            gradients.append(torch.from_numpy(gradient).float())
            first_in, first_out = first_in + rates * channels, block.stop
        return (None, None, None, None, *gradients)


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
