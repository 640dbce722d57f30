"""Linear maps of several inputs side by side, and a small net on top of one."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from dsrd.nn.products import linear


class BlockLinear(nn.Module):
    """`nn.Linear` on the concatenation of blocks, where a block may be narrower than declared.

    The published models pad every feature matrix with zeros to one width. The weights of the padding count as
    parameters and set the scale of the initialisation, but multiply zeros: here they are skipped.

    >>> linear = BlockLinear([172, 4], 8)
    >>> linear(torch.zeros(3, 2), torch.ones(3, 4)).shape
    torch.Size([3, 8])
    """

    def __init__(self, widths: list[int], out_dim: int, bias: bool = True) -> None:
        super().__init__()
        self.widths = widths
        self.weight = nn.Parameter(torch.empty(out_dim, sum(widths)))
        self.bias = nn.Parameter(torch.empty(out_dim)) if bias else None
        bound = 1 / math.sqrt(sum(widths))
        nn.init.uniform_(self.weight, -bound, bound)
        if self.bias is not None:
            nn.init.uniform_(self.bias, -bound, bound)

    def forward(self, *blocks: Tensor) -> Tensor:
        """One product over the columns that exist.  # [..., width_i] each -> [..., out_dim]"""
        return linear(torch.cat(blocks, -1), self.columns(*blocks), self.bias)

    def columns(self, *blocks: Tensor) -> Tensor:
        """The weights of the columns that exist.  # [out_dim, sum of the blocks' widths]"""
        parts, start = [], 0
        for width, block in zip(self.widths, blocks, strict=True):
            parts.append(self.weight[:, start : start + block.shape[-1]])
            start += width
        return torch.cat(parts, -1)


class Merge(nn.Module):
    """Several inputs through one hidden layer; with `out_dim=1` the link head of the published protocol."""

    def __init__(self, widths: list[int], hidden_dim: int, out_dim: int) -> None:
        super().__init__()
        self.hidden = BlockLinear(widths, hidden_dim)
        self.out = nn.Linear(hidden_dim, out_dim)

    def forward(self, *blocks: Tensor) -> Tensor:  # [..., width_i] each -> [..., out_dim]
        merged: Tensor = self.out(torch.relu(self.hidden(*blocks)))
        return merged
