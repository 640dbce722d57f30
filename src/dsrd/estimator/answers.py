"""What a model says about pairs: the columns that `predict` and `partners` add."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from dsrd.estimator.bits import BitsReader, choice_bits, head_score
from dsrd.estimator.event_rate import event_rate
from dsrd.estimator.online import OnlineModel
from dsrd.estimator.ranking import is_retrieved, read_ranked
from dsrd.events import Query
from dsrd.history.past import Past
from dsrd.models import TemporalModel

SECONDS_PER_DAY = 86_400.0


@dataclass(frozen=True)
class Answers:
    """What a model says about pairs at their times.

    `probability`: that the pair is an event, and its target not drawn at random (by the head `pair`: both ends).
    `partner`: that the source chooses this target, given that the source acts.
    `rate`: expected events of this pair per day, or per unit of time where times are numbers; None if unknown.
    `surprise`: -log2 of the probability of the pair given that an event happens, or of `partner` without a rate.
    """

    probability: Tensor  # [Q] float32
    partner: Tensor  # [Q] float64
    rate: Tensor | None  # [Q] float64
    surprise: Tensor  # [Q] float64

    def columns(self) -> dict[str, NDArray[Any]]:
        """By name, as the user gets them; without `rate` if it is unknown."""
        return {name: values.numpy() for name, values in vars(self).items() if values is not None}


def answer_pairs(online: OnlineModel, query: Query, head: str = "") -> Answers:
    """What the model says about each pair at its time, from everything strictly before it."""
    answered = online.ask(query, BitsReader(online.targets, head), width=3)
    return _answers(online, query.time, answered[:, 0], answered[:, 1:])


def best_partners(
    online: OnlineModel, node: int, k: int, at: float | None = None, head: str = "", exact: bool = False
) -> tuple[Tensor, Answers]:
    """The k most likely targets of a node at a time, best first, and what the model says about them.  # [k]

    Candidates are all targets of events before that time, including the node itself if it was one. Their `partner`
    probabilities add up to 1; where the best are retrieved (`is_retrieved`), as far as their sum is known.
    Equally likely ones are ordered by id.
    """
    model, query = online.model, online.candidates(node, k, at)
    first = online.first_score() if is_retrieved(model, len(query), k, exact) else None

    def read(model: TemporalModel, query: Query, past: Past) -> Tensor:
        return read_ranked(model, query, past, head, first, k)

    ranked = online.ask(query, read, width=3, at_once=len(query))
    best = torch.sort(ranked[:, 1], descending=True, stable=True).indices[:k]
    factors, total = ranked[best, :2], ranked[best, 2]
    answers = _answers(online, query.time[best], head_score(factors, head), choice_bits(model, factors, total))
    return query.dst[best], answers


def _answers(online: OnlineModel, time: Tensor, score: Tensor, bits: Tensor) -> Answers:
    """`bits` are those of the source and of the partner.  # [Q], [Q], [Q, 2]"""
    surprise = bits.sum(dim=1)
    rate = torch.exp2(-surprise) * _stream_rate(online, time) if online.model.has_intensity else None
    # float32, as the published metrics rank probabilities
    return Answers(torch.sigmoid(score.float()), torch.exp2(-bits[:, 1]), rate, surprise)


def _stream_rate(online: OnlineModel, time: Tensor) -> Tensor:
    """Events of the whole stream per day, or per unit of time where times are numbers.  # [Q]

    After the last event it stays as it was: what has happened since is not known yet, it is not a silence.
    """
    data = online.stream.dataset()
    rate = torch.from_numpy(event_rate(data.events.time.numpy(), time.clamp(max=online.after_last).numpy()))
    return rate * SECONDS_PER_DAY if data.dates else rate
