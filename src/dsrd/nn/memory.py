"""A memory vector per node, updated by messages (mail): what JODIE, DyRep, TGN and PINT share.

An event leaves mail at both endpoints. A recurrent cell combines mail and memory when the node is next *read*,
with gradient into the cell; the result is stored when the node next takes part in an event. So the cell learns
although the state is detached after every batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Literal

import torch
from torch import Tensor, nn

from dsrd.events import Events
from dsrd.history.past import Past, Sampling
from dsrd.nn.attention import StackedAttention, attention_layers
from dsrd.nn.linear import BlockLinear
from dsrd.state import State

Start = Callable[[Tensor], Tensor]
"""Vectors of nodes.  # [n] -> [n, dim]"""
LastMessage = Literal["time", "role"]
"""Which of a node's messages in a batch is kept: the last in time, or the last in the public code's order."""


class GRU(nn.Module):
    """A gated recurrent unit whose input is given in blocks; equal to `nn.GRUCell` on their concatenation."""

    def __init__(self, widths: list[int], dim: int) -> None:
        super().__init__()
        self.input = BlockLinear(widths, 3 * dim)
        self.hidden = nn.Linear(dim, 3 * dim)
        _spread(self, dim)

    def forward(self, *blocks: Tensor, h: Tensor) -> Tensor:  # [n, width_i] each, [n, dim] -> [n, dim]
        x_reset, x_update, x_new = self.input(*blocks).chunk(3, dim=-1)
        h_reset, h_update, h_new = self.hidden(h).chunk(3, dim=-1)
        update = torch.sigmoid(x_update + h_update)
        new = torch.tanh(x_new + torch.sigmoid(x_reset + h_reset) * h_new)
        return (1 - update) * new + update * h


class RNN(nn.Module):
    """A plain recurrent unit whose input is given in blocks; equal to `nn.RNNCell` on their concatenation."""

    def __init__(self, widths: list[int], dim: int) -> None:
        super().__init__()
        self.input = BlockLinear(widths, dim)
        self.hidden = nn.Linear(dim, dim)
        _spread(self, dim)

    def forward(self, *blocks: Tensor, h: Tensor) -> Tensor:  # [n, width_i] each, [n, dim] -> [n, dim]
        return torch.tanh(self.input(*blocks) + self.hidden(h))


def _spread(cell: nn.Module, dim: int) -> None:
    """Initialise the weights as torch does in its recurrent cells."""
    for parameter in cell.parameters():
        nn.init.uniform_(parameter, -1 / math.sqrt(dim), 1 / math.sqrt(dim))


