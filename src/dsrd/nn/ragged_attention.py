"""Attention within sequences of unequal lengths, or from one to another, a few sequences at a time."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from dsrd.nn.dropout import dropout_
from dsrd.nn.ragged import AT_ONCE, Chunk, Layout


class Reading(NamedTuple):
    """Who reads whom."""

    heads: int
    reader: Layout  # sequences of queries
    read: Layout  # sequences of keys and values, each read by the sequence at the same position
    p: float  # dropout of the shares
    seed: int | None  # of that dropout; None: there is none

    def chunks(self) -> Iterator[tuple[Chunk, Chunk]]:
        """A few sequences at a time: of queries, and of the keys and values that they read."""
        length, other = self.reader.length, self.read.length
        longest = int(torch.maximum(length, other).max()) if len(length) else 1
        whole = length.device.type != "cpu"
        count = len(length) if whole else max(1, AT_ONCE // max(1, longest))
        if self.reader is self.read:
            yield from ((chunk, chunk) for chunk in self.read.chunks(count))
        else:
            yield from zip(self.reader.chunks(count), self.read.chunks(count), strict=True)

    def logits(self, query: Tensor, key: Tensor, keys: Chunk) -> Tensor:
        """Scaled products; n equal keys attract as one whose logit is larger by log n.  # [H, C, L, L']"""
        scale, bias = 1 / math.sqrt(query.shape[-1]), query.new_zeros(())
        logits = query.new_empty(self.heads, len(query), query.shape[1], key.shape[1])
        if self.read.copies is not None:
            bias = keys.rows(self.read.copies.to(query.dtype)).log().unsqueeze(1)
        elif keys.mask is not None:
            bias = torch.where(keys.mask, 0.0, -torch.inf).to(query.dtype).unsqueeze(1)
        for head in range(self.heads):
            one, other = query[:, :, head], key[:, :, head].transpose(1, 2)
            torch.baddbmm(bias, one, other, beta=int(bias.dim() > 0), alpha=scale, out=logits[head])
        return logits

    def dropped(self, shares: Tensor, first: int) -> Tensor:
        """Dropout in place; `first` numbers the shares."""
        if self.seed is None:
            return shares
        if shares.device.type == "cpu":
            return dropout_(shares, self.seed, self.p, first)
        generator = torch.Generator(shares.device).manual_seed(self.seed + first)
        kept = torch.rand(shares.shape, generator=generator, device=shares.device) >= self.p
        return shares.mul_(kept / (1 - self.p))


def attend(x: Tensor, other: Tensor | None, how: Reading) -> Tensor:
    """Every token reads its own sequence, or the sequence of `other` at the same position.

    `x` has queries, keys and values side by side, or queries alone if `other` has the keys and values.

    # [T, 3 * dim], or [T, dim] and [T', 2 * dim] -> [T, dim]
    """
    found: Tensor = _Attend.apply(x, other, how)  # type: ignore[no-untyped-call]
    return found


def _parts(x: Tensor, other: Tensor | None, how: Reading, chunks: tuple[Chunk, Chunk]) -> tuple[Tensor, ...]:
    """Queries, keys and values as rows.  # [C, L, H, d], [C, L', H, d] twice"""
    rows = chunks[0].rows(x)
    if other is None:
        query, key, value = rows.view(*rows.shape[:2], 3, how.heads, -1).unbind(2)
        return query, key, value
    pair = chunks[1].rows(other)
    key, value = pair.view(*pair.shape[:2], 2, how.heads, -1).unbind(2)
    return rows.view(*rows.shape[:2], how.heads, -1), key, value


class _Attend(torch.autograd.Function):
    """Keeps the shares before their dropout."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, other: Tensor | None, how: Reading) -> Tensor:
        out = x.new_empty(len(x), x.shape[1] // (3 if other is None else 1))
        ctx.how, ctx.shares, first = how, list[Tensor](), 0
        for chunks in how.chunks():
            query, key, value = _parts(x, other, how, chunks)
            shares = how.logits(query, key, chunks[1]).softmax(dim=-1)
            if any(ctx.needs_input_grad):
                ctx.shares.append(shares)
            shares = shares if how.seed is None else how.dropped(shares.clone(), first)
            read = query.new_empty(query.shape)
            for head in range(how.heads):
                read[:, :, head] = torch.bmm(shares[head], value[:, :, head])
            chunks[0].write(read, out)
            first += shares.numel()
        ctx.save_for_backward(x, other)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, other = ctx.saved_tensors
        how, first, grad = ctx.how, 0, grads[0].contiguous()
        to_x, to_other = torch.empty_like(x), None if other is None else torch.empty_like(other)
        for shares, chunks in zip(ctx.shares, how.chunks(), strict=True):
            query, key, value = _parts(x, other, how, chunks)
            to_out = chunks[0].rows(grad).view_as(query)  # [C, L, H, d]
            own = query.new_empty(*query.shape[:2], 1 if other is not None else 3, *query.shape[2:])
            read = own[:, :, 1:] if other is None else query.new_empty(*key.shape[:2], 2, *key.shape[2:])
            to_query, to_key, to_value = own[:, :, 0], *read.unbind(2)
            dropped = shares if how.seed is None else how.dropped(shares.clone(), first)
            to_shares = torch.empty_like(shares)
            for head in range(how.heads):
                to_value[:, :, head] = torch.bmm(dropped[head].transpose(1, 2), to_out[:, :, head])
                torch.bmm(to_out[:, :, head], value[:, :, head].transpose(1, 2), out=to_shares[head])
            how.dropped(to_shares, first)
            to_logits = torch.ops.aten._softmax_backward_data(to_shares, shares, -1, shares.dtype)
            to_logits *= 1 / math.sqrt(query.shape[-1])
            for head in range(how.heads):
                to_query[:, :, head] = torch.bmm(to_logits[head], key[:, :, head])
                to_key[:, :, head] = torch.bmm(to_logits[head].transpose(1, 2), query[:, :, head])
            chunks[0].write(own.flatten(2), to_x)
            if to_other is not None:
                chunks[1].write(read.flatten(2), to_other)
            first += shares.numel()
        return to_x, to_other, None
