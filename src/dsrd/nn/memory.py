"""A memory vector per node, fed by mail: what JODIE, DyRep, TGN and PINT share.

An event leaves mail at both endpoints. Mail is folded into the memory when the node is next *read* (with gradient
into the cell) and committed when the node next takes part in an event, so that the cell learns although the state
is cut from the graph after every batch.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor, nn

from dsrd.models.state import State
from dsrd.nn.linear import BlockLinear


class GRU(nn.Module):
    """A gated recurrent unit whose input is given in blocks; equal to `nn.GRUCell` on their concatenation."""

    def __init__(self, widths: list[int], dim: int) -> None:
        super().__init__()
        self.input = BlockLinear(widths, 3 * dim)
        self.hidden = nn.Linear(dim, 3 * dim)
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -1 / math.sqrt(dim), 1 / math.sqrt(dim))

    def forward(self, *blocks: Tensor, h: Tensor) -> Tensor:  # [n, width_i] each, [n, dim] -> [n, dim]
        x_reset, x_update, x_new = self.input(*blocks).chunk(3, dim=-1)
        h_reset, h_update, h_new = self.hidden(h).chunk(3, dim=-1)
        update = torch.sigmoid(x_update + h_update)
        new = torch.tanh(x_new + torch.sigmoid(x_reset + h_reset) * h_new)
        return (1 - update) * new + update * h


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
        """Memory with pending mail folded in, and the time it speaks of.  # [n] -> [n, dim], [n]"""
        row = state.known(node)
        memory, last, mailed = state["memory"][row], state["last"][row], state["mailed"][row]
        waiting = row[mailed]
        if len(waiting):
            folded = self.cell(state["mail"][waiting], h=memory[mailed])
            memory = memory.index_put((mailed.nonzero().squeeze(1),), folded)
            last = torch.where(mailed, state["mail_time"][row], last)
        return memory, last

    def commit(self, state: State, node: Tensor, memory: Tensor, last: Tensor) -> None:
        """Keep what was read of these (distinct) nodes; their mail is used up."""
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


def last_messages(src: Tensor, dst: Tensor, by: Literal["time", "role"]) -> tuple[Tensor, Tensor, Tensor]:
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
