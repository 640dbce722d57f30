"""What a first score reads about one source and many targets: the tensors around `first_features`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from dsrd.events import NULL
from dsrd.history.past import Past
from dsrd.models.dsrd import first_features
from dsrd.models.dsrd.first_features import Asked, Guess
from dsrd.models.dsrd.overlay import Queries
from dsrd.models.dsrd.walk_body import Walks
from dsrd.state import State


class Question(NamedTuple):
    """One source at one time."""

    source: int
    time: float
    past: Past
    state: State


@torch.no_grad()
def cheap_features(body: Walks, asked: Question, targets: Sequence[Tensor]) -> tuple[Tensor, Iterator[Tensor]]:
    """What the first score reads; see `TemporalModel.first_features`."""
    alone = Queries(np.array([[asked.source], [NULL]]), np.array([asked.time]), np.zeros(1, np.int64))
    view, pending = body._view(alone, asked.past, asked.state)
    first_features.advance(view, pending, asked.time)
    question = Asked(asked.source, asked.time, np.empty(0, np.int64))
    uniform, weight = (each.detach().numpy() for each in body.memory.weights())
    guess = Guess(uniform[0], weight, np.float32(body.num_targets))
    source = first_features.summary_of(view, asked.past.index, question, body.config.neighbors)
    width = first_features.feature_width(len(body.fine))

    def features() -> Iterator[Tensor]:
        for piece in targets:
            out = np.empty((len(piece), width), np.float32)
            first_features.write_features(view, source, question._replace(targets=piece.numpy()), guess, out)
            yield torch.from_numpy(out)

    return torch.from_numpy(source.alone).log1p(), features()
