"""Layers with their norm, dropout and residual in one pass over the rows, piece by piece."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from dsrd.nn.dropout import Dropout, dropout_
from dsrd.nn.feed_forward import ACTIVATIONS, FeedForward
from dsrd.nn.pool import Pool, add_pooled
from dsrd.nn.products import add_outer, linear, pieces, product


class Manner(NamedTuple):
    """What the pass does apart from its weights."""

    kind: Any  # the activation and its backward pass
    p: float
    masks: list[int] | None  # seeds of the two dropouts, if there are any
    eps: float
    norm_first: bool


class Weights(NamedTuple):
    """Of the norm and the two layers, or the gradients of these."""

    gain: Tensor
    shift: Tensor
    w1: Tensor
    b1: Tensor
    w2: Tensor
    b2: Tensor


def added(x: Tensor, read: Tensor, layer: nn.Linear, dropout: Dropout) -> Tensor:
    """x + dropout(layer(read)).  # [T, d], [T, k] -> [T, d]"""
    if x.device.type != "cpu":
        return x + dropout(layer(read))  # type: ignore[no-any-return]
    seed = dropout.seeds(1)[0] if dropout.active else None
    out: Tensor = _Added.apply(x, read, layer.weight, layer.bias, dropout.p, seed)  # type: ignore[no-untyped-call]
    return out


class _Added(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, read: Tensor, weight: Tensor, bias: Tensor, p: float, seed: int | None
    ) -> Tensor:
        ctx.save_for_backward(read, weight)
        ctx.p, ctx.seed, out = p, seed, torch.empty_like(x)
        for rows in pieces(len(x)):
            y = product(read[rows], weight, bias)
            if seed is not None:
                dropout_(y, seed, p, rows.start * y.shape[1])
            torch.add(x[rows], y, out=out[rows])
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        read, weight = ctx.saved_tensors
        to_read, to_weight = torch.empty_like(read), torch.zeros_like(weight)
        to_bias = torch.zeros_like(weight[:, 0])
        for rows in pieces(len(read)):
            grad = grads[0][rows].contiguous()
            if ctx.seed is not None:
                grad = dropout_(grad.clone(), ctx.seed, ctx.p, rows.start * grad.shape[1])
            to_bias.add_(grad.sum(dim=0))
            add_outer(to_weight, grad, read[rows])
            to_read[rows] = product(grad, weight.t())
        return grads[0], to_read, to_weight, to_bias, None, None


def fed(x: Tensor, norm: nn.LayerNorm, net: FeedForward, norm_first: bool) -> Tensor:
    """x + net(norm(x)) with the norm in front, norm(x + net(x)) with the norm behind.  # [T, d] -> [T, d]"""
    if x.device.type != "cpu":
        return x + net(norm(x)) if norm_first else norm(x + net(x))  # type: ignore[no-any-return]
    out: Tensor = _Fed.apply(x, manner_of(norm, net, norm_first), *weights_of(norm, net))  # type: ignore[no-untyped-call]
    return out


def fed_and_pooled(x: Tensor, norm: nn.LayerNorm, net: FeedForward, pool: Pool) -> Tensor:
    """The means of x + net(norm(x)) over the rows of each owner.  # [T, d] -> [Q, d]

    Without dropout the mean commutes with the second linear map, which then is computed once per mean instead of
    once per row.
    """
    _, _, dropout, second = _parts(net)
    if x.device.type != "cpu" or dropout.active:
        return pool.mean(fed(x, norm, net, norm_first=True))
    manner, weights = manner_of(norm, net, norm_first=True), weights_of(norm, net)[:4]
    hidden: Tensor = _PooledHidden.apply(x, manner, pool, *weights)  # type: ignore[no-untyped-call]
    return pool.mean(x) + linear(hidden, second.weight, second.bias)


def _parts(net: FeedForward) -> tuple[nn.Linear, nn.Module, Dropout, nn.Linear]:
    first, activation, dropout, second, _ = net
    assert isinstance(first, nn.Linear)
    assert isinstance(dropout, Dropout)
    assert isinstance(second, nn.Linear)
    return first, activation, dropout, second


def manner_of(norm: nn.LayerNorm, net: FeedForward, norm_first: bool) -> Manner:
    """The manner of a net that is about to be applied: its dropout draws seeds."""
    _, activation, dropout, _ = _parts(net)
    masks = dropout.seeds(2) if dropout.active else None
    return Manner(ACTIVATIONS[type(activation)], dropout.p, masks, norm.eps, norm_first)


def weights_of(norm: nn.LayerNorm, net: FeedForward) -> Weights:
    first, _, _, second = _parts(net)
    return Weights(norm.weight, norm.bias, first.weight, first.bias, second.weight, second.bias)


