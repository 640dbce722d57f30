"""The paper's state: a matrix S per node, layer and head; the equations as written, nothing added.

For an event e = (i, j, t) and the step it makes node j take (and node i in turn), layer by layer:

    x_j     = features of j, through a linear map with bias          X(1) = x_j
    phi_e   = (edge features + cos(dt W_t)) W_e                      dt: age of an event of the window
    q       = X(l) W_Q,   k_i = (x_i + phi_e) W_K,   v_i = (x_i + phi_e) W_V
    omega_i = sigmoid(cos(q, k_i)) exp(-lambda x^alpha)              x = log(1 + dt), over max(sum, 1)
    Delta   = sum_i omega_i k_i' v_i                                 d x d, over the window of the step
    S(l)   <- gamma S(l) + (1 - gamma) Delta                         retention, l = 1 .. K
    O(l)    = q S(l) / sqrt d
    Z       = X(l) + LN(O(l)),   X(l+1) = Z + W2 gelu(W1 LN(Z))      of every layer but the last
    S(l)   <- S(l) + sum_i psi_i S_i(l-1)                            diffusion, after the reading, l = K .. 2
    psi_i   = exp(-l delta x)                                        over max(sum, 1)

Readings chosen where the paper leaves them open:

* An event is one step of each endpoint, a self-loop one step. A step's window is the event itself (dt = 0) and the
  most recent interactions of the node strictly before it, `neighbors` in all.
* Diffusion reads S_i as it was before t, all earlier events and their own diffusion included: events of one
  timestamp do not see one another. A node with several of them takes its steps in stream order.
* A query at t is a step that is read and not written: window strictly before t, h = mean over heads of O(K). There
  Delta is not needed: q S = gamma q S_old + (1 - gamma) sum_i omega_i (q k_i) v_i.
* Keys and values are those of the neighbour's features, in every layer; only queries rise through the layers.
* Features enter by their logarithm, for the state is quadratic in them: a weight of 300 would drown the rest.
* d in O is the width of a head. The last layer has no block, for nothing would read it.

Along a node's steps S is linear in the increments, so the states after all steps of a batch come at once
(`steps.retained`), layer by layer and with gradient.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from dsrd.events import Events, Query
from dsrd.history.past import Past
from dsrd.models.base import GraphSpec, at_least, distinct
from dsrd.models.dsrd.retention import Block, Body, Decays, cosine, signed_log
from dsrd.models.dsrd.settings import DSRDConfig
from dsrd.models.dsrd.steps import Rows, Steps, gathered, independent, retained
from dsrd.state import State

AT_ONCE = 500  # events observed in one sweep: bounds the memory that a long stream takes


@dataclass(frozen=True)
class Window:
    """The interactions that a step or a query looks at."""

    node: Tensor  # [B, k]
    token: Tensor  # [B, k, dim]: x_i + phi_e
    x: Tensor  # [B, k]
    mask: Tensor  # [B, k]


class Inputs(nn.Module):
    """What nodes and events bring along: x_j, and phi_e of an event at an age."""

    def __init__(self, config: DSRDConfig, graph: GraphSpec) -> None:
        super().__init__()
        # all there is of a node without features; of length 1, so that times have a say from the start
        self.bias = nn.Parameter(torch.randn(config.dim) / math.sqrt(config.dim))
        self.node = nn.Linear(graph.node_dim, config.dim, bias=False) if graph.node_dim else None
        self.edge = nn.Linear(graph.edge_dim, config.time_dim, bias=False) if graph.edge_dim else None
        # W_t by its logarithm: rates span nine decades, and steps of equal size would throw the slow ones about
        self.log_rate = nn.Parameter(-torch.linspace(0, 9, config.time_dim) * math.log(10))
        self.mix = nn.Linear(config.time_dim, config.dim, bias=False)  # W_e

    def of_node(self, node: Tensor, past: Past) -> Tensor:  # [...] -> [..., dim]
        if self.node is None:
            return self.bias.expand(*node.shape, -1)
        own: Tensor = self.node(signed_log(past.node_x(node).to(self.bias.dtype))) + self.bias
        return own

    def of_event(self, event: Tensor, age: Tensor, past: Past) -> Tensor:  # [B, k], [B, k] -> [B, k, dim]
        feature = torch.cos(age.unsqueeze(-1) * self.log_rate.exp())
        if self.edge is not None:
            feature = feature + self.edge(signed_log(past.edge_x(event).to(feature.dtype)))
        mixed: Tensor = self.mix(feature)
        return mixed

    def window(
        self, node: Tensor, time: Tensor, k: int, past: Past, own: tuple[Tensor, Tensor] | None = None
    ) -> Window:
        """The last k interactions of each node before each time; with `own` = (partner, event), k - 1 and that."""
        found = past.recent(node, time, k if own is None else k - 1)
        there, event, mask = found.node, found.event, found.mask
        age = torch.where(mask, time.unsqueeze(1) - found.time, 0.0)
        if own is not None:
            there, event, age, mask = (
                torch.cat([old, new.unsqueeze(1)], dim=1)
                for old, new in (
                    (there, own[0]),
                    (event, own[1]),
                    (age, torch.zeros_like(time)),
                    (mask, torch.ones_like(node, dtype=torch.bool)),
                )
            )
        age, some = age.to(self.bias.dtype), mask.to(self.bias.dtype)
        token = self.of_node(there, past) + self.of_event(event, age, past)
        return Window(there, token, torch.log1p(age), some)


class DenseLayer(nn.Module):
    """Queries, keys, values and decays of one layer; the block that follows it, if anything does."""

    def __init__(self, config: DSRDConfig, depth: int) -> None:
        super().__init__()
        dim, self.heads = config.dim, config.heads
        self.query, self.key, self.value = (nn.Linear(dim, dim, bias=False) for _ in range(3))
        self.decays = Decays(config, depth, extends=depth > 1)
        self.block = Block(dim, config.dropout, bias=False) if depth < config.layers else None

    def asks(self, x: Tensor) -> Tensor:
        """Queries.  # [B, dim] -> [B, H, d]"""
        query: Tensor = self.query(x).unflatten(-1, (self.heads, -1))
        return query

    def injection(self, query: Tensor, window: Window) -> Tensor:
        """Delta.  # [B, H, d] -> [B, H, d, d]"""
        key = self._by_head(self.key(window.token))
        weight, _ = self._omega(query, key, window)
        return (key * weight.unsqueeze(-1)).transpose(-1, -2) @ self._by_head(self.value(window.token))

    def contracted(self, query: Tensor, window: Window) -> Tensor:
        """q Delta, without making Delta.  # [B, H, d] -> [B, H, d]"""
        weight, product = self._omega(query, self._by_head(self.key(window.token)), window)
        # values are linear in tokens: summing first spares a projection of every token
        summed = torch.bmm(weight * product, window.token)  # [B, H, dim]
        return torch.einsum("bhe,hde->bhd", summed, self.value.weight.view(self.heads, query.shape[-1], -1))

    def _by_head(self, projected: Tensor) -> Tensor:  # [B, k, dim] -> [B, H, k, d]
        return projected.view(*projected.shape[:2], self.heads, -1).transpose(1, 2)

    def _omega(self, query: Tensor, key: Tensor, window: Window) -> tuple[Tensor, Tensor]:
        """Weights, and the products q k: of the query in the space of tokens, for keys are linear in them, too."""
        asked = torch.einsum("bhd,hde->bhe", query, self.key.weight.view(self.heads, query.shape[-1], -1))
        product = torch.bmm(asked, window.token.transpose(1, 2))  # [B, H, k]
        return self.decays.omega(cosine(product, query, key.square().sum(-1)), window.x, window.mask), product


