"""One retentive layer of the network on the walk state."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from dsrd.models.dsrd.layer_block import Dropped
from dsrd.models.dsrd.layer_pass import LayerSettings, LayerWeights
from dsrd.models.dsrd.retention import Block, Decays
from dsrd.models.dsrd.settings import DSRDConfig
from dsrd.models.dsrd.window_attention import Window, attended_plainly


class WalkLayer(nn.Module):
    """One retentive layer: injection, retention and diffusion, in a block.

    Keys are the tokens themselves: a key projection could be merged into the query's.
    """

    def __init__(self, config: DSRDConfig, depth: int, pair_dim: int) -> None:
        super().__init__()
        dim, self.heads = config.dim, config.heads
        self.retains = config.ablate != "no_state"
        self.diffuses = self.retains and config.ablate != "no_diffusion"
        self.query = nn.Linear(dim, self.heads * dim)
        self.value = nn.Parameter(torch.randn(self.heads, dim, dim // self.heads) / math.sqrt(dim))
        self.retain = nn.Linear(pair_dim, dim)
        self.diffuse = nn.Parameter(torch.randn(self.heads, pair_dim, dim // self.heads) / math.sqrt(pair_dim))
        self.decays = Decays(config, depth)
        self.block = Block(dim, config.dropout)

    def forward(self, h: Tensor, window: Window, s: Tensor) -> Tensor:
        """h of both endpoints of each pair, after a layer that reads s of the pair.

        # [2Q, dim], ..., [Q, pair] -> [2Q, dim]
        """
        query = self.query(h).unflatten(-1, (self.heads, -1))  # [2Q, H, dim]
        summed, spread = attended_plainly(query, window, self.decays, self.diffuses)  # [H, 2Q, dim], [H, 2Q, pair]
        gamma = self.decays.gate().unsqueeze(-1)  # [H, 1]
        # values are linear in tokens: project the sum once instead of every token
        out = torch.bmm(summed, self.value).transpose(0, 1) * (1 - gamma)  # [2Q, H, d]
        if self.retains:
            state = self.retain(s).repeat(2, 1).unflatten(-1, (self.heads, -1))
            if self.diffuses:
                state = state + torch.bmm(spread, self.diffuse).transpose(0, 1)
            out = out + state * gamma
        updated: Tensor = self.block(h, out)
        return updated

    def settings(self) -> LayerSettings:
        """What `layer_pass` needs besides weights, with new seeds of dropout."""
        drop = self.block.dropout
        seeds = [*drop.seeds(1), *drop.seeds(1)] if drop.active else []  # drawn one by one, as by two calls
        return LayerSettings(self.retains, self.diffuses, self.block.norm_out.eps, Dropped(drop.p, seeds))

    def weights(self) -> LayerWeights:
        """The weights that `layer_pass` needs besides those of the block."""
        own = (self.query.weight, self.query.bias, self.value, self.retain.weight, self.retain.bias, self.diffuse)
        return LayerWeights(*own, *self.decays.all_rates())
