"""The paper's state: a matrix S per node, layer and head; the equations as written, nothing added.

An event e = (i, j, t) is one step, that is one update of the state, of node j and one of node i. A step of j:

    x_j     = features of j, through a linear map with bias          X(1) = x_j
    phi_e   = (edge features + cos(dt W_t)) W_e                      dt: age of an event in the window
    q       = X(l) W_Q,   k_i = (x_i + phi_e) W_K,   v_i = (x_i + phi_e) W_V
    omega_i = sigmoid(cos(q, k_i)) exp(-lambda x^alpha)              x = log(1 + dt), over max(sum, 1)
    Delta   = sum_i omega_i k_i' v_i                                 d x d, over the window of the step
    S(l)   <- gamma S(l) + (1 - gamma) Delta                         retention, l = 1 .. K
    O(l)    = q S(l) / sqrt d
    Z       = X(l) + LN(O(l)),   X(l+1) = Z + W2 gelu(W1 LN(Z))      of every layer but the last
    S(l)   <- S(l) + sum_i psi_i S_i(l-1)                            diffusion, after the readout, l = K .. 2
    psi_i   = exp(-l delta x)                                        over max(sum, 1)

Where the paper leaves a choice open:

* A self-loop is one step. The window of a step is the event itself (dt = 0) and the most recent events of the node
  strictly before it, `neighbors` in total.
* Diffusion reads S_i as it was before t, including all earlier events and their diffusion. Events of one timestamp
  do not see each other. If a node has several of them, it takes its steps in stream order.
* A query at t is a step that is not written. Its window ends strictly before t, and h is the mean of O(K) over the
  heads. Delta itself is not needed: q S = gamma q S_old + (1 - gamma) sum_i omega_i (q k_i) v_i.
* In every layer, keys and values come from the neighbour's features x_i. Only queries pass through the layers.
* Features enter as sign(x) log(1 + |x|): the state is quadratic in them, and a weight of 300 would dominate it.
* d in O is the width of a head. The last layer has no block, because nothing would read its output.

S is linear in the increments of a node's steps. So the states after all steps of a batch are computed together,
one layer after the other and with gradient (`steps.retained`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from dsrd.events import Events, Query
from dsrd.history.past import Past
from dsrd.models.base import GraphSpec
from dsrd.models.dsrd.retention import Block, Body, Decays, cosine, signed_log
from dsrd.models.dsrd.settings import DSRDConfig
from dsrd.models.dsrd.steps import Rows, Steps, in_pieces, retained, weighted_rows
from dsrd.nn.distinct import distinct
from dsrd.state import State

EVENTS_AT_ONCE = 500  # that `observe` computes together; limits its memory on long streams


@dataclass(frozen=True)
class Window:
    """The events that a step or a query looks at."""

    node: Tensor  # [B, k]
    token: Tensor  # [B, k, dim]: x_i + phi_e
    x: Tensor  # [B, k]
    mask: Tensor  # [B, k]


class Inputs(nn.Module):
    """Features of nodes, x_j, and of events at an age, phi_e."""

    def __init__(self, config: DSRDConfig, graph: GraphSpec) -> None:
        super().__init__()
        # without node features the bias is all of x_j; length 1 keeps it comparable to phi_e
        self.bias = nn.Parameter(torch.randn(config.dim) / math.sqrt(config.dim))
        self.node = nn.Linear(graph.node_dim, config.dim, bias=False) if graph.node_dim else None
        self.edge = nn.Linear(graph.edge_dim, config.time_dim, bias=False) if graph.edge_dim else None
        # log W_t: the rates span nine decades, and equal steps on W_t itself would overwrite the slow ones
        self.log_rate = nn.Parameter(-torch.linspace(0, 9, config.time_dim) * math.log(10))
        self.mix = nn.Linear(config.time_dim, config.dim, bias=False)  # W_e

    def of_node(self, node: Tensor, past: Past) -> Tensor:  # [...] -> [..., dim]
        if self.node is None:
            return self.bias.expand(*node.shape, -1)
        x: Tensor = self.node(signed_log(past.node_x(node).to(self.bias.dtype))) + self.bias
        return x

    def of_event(self, event: Tensor, age: Tensor, past: Past) -> Tensor:  # [B, k], [B, k] -> [B, k, dim]
        feature = torch.cos(age.unsqueeze(-1) * self.log_rate.exp())
        if self.edge is not None:
            feature = feature + self.edge(signed_log(past.edge_x(event).to(feature.dtype)))
        phi: Tensor = self.mix(feature)
        return phi

    def window(
        self, node: Tensor, time: Tensor, k: int, past: Past, current: tuple[Tensor, Tensor] | None = None
    ) -> Window:
        """The last k events of each node before each time; or k - 1 and the `current` (partner, event)."""
        recent = past.recent(node, time, k if current is None else k - 1)
        partner, event, mask = recent.node, recent.event, recent.mask
        age = torch.where(mask, time.unsqueeze(1) - recent.time, 0.0)
        if current is not None:
            partner, event, age, mask = (
                torch.cat([old, new.unsqueeze(1)], dim=1)
                for old, new in (
                    (partner, current[0]),
                    (event, current[1]),
                    (age, torch.zeros_like(time)),
                    (mask, torch.ones_like(node, dtype=torch.bool)),
                )
            )
        age = age.to(self.bias.dtype)
        token = self.of_node(partner, past) + self.of_event(event, age, past)
        return Window(partner, token, torch.log1p(age), mask.to(self.bias.dtype))


class DenseLayer(nn.Module):
    """Queries, keys, values and decays of one layer, and its block except in the last layer."""

    def __init__(self, config: DSRDConfig, depth: int) -> None:
        super().__init__()
        dim, self.heads = config.dim, config.heads
        self.query, self.key, self.value = (nn.Linear(dim, dim, bias=False) for _ in range(3))
        self.decays = Decays(config, depth, diffuses=depth > 1)
        self.block = Block(dim, config.dropout, bias=False) if depth < config.layers else None

    def queries(self, x: Tensor) -> Tensor:
        """q.  # [B, dim] -> [B, H, d]"""
        query: Tensor = self.query(x).unflatten(-1, (self.heads, -1))
        return query

    def injection(self, query: Tensor, window: Window) -> Tensor:
        """Delta.  # [B, H, d] -> [B, H, d, d]"""
        key = self._by_head(self.key(window.token))
        weight, _ = self._omega(query, key, window)
        return (key * weight.unsqueeze(-1)).transpose(-1, -2) @ self._by_head(self.value(window.token))

    def injected(self, query: Tensor, window: Window) -> Tensor:
        """q Delta, without computing Delta.  # [B, H, d] -> [B, H, d]"""
        weight, product = self._omega(query, self._by_head(self.key(window.token)), window)
        # values are linear in tokens: project the sum once instead of every token
        summed = torch.bmm(weight * product, window.token)  # [B, H, dim]
        return torch.einsum("bhe,hde->bhd", summed, self.value.weight.view(self.heads, query.shape[-1], -1))

    def _by_head(self, projected: Tensor) -> Tensor:  # [B, k, dim] -> [B, H, k, d]
        return projected.view(*projected.shape[:2], self.heads, -1).transpose(1, 2)

    def _omega(self, query: Tensor, key: Tensor, window: Window) -> tuple[Tensor, Tensor]:
        """omega and the products q k. Keys are linear in tokens: the query is projected back to their space."""
        token_query = torch.einsum("bhd,hde->bhe", query, self.key.weight.view(self.heads, query.shape[-1], -1))
        product = torch.bmm(token_query, window.token.transpose(1, 2))  # [B, H, k]
        return self.decays.omega(cosine(product, query, key.square().sum(-1)), window.x, window.mask), product


