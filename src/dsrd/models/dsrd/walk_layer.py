"""The parts of the network on the walk state: features of ages, windows of tokens, one retentive layer."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn

from dsrd.models.dsrd.retention import Block, Decays, cosine
from dsrd.models.dsrd.settings import DSRDConfig


@dataclass(frozen=True)
class Window:
    """The latest events of each endpoint, as the layers read them."""

    token: Tensor  # [B, k, dim]
    x: Tensor  # [B, k]: ages
    mask: Tensor  # [B, k]

    @cached_property
    def square(self) -> Tensor:
        """Squared length of each token, which all layers and heads share.  # [B, 1, k]"""
        return self.token.square().sum(-1).unsqueeze(1)


class AgeFeatures(nn.Module):
    """Cosines and soft steps of log(1 + age)."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.rate = nn.Parameter(2 * torch.randn(dim // 2))
        self.phase = nn.Parameter(2 * math.pi * torch.rand(dim // 2))
        self.step: Tensor
        self.register_buffer("step", torch.linspace(0, 16, dim - dim // 2))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:  # [...] -> [..., dim / 2] each
        # tanh(x - c) = 1 - 2 / (1 + exp(2x) exp(-2c)): one exponential per age instead of one per step
        growth = torch.exp(2 * x).unsqueeze(-1) * torch.exp(-2 * self.step)
        steps = growth.add_(1).reciprocal_().mul_(-2).add_(1)  # ages are data, no gradient passes here
        return torch.cos(x.unsqueeze(-1) * self.rate + self.phase), steps


class WalkLayer(nn.Module):
    """One retentive layer: injection, retention and diffusion, in a block.

    Keys are the tokens themselves: a key projection could be merged into the query's.
    """

    def __init__(self, config: DSRDConfig, depth: int, pair_dim: int) -> None:
        super().__init__()
        dim, self.heads, self.ablate = config.dim, config.heads, config.ablate
        self.query = nn.Linear(dim, self.heads * dim)
        self.value = nn.Parameter(torch.randn(self.heads, dim, dim // self.heads) / math.sqrt(dim))
        self.retain = nn.Linear(pair_dim, dim)
        self.diffuse = nn.Parameter(torch.randn(self.heads, pair_dim, dim // self.heads) / math.sqrt(pair_dim))
        self.decays = Decays(config, depth)
        self.block = Block(dim, config.dropout)

    def forward(self, h: Tensor, window: Window, s: Tensor, diffused: Tensor | None) -> Tensor:
        """h, after a layer that reads the state: s of the pair, and what diffused from partners.

        # [B, dim], ..., [B, pair], [B, H, pair] -> [B, dim]
        """
        if self.ablate == "no_block":
            return h
        gamma = self.decays.gate().unsqueeze(-1)  # [H, 1]
        out = self._injection(h, window) * (1 - gamma)  # [B, H, d]
        if self.ablate != "no_state":
            out = out + self._retained(s, diffused) * gamma
        updated: Tensor = self.block(h, out)
        return updated

    def _injection(self, h: Tensor, window: Window) -> Tensor:
        query, token = self.query(h).unflatten(-1, (self.heads, -1)), window.token  # [B, H, dim], [B, k, dim]
        product = torch.bmm(query, token.transpose(1, 2))  # [B, H, k]
        weight = self.decays.omega(cosine(product, query, window.square), window.x, window.mask)
        # values are linear in tokens: project the sum once instead of every token
        summed = torch.bmm(weight * product / math.sqrt(token.shape[-1]), token)  # [B, H, dim]
        return torch.einsum("bhe,hed->bhd", summed, self.value)

    def _retained(self, s: Tensor, diffused: Tensor | None) -> Tensor:
        retained: Tensor = self.retain(s).unflatten(-1, (self.heads, -1))  # [B, H, d]
        if diffused is None:
            return retained
        return retained + torch.einsum("bhp,hpd->bhd", diffused, self.diffuse)


def linear_of_parts(linear: nn.Linear, *parts: Tensor) -> Tensor:
    """`linear(torch.cat(parts, -1))` without the concatenation, which costs as much as the product."""
    shape, start = parts[0].shape[:-1], 0
    total: Tensor = linear.bias
    for part in parts:
        columns = linear.weight[:, start : start + part.shape[-1]]
        product = part.flatten(0, -2), columns.t()
        total = total.addmm_(*product) if start else torch.addmm(total, *product)  # in place: no copy of the sum
        start += part.shape[-1]
    return total.view(*shape, -1)
