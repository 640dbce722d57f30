"""What both states share: learned decays, the weights computed from them, the block around a layer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from dsrd.events import Events, Query
from dsrd.history.past import Past
from dsrd.models.dsrd.settings import UNUSED, Ablation, DSRDConfig
from dsrd.nn.dropout import Dropout
from dsrd.state import State


class Body(nn.Module, ABC):
    """Turns queries into vectors for the heads. The state is an argument: it belongs to the model."""

    heads: tuple[str, ...]  # heads that can read the output of `represent`
    width: int  # of that output
    any_clock: bool = False  # whether the output is independent of the unit of time

    def calibrate(self, train: Events) -> None:
        """Measure constants of the training stream, once before training."""

    source_width: int = 0  # of the output of `sources`; with 0 the model has no activity head

    def sources(self, query: Query, past: Past, state: State) -> Tensor:
        """What is known about each source alone, the activity head's input: nothing, unless a body says more.

        # [Q, source_width]
        """
        return torch.zeros(len(query), self.source_width, device=query.src.device)

    def forget(self) -> None:
        """Make the first guess of `represent` the same for all targets."""

    @abstractmethod
    def represent(self, query: Query, past: Past, state: State) -> tuple[Tensor, Tensor]:
        """The partner head's input for each pair, and a first guess that the head corrects.  # [Q, width], [Q]"""

    @abstractmethod
    def embed(self, node: Tensor, time: Tensor, past: Past, state: State) -> Tensor:
        """A vector for each node at each time.  # [n] -> [n, d]"""

    def company(self, node: Tensor, time: Tensor, past: Past, state: State) -> Tensor:
        """Whom each node met, in a form that nodes with the same partners share.  # [n] -> [n, d]"""
        return torch.zeros(len(node), 0, device=node.device)

    @abstractmethod
    def observe(self, events: Events, past: Past, state: State) -> None:
        """Write events into the state."""

    def learned(self) -> dict[str, Any]:
        """The learned decays that are in use, by layer and head."""
        used = {f"layer_{part.depth}": part.used() for part in self.modules() if isinstance(part, Decays)}
        return {layer: constants for layer, constants in used.items() if constants}


class Decays(nn.Module):
    """lambda > 0, alpha and gamma in (0, 1), delta > 0, one of each per head; and the weights omega and psi.

    x is the age of an event, log(1 + dt). A layer without diffusion has no delta.
    """

    def __init__(self, config: DSRDConfig, depth: int, diffuses: bool = True) -> None:
        super().__init__()
        self.ablate: Ablation = config.ablate
        self.depth, heads = depth, config.heads
        self.raw_lambda = nn.Parameter(torch.linspace(-3, 1, heads))  # heads start at different time scales
        self.raw_alpha = nn.Parameter(torch.zeros(heads))
        self.raw_gamma = nn.Parameter(torch.zeros(heads))
        self.raw_delta = nn.Parameter(torch.linspace(-3, 1, heads)) if diffuses else None

    def forward(self) -> dict[str, Tensor]:
        """The constants, in their ranges.  # [H] each"""
        constants = {
            "lambda": softplus(self.raw_lambda),
            "alpha": torch.sigmoid(self.raw_alpha),
            "gamma": torch.sigmoid(self.raw_gamma),
        }
        return constants if self.raw_delta is None else constants | {"delta": softplus(self.raw_delta)}

    def gate(self) -> Tensor:
        """gamma: the weight of the state; the injection has 1 - gamma.  # [H]"""
        gamma = torch.sigmoid(self.raw_gamma)
        return torch.zeros_like(gamma) if self.ablate == "no_state" else gamma

    def omega(self, cosine: Tensor, x: Tensor, mask: Tensor) -> Tensor:
        """Short-term weights: sigmoid(cosine) exp(-lambda x^alpha).  # [B, H, k], [B, k], [B, k] -> [B, H, k]"""
        weight = torch.sigmoid(cosine) * mask.unsqueeze(1)
        if self.ablate != "no_temporal_decay":
            learned, x = self(), x.unsqueeze(1)
            rate, power = learned["lambda"].unsqueeze(-1), learned["alpha"].unsqueeze(-1)  # [H, 1]
            x_to_alpha = torch.exp(power * torch.log(x + 1e-6)) * (x > 0)  # with a finite gradient at x = 0
            weight = weight * torch.exp(-rate * x_to_alpha)
        return normalised(weight)

    def psi(self, x: Tensor, mask: Tensor) -> Tensor:
        """Diffusion weights: exp(-l delta x).  # [B, k], [B, k] -> [B, H, k]"""
        delta = self()["delta"].unsqueeze(-1)  # [H, 1]
        return normalised(torch.exp(-self.depth * delta * x.unsqueeze(1)) * mask.unsqueeze(1))

    def rates(self) -> tuple[Tensor, Tensor, Tensor]:
        """lambda, alpha and the depth times delta, without a gradient where nothing fades by them.  # [H] each"""
        learned = self()
        fall, power, spread = learned["lambda"], learned["alpha"], self.depth * learned["delta"]
        if self.ablate == "no_temporal_decay":
            fall, power = fall.detach(), power.detach()
        return fall, power, spread.detach() if self.ablate in ("no_diffusion", "no_state") else spread

    def all_rates(self) -> tuple[Tensor, ...]:
        """`rates` and the gate, as one step of autograd where nothing is left out."""
        if self.ablate != "none" or self.raw_lambda.device.type != "cpu" or self.raw_delta is None:
            return *self.rates(), self.gate()
        raw = (self.raw_lambda, self.raw_alpha, self.raw_delta, self.raw_gamma)
        constants: tuple[Tensor, ...] = _Constants.apply(self.depth, *raw)  # type: ignore[no-untyped-call]
        return constants

    def used(self) -> dict[str, list[float]]:
        """The constants that the ablation, if any, leaves in use."""
        return {name: six_digits(value) for name, value in self().items() if name not in UNUSED[self.ablate]}


