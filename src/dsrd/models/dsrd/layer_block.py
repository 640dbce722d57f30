"""The gate and the block of a layer, forward and backward, compiled where torch would make many small steps.

    o  = (1 - gamma) injected + gamma (retained + diffused)
    h' = h + LN(drop(o)),  then  h' + drop(W2 gelu(W1 LN(h')))

`Block` in `retention` is the same in plain torch.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from dsrd.compiled import compiled, vectorised
from dsrd.models.dsrd import vector_math
from dsrd.models.dsrd.retention import Block
from dsrd.models.dsrd.small_products import SHORT_SUM, product, transposed_product
from dsrd.models.dsrd.walk_state import Singles
from dsrd.nn.dropout import dropout_

Doubles = NDArray[np.float64]
NOTHING = np.empty((0, 1), np.float32)


class Parts(NamedTuple):
    """What a layer read. Parts without rows are left out. Rows of `retained` repeat for the second endpoints."""

    injected: Singles  # [B, H d]
    diffused: Singles  # [B or 0, H d]
    retained: Singles  # [B / 2 or 0, H d]
    gamma: Singles  # [H]


class Normed(NamedTuple):
    """Rows of mean 0 and variance 1, and the inverse of the deviation that each had."""

    hat: Singles  # [B, dim]
    inverse: Singles  # [B]
    weight: Singles  # [dim]


@compiled
def gate(parts: Parts, out: Singles) -> None:
    """o of each window.  # [B, H d]"""
    gamma, width = columns_of(parts.gamma, out.shape[1])
    rows, diffuses = len(parts.retained), len(parts.diffused) > 0
    for b in range(len(out)):
        for i in range(width):
            out[b, i] = (np.float32(1) - gamma[i]) * parts.injected[b, i]
        if rows:
            for i in range(width):
                out[b, i] += gamma[i] * parts.retained[b - rows if b >= rows else b, i]
        if diffuses:
            for i in range(width):
                out[b, i] += gamma[i] * parts.diffused[b, i]


