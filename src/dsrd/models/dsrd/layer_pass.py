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
from dsrd.models.dsrd.small_products import (
    heads_product,
    product,
    transposed_heads_product,
    transposed_product,
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
    summed: Tensor  # [2Q, H dim]
    spread: Tensor  # [2Q, H pair], or without columns
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
    query = product(h, weights.query.t(), weights.query_bias).view(count, heads, dim)
    data = (window.z, window.partner, window.x, window.first)
    inputs = Inputs(query.numpy(), window.token.numpy(), *(part.numpy() for part in data))
    rates = Rates(*(rate.contiguous().numpy() for rate in (weights.fall, weights.power, weights.spread)))
    per_head, per_window = np.empty((2, heads, size), np.float32), np.empty((2, heads, count), np.float32)
    kept = Kept(per_head[0], per_head[1], np.empty(size, np.float32), per_window[0], per_window[1])
    summed = torch.empty(count, heads, dim)
    spread = torch.empty(count, heads, window.z.shape[1] if settings.diffuses else 0)
    attend(inputs, rates, kept, Outputs(summed.numpy(), spread.numpy()))
    summed, spread = summed.view(count, heads * dim), spread.view(count, -1 if settings.diffuses else 0)
    injected = heads_product(summed, weights.value)  # [2Q, H d]
    diffused = heads_product(spread, weights.diffuse) if settings.diffuses else h[:0]
    retained = product(s, weights.retain.t(), weights.retain_bias) if settings.retains else h[:0]
    parts = Parts(*(part.numpy() for part in (injected, diffused, retained, weights.gamma)))
    h_after, of_block = block_forward(h, parts, block, settings.eps, settings.dropped, keep)
    return h_after, LayerPass(weights, settings, h, s, inputs, rates, kept, summed, spread, of_block)


def layer_backward(
    read: LayerPass, grad: Tensor, to_token: Tensor, to_z: Tensor
) -> tuple[Tensor, Tensor | None, tuple[Tensor | None, ...]]:
    """Gradients of h, s and the weights, those of the block last; adds to those of tokens and of z.

    Rows of `to_z` are as long as `whole` says.
    """
    weights, (count, heads, _) = read.weights, read.inputs.query.shape
    to_h, to_parts, to_block = block_backward(read.block, grad)
    to_injected, to_diffused, to_retained, to_gamma = (torch.from_numpy(part) for part in to_parts)
    to_summed = heads_product(to_injected, weights.value.transpose(1, 2))
    to_value = transposed_heads_product(read.summed, to_injected, heads)
    to_spread, to_diffuse, to_s, to_retain, to_bias = read.spread, None, None, None, None
    if read.settings.diffuses:
        to_spread = heads_product(to_diffused, weights.diffuse.transpose(1, 2))
        to_diffuse = transposed_heads_product(read.spread, to_diffused, heads)
    if read.settings.retains:
        to_s = product(to_retained, weights.retain)
        to_retain, to_bias = transposed_product(to_retained, read.s), to_retained.sum(0)
    to_query, to_rates = torch.empty(read.inputs.query.shape), np.zeros((3, len(weights.gamma)))
    gradients = Backward(to_query.numpy(), to_token.numpy(), to_z.numpy(), to_rates)
    grads = Outputs(*(part.view(count, heads, part.shape[1] // heads).numpy() for part in (to_summed, to_spread)))
    attend_backward(read.inputs, read.rates, read.kept, grads, gradients)
    to_query = to_query.view(count, -1)
    to_h += product(to_query, weights.query)
    of_query = (transposed_product(to_query, read.h), to_query.sum(0))
    rates = torch.from_numpy(to_rates).float()
    own = (*of_query, to_value, to_retain, to_bias, to_diffuse, *rates, to_gamma)  # as in `LayerWeights`
    return to_h, to_s, (*own, *to_block)
