"""The net that scores: linear, GELU, dropout, linear to one number; one step of autograd on the CPU."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from dsrd.models.dsrd.layer_block import gelu_
from dsrd.models.dsrd.small_products import product, transposed_product
from dsrd.nn.dropout import Dropout, dropout_


class Head(nn.Sequential):
    """A new one gives 0: the first guess stands until the head has learned to correct it."""

    def __init__(self, width: int, hidden: int, dropout: float) -> None:
        last = nn.Linear(hidden, 1)
        nn.init.zeros_(last.weight)
        nn.init.zeros_(last.bias)
        super().__init__(nn.Linear(width, hidden), nn.GELU(), Dropout(dropout), last)

    def forward(self, x: Tensor) -> Tensor:  # [..., width] -> [..., 1]
        if x.device.type != "cpu" or x.dtype != torch.float32 or x.dim() != 2:
            return self.plainly(x)
        first, _, drop, last = self
        assert isinstance(drop, Dropout)
        seeds = drop.seeds(1) if drop.active else []
        weights = (first.weight, first.bias, last.weight, last.bias)
        out: Tensor = _Head.apply((drop.p, seeds), x, *weights)  # type: ignore[no-untyped-call]
        return out

    def plainly(self, x: Tensor) -> Tensor:
        """The same in plain torch."""
        for part in self:
            x = part(x)
        return x


class _Head(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, drop: tuple[float, list[int]], x: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor
    ) -> Tensor:
        p, seeds = drop
        hidden = product(x.detach().contiguous(), w1.detach().t(), b1.detach())
        slope = torch.empty(hidden.shape if any(ctx.needs_input_grad) else (0, 1))
        gelu_(hidden.numpy(), slope.numpy())
        if seeds:
            dropout_(hidden, seeds[0], p)
        if len(slope):
            ctx.drop = drop
            ctx.save_for_backward(x, hidden, slope, w1, w2)
        return torch.addmm(b2, hidden, w2.t())

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (x, hidden, slope, w1, w2), (p, seeds) = ctx.saved_tensors, ctx.drop
        to_w2 = torch.mm(grads[0].t(), hidden)
        to_hidden = torch.mm(grads[0], w2)
        if seeds:
            dropout_(to_hidden, seeds[0], p)
        to_hidden.mul_(slope)
        to_x = product(to_hidden, w1) if ctx.needs_input_grad[1] else None
        return None, to_x, transposed_product(to_hidden, x.contiguous()), to_hidden.sum(0), to_w2, grads[0].sum(0)
