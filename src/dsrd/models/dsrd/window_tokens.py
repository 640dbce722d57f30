"""Tokens of the events in windows, forward and backward, compiled in one pass each.

    token_t = gelu(W [ageing(x_t), z of its partner, log(1 + counts_t), edge features_t] + b)

The events of all windows stand one after the other, without padding. Partners repeat within a window, and their z
with them: its part of the product is taken once per partner. `tokens_plainly` is the same in plain torch.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import gelu, linear

from dsrd.compiled import compiled
from dsrd.models.dsrd import vector_math
from dsrd.models.dsrd.small_products import SHORT_SUM, product, transposed_product
from dsrd.models.dsrd.walk_state import Singles

Rows = NDArray[np.int64]
Doubles = NDArray[np.float64]


class Events(NamedTuple):
    """What is known about the events of all windows, newest first in each."""

    x: Tensor  # [T]: ages, as features show them
    counts: Tensor  # [T, WINDOW]
    edge_x: Tensor  # [T, edge_dim]
    partner: Tensor  # [T]: the row of each event's partner among those of z
    first: Tensor  # [B + 1]: where each window starts


class Ages(NamedTuple):
    """Learned features of an age: cos(x rate + phase), and soft steps tanh(x - step)."""

    rate: Singles  # [cosines]
    phase: Singles  # [cosines]
    step: Singles  # [steps]


@compiled
def write_ages(x: Singles, ages: Ages, out: Singles, sine: Singles) -> None:
    """The features of each age in the first columns of `out`; sines if there is room.  # [T], [T, all columns]"""
    one, two, rate, phase = np.float32(1), np.float32(2), ages.rate, ages.phase
    cosines, faded = len(rate), np.empty_like(ages.step)
    for j in range(len(faded)):
        faded[j] = vector_math.exp(-two * ages.step[j])
    keep = len(sine) > 0
    for t in range(len(x)):
        # tanh(x - c) = 1 - 2 / (1 + exp(2x) exp(-2c)): one exponential per age instead of one per step
        growth = vector_math.exp(two * x[t])
        if keep:
            for j in range(cosines):
                sine[t, j], out[t, j] = vector_math.sine_and_cosine(x[t] * rate[j] + phase[j])
        else:
            for j in range(cosines):
                out[t, j] = vector_math.sine_and_cosine(x[t] * rate[j] + phase[j])[1]
        for j in range(len(faded)):
            out[t, cosines + j] = one - np.divide(two, one + growth * faded[j])


@compiled
def write_counts(counts: Singles, column: int, out: Singles) -> None:
    """log(1 + counts) from a column on.  # [T, n], [T, all columns]"""
    flat, logarithm = counts.reshape(-1), np.empty(counts.shape, np.float32)
    flat_logarithm = logarithm.reshape(-1)
    for i in range(len(flat)):  # rows are too short for vectors
        flat_logarithm[i] = vector_math.log1p(flat[i])
    for t in range(len(counts)):
        for j in range(counts.shape[1]):
            out[t, column + j] = logarithm[t, j]


@compiled
def first_rows(values: Singles, first: Rows, out: Singles) -> None:
    """The first columns of each window's first row, zeros for an empty one.  # [T, ...], [B + 1] -> [B, n]"""
    for b in range(len(out)):
        for j in range(out.shape[1]):
            out[b, j] = values[first[b], j] if first[b] < first[b + 1] else 0


@compiled
def activate(sums: Singles, shared: Singles, partner: Rows, slope: Singles) -> None:
    """gelu of each row plus that of its partner, in place; its slope if there is room.  # [T, d], [U, d], [T]"""
    keep = len(slope) > 0
    for t in range(len(sums)):
        row = partner[t]
        if keep:
            for j in range(sums.shape[1]):
                sums[t, j], slope[t, j] = vector_math.gelu_and_slope(sums[t, j] + shared[row, j])
        else:
            for j in range(sums.shape[1]):
                sums[t, j] = vector_math.gelu_and_slope(sums[t, j] + shared[row, j])[0]


@compiled
def activate_backward(grad: Singles, slope: Singles, partner: Rows, to_shared: Singles, to_bias: Doubles) -> None:
    """Gradients of the sums, in place, and of their partners' parts, which start at 0.  # [T, d], ..., [U, d]"""
    few = np.zeros(grad.shape[1], np.float32)
    for t in range(len(grad)):
        row = partner[t]
        for j in range(grad.shape[1]):
            grad[t, j] *= slope[t, j]
        for j in range(grad.shape[1]):
            to_shared[row, j] += grad[t, j]
        for j in range(grad.shape[1]):
            few[j] += grad[t, j]
        if t % SHORT_SUM == SHORT_SUM - 1 or t == len(grad) - 1:  # short sums lose no digits
            to_bias += few
            few[:] = 0


class Cosines(NamedTuple):
    """The backward pass of the cosines."""

    x: Singles  # [T]
    sine: Singles  # [T, cosines]
    grad: Singles  # [T, cosines]: of the features in tokens
    to_first: Singles  # [B, age features]: of those of the newest events
    first: Rows  # [B + 1]


