"""Early stopping: which epoch is the best so far, and when there have been enough."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dsrd.config import TrainConfig


@dataclass
class Progressed:
    """How far a run has come; saved with every checkpoint."""

    epoch: int = 0  # epochs done
    best_epoch: int = 0
    best_ap: float = -1.0  # of the validation, percent
    best_auc: float = -1.0
    waited: int = 0  # epochs since the best
    history: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def of(cls, note: Mapping[str, Any]) -> Progressed:
        """What a checkpoint's note says; earlier versions also wrote whether the run was finished."""
        return cls(**{name: value for name, value in note["progressed"].items() if name != "finished"})

    def judge(self, ap: float, auc: float, keep: str = "both") -> bool:
        """As published, an epoch is better only if AP *and* AUC are at least as good as the kept ones."""
        if keep == "mean":
            better = ap + auc >= self.best_ap + self.best_auc
        else:
            better = ap >= self.best_ap and auc >= self.best_auc
        if better:
            self.best_epoch, self.best_ap, self.best_auc, self.waited = self.epoch, ap, auc, 0
        else:
            self.waited += 1
        return better

    def should_stop(self, train: TrainConfig) -> bool:
        """Whether patience, minutes or epochs have run out."""
        spent = sum(entry["seconds_with_validation"] for entry in self.history)
        late = train.minutes > 0 and spent >= 60 * train.minutes
        return late or self.waited >= train.patience or self.epoch >= train.epochs
