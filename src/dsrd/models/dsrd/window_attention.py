"""What a layer reads from the windows, in plain torch. `window_sums` is the same compiled, forward and backward.

For every window b and head h, with the query q and the tokens k_t of the window (the equations of `retention`):

    omega_t = sigmoid(cos(q, k_t)) exp(-lambda x_t^alpha), over max(sum, 1)
    psi_t   = exp(-l delta x_t), over max(sum, 1)
    injected = sum_t omega_t (q k_t / sqrt d) k_t,    diffused = sum_t psi_t z_t

The events of all windows stand one after the other, without padding.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from dsrd.models.dsrd.retention import Decays, cosine


@dataclass(frozen=True)
class Window:
    """The latest events of each endpoint, as the layers read them."""

    token: Tensor  # [T, dim]
    z: Tensor  # [U, pair]: of distinct partners
    partner: Tensor  # [T]: the row of each event's partner in z
    x: Tensor  # [T]: ages
    first: Tensor  # [B + 1]: where each window starts
    longest: int  # at most k events in each


def attended_plainly(query: Tensor, window: Window, decays: Decays, diffuses: bool) -> tuple[Tensor, Tensor]:
    """What heads read from tokens and, if they `diffuse`, z.  # [B, H, dim] -> [H, B, dim], [H, B, pair]"""
    size, first = window.first.diff(), window.first[:-1]
    place = torch.arange(window.longest, device=query.device)  # [k]
    mask = place < size.unsqueeze(1)  # [B, k]
    row = torch.where(mask, first.unsqueeze(1) + place, len(window.x))
    token = torch.cat([window.token, query.new_zeros(1, query.shape[2])])[row]  # [B, k, dim]
    x = torch.cat([window.x, window.x.new_zeros(1)])[row]
    product = torch.bmm(query, token.transpose(1, 2))  # [B, H, k]
    weight = decays.omega(cosine(product, query, token.square().sum(-1).unsqueeze(1)), x, mask)
    injected = torch.bmm(weight * product / math.sqrt(token.shape[-1]), token).transpose(0, 1)
    if not diffuses:
        return injected, injected[..., :0]
    partner = torch.cat([window.partner, window.partner.new_zeros(1)])[row]
    return injected, torch.bmm(decays.psi(x, mask), window.z[partner]).transpose(0, 1)
