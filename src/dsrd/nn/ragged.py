"""Sequences of unequal lengths, stored end to end and computed a few at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from dsrd.nn.pool import Pool

AT_ONCE = 1024  # tokens, padding included, that are computed at a time: they fit the processor's cache


def spans(start: Tensor, length: Tensor) -> Tensor:
    """start[0], start[0] + 1, ... (length[0] of them), then those of start[1], and so on.

    >>> spans(torch.tensor([5, 0]), torch.tensor([2, 3])).tolist()
    [5, 6, 0, 1, 2]
    """
    stop = length.cumsum(0)
    shift = torch.repeat_interleave(start - stop + length, length)
    return shift + torch.arange(len(shift), device=start.device)


class Chunk(NamedTuple):
    """Some sequences that follow each other: where their tokens are, and how to write them as padded rows."""

    tokens: slice
    shape: tuple[int, int]  # sequences, and the length of the longest
    slot: Tensor | None  # [t] the slot of each token, of all slots of the rows; None if there is no padding
    mask: Tensor | None  # [C, L] whether a slot has a token

    def rows(self, tokens: Tensor) -> Tensor:
        """The rows of these sequences, zeros in the padding.  # [T, ...] -> [C, L, ...]"""
        part = tokens[self.tokens]
        if self.slot is None:
            return part.view(*self.shape, *part.shape[1:])
        rows = part.new_zeros(self.shape[0] * self.shape[1], *part.shape[1:])
        return rows.index_copy_(0, self.slot, part).view(*self.shape, *part.shape[1:])

    def write(self, rows: Tensor, out: Tensor) -> None:
        """Rows to tokens of `out`.  # [C, L, ...], [T, ...]"""
        flat = rows.reshape(-1, *out.shape[1:])
        out[self.tokens] = flat if self.slot is None else flat.index_select(0, self.slot)


@dataclass(frozen=True)
class Layout:
    """The lengths of Q sequences whose tokens are stored end to end [T, d].

    Sequences of similar length should follow each other: a few are computed at a time, as rows that are as long as
    the longest of these few.
    """

    length: Tensor  # [Q]
    copies: Tensor | None = None  # [T] number of equal tokens that a token stands for; None: one each

    def chunks(self, count: int) -> Iterator[Chunk]:
        """The chunks of `count` sequences each."""
        stop = 0
        for length in torch.split(self.length, count):  # type: ignore[no-untyped-call]
            longest, shortest, total = int(length.max()), int(length.min()), int(length.sum())
            tokens, shape = slice(stop, stop + total), (len(length), longest)
            stop += total
            if longest == shortest:
                yield Chunk(tokens, shape, None, None)
                continue
            mask = torch.arange(longest, device=length.device) < length.unsqueeze(1)
            yield Chunk(tokens, shape, mask.view(-1).nonzero().squeeze(1), mask)

    def pool(self, dtype: torch.dtype) -> Pool:
        """What takes the mean token of each sequence."""
        owner = torch.repeat_interleave(self.length)  # [T]
        if self.copies is None:
            return Pool(owner, (1 / self.length.to(dtype)).index_select(0, owner), len(self.length))
        copies = self.copies.to(dtype)
        total = copies.new_zeros(len(self.length)).index_add_(0, owner, copies)
        return Pool(owner, copies / total.index_select(0, owner), len(self.length))
