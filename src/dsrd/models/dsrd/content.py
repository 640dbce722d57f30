"""How the edge features of a node's events compare with those of all events."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from torch import Tensor, nn

from dsrd.errors import DsrdError
from dsrd.events import Events, Query, as_tensor
from dsrd.history.index import Floats
from dsrd.history.past import Past
from dsrd.models.dsrd import feature_levels
from dsrd.models.dsrd.feature_levels import LevelState
from dsrd.models.dsrd.overlay import queries_of, unobserved
from dsrd.models.dsrd.retention import signed_log
from dsrd.models.dsrd.walk_state import Arrivals, Singles
from dsrd.state import State

WIDEST = 16  # features kept per event; more are projected to this number by random signs


class Content(nn.Module):
    """The features of a node's events against those of all events, per rate and feature (see `feature_levels`)."""

    def __init__(self, edge_dim: int, rates: int, whole_moments: bool, state: State) -> None:
        super().__init__()
        self.whole_moments, kept = whole_moments, min(edge_dim, WIDEST)
        self.width = rates * kept
        signs = 2.0 * torch.randint(0, 2, (edge_dim, kept), generator=torch.Generator().manual_seed(0)) - 1
        self.fold: Tensor  # [edge_dim, kept]
        self.register_buffer("fold", torch.eye(edge_dim) if edge_dim == kept else signs / edge_dim**0.5)
        declare, doubles = partial(state.declare, compiled=True), partial(torch.zeros, dtype=torch.float64)
        declare("content", lambda rows: torch.zeros(rows, rates, 1 + kept), per_node=True)
        declare("content_last", lambda rows: doubles(rows), per_node=True)
        declare("level", lambda _: doubles(rates, 1 + 2 * kept))
        declare("level_clock", lambda _: torch.tensor([0.0, 0.0, -torch.inf, 0.0], dtype=torch.float64))

    def read(self, query: Query, past: Past, state: State, rate: Floats) -> Tensor:
        """c of both endpoints of each pair, at its own time.  # [2, Q, width]"""
        queries, levels = queries_of(query), _levels(state)
        new = unobserved(past.unobserved, queries.time)
        x = self._features(Events.from_numpy([], [], []) if past.unobserved is None else past.unobserved, past)
        view, pending = feature_levels.view_of(levels, new, x, rate, self.whole_moments)
        out = np.zeros((*queries.ends.shape, len(rate), levels.content.shape[2] - 1), np.float32)
        feature_levels.read(view, pending, queries, out)
        return as_tensor(out).flatten(2).to(query.src.device)

    def observe(self, events: Events, past: Past, state: State, rate: Floats) -> None:
        """Add events; the state has rows for their nodes."""
        src, dst, time, _ = events.to("cpu").numpy()
        arrivals = Arrivals(src, dst, time, src_row=src, dst_row=dst)
        feature_levels.observe(_levels(state), arrivals, self._features(events, past), rate)

    def _features(self, events: Events, past: Past) -> Singles:
        """The features kept of each event.  # [E, kept]"""
        x = past.edge_x(events.id.to(self.fold.device))  # [E, edge_dim]
        if x.shape[1] != len(self.fold):
            raise DsrdError(
                f"events with {x.shape[1]} features, the model was built for {len(self.fold)}; "
                "give the past the `edge_x` that training had"
            )
        return np.ascontiguousarray((signed_log(x) @ self.fold).cpu().numpy())


def _levels(state: State) -> LevelState:
    return LevelState(*(state[name].numpy() for name in LevelState._fields))
