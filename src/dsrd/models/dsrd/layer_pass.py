"""One layer of the network on the walk state, forward and backward, without autograd (see `walk_layer`)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from dsrd.models.dsrd.layer_block import (
    BlockPass,
    BlockWeights,
    Dropped,
    Parts,
    block_backward,
    block_forward,
)
from dsrd.models.dsrd.window_attention import Window
from dsrd.models.dsrd.window_sums import Inputs, Kept, Outputs, Rates, attend
from dsrd.models.dsrd.window_sums_backward import Backward, attend_backward


class LayerWeights(NamedTuple):
    """Of a layer but for its block; or their gradients."""

    query: Tensor  # [H dim, dim]
    query_bias: Tensor  # [H dim]
    value: Tensor  # [H, dim, d]
    retain: Tensor  # [H d, pair]
    retain_bias: Tensor  # [H d]
    diffuse: Tensor  # [H, pair, d]
    fall: Tensor  # [H]: lambda
    power: Tensor  # [H]: alpha
    spread: Tensor  # [H]: the layer's depth times delta
    gamma: Tensor  # [H]


class LayerSettings(NamedTuple):
    retains: bool  # whether the state is read
    diffuses: bool  # whether partners' states are
    eps: float  # of layer norms
    dropped: Dropped


class LayerPass(NamedTuple):
    """What the backward pass of a layer reads."""

    weights: LayerWeights
    settings: LayerSettings
    h: Tensor  # [2Q, dim]
    s: Tensor  # [Q, pair]
    inputs: Inputs
    rates: Rates
    kept: Kept
    summed: Tensor  # [H, 2Q, dim]
    spread: Tensor  # [H, 2Q, pair], or without columns
    block: BlockPass


def layer_forward(
    h: Tensor,
    window: Window,
    s: Tensor,
    all_weights: tuple[LayerWeights, BlockWeights],
    settings: LayerSettings,
    keep: bool,
) -> tuple[Tensor, LayerPass]:
    """h after a layer that reads s of each pair.  # [2Q, dim], ..., [Q, pair] -> [2Q, dim]"""
    weights, block = all_weights
    (heads, dim, _), count, size = weights.value.shape, len(h), len(window.x)
    query = torch.addmm(weights.query_bias, h, weights.query.t()).view(count, heads, dim)
    data = (window.z, window.partner, window.x, window.first)
    inputs = Inputs(query.numpy(), window.token.numpy(), *(part.numpy() for part in data))
    rates = Rates(*(rate.contiguous().numpy() for rate in (weights.fall, weights.power, weights.spread)))
    per_head, per_window = np.empty((2, heads, size), np.float32), np.empty((2, heads, count), np.float32)
    kept = Kept(per_head[0], per_head[1], np.empty(size, np.float32), per_window[0], per_window[1])
    summed = torch.zeros(heads, count, dim)
    spread = torch.zeros(heads, count, window.z.shape[1] if settings.diffuses else 0)
    attend(inputs, rates, kept, Outputs(summed.numpy(), spread.numpy()))
    injected = torch.bmm(summed, weights.value)  # [H, 2Q, d]
    diffused = torch.bmm(spread, weights.diffuse) if settings.diffuses else injected[:, :0]
    retained = torch.addmm(weights.retain_bias, s, weights.retain.t()) if settings.retains else h[:0]
    parts = Parts(*(part.numpy() for part in (injected, diffused.contiguous(), retained, weights.gamma)))
    h_after, of_block = block_forward(h, parts, block, settings.eps, settings.dropped, keep)
    return h_after, LayerPass(weights, settings, h, s, inputs, rates, kept, summed, spread, of_block)


def layer_backward(
    read: LayerPass, grad: Tensor, to_token: Tensor, to_z: Tensor
) -> tuple[Tensor, Tensor | None, tuple[Tensor | None, ...]]:
    """Gradients of h, s and the weights, those of the block last; adds to those of tokens and of z."""
    weights, count = read.weights, len(read.h)
    to_h, to_parts, to_block = block_backward(read.block, grad)
    to_injected, to_diffused, to_retained, to_gamma = (torch.from_numpy(part) for part in to_parts)
    to_summed = torch.bmm(to_injected, weights.value.transpose(1, 2))
    to_value = torch.bmm(read.summed.transpose(1, 2), to_injected)
    to_spread, to_diffuse, to_s, to_retain, to_bias = read.spread, None, None, None, None
    if read.settings.diffuses:
        to_spread = torch.bmm(to_diffused, weights.diffuse.transpose(1, 2))
        to_diffuse = torch.bmm(read.spread.transpose(1, 2), to_diffused)
    if read.settings.retains:
        to_s = torch.mm(to_retained, weights.retain)
        to_retain, to_bias = torch.mm(to_retained.t(), read.s), to_retained.sum(0)
    to_query, to_rates = torch.empty(read.inputs.query.shape), np.zeros((3, len(weights.gamma)))
    gradients = Backward(to_query.numpy(), to_token.numpy(), to_z.numpy(), to_rates)
    grads = Outputs(to_summed.numpy(), to_spread.numpy())
    attend_backward(read.inputs, read.rates, read.kept, grads, gradients)
    to_query = to_query.view(count, -1)
    to_h.addmm_(to_query, weights.query)
    of_query = (torch.mm(to_query.t(), read.h), to_query.sum(0))
    rates = torch.from_numpy(to_rates).float()
    own = (*of_query, to_value, to_retain, to_bias, to_diffuse, *rates, to_gamma)  # as in `LayerWeights`
    return to_h, to_s, (*own, *to_block)
