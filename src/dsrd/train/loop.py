"""The training loop: score a batch, take a gradient step, observe the batch."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from dsrd import faults
from dsrd.config import RunConfig, TrainConfig
from dsrd.errors import DsrdError
from dsrd.events import Events
from dsrd.history.past import Past
from dsrd.models import TemporalModel
from dsrd.negatives.sampling import TrainingNegatives
from dsrd.processes import ALONE, Processes
from dsrd.protocol import Protocol, aligned
from dsrd.reporter import step
from dsrd.train import checkpoint, parallel
from dsrd.train.build import checkpoint_faults, load_weights

Groups = dict[str, Mapping[str, Tensor]]
WARM_UP = 0.1  # in early steps the moving average covers a tenth of the steps so far, whatever its memory


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
    processes: Processes = ALONE,
) -> float:
    """Train on a stream of events once, observing them on the way. Returns the mean loss of a batch.

    A model without parameters (no optimiser) only observes. `after_step` is called after every optimiser step.
    An epoch starts from an empty state; without `reset`, it continues from the current one. Neighbours that are
    sampled at random are sampled again for every batch. If thousands of events share a timestamp, a single sample
    would be a mark to recognise a node by, and the mark would be gone in the next batch. Of several `processes`
    that train the model together, each scores its share of every batch.
    """
    if reset:
        model.state.reset()
    model.train()
    losses: list[float] = []
    for flush in protocol.flushes(events, batch_size, exact=True):
        now = past.during(events[flush])
        batches = list(events[flush].batches(batch_size))
        for number, batch in enumerate(batches, start=1):
            faults.point("training")
            if optimizer is not None:
                optimizer.zero_grad()
                redrawn = now.redrawn(len(losses))
                losses.append(parallel.backward(model, batch, negatives, redrawn, processes))
            if number == len(batches):
                # with the weights that scored it: as published, the optimiser step comes after
                model.observe(events[flush].to(model.device), past)
            faults.point("training, before the step")
            if optimizer is not None:
                optimizer.step()
                after_step()
        model.state.detach_()
        step("train", flush.stop, len(events))
    return sum(losses) / max(len(losses), 1)


def adam(model: TemporalModel, config: TrainConfig) -> torch.optim.Optimizer | None:
    """The optimiser of a model, with a learning rate of its own for learned decays; None without weights."""
    weights = [p for p in model.parameters() if p.requires_grad]
    if not weights:
        return None
    fast = {id(p) for p in model.decay_parameters()} if config.decay_lr else set()
    groups: list[dict[str, Any]] = [{"params": [p for p in weights if id(p) not in fast]}]
    if fast:
        groups.append(
            {"params": [p for p in weights if id(p) in fast], "lr": config.decay_lr, "weight_decay": 0.0}
        )
    return torch.optim.Adam(groups, lr=config.lr, weight_decay=config.weight_decay, fused=True)


class Learner:
    """A model with its optimiser, its averaged weights and its negatives; trains one epoch per call."""

    def __init__(
        self, run: RunConfig, model: TemporalModel, events: Events, past: Past, processes: Processes = ALONE
    ) -> None:
        self.run, self.model, self.events, self.past = run, model, events, past
        self.processes = processes
        parallel.join(model, processes)
        self.optimizer = adam(model, run.train)
        self.average = MovingAverage(model, run.train.average)
        self.negatives = TrainingNegatives(events, run.seed)

    def epoch(self, number: int) -> float:
        """Train on the events once, from an empty state, and return the mean loss. `number` counts from 0."""
        past = self.past.redrawn(self.run.seed).redrawn(number).to(self.model.device)
        parallel.start_epoch(self.processes)
        loss = train_epoch(
            self.model,
            self.events,
            past,
            self.negatives,
            self.optimizer,
            self.run.protocol_rules,
            self.run.train.batch_size,
            self.average.update,
            processes=self.processes,
        )
        if not math.isfinite(loss):
            raise self.diverged(number, f"the loss is {loss}")
        parallel.end_epoch(self.model, self.processes)
        return loss

    def diverged(self, number: int, sign: str) -> DsrdError:
        """The error for weights that are not finite any more, after the epoch `number` from 0."""
        return DsrdError(
            f"epoch {number + 1}: training diverged, {sign}; lower train.lr, which is {self.run.train.lr}"
        )

    def tensors(self) -> Groups:
        """Everything needed to continue training."""
        groups: Groups = {
            "weights": self.model.state_dict(),
            "rng": {"torch": torch.get_rng_state()},
            "negatives": self.negatives.state(),
        }
        if self.optimizer:
            groups["optimizer"] = checkpoint.optimizer_tensors(self.optimizer)
            groups["average"] = self.average.state()
        return groups

    def restore(self, groups: Mapping[str, dict[str, Tensor]], path: Path) -> None:
        """Continue from what `tensors` returned; errors name `path`."""
        load_weights(self.model, groups.get("weights", {}), path)
        with checkpoint_faults(path):
            if self.optimizer:
                checkpoint.restore_optimizer(self.optimizer, groups["optimizer"])
                self.average.restore(groups["average"])
            self.negatives.restore(groups["negatives"])
            torch.set_rng_state(groups["rng"]["torch"])


class MovingAverage:
    """A moving average of a model's weights: smoother, and better on later events. `memory` 0 keeps none.

    >>> layer = nn.Linear(1, 1, bias=False)
    >>> average = MovingAverage(layer, memory=0.9)
    >>> average.update()
    >>> with average.in_place():
    ...     pass  # validate, save
    """

    def __init__(self, model: nn.Module, memory: float) -> None:
        self.model, self.memory, self.steps = model, memory, 0
        self.current = dict(model.named_parameters()) if memory else {}  # listing them takes as long as the update
        self.weights = {name: weight.detach().clone() for name, weight in self.current.items()}

    @torch.no_grad()
    def update(self) -> None:
        """Move towards the current weights; called after every optimiser step."""
        self.steps += 1
        memory = min(self.memory, 1 - 1 / (1 + WARM_UP * self.steps))
        if self.memory:
            torch._foreach_lerp_(list(self.weights.values()), list(self.current.values()), 1 - memory)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Give the model the averaged weights inside the block, and its current ones back after it."""
        current = {name: weight.detach().clone() for name, weight in self.model.named_parameters() if self.memory}
        self._load(self.weights)
        try:
            yield
        finally:
            self._load(current)

    def state(self) -> dict[str, Tensor]:
        """Everything needed to continue."""
        return {**self.weights, "steps": torch.tensor(self.steps)}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Continue from a saved `state`."""
        for name, weight in self.weights.items():
            if state[name].shape != weight.shape:
                raise ValueError(f"average/{name} does not fit the weights")
        self.steps = int(state["steps"])
        # in the order of the model, by which `update` goes; a file has an order of its own
        self.weights = {name: state[name].clone() for name in self.weights}

    @torch.no_grad()
    def _load(self, weights: Mapping[str, Tensor]) -> None:
        for name, weight in self.model.named_parameters():
            if name in weights:
                weight.copy_(weights[name])


def backward_in_chunks(
    model: TemporalModel, batch: Events, negatives: TrainingNegatives, past: Past, size: int
) -> float:
    """Loss and gradient of a batch of any length in the memory of `size` events; the batch is then observed.

    An exact model gives the same scores whether it has observed the earlier chunks or reads them from the past.
    With the same negatives, of the same law and spread over the chunks in proportion to their events, the result
    is the loss of the whole batch. The gradient is the same too, unless it flows through what the model writes
    into its state.
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