class MessageMemory(nn.Module):
    """Reads and writes the memory fields of a state: `memory`, `last`, `mail`, `mail_time`, `mailed`.

    The state is an argument, not a part: it belongs to the model.
    """

    def __init__(self, state: State, cell: nn.Module, dim: int, mail_dim: int) -> None:
        super().__init__()
        self.cell = cell
        state.declare("memory", lambda rows: torch.zeros(rows, dim), per_node=True)
        state.declare("last", lambda rows: torch.zeros(rows, dtype=torch.float64), per_node=True)
        state.declare("mail", lambda rows: torch.zeros(rows, mail_dim), per_node=True)
        state.declare("mail_time", lambda rows: torch.zeros(rows, dtype=torch.float64), per_node=True)
        state.declare("mailed", lambda rows: torch.zeros(rows, dtype=torch.bool), per_node=True)

    def read(self, state: State, node: Tensor) -> tuple[Tensor, Tensor]:
        """Memory updated with pending mail, and the time of its last update.  # [n] -> [n, dim], [n]"""
        row = state.known(node)
        memory, last, mailed = state["memory"][row], state["last"][row], state["mailed"][row]
        waiting = row[mailed]
        if len(waiting):
            updated = self.cell(state["mail"][waiting], h=memory[mailed])
            memory = memory.index_put((mailed.nonzero().squeeze(1),), updated)
            last = torch.where(mailed, state["mail_time"][row], last)
        return memory, last

    def recall(self, state: State, node: Tensor, past: Past) -> Tensor:
        """Memory plus node features (padded with zeros) of nodes that may repeat.  # [n] -> [n, dim]"""
        distinct, where = torch.unique(node, return_inverse=True)
        memory, _ = self.read(state, distinct)
        x = past.node_x(distinct)
        if x.shape[-1]:
            memory = memory + nn.functional.pad(x, (0, memory.shape[-1] - x.shape[-1]))
        return memory.index_select(0, where)

    def commit(self, state: State, node: Tensor, memory: Tensor, last: Tensor) -> None:
        """Store the memory that was read of these (distinct) nodes, and discard their mail."""
        row = state.rows_for(node)
        state["memory"][row] = memory
        state["last"][row] = last
        state["mailed"][row] = False

    def post(self, state: State, node: Tensor, mail: Tensor, time: Tensor) -> None:
        """Leave one piece of mail at each of these (distinct) nodes."""
        row = state.rows_for(node)
        state["mail"][row] = mail
        state["mail_time"][row] = time
        state["mailed"][row] = True

    @torch.no_grad()
    def exchange(
        self,
        state: State,
        events: Events,
        past: Past,
        by: LastMessage,
        clock: nn.Module,
        read_partner: Callable[[Tensor, Tensor], Tensor] | None = None,
    ) -> None:
        """Store the updated memory of these events' endpoints, then leave each the mail of its last event.

        Mail is `[own memory || vector of the partner || time since the last update || edge features]`. The vector
        is `read_partner(partner, time)`, or else the partner's memory.
        """
        node, event, sent = last_messages(events.src, events.dst, by)
        memory, last = self.read(state, node)
        self.commit(state, node, memory, last)
        partner = torch.where(sent, events.dst[event], events.src[event])
        time = events.time[event]
        other = memory[torch.searchsorted(node, partner)] if read_partner is None else read_partner(partner, time)
        mail = torch.cat(
            [memory, other, clock(time - last), past.edge_x(events.id[event])], dim=-1
        )  # [n, mail_dim]
        self.post(state, node, mail, time)


class MemoryAttention(nn.Module):
    """Embeds nodes at times by attention over their interactions, starting from memory plus node features."""

    def __init__(
        self,
        dim: int,
        time_dim: int,
        *,
        neighbors: int,
        sampling: Sampling,
        layers: int,
        heads: int,
        dropout: float,
        attend_padding: bool,
    ) -> None:
        super().__init__()
        self.dim, self.neighbors, self.sampling = dim, neighbors, sampling
        self.attention, self.merge = attention_layers(dim, time_dim, layers, heads, dropout, attend_padding)

    def forward(self, node: Tensor, time: Tensor, past: Past, start: Start, clock: nn.Module) -> Tensor:
        """`start(node)` is a node's vector before any layer; `clock` encodes ages.  # [Q] -> [Q, dim]"""
        neighbors = partial(past.sample, self.sampling, k=self.neighbors)
        embed = StackedAttention(self.dim, self.attention, self.merge, clock, start, neighbors, past.edge_x)
        return embed(node, time)


def last_messages(src: Tensor, dst: Tensor, by: LastMessage) -> tuple[Tensor, Tensor, Tensor]:
    """Each endpoint of a batch once, with its last event and whether it was that event's source.

    `by="role"` lets any message received as a target win over all sent as a source, as the public code does.

    >>> node, event, sent = last_messages(torch.tensor([1, 2]), torch.tensor([2, 3]), by="time")
    >>> node.tolist(), event.tolist(), sent.tolist()
    ([1, 2, 3], [0, 1, 1], [True, True, False])
    """
    count = len(src)
    event = torch.arange(count, device=src.device).repeat(2)
    role = torch.arange(2, device=src.device).repeat_interleave(count)  # 0: source
    rank = 2 * event + role if by == "time" else event + count * role
    node, where = torch.unique(torch.cat([src, dst]), return_inverse=True)
    winner = torch.zeros_like(node).scatter_reduce(0, where, rank, "amax", include_self=False)
    if by == "time":
        return node, winner.div(2, rounding_mode="floor"), winner % 2 == 0
    return node, winner % count, winner < count
