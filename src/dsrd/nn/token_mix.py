"""The half of an MLP-mixer block that mixes tokens, in the layout of its input and a few queries at a time."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from dsrd.nn.dropout import dropout_
from dsrd.nn.feed_forward import FeedForward
from dsrd.nn.residual import Manner, Weights, manner_of, weights_of

AT_ONCE = 1 << 18  # numbers of the input that are computed at a time: they fit the processor's cache


def tokens_mixed(x: Tensor, norm: nn.LayerNorm, net: FeedForward) -> Tensor:
    """x + net(norm(x)), where the norm and the net go along the tokens.  # [Q, tokens, channels]"""
    if x.device.type != "cpu":
        return x + net(norm(x.transpose(1, 2))).transpose(1, 2)  # type: ignore[no-any-return]
    manner = manner_of(norm, net, norm_first=True)
    out: Tensor = _TokensMixed.apply(x, manner, *weights_of(norm, net))  # type: ignore[no-untyped-call]
    return out


class _TokensMixed(torch.autograd.Function):
    """Keeps the hidden layer before its activation."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, manner: Manner, *each: Tensor) -> Tensor:
        weights, out = Weights(*each), torch.empty_like(x)
        ctx.manner, ctx.kept = manner, list[Tensor]()
        for start, rows in _parts(x):
            y = _normed(x[rows], manner)[0]
            y.mul_(weights.gain.unsqueeze(1)).add_(weights.shift.unsqueeze(1))
            h = _mapped(weights.w1, y, weights.b1)
            y = _mapped(weights.w2, _activated(h, manner, start), weights.b2)
            if manner.masks:
                dropout_(y, manner.masks[1], manner.p, start)
            torch.add(x[rows], y, out=out[rows])
            if any(ctx.needs_input_grad):
                ctx.kept.append(h)
        ctx.save_for_backward(x, *each)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, *each = ctx.saved_tensors
        manner, weights, to = ctx.manner, Weights(*each), Weights(*map(torch.zeros_like, each))
        to_x = torch.empty_like(x)
        for (start, rows), h in zip(_parts(x), ctx.kept, strict=True):
            grad = through = grads[0][rows].contiguous()
            if manner.masks:
                through = dropout_(grad.clone(), manner.masks[1], manner.p, start)
            _add_outer(to.w2, to.b2, through, _activated(h, manner, start))
            through = _mapped(weights.w2.t(), through)
            if manner.masks:
                dropout_(through, manner.masks[0], manner.p, start)
            through = manner.kind[1](through, h)
            y, scale = _normed(x[rows], manner)
            gain = weights.gain.unsqueeze(1)
            _add_outer(to.w1, to.b1, through, y * gain + weights.shift.unsqueeze(1))
            through = _mapped(weights.w1.t(), through)
            along = through * y
            to.gain.add_(along.sum(dim=(0, 2)))
            to.shift.add_(through.sum(dim=(0, 2)))
            mean = along.mul_(gain).mean(dim=1, keepdim=True)
            through.mul_(gain)
            through -= through.mean(dim=1, keepdim=True)
            through.sub_(y.mul_(mean)).mul_(scale)
            torch.add(grad, through, out=to_x[rows])
        return to_x, None, *to


def _parts(x: Tensor) -> list[tuple[int, slice]]:
    """A few queries at a time, and the number of the first of their values."""
    size = x[:1].numel()
    count = max(1, AT_ONCE // max(1, size))
    return [(first * size, slice(first, first + count)) for first in range(0, len(x), count)]


def _normed(x: Tensor, manner: Manner) -> tuple[Tensor, Tensor]:
    """The input with mean 0 and deviation 1 along the tokens, and what it was multiplied by."""
    y = x - x.mean(dim=1, keepdim=True)
    scale = y.square().mean(dim=1, keepdim=True).add_(manner.eps).rsqrt_()
    return y.mul_(scale), scale


def _mapped(weight: Tensor, x: Tensor, bias: Tensor | None = None) -> Tensor:
    """A linear map along the tokens.  # [m, n], [C, n, d] -> [C, m, d]"""
    each = weight.expand(len(x), *weight.shape)
    return torch.bmm(each, x) if bias is None else torch.baddbmm(bias.unsqueeze(1), each, x)


def _activated(h: Tensor, manner: Manner, first: int) -> Tensor:
    a: Tensor = manner.kind[0](h)
    return dropout_(a, manner.masks[0], manner.p, first) if manner.masks else a


def _add_outer(to_weight: Tensor, to_bias: Tensor, grad: Tensor, x: Tensor) -> None:
    """Add to the gradients of a map along the tokens.  # [m, n], [m], [C, m, d], [C, n, d]"""
    to_weight.add_(torch.bmm(grad, x.transpose(1, 2)).sum(dim=0))
    to_bias.add_(grad.sum(dim=(0, 2)))
