"""One training epoch: score a batch, take a gradient step, observe the batch."""

from __future__ import annotations

from collections.abc import Callable

import torch

from dsrd.errors import DsrdError
from dsrd.events import Events
from dsrd.history.past import Past
from dsrd.models import TemporalModel
from dsrd.negatives.sampling import TrainingNegatives
from dsrd.protocol import Protocol, aligned
from dsrd.reporter import step


def train_epoch(
    model: TemporalModel,
    events: Events,
    past: Past,
    negatives: TrainingNegatives,
    optimizer: torch.optim.Optimizer | None,
    protocol: Protocol,
    batch_size: int,
    after_step: Callable[[], None] = lambda: None,
    reset: bool = True,
) -> float:
    """Train on a stream of events once, observing them on the way. Returns the mean loss of a batch.

    A model without parameters (no optimiser) only observes. `after_step` is called after every optimiser step.
    An epoch starts from an empty state; without `reset`, it continues from the current one. Neighbours that are
    sampled at random are sampled again for every batch. If thousands of events share a timestamp, a single sample
    would be a mark to recognise a node by, and the mark would be gone in the next batch.
    """
    if reset:
        model.state.reset()
    model.train()
    losses: list[float] = []
    for flush in protocol.flushes(events, batch_size, exact=True):
        now = past.during(events[flush])
        batches = list(events[flush].batches(batch_size))
        for number, batch in enumerate(batches, start=1):
            if optimizer is not None:
                optimizer.zero_grad()
                loss = model.loss(batch, negatives, now.redrawn(len(losses)))
                loss.backward()  # type: ignore[no-untyped-call]
                losses.append(loss.item())
            if number == len(batches):
                # with the weights that scored it: as published, the optimiser step comes after
                model.observe(events[flush].to(model.device), past)
            if optimizer is not None:
                optimizer.step()
                after_step()
        model.state.detach_()
        step("train", flush.stop, len(events))
    return sum(losses) / max(len(losses), 1)


def backward_in_chunks(
    model: TemporalModel, batch: Events, negatives: TrainingNegatives, past: Past, size: int
) -> float:
    """Loss and gradient of a batch of any length in the memory of `size` events; the batch is then observed.

    An exact model gives the same scores whether it has observed the earlier chunks or reads them from the past.
    With the same negatives, spread over the chunks in proportion to their events, the result is the loss of the
    whole batch. The gradient is the same too, unless it flows through what the model writes into its state.
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
