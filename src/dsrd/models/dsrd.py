"""DSRD, Dual-Scale Retentive Dynamics: states that remember with learned decay and diffuse along walks in time.

A node's state is addressed by identity: every node has a fixed random code made from its id, an event writes the
partner's code into the state, and the *other endpoint's* code is the query. The state is kept per time scale and
per walk length (`dsrd.graph.walks`), exact up to each query's own time.

For a pair (u, v) at t, each endpoint in turn being the node and the other one the partner:

    x_i     = log(1 + t - t_i)                           age of the node's i-th latest event, with w_i
    z_i     = state read of (w_i, v);  s = of (u, v)     contractions with codes, per scale and walk length
    token_i = mlp[ time(x_i), direction, rank, z_i, window counts, edge features ]
    omega_i = sigmoid(cos(q, k_i)) exp(-lambda x_i^alpha)       short-term injection, over max(sum, 1)
    psi_i   = exp(-l delta x_i)                                 diffusion along walks, over max(sum, 1)
    O       = gamma (W s + W' sum_i psi_i z_i) + (1 - gamma) sum_i omega_i (q k_i / sqrt d) v_i
    h       = h + LN(O),  then  h + W2 gelu(W1 LN(h))           layers l = 1, 2, ...
    partner = mlp[ h_u, h_v, s, activity of u and of v ]        which partner, given that u acts at t?
    pair    = partner + mlp[ the same ]                         does this pair interact at t?

The partner head learns from random targets, the pair head also from pairs that met before and may be asleep by
now. lambda > 0, alpha and gamma in (0, 1) and delta > 0 are learned per head and layer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from dsrd.events import NULL, Events, Query, as_tensor
from dsrd.graph import walks
from dsrd.graph.negatives import TrainingNegatives
from dsrd.graph.past import Past
from dsrd.models.base import GraphSpec, TemporalModel, told_apart

TABLE = ("key", "met", "count", "met_last")
FIELDS = ("step1", "step2", "acts", "last", *TABLE, "size")  # in the order of `walks`
Ablation = Literal["none", "no_block", "no_temporal_decay", "no_diffusion", "no_state"]
WINDOW = 3  # token columns that compare windows
IDLE: Mapping[Ablation, tuple[str, ...]] = {  # constants that an ablation leaves where they started
    "none": (),
    "no_block": ("lambda", "alpha", "gamma", "delta"),
    "no_temporal_decay": ("lambda", "alpha"),
    "no_diffusion": ("delta",),
    "no_state": ("gamma", "delta"),
}


@dataclass(frozen=True, kw_only=True)
class DSRDConfig:
    dim: int = 32  # width of tokens and embeddings
    heads: int = 4
    layers: int = 2
    neighbors: int = 20  # events in a node's window
    code_dim: int = 64  # signs in a node's code: more, and the walk counts are less noisy
    scales: tuple[float, ...] = (1e-4, 1e-2, 1.0)  # time constants of the state, in spans of the training stream
    time_dim: int = 32  # features of an age: half cosines, half soft steps
    dropout: float = 0.1
    ablate: Ablation = "none"  # leave one part out


@dataclass(frozen=True)
class Reading:
    """What state and windows say about pairs, either endpoint first; ages and counts as they are."""

    tokens: Tensor  # [2, Q, k, pair + window]
    age: Tensor  # [2, Q, k]
    event: Tensor  # [2, Q, k]
    outgoing: Tensor  # [2, Q, k]
    pair: Tensor  # [Q, pair]
    node: Tensor  # [2, Q, node]


class AgeFeatures(nn.Module):
    """Cosines and soft steps of log(1 + age)."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.rate = nn.Parameter(2 * torch.randn(dim // 2))
        self.phase = nn.Parameter(2 * math.pi * torch.rand(dim // 2))
        self.step: Tensor
        self.register_buffer("step", torch.linspace(0, 16, dim - dim // 2))

    def forward(self, x: Tensor) -> Tensor:  # [...] -> [..., dim]
        x = x.unsqueeze(-1)
        return torch.cat([torch.cos(x * self.rate + self.phase), torch.tanh(x - self.step)], dim=-1)


class Layer(nn.Module):
    """One retentive block: injection, retention, diffusion, and a feed-forward net, each on a residual path.

    Keys are the tokens themselves: a key projection would only be absorbed by the query's.
    """

    def __init__(self, config: DSRDConfig, depth: int, pair_dim: int) -> None:
        super().__init__()
        dim, self.heads, self.depth, self.ablate = config.dim, config.heads, depth, config.ablate
        self.query = nn.Linear(dim, self.heads * dim)
        self.value = nn.Parameter(torch.randn(self.heads, dim, dim // self.heads) / math.sqrt(dim))
        self.retain = nn.Linear(pair_dim, dim)
        self.diffuse = nn.Parameter(torch.randn(self.heads, pair_dim, dim // self.heads) / math.sqrt(pair_dim))
        self.raw_lambda = nn.Parameter(torch.linspace(-3, 1, self.heads))  # heads start at different time scales
        self.raw_alpha = nn.Parameter(torch.zeros(self.heads))
        self.raw_gamma = nn.Parameter(torch.zeros(self.heads))
        self.raw_delta = nn.Parameter(torch.linspace(-3, 1, self.heads))
        self.norm_out, self.norm_in = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.feed = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))
        self.dropout = nn.Dropout(config.dropout)

    def decays(self) -> dict[str, Tensor]:
        """The learned constants, in their ranges.  # [heads] each"""
        return {
            "lambda": softplus(self.raw_lambda),
            "alpha": torch.sigmoid(self.raw_alpha),
            "gamma": torch.sigmoid(self.raw_gamma),
            "delta": softplus(self.raw_delta),
        }

    def forward(self, h: Tensor, token: Tensor, z: Tensor, s: Tensor, x: Tensor, mask: Tensor) -> Tensor:
        if self.ablate == "no_block":
            return h
        learned = self.decays()
        gamma = torch.zeros_like(learned["gamma"]) if self.ablate == "no_state" else learned["gamma"]  # [H]
        short = self._injection(h, token, x, mask, learned) * (1 - gamma).unsqueeze(-1)  # [B, H, d]
        if self.ablate != "no_state":
            short = short + self._retained(z, s, x, mask, learned) * gamma.unsqueeze(-1)
        h = h + self.norm_out(self.dropout(short.flatten(1)))
        fed: Tensor = h + self.dropout(self.feed(self.norm_in(h)))
        return fed

    def _injection(self, h: Tensor, token: Tensor, x: Tensor, mask: Tensor, learned: dict[str, Tensor]) -> Tensor:
        query = self.query(h).unflatten(-1, (self.heads, -1))  # [B, H, dim]
        product = torch.bmm(query, token.transpose(1, 2))  # [B, H, k]
        length = query.square().sum(-1, keepdim=True) * token.square().sum(-1).unsqueeze(1)
        weight = torch.sigmoid(product * torch.rsqrt(length + 1e-12)) * mask.unsqueeze(1)
        if self.ablate != "no_temporal_decay":
            rate, power = learned["lambda"].unsqueeze(-1), learned["alpha"].unsqueeze(-1)  # [H, 1]
            stretched = torch.exp(power * torch.log(x + 1e-6).unsqueeze(1))  # x^alpha
            weight = weight * torch.exp(-rate * stretched)
        weight = weight / weight.sum(-1, keepdim=True).clamp(min=1)
        # values are linear in tokens: summing first spares a projection of every token
        summed = torch.bmm(weight * product / math.sqrt(token.shape[-1]), token)  # [B, H, dim]
        return torch.einsum("bhe,hed->bhd", summed, self.value)

    def _retained(self, z: Tensor, s: Tensor, x: Tensor, mask: Tensor, learned: dict[str, Tensor]) -> Tensor:
        kept: Tensor = self.retain(s).unflatten(-1, (self.heads, -1))  # [B, H, d]
        if self.ablate == "no_diffusion":
            return kept
        weight = torch.exp(-self.depth * learned["delta"].unsqueeze(-1) * x.unsqueeze(1)) * mask.unsqueeze(1)
        weight = weight / weight.sum(-1, keepdim=True).clamp(min=1)  # [B, H, k]
        return kept + torch.einsum("bhp,hpd->bhd", torch.bmm(weight, z), self.diffuse)


def _rows(shape: tuple[int, ...], rows: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.zeros(rows, *shape, dtype=dtype)


def _head(width: int, config: DSRDConfig) -> nn.Sequential:
    hidden = 2 * config.dim
    return nn.Sequential(nn.Linear(width, hidden), nn.GELU(), nn.Dropout(config.dropout), nn.Linear(hidden, 1))


def _plain(value: Tensor) -> list[float]:
    """Six figures: what a person reads and a log of every epoch can hold."""
    return [float(f"{each:.6g}") for each in value.detach().tolist()]


def _empty_column(column: int, rates: int, _: int) -> Tensor:
    return as_tensor(walks.empty_table(1024, rates)[column])


class DSRD(TemporalModel):
    """Retentive walk states asked by the partner's identity; exact at every query's time."""

    Config = DSRDConfig
    paper: ClassVar[str] = "Dual-Scale Retentive Dynamics"
    reads: ClassVar[str] = "state of both endpoints and of their recent partners"
    small: ClassVar[Mapping[str, Any]] = {"dim": 8, "heads": 2, "neighbors": 5, "code_dim": 16, "dropout": 0.0}
    recipe: ClassVar[Mapping[str, Any]] = {"lr": 1e-3, "average": 0.99, "epochs": 20, "patience": 5}
    heads: ClassVar[tuple[str, ...]] = ("partner", "pair")
    exact: ClassVar[bool] = True

    def __init__(self, config: DSRDConfig, graph: GraphSpec) -> None:
        super().__init__(config, graph)
        rates, dim = len(config.scales), config.dim
        pair_dim, node_dim = walks.pair_width(rates), walks.node_width(rates)
        self.age = AgeFeatures(config.time_dim)
        token_dim = config.time_dim + 2 + pair_dim + WINDOW + graph.edge_dim
        self.token = nn.Sequential(nn.Linear(token_dim, dim), nn.GELU())
        self.start = nn.Linear(config.time_dim + 2 + node_dim + graph.node_dim, dim)
        self.layers = nn.ModuleList(Layer(config, depth + 1, pair_dim) for depth in range(config.layers))
        self.partner, self.activity = (_head(2 * dim + pair_dim + 2 * node_dim, config) for _ in range(2))
        self.rate: Tensor  # [rates], per unit of the stream's clock
        self.register_buffer("rate", torch.ones(rates, dtype=torch.float64))
        self._declare(rates, config.code_dim)

    def _declare(self, rates: int, width: int) -> None:
        for name, shape in (("step1", (rates, width)), ("step2", (rates, width)), ("acts", (2, rates))):
            self.state.declare(name, partial(_rows, shape), per_node=True)
        self.state.declare("last", partial(_rows, (), dtype=torch.float64), per_node=True)
        for column, name in enumerate(TABLE):
            self.state.declare(name, partial(_empty_column, column, rates))
        self.state.declare("size", lambda _: torch.zeros(1, dtype=torch.int64))

    def calibrate(self, train: Events) -> None:
        """Time constants are shares of the training stream's span."""
        span = float(train.time[-1] - train.time[0]) or 1.0
        self.rate = 1.0 / (span * torch.tensor(self.config.scales, dtype=torch.float64))

    def score(self, query: Query, past: Past) -> Tensor:
        partner, pair = self._logits(self.represent(query, past))
        return pair if self.question == "pair" else partner

    def loss(self, batch: Events, negatives: TrainingNegatives, past: Past) -> Tensor:
        """Partner head: events against random targets. Pair head: also against pairs that met before."""
        earlier = negatives.earlier(batch, len(batch) // 2)
        query = Query.cat(batch.query(), negatives.sample(batch), earlier).to(self.device)
        partner, pair = self._logits(self.represent(query, past))
        return told_apart(partner[: 2 * len(batch)], len(batch)) + told_apart(pair, len(batch))

    def _logits(self, features: Tensor) -> tuple[Tensor, Tensor]:
        partner: Tensor = self.partner(features).squeeze(-1)  # [Q]
        # detached: what the pair head learns of sleepers must not bend the partner head's answer
        return partner, partner.detach() + self.activity(features).squeeze(-1)

    def embed(self, node: Tensor, time: Tensor, past: Past) -> Tensor:
        """The node's h after the layers, nobody being the partner.
        Asked about nobody, a state answers with the node's own past and the noise of codes alone."""
        return self._ends(Query(node, torch.full_like(node, NULL), time), past)[0][0]

    def learned(self) -> dict[str, Any]:
        """Decays per layer and head; the time constants of the state, in the stream's clock."""
        found: dict[str, Any] = {}
        for layer in self.layers:
            assert isinstance(layer, Layer)
            used = {name: v for name, v in layer.decays().items() if name not in IDLE[self.config.ablate]}
            if used:
                found[f"layer_{layer.depth}"] = {name: _plain(value) for name, value in used.items()}
        return found | {"time_constants": _plain(1 / self.rate)}

    def represent(self, query: Query, past: Past) -> Tensor:
        """What both heads see of each pair.  # [Q, features]"""
        (src, dst), pair, node = self._ends(query, past)
        return torch.cat([src, dst, pair, node[0], node[1]], dim=-1)

    def _ends(self, query: Query, past: Past) -> tuple[Tensor, Tensor, Tensor]:
        """Either end's h after the layers, and what the state says.  # [2, Q, dim], [Q, pair], [2, Q, node]"""
        reading = self.read(query, past)
        x = torch.log1p(reading.age)  # [2, Q, k]
        mask = (reading.event > 0).float()
        seen = torch.log1p(reading.tokens.clamp(min=0))  # counts of any size on one scale
        pair, node = torch.log1p(reading.pair.clamp(min=0)), torch.log1p(reading.node.clamp(min=0))
        if self.config.ablate == "no_state":
            pair, node = torch.zeros_like(pair), torch.zeros_like(node)
            seen = torch.cat([torch.zeros_like(seen[..., :-WINDOW]), seen[..., -WINDOW:]], dim=-1)
        token = self._tokens(reading, x, mask, seen, past).flatten(0, 1)  # [2Q, k, dim]
        h = self._start(query, x, mask, node, past).flatten(0, 1)  # [2Q, dim]
        z, s = seen[..., :-WINDOW].flatten(0, 1), pair.repeat(2, 1)  # [2Q, k, pair], [2Q, pair]
        for layer in self.layers:
            h = layer(h, token, z, s, x.flatten(0, 1), mask.flatten(0, 1))
        return h.view(2, len(query), -1), pair, node

    def _tokens(self, reading: Reading, x: Tensor, mask: Tensor, seen: Tensor, past: Past) -> Tensor:
        rank = torch.arange(x.shape[-1], device=x.device).expand_as(x) / x.shape[-1]
        parts = [self.age(x), torch.stack([reading.outgoing, rank], dim=-1), seen, past.edge_x(reading.event)]
        token: Tensor = self.token(torch.cat(parts, dim=-1)) * mask.unsqueeze(-1)
        return token

    def _start(self, query: Query, x: Tensor, mask: Tensor, node: Tensor, past: Past) -> Tensor:
        some = mask[..., :1]  # [2, Q, 1]: is there any history
        length = torch.log1p(mask.sum(-1, keepdim=True))
        own = past.node_x(torch.stack([query.src, query.dst]))
        start: Tensor = self.start(torch.cat([self.age(x[..., 0]) * some, some, length, node, own], dim=-1))
        return start

    def read(self, query: Query, past: Past) -> Reading:
        """Ask state and windows about every pair, each at its own time; the state is left as it was."""
        order = torch.argsort(query.time, stable=True).cpu()
        src, dst, time = (column.cpu()[order].numpy() for column in (query.src, query.dst, query.time))
        new = past.unobserved
        state, put_back = self._arrays(new)
        k, rates = self.config.neighbors, len(self.config.scales)
        tokens = np.zeros((2, len(src), k, walks.pair_width(rates) + WINDOW), np.float32)
        age, event, outgoing = (np.zeros((2, len(src), k), kind) for kind in (np.float32, np.int64, np.float32))
        pair = np.zeros((len(src), walks.pair_width(rates)), np.float32)
        node = np.zeros((2, len(src), walks.node_width(rates)), np.float32)
        out = (tokens, age, event, outgoing, pair, node)
        fresh = (np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0)) if new is None else new.numpy()[:3]
        walks.read(state, past.index, self.rate.cpu().numpy(), k, src, dst, time, *fresh, out)
        put_back()
        back = torch.argsort(order)
        found = [as_tensor(array) for array in out]
        parts = [part[back] if part is found[4] else part[:, back] for part in found]
        return Reading(*(part.to(query.src.device) for part in parts))

    def _arrays(self, new: Events | None) -> tuple[tuple[Any, ...], Callable[[], None]]:
        """The state as arrays with room for new events, and what undoes their effect on the rows of nodes."""
        arrays = tuple(self.state[name].numpy() for name in FIELDS)
        if new is None or not len(new):
            return arrays, lambda: None
        node = np.unique(np.concatenate(new.numpy()[:2]))
        if node[-1] >= len(arrays[walks.LAST]):  # somebody nobody has a row for yet: work on a copy
            more = node[-1] + 1 - len(arrays[walks.LAST])
            rows = (np.concatenate([a, np.zeros((more, *a.shape[1:]), a.dtype)]) for a in arrays[: walks.KEY])
            arrays = (*rows, *arrays[walks.KEY :])
        arrays = walks.with_room(arrays, len(new))
        kept = [array[node] for array in arrays[: walks.KEY]]

        def put_back() -> None:
            for array, rows in zip(arrays, kept, strict=False):
                array[node] = rows

        return arrays, put_back

    def observe(self, events: Events, past: Past) -> None:
        self.state.rows_for(torch.cat([events.src, events.dst]))
        state = walks.with_room(tuple(self.state[name].numpy() for name in FIELDS), len(events))
        src, dst, time = (column.cpu().numpy() for column in (events.src, events.dst, events.time))
        walks.observe(state, src, dst, time, self.rate.cpu().numpy())
        for name, array in zip(FIELDS, state, strict=True):
            self.state[name] = as_tensor(array)
