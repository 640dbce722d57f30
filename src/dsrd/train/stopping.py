"""Early stopping: which epoch is the best so far, and when to stop."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass
class TrainingProgress:
    """The epochs so far and the best of them; saved with every checkpoint."""

    epoch: int = 0  # finished epochs
    best_epoch: int = 0
    best_ap: float = -1.0  # of the validation, percent
    best_auc: float = -1.0
    best_mrr: float = -1.0  # percent; -1 unless the epochs are judged by it
    waited: int = 0  # epochs since the best one
    history: list[dict[str, Any]] = field(default_factory=list)
    unsupported: list[str] = field(default_factory=list)  # factors of the intensity that were set aside

    @classmethod
    def of(cls, note: Mapping[str, Any]) -> TrainingProgress:
        """The progress in a checkpoint's note; earlier versions also stored whether the run was finished."""
        return cls(**{name: value for name, value in note["progressed"].items() if name != "finished"})

    def finish_epoch(self, *, auc: float, ap: float | None = None, mrr: float = -1.0, keep: str = "both") -> bool:
        """Count an epoch and return whether it is the best so far.

        As published, an epoch is better only if AP *and* AUC are at least as good as the kept ones; with `mean`,
        if their mean is; with `mrr`, if the MRR is. Without an AP the AUC alone decides.
        """
        ap = auc if ap is None else ap
        self.epoch += 1
        if keep == "mrr":
            better = mrr >= self.best_mrr
        elif keep == "mean":
            better = ap + auc >= self.best_ap + self.best_auc
        else:
            better = ap >= self.best_ap and auc >= self.best_auc
        if better:
            self.best_epoch, self.best_ap, self.best_auc, self.best_mrr = self.epoch, ap, auc, mrr
            self.waited = 0
        else:
            self.waited += 1
        return better

    def should_stop(self, *, epochs: int, patience: int, minutes: float = 0.0) -> bool:
        """Whether the epochs, the patience or the minutes (0: no limit) are used up."""
        spent = sum(entry["seconds_with_validation"] for entry in self.history)
        out_of_time = minutes > 0 and spent >= 60 * minutes
        return out_of_time or self.waited >= patience or self.epoch >= epochs
