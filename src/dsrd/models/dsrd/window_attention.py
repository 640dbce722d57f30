"""What a layer reads from the windows, forward and backward, compiled in one pass each.

For every window b and head h, with the query q and the tokens k_t of the window (the equations of `retention`):

    omega_t = sigmoid(cos(q, k_t)) exp(-lambda x_t^alpha), over max(sum, 1)
    psi_t   = exp(-l delta x_t), over max(sum, 1)
    injected = sum_t omega_t (q k_t / sqrt d) k_t,    diffused = sum_t psi_t z_t

The events of all windows stand one after the other, without padding. `attend_plainly` is the same in plain torch,
on padded windows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dsrd.models.dsrd.retention import Decays, cosine
from dsrd.models.dsrd.window_sums import Inputs, Kept, Outputs, Rates, attend
from dsrd.models.dsrd.window_sums_backward import Backward, attend_backward
from dsrd.models.dsrd.window_tokens import compiled_form


@dataclass(frozen=True)
class Window:
    """The latest events of each endpoint, as the layers read them."""

    token: Tensor  # [T, dim]
    z: Tensor  # [U, pair]: of distinct partners
    partner: Tensor  # [T]: the row of each event's partner in z
    x: Tensor  # [T]: ages
    first: Tensor  # [B + 1]: where each window starts


class _Attend(torch.autograd.Function):
    """Gradients to query, tokens, z and the three rates; ages are data."""

    @staticmethod
    def forward(ctx: Any, window: Window, diffuses: bool, query: Tensor, token: Tensor, z: Tensor, *rates: Tensor) -> Any:
        count, heads, dim = query.shape
        rows = (window.partner.numpy(), window.x.numpy(), window.first.numpy())
        inputs = Inputs(*(part.detach().contiguous().numpy() for part in (query, token, z)), *rows)
        falls = Rates(*(rate.detach().contiguous().numpy() for rate in rates))
        kept = _room(heads, len(token), count)
        outputs = (torch.zeros(heads, count, dim), torch.zeros(heads, count, z.shape[1] if diffuses else 0))
        attend(inputs, falls, kept, Outputs(*(output.numpy() for output in outputs)))
        if any(ctx.needs_input_grad):
            ctx.read = inputs, falls, kept
        return outputs

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        inputs, rates, kept = ctx.read
        to = (torch.zeros(inputs.query.shape), torch.zeros(inputs.token.shape), torch.zeros(inputs.z.shape))
        to_rates = torch.zeros(3, len(rates.fall), dtype=torch.float64)
        gradients = Backward(*(part.numpy() for part in (*to, to_rates)))
        attend_backward(inputs, rates, kept, Outputs(*(grad.contiguous().numpy() for grad in grads)), gradients)
        return None, None, *to, *to_rates.float()


def _room(heads: int, events: int, windows: int) -> Kept:
    per_head, per_event = np.empty((5, heads, events), np.float32), np.empty((2, events), np.float32)
    return Kept(*per_head, *per_event, *np.empty((2, heads, windows), np.float32))


def attended(query: Tensor, window: Window, decays: Decays, diffuses: bool) -> tuple[Tensor, Tensor | None]:
    """What each head reads from tokens and, if it `diffuses`, from z.  # [B, H, dim] -> [H, B, dim], [H, B, pair]"""
    if not compiled_form(query):
        return attended_plainly(query, window, decays, diffuses)
    rates = decays.rates()
    injected, diffused = _Attend.apply(window, diffuses, query, window.token, window.z, *rates)  # type: ignore[no-untyped-call]
    return injected, diffused if diffuses else None


def attended_plainly(
    query: Tensor, window: Window, decays: Decays, diffuses: bool
) -> tuple[Tensor, Tensor | None]:
    """The same in plain torch, on windows padded to the longest."""
    size, first = window.first.diff(), window.first[:-1]
    place = torch.arange(max(int(size.max()), 1) if len(size) else 1, device=query.device)  # [k]
    mask = place < size.unsqueeze(1)  # [B, k]
    row = torch.where(mask, first.unsqueeze(1) + place, len(window.x))
    token = torch.cat([window.token, torch.zeros_like(window.token[:1]) if len(window.token) else query.new_zeros(1, query.shape[2])])[row]
    x = torch.cat([window.x, window.x.new_zeros(1)])[row]
    product = torch.bmm(query, token.transpose(1, 2))  # [B, H, k]
    weight = decays.omega(cosine(product, query, token.square().sum(-1).unsqueeze(1)), x, mask)
    injected = torch.bmm(weight * product / math.sqrt(token.shape[-1]), token).transpose(0, 1)
    if not diffuses:
        return injected, None
    partner = torch.cat([window.partner, window.partner.new_zeros(1)])[row]
    return injected, torch.bmm(decays.psi(x, mask), window.z[partner]).transpose(0, 1)
