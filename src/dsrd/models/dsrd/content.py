"""What the state knows of events beyond who met whom: how a node's compare with everybody's."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from dsrd.errors import DsrdError
from dsrd.events import Events, Query, as_tensor
from dsrd.history.past import Past
from dsrd.models.dsrd import feature_levels
from dsrd.models.dsrd.overlay import lent
from dsrd.models.dsrd.retention import squashed
from dsrd.state import State

WIDEST = 16  # numbers kept of an event's features: more are folded into these by random signs
FIELDS = (
    "content",
    "content_last",
    "level",
    "level_clock",
)  # in the order of `feature_levels`; the first two by node


class Content(nn.Module):
    """The node's events beside everybody's, feature by feature and scale by scale (see `feature_levels`)."""

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

    def read(self, query: Query, past: Past, state: State, rate: NDArray[np.float64]) -> Tensor:
        """For either end of each pair, at its own time; the state is left as it was.  # [2, Q, width]"""
        new = Events.from_numpy([], [], []) if past.unobserved is None else past.unobserved
        content, last, level, clock = (state[name].numpy() for name in FIELDS)
        ends = torch.stack([query.src, query.dst]).cpu().numpy()
        time = query.time.cpu().numpy()
        out = np.zeros((*ends.shape, len(rate), content.shape[2] - 1), np.float32)
        how = (rate, self.whole_moments, ends, time, np.argsort(time, kind="stable"))
        with lent((content, last), new) as rows:
            feature_levels.read((*rows, level, clock), *how, *new.numpy()[:3], self._features(new, past), out)
        return as_tensor(out).flatten(2).to(query.src.device)

    def observe(self, events: Events, past: Past, state: State, rate: NDArray[np.float64]) -> None:
        """Fold events in; the state has rows for their nodes."""
        arrays = tuple(state[name].numpy() for name in FIELDS)
        feature_levels.observe(arrays, *events.to("cpu").numpy()[:3], self._features(events, past), rate)

    def _features(self, events: Events, past: Past) -> NDArray[np.float32]:
        """What is kept of each event.  # [E, kept]"""
        given = past.edge_x(events.id.to(self.fold.device))  # [E, edge_dim]
        if given.shape[1] != len(self.fold):
            raise DsrdError(
                f"events with {given.shape[1]} features, the model was built for {len(self.fold)}; "
                "give the past the `edge_x` that training had"
            )
        found = squashed(given) @ self.fold
        return np.ascontiguousarray(found.cpu().numpy())