@compiled
def columns_of(gamma: Singles, width: int) -> tuple[Singles, int]:
    """gamma of each column.  # [H] -> [H d]"""
    return np.repeat(gamma, width // len(gamma)), width


@compiled
def gate_backward(parts: Parts, grad: Singles, to: Parts) -> Doubles:
    """The gradients of the parts, those of `retained` start at 0, and that of gamma.  # [B, H d] -> ..., [H]"""
    (gamma, width), few = columns_of(parts.gamma, grad.shape[1]), np.zeros(grad.shape[1], np.float32)
    rows, diffuses, sums = len(parts.retained), len(parts.diffused) > 0, np.zeros(grad.shape[1])
    for b in range(len(grad)):
        for i in range(width):
            to.injected[b, i] = (np.float32(1) - gamma[i]) * grad[b, i]
            few[i] -= grad[b, i] * parts.injected[b, i]
        if rows:
            row = b - rows if b >= rows else b
            for i in range(width):
                to.retained[row, i] += gamma[i] * grad[b, i]
                few[i] += grad[b, i] * parts.retained[row, i]
        if diffuses:
            for i in range(width):
                to.diffused[b, i] = gamma[i] * grad[b, i]
                few[i] += grad[b, i] * parts.diffused[b, i]
        if b % SHORT_SUM == SHORT_SUM - 1 or b == len(grad) - 1:
            sums += few
            few[:] = 0
    to_gamma: Doubles = sums.reshape(len(parts.gamma), -1).sum(1)
    return to_gamma


@vectorised
def normalise(x: Singles, bias: Singles, eps: float, normed: Normed, added: Singles, out: Singles) -> None:
    """out = layer norm of x, plus `added` unless it has no rows; `normed.hat` may be x itself.  # [B, dim]"""
    dim, plus = x.shape[1], len(added) > 0
    share = np.float32(1 / dim)
    for b in range(len(x)):
        mean, square = np.float32(0), np.float32(0)
        for i in range(dim):
            mean += x[b, i]
        mean *= share
        for i in range(dim):
            square += (x[b, i] - mean) * (x[b, i] - mean)
        inverse = np.divide(np.float32(1), np.sqrt(square * share + np.float32(eps)))
        normed.inverse[b] = inverse
        for i in range(dim):
            hat = (x[b, i] - mean) * inverse
            normed.hat[b, i] = hat
            out[b, i] = hat * normed.weight[i] + bias[i]
        if plus:
            for i in range(dim):
                out[b, i] += added[b, i]


@vectorised
def normalise_backward(grad: Singles, normed: Normed, to_x: Singles, sums: Doubles) -> None:
    """Add the gradient of x to `to_x`, those of weight and bias to `sums`.  # [B, dim], [2, dim]"""
    dim = grad.shape[1]
    share, few = np.float32(1 / dim), np.zeros((2, dim), np.float32)
    for b in range(len(grad)):
        mean, along, inverse = np.float32(0), np.float32(0), normed.inverse[b]
        for i in range(dim):
            scaled = grad[b, i] * normed.weight[i]
            mean += scaled
            along += scaled * normed.hat[b, i]
        mean *= share
        along *= share
        for i in range(dim):
            to_x[b, i] += inverse * (grad[b, i] * normed.weight[i] - mean - normed.hat[b, i] * along)
        for i in range(dim):
            few[0, i] += grad[b, i] * normed.hat[b, i]
            few[1, i] += grad[b, i]
        if b % SHORT_SUM == SHORT_SUM - 1 or b == len(grad) - 1:  # short sums lose no digits
            sums += few
            few[:] = 0


@compiled
def gelu_(x: Singles, slope: Singles) -> None:
    """gelu in place; its slope if there is room.  # [n, d], [n or 0, d]"""
    keep = len(slope) > 0
    for n in range(len(x)):
        if keep:
            for i in range(x.shape[1]):
                x[n, i], slope[n, i] = vector_math.gelu_and_slope(x[n, i])
        else:
            for i in range(x.shape[1]):
                x[n, i] = vector_math.gelu_and_slope(x[n, i])[0]


class BlockWeights(NamedTuple):
    """Of `Block`, and their gradients."""

    out_weight: Tensor
    out_bias: Tensor
    in_weight: Tensor
    in_bias: Tensor
    first: Tensor
    first_bias: Tensor
    second: Tensor
    second_bias: Tensor

    @classmethod
    def of(cls, block: Block) -> BlockWeights:
        first, second = block.feed[0], block.feed[2]
        assert isinstance(first, nn.Linear)
        assert isinstance(second, nn.Linear)
        norms = (block.norm_out.weight, block.norm_out.bias, block.norm_in.weight, block.norm_in.bias)
        return cls(*norms, first.weight, first.bias, second.weight, second.bias)


class Dropped(NamedTuple):
    """Dropout after the gate and after the feed-forward net; without seeds there is none."""

    p: float
    seeds: list[int]


class BlockPass(NamedTuple):
    """What the backward pass of a block reads."""

    parts: Parts
    norm_out: Normed
    norm_in: Normed
    y: Tensor  # [B, dim]
    hidden: Tensor  # [B, 4 dim]
    slope: Tensor  # [B, 4 dim]
    dropped: Dropped
    weights: BlockWeights


def block_forward(
    h: Tensor, parts: Parts, weights: BlockWeights, eps: float, dropped: Dropped, keep: bool
) -> tuple[Tensor, BlockPass]:
    """h after a layer, given what the layer read.  # [B, dim]"""
    count, dim = h.shape
    out, middle, y, hat = torch.empty(4, count, dim)
    gate(parts, out.numpy())
    if dropped.seeds:
        dropout_(out, dropped.seeds[0], dropped.p)
    inverse = np.empty((2, count), np.float32)
    norm_out = Normed(out.numpy(), inverse[0], weights.out_weight.numpy())
    norm_in = Normed(hat.numpy(), inverse[1], weights.in_weight.numpy())
    normalise(out.numpy(), weights.out_bias.numpy(), eps, norm_out, h.numpy(), middle.numpy())
    normalise(middle.numpy(), weights.in_bias.numpy(), eps, norm_in, NOTHING, y.numpy())
    hidden = product(y, weights.first.t(), weights.first_bias)
    slope = torch.empty(count if keep else 0, hidden.shape[1])
    gelu_(hidden.numpy(), slope.numpy())
    fed = product(hidden, weights.second.t(), weights.second_bias)
    if dropped.seeds:
        dropout_(fed, dropped.seeds[1], dropped.p)
    return fed.add_(middle), BlockPass(parts, norm_out, norm_in, y, hidden, slope, dropped, weights)


def block_backward(read: BlockPass, grad: Tensor) -> tuple[Tensor, Parts, BlockWeights]:
    """Gradients of h, of what the layer read, and of the weights; dropout computes its hashes again."""
    weights, (p, seeds) = read.weights, read.dropped
    fed = dropout_(grad.clone(), seeds[1], p) if seeds else grad
    to_hidden = product(fed, weights.second).mul_(read.slope)
    to_y, to_middle = product(to_hidden, weights.first), grad.clone()
    sums = np.zeros((2, 2, grad.shape[1]))
    normalise_backward(to_y.numpy(), read.norm_in, to_middle.numpy(), sums[1])
    to_out = torch.zeros_like(grad)
    normalise_backward(to_middle.numpy(), read.norm_out, to_out.numpy(), sums[0])
    if seeds:
        dropout_(to_out, seeds[0], p)
    to_parts = Parts(*(np.zeros_like(part) for part in read.parts))
    to_parts.gamma[:] = gate_backward(read.parts, to_out.numpy(), to_parts)
    norm_out, norm_in = torch.from_numpy(sums).float()  # [2, dim] each: weight, bias
    first, second = transposed_product(to_hidden, read.y), transposed_product(fed, read.hidden)
    feed = (first, to_hidden.sum(0), second, fed.sum(0))
    return to_middle, to_parts, BlockWeights(norm_out[0], norm_out[1], norm_in[0], norm_in[1], *feed)
