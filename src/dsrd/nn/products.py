"""Matrix products of single precision through oneDNN, which torch carries beside its default library.

On processors of other makers than Intel the default library does not use the widest vectors: there oneDNN is twice
as fast. It compiles code for every new number of rows, which takes as long as a product of thousands of rows. So
rows are multiplied in pieces of few sizes, which also fit the processor's cache.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

PIECES = (640, 64)  # rows multiplied at a time: as many of the first as there are, then of the second
ONEDNN = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
WORTHWHILE = 1 << 13  # numbers in a matrix of weights from which on a product is worth the call


def pieces(rows: int) -> Iterator[slice]:
    """Parts of so many rows: of the sizes in `PIECES`, and a last one with what remains.

    >>> [part.stop - part.start for part in pieces(1350)]
    [640, 640, 64, 6]
    """
    start = 0
    for size in PIECES:
        for _ in range((rows - start) // size):
            yield slice(start, start + size)
            start += size
    if start < rows:
        yield slice(start, rows)


def product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x @ weight.t() + bias, of the rows of one piece; knows no gradients.  # [n, k], [m, k], [m] -> [n, m]"""
    if len(x) in PIECES and x.dtype == torch.float32 and _fast(weight):
        found: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
        return found
    return x @ weight.t() if bias is None else torch.addmm(bias, x, weight.t())


def add_outer(sum_: Tensor, first: Tensor, second: Tensor) -> None:
    """sum_ += first.t() @ second, of the rows of one piece.  # [n, m], [n, k] -> [m, k]"""
    if len(first) in PIECES and first.dtype == torch.float32 and _fast(sum_):
        if first.shape[1] > second.shape[1]:  # it is faster with the narrower matrix in front
            sum_, first, second = sum_.t(), second, first
        sum_ += torch.ops.mkldnn._linear_pointwise(first.t(), second.t(), None, "none", [], "")
    else:
        sum_.addmm_(first.t(), second)


def _fast(weight: Tensor) -> bool:
    return ONEDNN and weight.numel() >= WORTHWHILE and weight.device.type == "cpu"


def linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """`nn.functional.linear`, faster where there are many rows.  # [..., k], [m, k], [m] -> [..., m]"""
    if x.dtype != torch.float32 or not _fast(weight):
        return nn.functional.linear(x, weight, bias)
    found: Tensor = _Linear.apply(x.reshape(-1, x.shape[-1]), weight, bias)  # type: ignore[no-untyped-call]
    return found.view(*x.shape[:-1], len(weight))


class Linear(nn.Linear):
    """`nn.Linear` by `linear`."""

    def forward(self, x: Tensor) -> Tensor:
        return linear(x, self.weight, self.bias)


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        out = x.new_empty(len(x), len(weight))
        for rows in pieces(len(x)):
            out[rows] = product(x[rows], weight, bias)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        to_x = torch.empty_like(x) if ctx.needs_input_grad[0] else None
        to_weight, to_bias = torch.zeros_like(weight), torch.zeros_like(weight[:, 0])
        for rows in pieces(len(x)):
            grad = grads[0][rows]
            add_outer(to_weight, grad, x[rows])
            to_bias += grad.sum(dim=0)
            if to_x is not None:
                to_x[rows] = product(grad, weight.t())
        return to_x, to_weight, to_bias if ctx.needs_input_grad[2] else None
