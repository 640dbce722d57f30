"""An LSTM along walks; steps that several walks have in common are computed once."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from itertools import accumulate

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Input:
    """A block of the LSTM's input at each step of each walk; walks with equal input may share a row."""

    values: Tensor  # [n, L + 1, width]
    steps: Tensor  # [n] how many steps are real
    row: Tensor | None = None  # [d] the row that each walk reads; None: walk i reads row i

    def mapped(self, x: Tensor, weight: Tensor) -> Tensor:
        """Map the rows, then give each walk its row.  # [n, width] -> [d, out]"""
        y = x @ weight.T
        return y if self.row is None else y.index_select(0, self.row)

    def first(self, walk: Tensor) -> Tensor:
        """The first step of these walks.  # [w] -> [w, width]"""
        return self.values[walk if self.row is None else self.row[walk], 0]

    def last(self) -> Tensor:
        """The last real step of each row.  # [n, width]"""
        return self.values[torch.arange(len(self.steps), device=self.steps.device), self.steps - 1]


class WalkLSTM(nn.Module):
    """A bidirectional LSTM read at the last step of each walk; equal to `nn.LSTM` there.

    All walks of one side start at the same node, so their first step is computed once.
    """

    def __init__(self, widths: list[int], hidden: int) -> None:
        super().__init__()
        self.widths = widths
        self.weight, self.weight_back = (nn.Parameter(torch.empty(4 * hidden, sum(widths))) for _ in range(2))
        self.bias, self.bias_back = (nn.Parameter(torch.empty(2, 4 * hidden)) for _ in range(2))
        self.recurrent = nn.Parameter(torch.empty(4 * hidden, hidden))
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -1 / math.sqrt(hidden), 1 / math.sqrt(hidden))

    def forward(self, inputs: list[Input], per_side: Tensor, steps: Tensor) -> Tensor:
        """Blocks of input, walks of each side [S], real steps of each walk [d].  # -> [d, 2 hidden]"""
        blocks, bias = self._blocks(inputs, self.weight), self.bias.sum(dim=0)
        begin = per_side.cumsum(0) - per_side  # [S]
        h, c = _first_step(_sum(block.first(begin) @ weight.T for block, weight in blocks) + bias)
        carried, h, c = (x.repeat_interleave(per_side, dim=0) for x in (h @ self.recurrent.T + bias, h, c))
        for step in range(1, inputs[0].values.shape[1]):
            if step > 1:
                carried = h @ self.recurrent.T + bias
            read = _sum(block.mapped(block.values[:, step], weight) for block, weight in blocks)
            next_h, next_c = _next_step(read + carried, c)
            goes_on = (steps > step).unsqueeze(1)
            h, c = torch.where(goes_on, next_h, h), torch.where(goes_on, next_c, c)
        return torch.cat([h, self._backward_half(inputs)], dim=-1)

    def _backward_half(self, inputs: list[Input]) -> Tensor:
        blocks = self._blocks(inputs, self.weight_back)
        read = _sum(block.mapped(block.last(), weight) for block, weight in blocks)
        return _first_step(read + self.bias_back.sum(dim=0))[0]

    def _blocks(self, inputs: list[Input], weight: Tensor) -> list[tuple[Input, Tensor]]:
        """The blocks that have any columns, each with its columns of the weights."""
        begin = [0, *accumulate(self.widths)]
        return [
            (block, weight[:, at : at + block.values.shape[-1]])  # features may be narrower than declared
            for block, at in zip(inputs, begin, strict=False)
            if block.values.shape[-1]
        ]


def _sum(parts: Iterable[Tensor]) -> Tensor:
    return reduce(torch.add, parts)


def _next_step(gates: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """One step of an LSTM.  # [n, 4 hidden], [n, hidden] -> [n, hidden] twice"""
    input_gate, forget_gate, new, output_gate = gates.chunk(4, dim=-1)
    c = torch.sigmoid(forget_gate) * c + torch.sigmoid(input_gate) * torch.tanh(new)
    return torch.sigmoid(output_gate) * torch.tanh(c), c


def _first_step(gates: Tensor) -> tuple[Tensor, Tensor]:
    """The same from an empty cell: there is nothing to forget."""
    input_gate, _, new, output_gate = gates.chunk(4, dim=-1)
    c = torch.sigmoid(input_gate) * torch.tanh(new)
    return torch.sigmoid(output_gate) * torch.tanh(c), c
