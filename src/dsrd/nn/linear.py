"""Linear maps of several inputs side by side, without touching what is known to be zero."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


class BlockLinear(nn.Module):
    """`nn.Linear` on the concatenation of blocks, where a block may be narrower than declared.

    The published models pad every feature matrix with zeros to one width. The weights of such columns count as
    parameters and set the scale of the initialisation, but multiply zeros: here the missing columns are skipped.

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
        return nn.functional.linear(torch.cat(blocks, -1), self.columns(*blocks), self.bias)

    def columns(self, *blocks: Tensor) -> Tensor:
        """The weights of the columns that exist.  # [out_dim, sum of the blocks' widths]"""
        found, start = [], 0
        for width, block in zip(self.widths, blocks, strict=True):
            found.append(self.weight[:, start : start + block.shape[-1]])
            start += width
        return torch.cat(found, -1)
