"""DSRD, Dual-Scale Retentive Dynamics: node states with learned decay that spread along walks in time.

One model with two states, chosen by the preset.

`preset=paper` (`dense`) is the paper as written. Each node keeps a d x d matrix S per layer and head. The
equations, and the choices made where the paper is open, are in the docstring of `dense`.

The default (`walks`) adds identities. Every node has a fixed random code computed from its id. An event adds the
partner's code to the node's state, and the code of the *other endpoint* is the query. The state holds walks of one
and two steps and exact counts: meetings of a pair, events of a node, and successions, v right after w
(`walk_state`). All of it is kept at a grid of decay rates, and each head of each layer reads it at a rate of its
own, which is learned (`kernels`). It includes every event before the query's own time. For a pair (u, v) at time
t, with u as the node and v as its partner, and then the other way round:

    x_i     = log(1 + t - t_i)                           age of u's i-th latest event, whose partner is w_i
    z_i     = state read of (w_i, v);  s = of (u, v)     walks and exact counts, log(1 + .), learned rates
    a_u     = state read of u alone                      lengths of walks, counts of events, learned rates
    c_u     = u's edge features against all events'      per rate and feature (`feature_levels`)
    token_i = gelu(W'' [ time(x_i), z_i, window counts, direction, rank, edge features ])
    omega_i = sigmoid(cos(q, k_i)) exp(-lambda x_i^alpha)       short-term injection, over max(sum, 1)
    psi_i   = exp(-l delta x_i)                                 diffusion along walks, over max(sum, 1)
    O       = gamma (W s + W' sum_i psi_i z_i) + (1 - gamma) sum_i omega_i (q k_i / sqrt d) v_i
    h       = h + LN(O),  then  h + W2 gelu(W1 LN(h))           layers l = 1, 2, ...

Scores are logarithms of two factors, for S sources and D targets of the training events:

    p0       = first guess: u repeats, replies, or goes on as others did (`memory`)
    partner  = log(D p(v | u, t))    = log(D p0) + mlp[ h_u, h_v, s, a and c of u and of v, log(D p0) ]
    activity = log(S p(u | t))       = mlp[ a_u, c_u, node features, ages and directions of u's 4 latest events ]
    pair     = log(S D p(u, v | t))  = partner + activity

lambda > 0, alpha and gamma in (0, 1), delta > 0 and the rates of the reads are learned per head and layer, the
weights of the memory per kind and rate; all of them at a learning rate of their own (`train.decay_lr`).

Both factors are learned by telling events from noise of a known law, whose log intensity is subtracted from the
logits (`dsrd.negatives.noise`): for `partner` a uniform target and, for every second event, an earlier partner of
the source; for `activity` a uniform source and the source of an earlier event. In training, the ages x of each
batch are multiplied by a random factor (`stretch`), because streams change their pace. The width `dim` is 32, and
64 for more than 150,000 training events.

Symbols of the paper and their names in code:

    paper                   in code                                               file
    x_j                     Inputs.of_node                                        dense
    X(l)                    x; h in the default                                   dense; walk_body
    phi_e, W_t, W_e         Inputs.of_event: edge, log_rate, mix                  dense
    E_t, kappa              Window, `neighbors`: the latest events of a node      dense; window_attention
    Delta t                 age; in every decay x = log(1 + age)                  dense; walk_body
    Q, W_Q                  query                                                 dense; walk_layer
    K, W_K                  key; in the default the token itself                  dense; walk_layer
    V, W_V                  value                                                 dense; walk_layer
    omega                   Decays.omega                                          retention
    lambda, alpha           Decays.forward, from raw_lambda and raw_alpha         retention
    Delta                   DenseLayer.injection; times q: injected               dense
    gamma (a_t), 1 - gamma  Decays.gate, from raw_gamma                           retention
    S(l)                    state["matrix"]; in the default S1, S2 below          dense; walk_state
    Proposition 1           retained: all S of a batch in closed form             steps
    psi, delta              Decays.psi, from raw_delta                            retention
    A(l)                    never stored: code times S(l) estimates its entries   walk_state
    T_t, diffusion of S     weighted_rows; in the default extend_walks            steps; walk_state
    O(l)                    out                                                   dense; walk_layer
    Z, LN, W_1, W_2         Block                                                 retention
    K, H, d                 `layers`, `heads`, `dim` / `heads`                    settings
    h_u                     Body.embed, Body.represent                            dense; walk_body
    p = MLP[h_u, h_v]       DSRD.partner                                          __init__

    added by the default    in code                                               file
    r_i                     write_code: the node's code                           walk_state
    S1, S2                  NodeRows.step1, step2                                 walk_state
    exact counts            PairRows.met of `pairs` and `follows`, NodeRows.acts  walk_state
    grid of decay rates     Decay.rate of walks, Decay.fine of exact counts       walk_state
    learned rates           Kernels.weights, from raw_place                       kernels
    z_i, s, a_u             LearnedReads.pair, LearnedReads.nodes                 learned_reads
    c_u, n_u, C_u           Content.read; n_u, C_u in LevelState.content          content; feature_levels
    token_i                 tokens_plainly, AgeFeatures, window counts            window_tokens; windows
    W, W'                   WalkLayer.retain, diffuse                             walk_layer
    p0, pi                  Memory.forward, Memory.weights from raw_kinds         memory
    p(u | t)                DSRD.activity, on Walks.sources                       __init__; walk_body
    S, D                    DSRD.num_sources, DSRD.num_targets                    __init__

The files `clock`, `walk_state`, `overlay`, `windows`, `walk_queries`, `walk_products`, `node_queries` and
`feature_levels` hold loops over arrays that numba compiles; their arguments are NamedTuples of arrays, declared at
the top of each file.

On the CPU the default's network is compiled too, with its gradients written by hand: `encoder` is one step of
autograd, made of `window_tokens`, `layer_pass` (`window_sums`, `window_sums_backward`, `layer_block`),
`small_products`, `lanes` (sixteen numbers in one register) and `vector_math`. The same in plain torch,
`encode_plainly` with `WalkLayer.forward`, runs on other devices.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from dsrd.events import Events, Query
from dsrd.history.past import Past
from dsrd.models.base import ACTIVITY, GraphSpec, Questions, TemporalModel
from dsrd.models.card import ModelCard, Preset
from dsrd.models.dsrd.cheap_features import Question, cheap_features
from dsrd.models.dsrd.dense import Dense
from dsrd.models.dsrd.head import Head
from dsrd.models.dsrd.retention import Body
from dsrd.models.dsrd.settings import DSRDConfig
from dsrd.models.dsrd.walk_body import Walks
from dsrd.negatives.sampling import TrainingNegatives

__all__ = ["DSRD", "DSRDConfig"]

PAPER = Preset(
    "the paper's equations as written",
    keeps={"node": "4 * layers * dim * dim // heads"},
    model={
        "state": "dense",
        "dim": 64,
        "heads": 4,  # not stated in the paper
        "layers": 2,
        "neighbors": 20,
        "time_dim": 100,  # not stated
        "dropout": 0.1,
    },
    recipe={"lr": 1e-4, "decay_lr": 1e-2, "batch_size": 200, "patience": 10, "epochs": 100, "average": 0.0},
)


class DSRD(TemporalModel):
    """Retentive states, queried by the partner's identity; exact at every query's time."""

    Config = DSRDConfig
    card = ModelCard(
        paper="Dual-Scale Retentive Dynamics",
        reads="state of both endpoints and of their recent partners",
        keeps={
            "node": "2 * walk_bytes + 16 * count_scales + 16"
            " + (4 * scales * (1 + min(edge_dim, 16)) + 8) * min(edge_dim, 1)",
            "slot of key": "4 * count_scales + 20",
            "slot of follow_key": "4 * count_scales + 20",
            "rest": "40 + (8 * scales * (1 + 2 * min(edge_dim, 16)) + 32) * min(edge_dim, 1)",
        },
        cost="k links, a state read of each, 2 layers",
        recipe={
            "lr": 1e-3,
            "decay_lr": 3e-2,
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
        config = config.sized(graph.num_events)
        super().__init__(config, graph)
        body = {"walks": Walks, "dense": Dense}[config.state]
        self.body: Body = body(config, graph, self.state)
        self.heads = self.body.heads
        self.any_clock = self.body.any_clock
        self.partner = Head(self.body.width, 2 * config.dim, config.dropout)
        self.source = (
            Head(self.body.source_width, 2 * config.dim, config.dropout) if "pair" in self.heads else None
        )
        self.pools: Tensor  # [2]: the sources and the targets of the training events
        self.register_buffer("pools", torch.ones(2, dtype=torch.int64))

    @property
    def state_from_events(self) -> bool:
        return bool(self.config.state == "walks")

    @property
    def num_sources(self) -> int:
        """Sources of the training events."""
        return int(self.pools[0])

    @property
    def num_targets(self) -> int:
        """Targets of the training events."""
        return int(self.pools[1])

    def calibrate(self, train: Events) -> None:
        self.pools = torch.tensor([len(torch.unique(train.src)), len(torch.unique(train.dst))])
        self.body.calibrate(train)

    def score(self, query: Query, past: Past, head: str = "") -> Tensor:
        features, guess = self.body.represent(query, past, self.state)
        partner: Tensor = guess + self.partner(features).squeeze(-1)
        return partner + self.activity(query, past) if head == "pair" else partner  # [Q]

    @property
    def has_first_features(self) -> bool:
        on_cpu = self.device.type == "cpu"
        return isinstance(self.body, Walks) and on_cpu and self.config.ablate == "none" and not self.training

    def first_features(
        self, source: int, targets: Sequence[Tensor], time: float, past: Past
    ) -> tuple[Tensor, Iterator[Tensor]]:
        if not isinstance(self.body, Walks):
            return super().first_features(source, targets, time, past)
        return cheap_features(self.body, Question(source, time, past, self.state), targets)

    def activity(self, query: Query, past: Past) -> Tensor:
        if self.source is None:
            return super().activity(query, past)
        activity: Tensor = self.source(self.body.sources(query, past, self.state)).squeeze(-1)
        return activity  # [Q]

    @torch.no_grad()
    def answer_uniformly(self, factor: str) -> None:
        if self.source is None:
            super().answer_uniformly(factor)
        head = self.source if factor == "activity" else self.partner
        assert head is not None
        for weight in head[-1].parameters():
            weight.zero_()
        if factor == "partner":
            self.body.forget()

    def asks(self, batch: Events, negatives: TrainingNegatives) -> tuple[Questions, ...]:
        """Partner: events against random targets and earlier partners. Activity: their sources against others.

        Both are told from noise of a known law, which is added to the logits of the classifier (`noise`).
        """
        if self.source is None:
            return super().asks(batch, negatives)
        noise, start, count = negatives.noise, negatives.noise.start(batch), self.config.negatives
        wrong = (negatives.sample_many(batch, count), negatives.met(batch))
        partner = Questions.of(batch.query(), *wrong, head="partner")
        source = Questions.of(batch.query(), negatives.sources(batch), head=ACTIVITY)
        pairs, sources = partner.query, source.query
        target_noise = noise.target_intensity(pairs.src.numpy(), pairs.dst.numpy(), start, count)
        source_noise = noise.source_intensity(sources.src.numpy(), start)
        return replace(partner, noise=_log(target_noise)), replace(source, noise=_log(source_noise))

    def embed(self, node: Tensor, time: Tensor, past: Past) -> Tensor:
        return self.body.embed(node, time, past, self.state)

    def embed_event(self, query: Query, past: Past) -> Tensor:
        """Everything the heads see of the pair, their answers, and whom the source met."""
        if self.source is None:
            return super().embed_event(query, past)
        features, guess = self.body.represent(query, past, self.state)
        answers = [guess + self.partner(features).squeeze(-1), self.activity(query, past)]
        company = self.body.company(query.src, query.time, past, self.state)
        return torch.cat([features, torch.stack(answers, dim=1), company], dim=1)

    def decay_parameters(self) -> list[nn.Parameter]:
        return [weight for name, weight in self.named_parameters() if name.rpartition(".")[2].startswith("raw_")]

    def learned(self) -> dict[str, Any]:
        return self.body.learned()

    def observe(self, events: Events, past: Past) -> None:
        self.body.observe(events, past, self.state)


def _log(intensity: NDArray[np.float64]) -> Tensor:
    return torch.from_numpy(np.log(intensity)).float()