class Dense(Body):
    """Matrices of second-order increments, retained and diffused."""

    heads = ("partner",)

    def __init__(self, config: DSRDConfig, graph: GraphSpec, state: State) -> None:
        super().__init__()
        at_least(config, neighbors=1, layers=1)
        if config.dim % config.heads:
            raise ValueError(f"dim {config.dim} is no multiple of heads {config.heads}")
        self.config, self.ablate = config, config.ablate
        size = config.dim // config.heads
        self.width = 2 * size
        self.inputs = Inputs(config, graph)
        self.layers = nn.ModuleList(DenseLayer(config, depth + 1) for depth in range(config.layers))
        shape = (config.layers, config.heads, size, size)
        state.declare("matrix", lambda rows: torch.zeros(rows, *shape), per_node=True)

    def represent(self, query: Query, past: Past, state: State) -> Tensor:
        """Both ends' h.  # [Q, 2 d]"""
        node, time, where = distinct(torch.cat([query.src, query.dst]), torch.cat([query.time, query.time]))
        return torch.cat(self.embed(node, time, past, state)[where].chunk(2), dim=-1)

    def embed(self, node: Tensor, time: Tensor, past: Past, state: State) -> Tensor:
        """h = mean over heads of O(K), the state being that of every event before each time.  # [n] -> [n, d]"""
        x = self.inputs.of_node(node, past)  # [n, dim]
        if self.ablate == "no_block":
            return x.reshape(len(x), self.config.heads, -1).mean(1)
        table, row = self._states_before(node, time, past, state)
        window = self.inputs.window(node, time, self.config.neighbors, past)
        for depth, layer in enumerate(self.layers):
            assert isinstance(layer, DenseLayer)
            query, gamma = layer.asks(x), layer.decays.gate().unsqueeze(-1)  # [n, H, d], [H, 1]
            out = (1 - gamma) * layer.contracted(query, window)
            if self.ablate != "no_state":
                out = out + gamma * (query.unsqueeze(2) @ table[depth][row]).squeeze(2)
            out = out / math.sqrt(query.shape[-1])
            if layer.block is not None:
                x = layer.block(x, out)
        return out.mean(1)

    def observe(self, events: Events, past: Past, state: State) -> None:
        if self.ablate in ("no_block", "no_state"):
            return
        with torch.no_grad():
            for parts in independent(events, AT_ONCE):
                for node, matrix in [self._after(steps, past, state) for steps in parts]:
                    row = state.rows_for(node)  # first: it may replace the tensor by a larger one
                    state["matrix"][row] = matrix

    def _after(self, steps: Steps, past: Past, state: State) -> tuple[Tensor, Tensor]:
        """Each node that steps, and its matrices after its last one."""
        rows, table = self._sweep(steps, steps.node, past, state)
        last = steps.last()
        return steps.node[last], torch.stack([layer[len(rows.node) + last] for layer in table], dim=1)

    def _states_before(self, node: Tensor, time: Tensor, past: Past, state: State) -> tuple[list[Tensor], Tensor]:
        """A table of states for each layer, and the row of each node at each time; unobserved events count."""
        new = past.unobserved
        count = 0 if new is None or not len(time) else int(torch.searchsorted(new.time, time.max().cpu()))
        if new is None or not count or self.ablate == "no_state":
            return list(state["matrix"].unbind(1)), state.known(node)
        rows, table = self._sweep(Steps.of(new[:count].to(node.device)), node, past, state)
        return table, rows.before(node, time)

    def _sweep(self, steps: Steps, others: Tensor, past: Past, state: State) -> tuple[Rows, list[Tensor]]:
        """States of all who matter, then after each step, for each layer.  # [U + E, H, d, d] each"""
        own = (steps.partner, steps.event)
        window = self.inputs.window(steps.node, steps.time, self.config.neighbors, past, own)
        rows = Rows(torch.unique(torch.cat([steps.node, others, window.node.flatten()])), steps)
        met = rows.before(window.node, steps.time.unsqueeze(1))  # [E, k]
        first = (steps.position == 0).to(window.x.dtype).view(-1, 1, 1, 1)
        start = torch.searchsorted(rows.node, steps.node)
        x, table = self.inputs.of_node(steps.node, past), list[Tensor]()
        for depth, layer in enumerate(self.layers):
            assert isinstance(layer, DenseLayer)
            at_rest = state["matrix"][:, depth][state.known(rows.node)]  # [U, H, d, d]
            gamma, query = layer.decays.gate().view(-1, 1, 1), layer.asks(x)
            increment = (1 - gamma) * layer.injection(query, window)  # [E, H, d, d]
            diffused = None
            if depth and self.ablate != "no_diffusion":
                diffused = gathered(table[-1], met, layer.decays.psi(window.x, window.mask))
                increment = increment + diffused
            after = retained(increment + first * gamma * at_rest[start], gamma, steps.position)
            table.append(torch.cat([at_rest, after]))
            if layer.block is not None:
                fused = after if diffused is None else after - diffused  # read before diffusion
                x = layer.block(x, (query.unsqueeze(2) @ fused).squeeze(2) / math.sqrt(query.shape[-1]))
        return rows, table
