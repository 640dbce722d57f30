"""From embeddings to answers."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class MergeHead(nn.Module):
    """Two embeddings, one hidden layer, one logit: the link head of the published protocol."""

    def __init__(self, src_dim: int, dst_dim: int, hidden_dim: int | None = None) -> None:
        super().__init__()
        hidden = src_dim if hidden_dim is None else hidden_dim
        self.hidden = nn.Linear(src_dim + dst_dim, hidden)
        self.out = nn.Linear(hidden, 1)

    def forward(self, src: Tensor, dst: Tensor) -> Tensor:
        hidden = torch.relu(self.hidden(torch.cat([src, dst], dim=-1)))  # [Q, hidden]
        logit: Tensor = self.out(hidden).squeeze(-1)  # [Q]
        return logit
