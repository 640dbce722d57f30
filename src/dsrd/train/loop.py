"""One epoch: the lines everything rests on."""

from __future__ import annotations

from collections.abc import Callable

import torch

from dsrd.errors import DsrdError
from dsrd.evaluate.protocol import Protocol, aligned
from dsrd.evaluate.scoring import Progress, silent
from dsrd.events import Events
from dsrd.history.past import Past
from dsrd.models import TemporalModel
from dsrd.negatives.sampling import TrainingNegatives


def train_epoch(
    model: TemporalModel,
    events: Events,
    past: Past,
    negatives: TrainingNegatives,
    optimizer: torch.optim.Optimizer | None,
    rules: Protocol,
    batch_size: int,
    progress: Progress = silent,
    stepped: Callable[[], None] = lambda: None,
    fresh: bool = True,
) -> float:
    """Walk through training events, observing; the mean loss of a batch.

    A model without parameters (no optimiser) only observes. `stepped` is called after every step. An epoch begins
    with an empty state; if not `fresh`, the events follow on what the state holds. Neighbours that are chosen at
    random are chosen anew for every batch: where thousands of events share a timestamp, one choice for all of them
    would be a sign to know a node by, which no later batch bears out.
    """
    if fresh:
        model.state.reset()
    model.train()
    losses: list[float] = []
    for flush in rules.flushes(events, batch_size, exact=True):
        now = past.during(events[flush])
        pieces = list(events[flush].batches(batch_size))
        for number, batch in enumerate(pieces, start=1):
            if optimizer is not None:
                optimizer.zero_grad()
                loss = model.loss(batch, negatives, now.redrawn(len(losses)))
                loss.backward()  # type: ignore[no-untyped-call]
                losses.append(loss.item())
            if number == len(pieces):
                # with the weights that scored it: as published, the step comes after
                model.observe(events[flush].to(model.device), past)
            if optimizer is not None:
                optimizer.step()
                stepped()
        model.state.detach_()
        progress("train", flush.stop, len(events))
    return sum(losses) / max(len(losses), 1)


def backward_in_chunks(
    model: TemporalModel, batch: Events, negatives: TrainingNegatives, past: Past, size: int
) -> float:
    """Loss and gradient of one batch of any length in the memory of `size` events; the batch is then observed.

    A model that is exact in time answers alike from a state that has seen the earlier chunks and from one that
    folds them in. So, given the same negatives, as many to each chunk as its share of the events, this is the loss
    of the batch in one piece, and its gradient unless that runs through what the model writes into its state.
    """
    if not (model.exact or model.stateless):
        raise DsrdError(
            f"{type(model).__name__}: scores depend on how a batch is cut; give the batch to `loss` in one piece"
        )
    total = 0.0
    for flush in aligned(batch, size):  # a timestamp may be longer than a chunk: it is observed as a whole
        now = past.during(batch[flush])
        for chunk in batch[flush].batches(size):
            loss = model.loss(chunk, negatives, now) * (len(chunk) / len(batch))
            loss.backward()  # type: ignore[no-untyped-call]
            total += loss.item()
        model.observe(batch[flush].to(model.device), past)
        model.state.detach_()
    return total