@compiled
def cosines_backward(rows: Cosines) -> Doubles:
    """The gradients of rate and phase.  # [2, cosines]"""
    columns = rows.grad.shape[1]
    sums, few = np.zeros((2, columns)), np.zeros((2, columns), np.float32)
    for b in range(len(rows.to_first)):
        for t in range(rows.first[b], rows.first[b + 1]):
            for j in range(columns):
                own = rows.to_first[b, j] if t == rows.first[b] else np.float32(0)
                each = -rows.sine[t, j] * (rows.grad[t, j] + own)
                few[0, j] += each * rows.x[t]
                few[1, j] += each
        if b % SHORT_SUM == SHORT_SUM - 1 or b == len(rows.to_first) - 1:  # short sums lose no digits
            sums += few
            few[:] = 0
    return sums


class TokenWeights(NamedTuple):
    """Or their gradients."""

    weight: Tensor  # [dim, age dim + pair + WINDOW + edge_dim]
    bias: Tensor  # [dim]
    rate: Tensor  # [cosines]
    phase: Tensor  # [cosines]


class TokenPass(NamedTuple):
    """What the backward pass reads."""

    events: Events
    weights: TokenWeights
    z: Tensor  # [U, pair]
    columns: Tensor  # [T, all of a token but z]
    sine: Tensor  # [T, cosines]
    slope: Tensor  # [T, dim]


def tokens_forward(
    events: Events, step: Tensor, z: Tensor, weights: TokenWeights, keep: bool
) -> tuple[Tensor, Tensor, TokenPass]:
    """Tokens, and the age features of each window's newest event, zeros for none.  # [T, dim], [B, age dim]"""
    size, cosines, weight = len(events.x), len(weights.rate), weights.weight
    width = cosines + len(step)
    ages = Ages(weights.rate.numpy(), weights.phase.numpy(), step.numpy())
    columns = torch.empty(size, weight.shape[1] - z.shape[1])
    sine, slope = (torch.empty(size if keep else 0, n) for n in (cosines, len(weight)))
    write_ages(events.x.numpy(), ages, columns.numpy(), sine.numpy())
    write_counts(events.counts.numpy(), width, columns.numpy())
    if events.edge_x.shape[1]:
        columns[:, width + events.counts.shape[1] :] = events.edge_x
    own_weight = torch.cat([weight[:, :width], weight[:, width + z.shape[1] :]], dim=1)
    token = product(columns, own_weight.t(), weights.bias)
    shared = product(z, weight[:, width : width + z.shape[1]].t())
    activate(token.numpy(), shared.numpy(), events.partner.numpy(), slope.numpy())
    newest = torch.empty(len(events.first) - 1, width)
    first_rows(columns.numpy(), events.first.numpy(), newest.numpy())
    return token, newest, TokenPass(events, weights, z, columns, sine, slope)


def tokens_backward(read: TokenPass, to_token: Tensor, to_newest: Tensor) -> tuple[Tensor, TokenWeights]:
    """Gradients of z and of the weights; ages, counts and edge features are data. `to_token` is overwritten."""
    weight, cosines, width = read.weights.weight, read.sine.shape[1], to_newest.shape[1]
    to_shared, to_bias = torch.zeros(len(read.z), len(weight)), np.zeros(len(weight))
    partner, first = read.events.partner.numpy(), read.events.first.numpy()
    activate_backward(to_token.numpy(), read.slope.numpy(), partner, to_shared.numpy(), to_bias)
    own = transposed_product(to_token, read.columns)
    to_weight = torch.cat([own[:, :width], transposed_product(to_shared, read.z), own[:, width:]], dim=1)
    to_cosines = product(to_token, weight[:, :cosines])
    rows = Cosines(read.events.x.numpy(), read.sine.numpy(), to_cosines.numpy(), to_newest.numpy(), first)
    to_rate, to_phase = torch.from_numpy(cosines_backward(rows)).float()
    to_z = product(to_shared, weight[:, width : width + read.z.shape[1]])
    return to_z, TokenWeights(to_weight, torch.from_numpy(to_bias).float(), to_rate, to_phase)


class AgeFeatures(nn.Module):
    """Cosines and soft steps of log(1 + age)."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.rate = nn.Parameter(2 * torch.randn(dim // 2))
        self.phase = nn.Parameter(2 * math.pi * torch.rand(dim // 2))
        self.step: Tensor
        self.register_buffer("step", torch.linspace(0, 16, dim - dim // 2))

    def forward(self, x: Tensor) -> Tensor:  # [...] -> [..., dim]
        x = x.unsqueeze(-1)
        return torch.cat([torch.cos(x * self.rate + self.phase), torch.tanh(x - self.step)], dim=-1)


def tokens_plainly(events: Events, z: Tensor, age: AgeFeatures, weight: nn.Linear) -> tuple[Tensor, Tensor]:
    """Tokens and newest ages in plain torch.  # [T, dim], [B, age dim]"""
    ages = age(events.x)  # [T, age dim]
    columns = [ages, z[events.partner], torch.log1p(events.counts), events.edge_x]
    start, stop = events.first[:-1], events.first[1:]
    newest = torch.cat([ages, torch.zeros_like(ages[:1])])[start] * (stop > start).unsqueeze(-1)
    return gelu(linear(torch.cat(columns, dim=-1), weight.weight, weight.bias)), newest
