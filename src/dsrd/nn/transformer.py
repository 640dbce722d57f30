"""Attention over sequences of unequal lengths, without computing padding, and a transformer block."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from dsrd.errors import DsrdError
from dsrd.nn.dropout import Dropout
from dsrd.nn.feed_forward import FeedForward


def spans(start: Tensor, length: Tensor) -> Tensor:
    """start[0], start[0] + 1, ... (length[0] of them), then those of start[1], and so on.

    >>> spans(torch.tensor([5, 0]), torch.tensor([2, 3])).tolist()
    [5, 6, 0, 1, 2]
    """
    stop = length.cumsum(0)
    shift = torch.repeat_interleave(start - stop + length, length)
    return shift + torch.arange(len(shift), device=start.device)


@dataclass(frozen=True)
class Layout:
    """Two ways to store Q sequences: all tokens end to end [T, d], or in rows as long as the longest [Q, L, d].

    Linear maps work on tokens, attention on rows. Slots of a row without a token hold the values of some other
    token: code that reads rows must mask them.
    """

    slot: Tensor  # [T] the slot of each token, of Q * L
    token: Tensor  # [Q * L] the token of each slot
    mask: Tensor  # [Q, L] whether the slot has a token of its own
    copies: Tensor | None = None  # [Q, L] number of equal tokens that the token stands for; None: one each

    @classmethod
    def of(cls, length: Tensor, copies: Tensor | None = None) -> Layout:
        """The layout of sequences of these lengths; a token stands for `copies` equal ones.  # [Q], [T]"""
        longest = int(length.max()) if len(length) else 0
        mask = torch.arange(longest, device=length.device) < length.unsqueeze(1)
        flat = mask.view(-1)
        slot, token = flat.nonzero().squeeze(1), (flat.cumsum(0) - 1) * flat
        return cls(slot, token, mask, None if copies is None else (copies[token] * flat).view(mask.shape))

    def rows(self, tokens: Tensor) -> Tensor:
        """[T, d] -> [Q, L, d]"""
        if len(self.slot) == len(self.token):
            return tokens.view(*self.mask.shape, -1)
        spread: Tensor = _Spread.apply(tokens, self)  # type: ignore[no-untyped-call]
        return spread.view(*self.mask.shape, -1)

    def tokens(self, rows: Tensor) -> Tensor:
        """[Q, L, d] -> [T, d]"""
        if len(self.slot) == len(self.token):
            return rows.reshape(len(self.slot), -1)
        collected: Tensor = _Collect.apply(rows.reshape(len(self.token), -1), self)  # type: ignore[no-untyped-call]
        return collected

    def mean(self, tokens: Tensor) -> Tensor:
        """The mean token of each sequence.  # [T, d] -> [Q, d]"""
        share = self.mask if self.copies is None else self.copies
        weight = share / share.sum(dim=1, keepdim=True)  # [Q, L]
        return torch.bmm(weight.to(tokens.dtype).unsqueeze(1), self.rows(tokens)).squeeze(1)


class _Spread(torch.autograd.Function):
    """Tokens to slots; a slot without a token of its own is masked by its readers and passes no gradient."""

    @staticmethod
    def forward(ctx: Any, tokens: Tensor, layout: Layout) -> Tensor:
        ctx.layout = layout
        return tokens.index_select(0, layout.token)

    @staticmethod
    def backward(ctx: Any, *grad: Tensor) -> tuple[Tensor, None]:
        return grad[0].index_select(0, ctx.layout.slot), None


class _Collect(torch.autograd.Function):
    """Slots to tokens."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, layout: Layout) -> Tensor:
        ctx.layout = layout
        return rows.index_select(0, layout.slot)

    @staticmethod
    def backward(ctx: Any, *grad: Tensor) -> tuple[Tensor, None]:
        spread = grad[0].index_select(0, ctx.layout.token)
        return spread.mul_(ctx.layout.mask.view(-1, 1)), None


class MultiHead(nn.Module):
    """Multi-head attention; initialised like, and equal to, `nn.MultiheadAttention` without padding."""

    def __init__(self, dim: int, heads: int, dropout: float) -> None:
        super().__init__()
        if dim % heads:
            raise DsrdError(f"model.heads={heads}: does not divide the width {dim}; give a divisor of it")
        self.heads = heads
        self.weight = nn.Parameter(torch.empty(3 * dim, dim))  # of queries, keys, values
        self.bias = nn.Parameter(torch.zeros(3 * dim))
        self.mix = nn.Linear(dim, dim)
        self.dropout = Dropout(dropout)
        nn.init.xavier_uniform_(self.weight)
        nn.init.zeros_(self.mix.bias)

    def forward(
        self, x: Tensor, layout: Layout, other: Tensor | None = None, other_layout: Layout | None = None
    ) -> Tensor:
        """Every token attends to its own sequence, or to the sequence of `other` at the same position.

        # [T, dim] -> [T, dim]
        """
        if other is None or other_layout is None:
            other_layout = layout
            query, key, value = layout.rows(self._projected(x, 0, 3)).chunk(3, dim=-1)  # [Q, L, dim] each
        else:
            query = layout.rows(self._projected(x, 0, 1))
            key, value = other_layout.rows(self._projected(other, 1, 3)).chunk(2, dim=-1)
        query, key, value = (self._by_head(part) for part in (query, key, value))
        read = self._attend(query, key, value, other_layout)  # [Q, heads, L, d]
        mixed: Tensor = self.mix(layout.tokens(read.transpose(1, 2).flatten(2)))
        return mixed

    def _projected(self, x: Tensor, first: int, last: int) -> Tensor:
        dim = x.shape[-1]
        part = slice(first * dim, last * dim)
        return nn.functional.linear(x, self.weight[part], self.bias[part])

    def _by_head(self, rows: Tensor) -> Tensor:  # [Q, L, dim] -> [Q, heads, L, d]
        return rows.view(*rows.shape[:2], self.heads, rows.shape[2] // self.heads).transpose(1, 2)

    def _attend(self, query: Tensor, key: Tensor, value: Tensor, layout: Layout) -> Tensor:
        mask = layout.mask[:, None, None, :]
        if layout.copies is not None:  # n equal keys attract as one whose logit is larger by log n
            mask = layout.copies.to(query.dtype).log()[:, None, None, :]
        if not torch.is_grad_enabled():  # the fused form is faster forward, slower backward
            return nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        logits = query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1])
        logits = logits.masked_fill(~mask, -math.inf) if layout.copies is None else logits + mask
        read: Tensor = self.dropout(logits.softmax(dim=-1)) @ value
        return read


class PostNormBlock(nn.Module):
    """norm(x + attention(x, other)), then norm(x + feed_forward(x)); ReLU inside."""

    def __init__(self, dim: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.norm_mid, self.norm_out = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attention = MultiHead(dim, heads, dropout)
        self.feed = FeedForward(dim, 4, dropout, activation=nn.ReLU)
        self.dropout = Dropout(dropout)

    def forward(
        self, x: Tensor, layout: Layout, other: Tensor | None = None, other_layout: Layout | None = None
    ) -> Tensor:  # [T, dim] -> [T, dim]
        x = self.norm_mid(x + self.dropout(self.attention(x, layout, other, other_layout)))
        out: Tensor = self.norm_out(x + self.feed(x))
        return out
