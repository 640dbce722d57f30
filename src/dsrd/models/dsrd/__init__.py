"""DSRD, Dual-Scale Retentive Dynamics: states that remember with learned decay and diffuse along walks in time.

Two presets of one model. The default keeps walks in a state addressed by identity (`walks`): every node has a
fixed random code made from its id, an event writes the partner's code into the state, and the *other endpoint's*
code is the query. The state is kept per scale of retention, counted in events as the paper's steps are, and per
walk length (`walk_state`), exact up to each query's own time. For a pair (u, v) at t, each endpoint in turn
being the node and the other one the partner:

    x_i     = log(1 + t - t_i)                           age of the node's i-th latest event, with w_i
    z_i     = state read of (w_i, v);  s = of (u, v)     contractions with codes, per scale and walk length
    c_u     = how u's events compare with everybody's    per scale and edge feature (`feature_levels`)
    token_i = mlp[ time(x_i), direction, rank, z_i, window counts, edge features ]
    omega_i = sigmoid(cos(q, k_i)) exp(-lambda x_i^alpha)       short-term injection, over max(sum, 1)
    psi_i   = exp(-l delta x_i)                                 diffusion along walks, over max(sum, 1)
    O       = gamma (W s + W' sum_i psi_i z_i) + (1 - gamma) sum_i omega_i (q k_i / sqrt d) v_i
    h       = h + LN(O),  then  h + W2 gelu(W1 LN(h))           layers l = 1, 2, ...
    partner = mlp[ h_u, h_v, s, activity and c of u and of v ]  which partner, given that u acts at t?
    pair    = partner + mlp[ the same ]                         does this pair interact at t?

The partner head learns from random targets, the pair head rather from pairs that met before and may be asleep by
now (`pair_random`), and least from targets nobody has met yet (`pair_unmet`): that the pool of negatives holds
them is knowledge of who will come. While the heads learn, ages x are stretched and shrunk from batch to batch
(`stretch`): streams change their pace.
lambda > 0, alpha and gamma in (0, 1) and delta > 0 are learned per head and layer.

`preset=paper` is the paper's equations as written, nothing added (`dense`): a matrix per node, layer and head,
no identities, partner = mlp[ h_u, h_v ] alone. Decays, weights and block are the same code (`retention`).
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from dsrd.events import Events, Query
from dsrd.history.past import Past
from dsrd.models.base import GraphSpec, TemporalModel, link_loss
from dsrd.models.card import ModelCard, Preset
from dsrd.models.dsrd.dense import Dense
from dsrd.models.dsrd.retention import Body
from dsrd.models.dsrd.settings import DSRDConfig
from dsrd.models.dsrd.walk_body import Walks
from dsrd.negatives.sampling import TrainingNegatives

__all__ = ["DSRD", "DSRDConfig"]

PAPER = Preset(
    "the paper's equations as written",
    model={
        "state": "dense",
        "dim": 64,
        "heads": 4,  # not stated in the paper
        "layers": 2,
        "neighbors": 20,
        "time_dim": 100,  # not stated
        "dropout": 0.1,
    },
    recipe={"lr": 1e-4, "batch_size": 200, "patience": 10, "epochs": 100, "average": 0.0},
)


class DSRD(TemporalModel):
    """Retentive walk states asked by the partner's identity; exact at every query's time."""

    Config = DSRDConfig
    card = ModelCard(
        paper="Dual-Scale Retentive Dynamics",
        reads="state of both endpoints and of their recent partners",
        cost="k links, a state read of each, 2 layers",
        recipe={
            "lr": 1e-3,
            "average": 0.99,
            "epochs": 30,
            "patience": 10,
            "keep": "mean",
        },
        presets={"paper": PAPER},
        small={
            "dim": 8,
            "heads": 2,
            "neighbors": 5,
            "code_dim": 16,
            "dropout": 0.0,
            "stretch": 0.0,
        },
    )
    exact: ClassVar[bool] = True

    def __init__(self, config: DSRDConfig, graph: GraphSpec) -> None:
        super().__init__(config, graph)
        body = {"walks": Walks, "dense": Dense}[config.state]
        self.body: Body = body(config, graph, self.state)
        self.heads = self.body.heads
        self.any_clock = self.body.any_clock
        self.partner = _head(self.body.width, config)
        self.activity = _head(self.body.width, config) if "pair" in self.heads else None

    @property
    def state_from_events(self) -> bool:
        return bool(self.config.state == "walks")

    def calibrate(self, train: Events) -> None:
        self.body.calibrate(train)

    def score(self, query: Query, past: Past, head: str = "") -> Tensor:
        features = self.body.represent(query, past, self.state)
        return self._logits(features)[1] if head == "pair" else self._partner(features)

    def loss(self, batch: Events, negatives: TrainingNegatives, past: Past) -> Tensor:
        """Partner head: events against random targets. Pair head: rather against pairs that met before."""
        if self.activity is None:
            return super().loss(batch, negatives, past)
        earlier, random = negatives.earlier(batch, len(batch) // 2), negatives.sample(batch)
        query = Query.cat(batch.query(), random, earlier).to(self.device)
        partner, pair = self._logits(self.body.represent(query, past, self.state))
        true, drawn = len(batch), 2 * len(batch)
        weight = torch.ones_like(pair)  # [Q]
        weight[true:drawn] = self.config.pair_random
        share = weight / weight.sum()
        unmet = past.degree(random.dst, random.time) == 0  # [B]
        # not made up for by the others: a batch would no longer have the loss of its chunks
        share[true:drawn][unmet] *= self.config.pair_unmet
        return link_loss(partner[:drawn], true) + link_loss(pair, true, share)

    def _partner(self, features: Tensor) -> Tensor:
        partner: Tensor = self.partner(features).squeeze(-1)
        return partner  # [Q]

    def _logits(self, features: Tensor) -> tuple[Tensor, Tensor]:
        partner = self._partner(features)
        if self.activity is None:
            return partner, partner
        # detached: what the pair head learns of sleepers must not bend the partner head's answer
        return partner, partner.detach() + self.activity(features).squeeze(-1)

    def embed(self, node: Tensor, time: Tensor, past: Past) -> Tensor:
        return self.body.embed(node, time, past, self.state)

    def learned(self) -> dict[str, Any]:
        return self.body.learned()

    def observe(self, events: Events, past: Past) -> None:
        self.body.observe(events, past, self.state)


def _head(width: int, config: DSRDConfig) -> nn.Sequential:
    hidden = 2 * config.dim
    return nn.Sequential(nn.Linear(width, hidden), nn.GELU(), nn.Dropout(config.dropout), nn.Linear(hidden, 1))
