"""A trained classification head as a file in the folder of its run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from torch import Tensor

from dsrd.classify.head import HeadConfig, NodeHead
from dsrd.classify.task import Asks, Visible
from dsrd.data.dataset import digest_of_tensors
from dsrd.errors import DsrdError
from dsrd.models import Snapshot
from dsrd.train import checkpoint
from dsrd.train.build import reason

FILE = "head.safetensors"

Training = Literal["frozen", "end to end", "from scratch"]
"""What is trained: the head alone, the head and the model, or both from new weights."""


@dataclass(frozen=True, kw_only=True)
class SavedHead:
    """A trained head, the question it answers, and everything needed to use it again."""

    head: NodeHead
    classes: list[str]  # as in the data; the second of two is the positive class
    asks: Asks
    visible: Visible
    training: Training
    seed: int
    data: str  # digest of the training data of the run
    run_weights: str  # digest of the run's weights: the head works with these only
    weights: Mapping[str, Tensor] = field(
        default_factory=dict
    )  # of a model that was trained too; empty: the run's weights
    state: Snapshot = field(default_factory=dict)  # after the training data; empty if it follows from events

    @property
    def digest(self) -> str:
        """A digest of the weights of the head."""
        return digest_of_tensors(*(value for _, value in sorted(self.head.state_dict().items())))

    def save(self, folder: Path) -> Path:
        """Save the head to the folder of a run."""
        path = folder / FILE
        groups = {"head": self.head.state_dict(), "weights": self.weights, "state": self.state}
        checkpoint.save(path, groups, self._note())
        return path

    def _note(self) -> dict[str, Any]:
        return {
            "config": asdict(self.head.config),
            "dim": self.head.dim,
            "normalised": self.head.normalised,
            "classes": self.classes,
            "asks": self.asks,
            "visible": self.visible,
            "training": self.training,
            "seed": self.seed,
            "data": self.data,
            "run_weights": self.run_weights,
        }

    @classmethod
    def load(cls, folder: Path) -> SavedHead:
        """Load the head from the folder of a run."""
        path = folder / FILE
        if not path.exists():
            raise DsrdError(f"{folder}: has no head; classify it first")
        with _faults(path):
            groups, note = checkpoint.load(path)
            hidden = tuple(note["config"].pop("hidden"))
            config = HeadConfig(**note.pop("config"), hidden=hidden)
            dim, normalised, classes = note.pop("dim"), note.pop("normalised"), note["classes"]
            for name, kind in (("asks", Asks), ("visible", Visible), ("training", Training)):
                if note[name] not in get_args(kind):
                    raise ValueError(f"{name}: {note[name]}")
            head = NodeHead(dim, outputs(classes), config, normalised)
            head.load_state_dict(groups["head"])
            return cls(head=head.eval(), weights=groups.get("weights", {}), state=groups.get("state", {}), **note)


def outputs(classes: list[str]) -> int:
    """The number of logits: one for two classes, otherwise one per class."""
    return 1 if len(classes) == 2 else len(classes)


@contextmanager
def _faults(path: Path) -> Iterator[None]:
    """Turn errors about a damaged file into one that names it."""
    try:
        yield
    except (DsrdError, KeyError, TypeError, ValueError, RuntimeError, AttributeError) as error:
        cause = (
            error.__cause__ if isinstance(error, DsrdError) and isinstance(error.__cause__, Exception) else error
        )
        raise DsrdError(
            f"{path}: not a head, or a damaged one ({reason(cause)}); classify the run again"
        ) from error
