"""One epoch: the lines everything rests on."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from dsrd.evaluate.evaluator import Progress, silent
from dsrd.evaluate.protocol import Protocol
from dsrd.events import Events, Query
from dsrd.graph.negatives import TrainingNegatives
from dsrd.graph.past import Past
from dsrd.models import TemporalModel


def link_loss(logits: Tensor) -> Tensor:
    """Cross-entropy of scores of true pairs followed by as many of wrong ones.  # [2b] -> []"""
    true = torch.zeros_like(logits)
    true[: len(true) // 2] = 1
    return binary_cross_entropy_with_logits(logits, true)


def train_epoch(
    model: TemporalModel,
    events: Events,
    past: Past,
    negatives: TrainingNegatives,
    optimizer: torch.optim.Optimizer | None,
    rules: Protocol,
    batch_size: int,
    progress: Progress = silent,
) -> float:
    """Walk once through the training events, from an empty state; the mean loss of a batch.

    A model without parameters (no optimiser) only observes.
    """
    model.train()
    model.state.reset()
    losses: list[float] = []
    for flush in rules.flushes(events, batch_size, exact=True):
        now = past.during(events[flush])
        pieces = list(events[flush].batches(batch_size))
        for number, batch in enumerate(pieces, start=1):
            if optimizer is not None:
                optimizer.zero_grad()
                query = Query.cat(batch.query(), negatives.sample(batch))
                loss = link_loss(model.score(query.to(model.device), now))
                loss.backward()  # type: ignore[no-untyped-call]
                losses.append(loss.item())
            if number == len(
                pieces
            ):  # observed with the weights that scored it: as published, the step comes after
                model.observe(events[flush].to(model.device), past)
            if optimizer is not None:
                optimizer.step()
        model.state.detach_()
        progress("train", flush.stop, len(events))
    return sum(losses) / max(len(losses), 1)
