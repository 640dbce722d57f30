"""What a source remembers: a mixture of laws of repetition with learned decay, a first guess of its next target.

    p0(v | u, t) = pi_0 / D + sum over kinds k and rates g of  pi_kg  n_kg(u, v) / n_kg(u)

n_kg(u, v) are exact counts that decay at rate g, n_kg(u) their sum over all v:

    repeat   u -> v, among what u sent                  u turns to v again
    reply    v -> u, among what u received              u answers v
    follow   v right after w, among the events of w     u goes on to v, as others did after w, its latest partner

The weights pi are positive and sum to 1. Those of one kind over the rates are its memory: the distribution of the
age of the event that is repeated, a mixture of exponentials whose median is the half-life of that kind. They are
the only way by which these decays reach this guess, so they must adapt to the stream; the network adds to its log.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from dsrd.models.dsrd.kernels import half_lives
from dsrd.models.dsrd.retention import six_digits
from dsrd.models.dsrd.settings import DSRDConfig

KINDS = ("repeat", "reply", "follow")
FIRST_SHARE = 0.1  # of all kinds together, before training
FADED = 1e-6  # decayed counts below this are forgotten


class Memory(nn.Module):
    """The weights pi: one for uniform targets, then one per kind and rate of the exact counts."""

    def __init__(self, config: DSRDConfig) -> None:
        super().__init__()
        self.ablate, self.rates = config.ablate, len(config.count_scales)
        kinds = FIRST_SHARE / (1 - FIRST_SHARE) / (len(KINDS) * self.rates)  # times the uniform weight, for each
        first = torch.full((len(KINDS), self.rates), math.log(kinds))
        self.raw_kinds = nn.Parameter(first)
        self.raw_uniform = nn.Parameter(torch.zeros(1))

    def weights(self) -> tuple[Tensor, Tensor]:
        """pi_0 and the others.  # [1], [kinds, rates]"""
        kinds: Tensor = self.raw_kinds
        if self.ablate == "no_temporal_decay":  # all memory is in the slowest rate
            kinds = torch.cat([torch.full_like(kinds[:, :-1], -math.inf), kinds[:, -1:]], dim=1)
        if self.ablate == "no_diffusion":  # what others did after w reaches u along a walk
            kinds = torch.cat([kinds[:-1], torch.full_like(kinds[-1:], -math.inf)])
        weight = torch.softmax(torch.cat([self.raw_uniform, kinds.flatten()]), dim=0)
        return weight[:1], weight[1:].view_as(kinds)

    @torch.no_grad()
    def forget(self) -> None:
        """Give all weight to uniform targets."""
        self.raw_kinds.fill_(-math.inf)
        self.raw_uniform.zero_()

    def forward(self, count: Tensor, total: Tensor, num_targets: Tensor) -> Tensor:
        """log(D p0) from the decayed counts of each pair and kind.  # [Q, kinds, rates] twice -> [Q]"""
        uniform, weight = self.weights()
        if self.ablate == "no_state":
            return torch.zeros(len(count), device=count.device)
        share = (count / (total + FADED)).clamp(max=1)
        return torch.log(uniform + share.flatten(1) @ (num_targets * weight.flatten()))

    def learned(self, scales: Tensor) -> dict[str, Any]:
        """Per kind its share in p0, its half-life and its weight per rate; scales are in events.  # [rates]"""
        if self.ablate == "no_state":
            return {}
        uniform, weight = self.weights()
        kernel = weight / weight.sum(1, keepdim=True).clamp(min=1e-12)
        values: dict[str, Any] = {"uniform": round(uniform.item(), 4), "scales_in_events": six_digits(scales)}
        for kind, share, life, part in zip(
            KINDS, weight.sum(1).tolist(), half_lives(kernel, scales).tolist(), kernel.tolist(), strict=True
        ):
            if not share:  # an ablation has taken this kind away
                continue
            rounded = {"share": round(share, 4), "weights": [round(each, 4) for each in part]}
            values[kind] = rounded | {"half_life_in_events": float(f"{life:.4g}")}
        return values
