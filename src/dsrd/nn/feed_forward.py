"""The two-layer net inside mixers and transformers, computed in pieces that fit the processor's cache."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from dsrd.nn.dropout import Dropout, dropout_

PIECE = 1 << 19  # numbers of the hidden layer computed at a time

Slope = Callable[[Tensor, Tensor], Tensor]
ACTIVATIONS: dict[type[nn.Module], tuple[Callable[[Tensor], Tensor], Slope]] = {
    nn.GELU: (nn.functional.gelu, torch.ops.aten.gelu_backward),
    nn.ReLU: (torch.relu, lambda grad, x: torch.ops.aten.threshold_backward(grad, x, 0)),
}
"""Each with its backward pass: (gradient, input) -> gradient."""


class FeedForward(nn.Sequential):
    """Linear, GELU (or ReLU), linear, with dropout after each."""

    def __init__(self, dim: int, factor: float, dropout: float, activation: type[nn.Module] = nn.GELU) -> None:
        hidden = max(1, int(factor * dim))
        super().__init__(
            nn.Linear(dim, hidden), activation(), Dropout(dropout), nn.Linear(hidden, dim), Dropout(dropout)
        )

    def forward(self, x: Tensor) -> Tensor:  # [..., dim] -> [..., dim]
        if x.device.type != "cpu":
            for part in self:
                x = part(x)
            return x
        first, activation, dropout, second, _ = self
        assert isinstance(dropout, Dropout)
        weights = (first.weight, first.bias, second.weight, second.bias)
        masks = dropout.seeds(2) if dropout.active else None
        kind = ACTIVATIONS[type(activation)]
        out: Tensor = _FeedForward.apply(x.reshape(-1, x.shape[-1]), *weights, kind, dropout.p, masks)  # type: ignore[no-untyped-call]
        return out.view(x.shape)

    def pooled(self, x: Tensor, pool: Callable[[Tensor], Tensor]) -> Tensor:
        """pool(self(x)) for a weighted mean over rows.

        Without dropout the mean commutes with the second linear map, which then is computed once per mean instead
        of once per row.
        """
        if self[4].active:
            return pool(self(x))
        pooled: Tensor = self[3](pool(self[2](self[1](self[0](x)))))
        return pooled


class _FeedForward(torch.autograd.Function):
    """Keeps the hidden layer before its activation; the backward pass computes the rest again."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor, kind: Any, p: float, masks: Any
    ) -> Tensor:
        keep = any(ctx.needs_input_grad)
        hidden = x.new_empty(len(x) if keep else 0, len(w1))
        out = torch.empty_like(x)
        for rows in _pieces(len(x), len(w1)):
            h = torch.addmm(b1, x[rows], w1.t(), out=hidden[rows]) if keep else torch.addmm(b1, x[rows], w1.t())
            a = _activated(h, kind, p, masks, rows)
            torch.addmm(b2, a, w2.t(), out=out[rows])
            if masks:
                dropout_(out[rows], masks[1], p, rows.start * len(b2))
        ctx.kind, ctx.p, ctx.masks = kind, p, masks
        if keep:
            ctx.save_for_backward(x, hidden, w1, w2)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, hidden, w1, w2 = ctx.saved_tensors
        to_w1, to_w2 = torch.zeros_like(w1), torch.zeros_like(w2)
        to_b1, to_b2 = w1.new_zeros(len(w1)), w2.new_zeros(len(w2))
        to_x = torch.empty_like(x)
        for rows in _pieces(len(x), len(w1)):
            grad = grads[0][rows]
            if ctx.masks:
                grad = grad.clone(memory_format=torch.contiguous_format)
                dropout_(grad, ctx.masks[1], ctx.p, rows.start * len(w2))
            to_b2 += grad.sum(dim=0)
            to_w2.addmm_(grad.t(), _activated(hidden[rows], ctx.kind, ctx.p, ctx.masks, rows))
            grad = grad @ w2
            if ctx.masks:
                dropout_(grad, ctx.masks[0], ctx.p, rows.start * len(w1))
            grad = ctx.kind[1](grad, hidden[rows])
            to_b1 += grad.sum(dim=0)
            to_w1.addmm_(grad.t(), x[rows])
            torch.mm(grad, w1, out=to_x[rows])
        return to_x, to_w1, to_b1, to_w2, to_b2, None, None, None


def _activated(h: Tensor, kind: Any, p: float, masks: Any, rows: slice) -> Tensor:
    a: Tensor = kind[0](h)
    return dropout_(a, masks[0], p, rows.start * h.shape[1]) if masks else a


def _pieces(rows: int, width: int) -> Iterator[slice]:
    size = max(1, PIECE // width)
    for start in range(0, rows, size):
        yield slice(start, min(start + size, rows))