class Dense(Body):
    """The paper's matrices of second-order increments, with retention and diffusion."""

    heads = ("partner",)

    def __init__(self, config: DSRDConfig, graph: GraphSpec, state: State) -> None:
        super().__init__()
        self.config, self.ablate = config, config.ablate
        size = config.dim // config.heads
        self.width = 2 * size
        self.inputs = Inputs(config, graph)
        self.layers = nn.ModuleList(DenseLayer(config, depth + 1) for depth in range(config.layers))
        shape = (config.layers, config.heads, size, size)
        state.declare("matrix", lambda rows: torch.zeros(rows, *shape), per_node=True)

    def represent(self, query: Query, past: Past, state: State) -> tuple[Tensor, Tensor]:
        """h of both endpoints; there is no first guess.  # [Q, 2 d], [Q]"""
        node, time, where = distinct(torch.cat([query.src, query.dst]), torch.cat([query.time, query.time]))
        h = torch.cat(self.embed(node, time, past, state)[where].chunk(2), dim=-1)
        return h, torch.zeros(len(h), device=h.device)

    def embed(self, node: Tensor, time: Tensor, past: Past, state: State) -> Tensor:
        """h = mean over heads of O(K), from all events before each time.  # [n] -> [n, d]"""
        x = self.inputs.of_node(node, past)  # [n, dim]
        if self.ablate == "no_block":
            return x.reshape(len(x), self.config.heads, -1).mean(1)
        table, row = self._states_before(node, time, past, state)
        window = self.inputs.window(node, time, self.config.neighbors, past)
        for depth, layer in enumerate(self.layers):
            assert isinstance(layer, DenseLayer)
            query, gamma = layer.queries(x), layer.decays.gate().unsqueeze(-1)  # [n, H, d], [H, 1]
            out = (1 - gamma) * layer.injected(query, window)
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
            for parts in in_pieces(events, EVENTS_AT_ONCE):
                for node, matrix in [self._last_states(steps, past, state) for steps in parts]:
                    row = state.rows_for(node)  # before indexing: it may replace the tensor by a larger one
                    state["matrix"][row] = matrix

    def _last_states(self, steps: Steps, past: Past, state: State) -> tuple[Tensor, Tensor]:
        """The nodes that take steps, and their matrices after the last one."""
        rows, table = self._states_after(steps, steps.node, past, state)
        last = steps.last()
        return steps.node[last], torch.stack([layer[len(rows.node) + last] for layer in table], dim=1)

    def _states_before(self, node: Tensor, time: Tensor, past: Past, state: State) -> tuple[list[Tensor], Tensor]:
        """A table of states per layer, and the row of each node at each time; includes unobserved events."""
        new = past.unobserved
        count = 0 if new is None or not len(time) else int(torch.searchsorted(new.time, time.max().cpu()))
        if new is None or not count or self.ablate == "no_state":
            return list(state["matrix"].unbind(1)), state.known(node)
        rows, table = self._states_after(Steps.of(new[:count].to(node.device)), node, past, state)
        return table, rows.before(node, time)

    def _states_after(self, steps: Steps, others: Tensor, past: Past, state: State) -> tuple[Rows, list[Tensor]]:
        """Per layer, the nodes' states before the steps, then after each step.  # [U + E, H, d, d]"""
        event = (steps.partner, steps.event)
        window = self.inputs.window(steps.node, steps.time, self.config.neighbors, past, event)
        rows = Rows(torch.unique(torch.cat([steps.node, others, window.node.flatten()])), steps)
        partner_row = rows.before(window.node, steps.time.unsqueeze(1))  # [E, k]
        first = (steps.position == 0).to(window.x.dtype).view(-1, 1, 1, 1)
        start = torch.searchsorted(rows.node, steps.node)
        x, table = self.inputs.of_node(steps.node, past), list[Tensor]()
        for depth, layer in enumerate(self.layers):
            assert isinstance(layer, DenseLayer)
            before = state["matrix"][:, depth][state.known(rows.node)]  # [U, H, d, d]
            gamma, query = layer.decays.gate().view(-1, 1, 1), layer.queries(x)
            increment = (1 - gamma) * layer.injection(query, window)  # [E, H, d, d]
            diffused = None
            if depth and self.ablate != "no_diffusion":
                diffused = weighted_rows(table[-1], partner_row, layer.decays.psi(window.x, window.mask))
                increment = increment + diffused
            after = retained(increment + first * gamma * before[start], gamma, steps.position)
            table.append(torch.cat([before, after]))
            if layer.block is not None:
                fused = after if diffused is None else after - diffused  # the readout precedes diffusion
                x = layer.block(x, (query.unsqueeze(2) @ fused).squeeze(2) / math.sqrt(query.shape[-1]))
        return rows, table
