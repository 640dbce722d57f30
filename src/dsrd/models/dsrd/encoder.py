"""The network on the walk state up to h of both endpoints, as one step of autograd, computed in compiled passes.

`encode_plainly` is the same in plain torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from dsrd.models.dsrd.lanes import whole
from dsrd.models.dsrd.layer_block import BlockWeights
from dsrd.models.dsrd.layer_pass import LayerPass, LayerSettings, LayerWeights, layer_backward, layer_forward
from dsrd.models.dsrd.small_products import product, transposed_product
from dsrd.models.dsrd.walk_layer import WalkLayer
from dsrd.models.dsrd.window_attention import Window
from dsrd.models.dsrd.window_tokens import (
    AgeFeatures,
    Events,
    TokenWeights,
    tokens_backward,
    tokens_forward,
    tokens_plainly,
)

PER_LAYER = len(LayerWeights._fields) + len(BlockWeights._fields)


@dataclass(frozen=True)
class Known:
    """What is known about pairs: their windows, the ages in them as decays read them, and both endpoints alone."""

    events: Events
    x: Tensor  # [T]
    z: Tensor  # [1 + U, pair]: of distinct partners, see `walk_queries.Reading`
    s: Sequence[Tensor]  # [Q, pair] for each layer
    node: Tensor  # [2Q, node]
    node_x: Tensor  # [2Q, node_dim]
    longest: int  # events in a window at most

    def sizes(self) -> Tensor:
        """1 if a window has events, and the logarithm of their number plus 1.  # [2Q, 2]"""
        size = self.events.first.diff()
        return torch.stack([(size > 0).float(), torch.log1p(size.float())], dim=1)


class Modules(NamedTuple):
    """What encodes: parts of `Walks`."""

    age: AgeFeatures
    token: nn.Linear
    start: nn.Linear
    layers: Sequence[WalkLayer]


def encode(known: Known, modules: Modules) -> Tensor:
    """h of both endpoints, sources first.  # [2Q, dim]"""
    like = known.node
    if like.device.type != "cpu" or like.dtype != torch.float32 or not modules.layers:
        return encode_plainly(known, modules)
    age, settings = modules.age, [layer.settings() for layer in modules.layers]
    weights = [
        modules.token.weight,
        modules.token.bias,
        age.rate,
        age.phase,
        modules.start.weight,
        modules.start.bias,
    ]
    for layer in modules.layers:
        weights += [*layer.weights(), *BlockWeights.of(layer.block)]
    h: Tensor = _Encode.apply(known, age.step, settings, known.z, known.node, *known.s, *weights)  # type: ignore[no-untyped-call]
    return h


def encode_plainly(known: Known, modules: Modules) -> Tensor:
    """The same in plain torch."""
    token, newest = tokens_plainly(known.events, known.z, modules.age, modules.token)
    h: Tensor = modules.start(torch.cat([newest, known.sizes(), known.node, known.node_x], dim=1))
    window = Window(token, known.z, known.events.partner, known.x, known.events.first, known.longest)
    for layer, s in zip(modules.layers, known.s, strict=False):
        h = layer(h, window, s)
    return h


class _Encode(torch.autograd.Function):
    """Layers add to the same gradients of tokens and of z."""

    @staticmethod
    def forward(ctx: Any, known: Known, step: Tensor, settings: list[LayerSettings], *tensors: Tensor) -> Tensor:
        keep, depth = any(ctx.needs_input_grad), len(settings)
        z, node, *others = (tensor.detach().contiguous() for tensor in tensors)
        s, weights = others[:depth], others[depth:]
        token, newest, of_tokens = tokens_forward(known.events, step, z, TokenWeights(*weights[:4]), keep)
        columns = torch.cat([newest, known.sizes(), node, known.node_x], dim=1)
        h = product(columns, weights[4].t(), weights[5])
        window, passes = (
            Window(token, z, known.events.partner, known.x, known.events.first, known.longest),
            list[LayerPass](),
        )
        for layer in range(depth):
            first = 6 + layer * PER_LAYER
            own = LayerWeights(*weights[first : first + len(LayerWeights._fields)])
            block = BlockWeights(*weights[first + len(LayerWeights._fields) : first + PER_LAYER])
            h, of_layer = layer_forward(h, window, s[layer], (own, block), settings[layer], keep)
            passes.append(of_layer)
        if keep:
            ctx.read = of_tokens, passes, columns, weights[4], newest.shape[1], node.shape[1]
        return h

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        of_tokens, passes, columns, start, age_dim, node_dim = ctx.read
        count, width = of_tokens.z.shape
        to_token, to_z = torch.zeros(of_tokens.slope.shape), torch.zeros(count, whole(width))
        grad, to_s, to_layers = grads[0].contiguous(), list[Tensor | None](), list[Tensor | None]()
        for read in reversed(passes):
            grad, of_s, of_weights = layer_backward(read, grad, to_token, to_z)
            to_s, to_layers = [of_s, *to_s], [*of_weights, *to_layers]
        to_columns = product(grad, start)
        to_start = (transposed_product(grad, columns), grad.sum(0))
        of_z, to_tokens = tokens_backward(of_tokens, to_token, to_columns[:, :age_dim].contiguous())
        to_node = to_columns[:, age_dim + 2 : age_dim + 2 + node_dim]
        return None, None, None, of_z.add_(to_z[:, :width]), to_node, *to_s, *to_tokens, *to_start, *to_layers