class _Fed(torch.autograd.Function):
    """Keeps the hidden layer before its activation; the backward pass computes the rest again."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, manner: Manner, *each: Tensor) -> Tensor:
        weights, out = Weights(*each), torch.empty_like(x)
        ctx.manner, ctx.kept = manner, list[tuple[Tensor, Tensor]]()
        for rows in pieces(len(x)):
            inner = _normed(x[rows], manner, weights)[0] if manner.norm_first else x[rows]
            h = product(inner, weights.w1, weights.b1)
            y = product(_activated(h, manner, rows), weights.w2, weights.b2)
            if manner.masks:
                dropout_(y, manner.masks[1], manner.p, rows.start * y.shape[1])
            if manner.norm_first:
                torch.add(x[rows], y, out=out[rows])
            else:
                y += x[rows]
                out[rows] = _normed(y, manner, weights)[0]
            if any(ctx.needs_input_grad):
                ctx.kept.append((h, x[rows] if manner.norm_first else y))  # and what the norm is applied to
        ctx.save_for_backward(x, *each)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, *each = ctx.saved_tensors
        manner, weights, to = ctx.manner, Weights(*each), Weights(*map(torch.zeros_like, each))
        to_x = torch.empty_like(x)
        for rows, (h, before_norm) in zip(pieces(len(x)), ctx.kept, strict=True):
            grad, inner = grads[0][rows].contiguous(), x[rows]
            normed, mean, rstd = _normed(before_norm, manner, weights)
            norm = (before_norm, weights.gain.shape, mean, rstd, weights.gain, weights.shift, [True] * 3)
            if manner.norm_first:
                through = _through_net(grad, h, normed, manner, weights, to, rows)
                through, to_gain, to_shift = torch.ops.aten.native_layer_norm_backward(through, *norm)
            else:
                grad, to_gain, to_shift = torch.ops.aten.native_layer_norm_backward(grad, *norm)
                through = _through_net(grad, h, inner, manner, weights, to, rows)
            to.gain.add_(to_gain)
            to.shift.add_(to_shift)
            torch.add(grad, through, out=to_x[rows])
        return to_x, None, *to


class _PooledHidden(torch.autograd.Function):
    """The means of the hidden layer over the rows of each owner."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, manner: Manner, pool: Pool, *each: Tensor) -> Tensor:
        weights, out = Weights(*each, *each[2:]), x.new_zeros(pool.means, len(each[2]))
        ctx.manner, ctx.pool, ctx.kept = manner, pool, list[Tensor]()
        for rows in pieces(len(x)):
            h = product(_normed(x[rows], manner, weights)[0], weights.w1, weights.b1)
            add_pooled(out, manner.kind[0](h), pool.part(rows))
            if any(ctx.needs_input_grad):
                ctx.kept.append(h)
        ctx.save_for_backward(x, *each)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, *each = ctx.saved_tensors
        manner, weights, to = ctx.manner, Weights(*each, *each[2:]), list(map(torch.zeros_like, each))
        to_x = torch.empty_like(x)
        for rows, h in zip(pieces(len(x)), ctx.kept, strict=True):
            normed, mean, rstd = _normed(x[rows], manner, weights)
            grad = manner.kind[1](ctx.pool.part(rows).spread(grads[0]), h)
            add_outer(to[2], grad, normed)
            norm = (x[rows], weights.gain.shape, mean, rstd, weights.gain, weights.shift, [True] * 3)
            through = torch.ops.aten.native_layer_norm_backward(product(grad, weights.w1.t()), *norm)
            to_x[rows] = through[0]
            for total, part in zip(to, (*through[1:], 0, grad.sum(dim=0)), strict=True):
                total += part
        return to_x, None, None, *to


def _normed(x: Tensor, manner: Manner, weights: Weights) -> tuple[Tensor, Tensor, Tensor]:
    return torch.native_layer_norm(x, weights.gain.shape, weights.gain, weights.shift, manner.eps)


def _activated(h: Tensor, manner: Manner, rows: slice) -> Tensor:
    a: Tensor = manner.kind[0](h)
    return dropout_(a, manner.masks[0], manner.p, rows.start * h.shape[1]) if manner.masks else a


def _through_net(
    grad: Tensor, h: Tensor, inner: Tensor, manner: Manner, weights: Weights, to: Weights, rows: slice
) -> Tensor:
    """The gradient of the net's input from that of its output; adds to the gradients of the weights."""
    if manner.masks:
        grad = dropout_(grad.clone(), manner.masks[1], manner.p, rows.start * grad.shape[1])
    to.b2.add_(grad.sum(dim=0))
    add_outer(to.w2, grad, _activated(h, manner, rows))
    grad = product(grad, weights.w2.t())
    if manner.masks:
        dropout_(grad, manner.masks[0], manner.p, rows.start * grad.shape[1])
    grad = manner.kind[1](grad, h)
    to.b1.add_(grad.sum(dim=0))
    add_outer(to.w1, grad, inner)
    return product(grad, weights.w1.t())
