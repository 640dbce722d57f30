"""One retentive layer of the network on the walk state."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from dsrd.models.dsrd.layer_block import gated_block
from dsrd.models.dsrd.retention import Block, Decays
from dsrd.models.dsrd.settings import DSRDConfig
from dsrd.models.dsrd.window_attention import Window, attended
from dsrd.models.dsrd.window_tokens import compiled_form


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

    def forward(self, h: Tensor, window: Window, s: Tensor) -> Tensor:
        """h of both endpoints of each pair, after a layer that reads s of the pair.

        # [2Q, dim], ..., [Q, pair] -> [2Q, dim]
        """
        query = self.query(h).unflatten(-1, (self.heads, -1))  # [2Q, H, dim]
        diffuses = self.ablate not in ("no_diffusion", "no_state")
        # values are linear in tokens: project the sum once instead of every token
        summed, spread = attended(query, window, self.decays, diffuses)  # [H, 2Q, dim], [H, 2Q, pair]
        injected = torch.bmm(summed, self.value)  # [H, 2Q, d]
        diffused = injected[:, :0] if spread is None else torch.bmm(spread, self.diffuse)
        retained = h[:0] if self.ablate == "no_state" else self.retain(s)  # [Q, dim]
        parts = (injected, diffused, retained, self.decays.gate())
        return gated_block(self.block, h, parts) if compiled_form(h) else self._gated_block(h, parts)

    def _gated_block(self, h: Tensor, parts: tuple[Tensor, ...]) -> Tensor:
        """`gated_block` in plain torch."""
        injected, diffused, retained, gamma = parts
        out = injected.transpose(0, 1) * (1 - gamma.unsqueeze(-1))  # [2Q, H, d]
        if len(retained):
            state = retained.repeat(2, 1).unflatten(-1, (self.heads, -1))
            if diffused.shape[1]:
                state = state + diffused.transpose(0, 1)
            out = out + state * gamma.unsqueeze(-1)
        updated: Tensor = self.block(h, out)
        return updated
