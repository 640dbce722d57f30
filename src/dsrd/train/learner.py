"""A model together with what changes its weights, as one thing that can be saved and taken up again."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from dsrd.config import RunConfig
from dsrd.errors import DsrdError
from dsrd.evaluate.protocol import protocol
from dsrd.evaluate.scoring import Progress, silent
from dsrd.events import Events
from dsrd.history.past import Past
from dsrd.models import TemporalModel
from dsrd.negatives.sampling import TrainingNegatives
from dsrd.train import checkpoint
from dsrd.train.average import Average
from dsrd.train.build import checkpoint_faults, load_weights
from dsrd.train.loop import train_epoch

Groups = dict[str, Mapping[str, Tensor]]


class Learner:
    """Trains a model on events, one epoch a call."""

    def __init__(self, run: RunConfig, model: TemporalModel, events: Events, past: Past) -> None:
        self.run, self.model, self.events, self.past = run, model, events, past
        weights = [p for p in model.parameters() if p.requires_grad]
        self.optimizer = (
            torch.optim.Adam(weights, lr=run.train.lr, weight_decay=run.train.weight_decay) if weights else None
        )
        self.average = Average(model, run.train.average)
        self.negatives = TrainingNegatives(events, run.seed)

    def epoch(self, number: int, progress: Progress = silent) -> float:
        """Walk through the events once, from an empty state; the mean loss. `number` counts from 0."""
        past = self.past.redrawn(self.run.seed).redrawn(number).to(self.model.device)
        loss = train_epoch(
            self.model,
            self.events,
            past,
            self.negatives,
            self.optimizer,
            protocol(self.run.protocol),
            self.run.train.batch_size,
            progress,
            self.average.update,
        )
        if not math.isfinite(loss):
            raise DsrdError(
                f"epoch {number + 1}: training diverged, the loss is {loss}; "
                f"lower train.lr, which is {self.run.train.lr}"
            )
        return loss

    def tensors(self) -> Groups:
        """All that going on needs."""
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
        """Go on from what `tensors` gave; `path` is named if something is missing."""
        load_weights(self.model, groups.get("weights", {}), path)
        with checkpoint_faults(path):
            if self.optimizer:
                checkpoint.restore_optimizer(self.optimizer, groups["optimizer"])
                self.average.restore(groups["average"])
            self.negatives.restore(groups["negatives"])
            torch.set_rng_state(groups["rng"]["torch"])
