"""A model with its optimiser, its averaged weights and its negatives: trained epoch by epoch, saved as one."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor, nn

from dsrd.config import RunConfig
from dsrd.errors import DsrdError
from dsrd.events import Events
from dsrd.history.past import Past
from dsrd.models import TemporalModel
from dsrd.negatives.sampling import TrainingNegatives
from dsrd.train import checkpoint
from dsrd.train.build import checkpoint_faults, load_weights
from dsrd.train.loop import train_epoch

Groups = dict[str, Mapping[str, Tensor]]
WARM_UP = 0.1  # in early steps the moving average covers a tenth of the steps so far, whatever its memory


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
        self.weights = (
            {name: weight.detach().clone() for name, weight in model.named_parameters()} if memory else {}
        )

    @torch.no_grad()
    def update(self) -> None:
        """Move towards the current weights; called after every optimiser step."""
        self.steps += 1
        memory = min(self.memory, 1 - 1 / (1 + WARM_UP * self.steps))
        for name, weight in self.model.named_parameters() if self.memory else ():
            self.weights[name].lerp_(weight, 1 - memory)

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
        self.steps = int(state["steps"])
        self.weights = {name: value.clone() for name, value in state.items() if name != "steps"}

    @torch.no_grad()
    def _load(self, weights: Mapping[str, Tensor]) -> None:
        for name, weight in self.model.named_parameters():
            if name in weights:
                weight.copy_(weights[name])


class Learner:
    """Trains a model on events, one epoch per call."""

    def __init__(self, run: RunConfig, model: TemporalModel, events: Events, past: Past) -> None:
        self.run, self.model, self.events, self.past = run, model, events, past
        weights = [p for p in model.parameters() if p.requires_grad]
        self.optimizer = (
            torch.optim.Adam(weights, lr=run.train.lr, weight_decay=run.train.weight_decay) if weights else None
        )
        self.average = MovingAverage(model, run.train.average)
        self.negatives = TrainingNegatives(events, run.seed)

    def epoch(self, number: int) -> float:
        """Train on the events once, from an empty state, and return the mean loss. `number` counts from 0."""
        past = self.past.redrawn(self.run.seed).redrawn(number).to(self.model.device)
        loss = train_epoch(
            self.model,
            self.events,
            past,
            self.negatives,
            self.optimizer,
            self.run.protocol_rules,
            self.run.train.batch_size,
            self.average.update,
        )
        if not math.isfinite(loss):
            raise DsrdError(
                f"epoch {number + 1}: training diverged, the loss is {loss}; "
                f"lower train.lr, which is {self.run.train.lr}"
            )
        return loss

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