class _Constants(torch.autograd.Function):
    """lambda, alpha, the depth times delta, gamma, and their slopes."""

    @staticmethod
    def forward(ctx: Any, depth: int, *raw: Tensor) -> tuple[Tensor, ...]:
        x = np.stack([each.detach().numpy() for each in raw])  # [4, H]
        share = 1 / (1 + np.exp(-x))
        values, slopes = share.copy(), share * (1 - share)
        for row, factor in ((0, 1), (2, depth)):  # softplus
            values[row], slopes[row] = factor * np.logaddexp(0, x[row]), factor * share[row]
        ctx.slopes = slopes
        return tuple(torch.from_numpy(value) for value in values)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        return None, *(grad * torch.from_numpy(slope) for grad, slope in zip(grads, ctx.slopes, strict=True))


class Block(nn.Module):
    """h + LN(out), then h + W2 gelu(W1 LN(h))."""

    def __init__(self, dim: int, dropout: float, bias: bool = True) -> None:
        super().__init__()
        self.norm_out, self.norm_in = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.feed = nn.Sequential(nn.Linear(dim, 4 * dim, bias), nn.GELU(), nn.Linear(4 * dim, dim, bias))
        self.dropout = Dropout(dropout)

    def forward(self, h: Tensor, out: Tensor) -> Tensor:  # [B, dim], [B, H, dim / H] -> [B, dim]
        h = h + self.norm_out(self.dropout(out.flatten(1)))
        output: Tensor = h + self.dropout(self.feed(self.norm_in(h)))
        return output


def normalised(weight: Tensor) -> Tensor:
    """Divide by max(sum, 1): the weights then sum to 1 at most."""
    return weight / weight.sum(-1, keepdim=True).clamp(min=1)


def cosine(product: Tensor, query: Tensor, key_square: Tensor) -> Tensor:
    """Cosine of queries and keys, given their products.  # [B, H, k], [B, H, d], [B, H or 1, k] -> [B, H, k]"""
    return product * torch.rsqrt(query.square().sum(-1, keepdim=True) * key_square + 1e-12)


def signed_log(x: Tensor) -> Tensor:
    """sign(x) log(1 + |x|): brings features of any size to one scale."""
    return torch.sign(x) * torch.log1p(x.abs())


def six_digits(values: Tensor) -> list[float]:
    """Rounded for logs and tables."""
    return [float(f"{value:.6g}") for value in values.detach().tolist()]
