"""The classification head on a model's embeddings, and its training.

*Frozen*, as published: only the head is trained. The published code runs through the stream once per epoch, from
an empty state, and computes every embedding again. A frozen model gives the same embeddings each time (evaluation
mode, one state through train, validation and test). Here they are computed once and stored: the same mathematics
with a hundred times less work.

*End to end*: model and head are trained together on the labels, from an empty state in every epoch.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import count

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from dsrd.classify.embedder import NodeEmbedder
from dsrd.classify.task import NodeTask
from dsrd.errors import DsrdError
from dsrd.evaluate.metrics import roc_auc
from dsrd.models import Snapshot
from dsrd.ranges import AboveZero, Chance, Positive, checked
from dsrd.reporter import step
from dsrd.train.stopping import TrainingProgress

Probabilities = NDArray[np.float32]


@dataclass(frozen=True, kw_only=True)
class HeadConfig:
    """The published head and how it is trained."""

    hidden: tuple[int, int] = (80, 10)  # widths of its two hidden layers
    dropout: Chance = 0.1
    lr: AboveZero = 1e-4  # learning rate of Adam
    batch_size: Positive = 200  # questions per step
    epochs: Positive = 100  # maximum
    patience: Positive = 20  # stop after this many epochs without a better validation

    def __post_init__(self) -> None:
        checked(self, "head.")

    def check(self) -> None:
        """Two hidden layers of some width."""
        if len(self.hidden) != 2 or min(self.hidden) < 1:
            widths = ",".join(map(str, self.hidden))
            raise DsrdError(f"head.hidden={widths}: give two widths of 1 or more, as 80,10")


class NodeHead(nn.Module):
    """Two hidden layers from an embedding to the logits of the classes.

    `normalised` scales the embeddings first. The scale of a model that is trained too changes, and a jump can turn
    the narrow ReLU layer off for good.
    """

    def __init__(self, dim: int, outputs: int, config: HeadConfig, normalised: bool = False) -> None:
        super().__init__()
        self.dim, self.normalised, self.config = dim, normalised, config
        wide, narrow = config.hidden
        self.layers = nn.Sequential(
            nn.LayerNorm(dim, elementwise_affine=False) if normalised else nn.Identity(),
            nn.Linear(dim, wide),
            nn.ReLU(),
            nn.Dropout(config.dropout),
            nn.Linear(wide, narrow),
            nn.ReLU(),
            nn.Dropout(config.dropout),
            nn.Linear(narrow, outputs),
        )

    def forward(self, x: Tensor) -> Tensor:  # [B, dim] -> [B, outputs]
        logits: Tensor = self.layers(x)
        return logits


@dataclass(frozen=True)
class TrainedHead:
    """A trained head, its probabilities by part, and its training curve."""

    head: NodeHead
    scores: Mapping[str, Probabilities]  # [n, outputs] of the questions of val and test
    val_auc: list[float]  # by epoch
    best_epoch: int
    state: Snapshot | None = None  # of a model that was trained too, after the test events

    @property
    def dim(self) -> int:
        """The width of the embeddings."""
        return self.head.dim

    @property
    def epochs(self) -> int:
        return len(self.val_auc)


def fit_head(x: Tensor, task: NodeTask, config: HeadConfig = HeadConfig(), seed: int = 0) -> TrainedHead:
    """Train the head on stored embeddings; the weights with the best validation ROC-AUC are kept.

    Batches come in time order, as published: nothing is shuffled.
    """
    torch.manual_seed(seed)
    head = NodeHead(x.shape[1], task.outputs, config)
    optimizer = torch.optim.Adam(head.parameters(), lr=config.lr)
    end = task.questions("train").stop

    def learn() -> None:
        head.train()
        for first in range(0, end, config.batch_size):
            batch = slice(first, min(first + config.batch_size, end))
            _optimizer_step(optimizer, head(x[batch]), task.target[batch])

    def score(part: str) -> Probabilities:
        head.eval()
        return probabilities(head(x[task.questions(part)]))

    val_auc, best_epoch = _train(head, learn, lambda: score("val"), task, config)
    return TrainedHead(head, {part: score(part) for part in ("val", "test")}, val_auc, best_epoch)


def fit_end_to_end(embedder: NodeEmbedder, config: HeadConfig = HeadConfig(), seed: int = 0) -> TrainedHead:
    """Train model and head together; both keep the weights with the best validation ROC-AUC.

    Each epoch starts from an empty state and runs through the training events; validation continues from there.
    The final scores start from the state after the training events of the best epoch.
    """
    torch.manual_seed(seed)
    model, task = embedder.model, embedder.task
    head = NodeHead(embedder.dim(), task.outputs, config, normalised=True).to(model.device)
    both = nn.ModuleList([model, head])
    optimizer = torch.optim.Adam([p for p in both.parameters() if p.requires_grad], lr=config.lr)
    trained: Snapshot = {}
    best: Snapshot = {}
    draws = count()  # of randomly sampled neighbours: sampled again for every batch, as in `train_epoch`

    def learn() -> None:
        nonlocal trained
        both.train()
        model.state.reset()
        for questions, past in embedder.batches("train", lags=True):
            x = embedder.embed(questions, past.redrawn(next(draws)))
            _optimizer_step(optimizer, head(x), task.target[questions].to(model.device))
            step("training end to end", questions.stop, task.questions("train").stop)
        trained = model.state.snapshot()

    @torch.no_grad()
    def score(part: str, lags: bool = False) -> Probabilities:
        both.eval()
        batches = embedder.batches(part, lags)
        return np.concatenate([probabilities(head(embedder.embed(rows, past))) for rows, past in batches])

    def keep() -> None:
        nonlocal best
        best = trained

    val_auc, best_epoch = _train(both, learn, lambda: score("val", lags=True), task, config, keep)
    model.state.restore(best)
    scores = {part: score(part) for part in ("val", "test")}
    end = model.state.snapshot()
    model.state.restore(best)
    return TrainedHead(head, scores, val_auc, best_epoch, end)


def _train(
    net: nn.Module,
    learn: Callable[[], None],
    score: Callable[[], Probabilities],
    task: NodeTask,
    config: HeadConfig,
    keep: Callable[[], None] = lambda: None,
) -> tuple[list[float], int]:
    """Train with early stopping and load the best weights; `keep` is called at every better epoch.

    Returns the validation ROC-AUC by epoch, and the best epoch.
    """
    target, best_weights = task.targets("val"), copy.deepcopy(net.state_dict())
    val_auc, progress = list[float](), TrainingProgress()
    while not progress.should_stop(epochs=config.epochs, patience=config.patience):
        learn()
        auc = mean_auc(target, score())
        if math.isnan(auc):
            raise DsrdError(
                "the head's scores are not numbers: the model's embeddings are not finite; train it again with a "
                "lower train.lr, or classify with a lower head.lr"
            )
        val_auc.append(auc)
        if progress.finish_epoch(auc=auc):
            best_weights = copy.deepcopy(net.state_dict())
            keep()
        step("training the head", progress.epoch, config.epochs)
    net.load_state_dict(best_weights)
    return val_auc, progress.best_epoch


def _optimizer_step(optimizer: torch.optim.Optimizer, logits: Tensor, target: Tensor) -> None:
    optimizer.zero_grad()
    if logits.shape[1] == 1:
        loss = binary_cross_entropy_with_logits(logits.squeeze(1), target.float())
    else:
        loss = cross_entropy(logits, target)
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()


def probabilities(logits: Tensor) -> Probabilities:
    """Of the positive class, or of every class if there are more than two.  # [n, outputs] -> [n, outputs]"""
    probability: Tensor = torch.sigmoid(logits) if logits.shape[1] == 1 else torch.softmax(logits, dim=1)
    return probability.detach().cpu().numpy()


def mean_auc(target: NDArray[np.int64], score: Probabilities) -> float:
    """ROC-AUC of the positive class, or the mean over the classes that occur, each against the rest.

    >>> round(mean_auc(np.array([0, 2, 2]), np.array([[0.8, 0.1, 0.1], [0.3, 0.1, 0.6], [0.9, 0.1, 0.0]])), 3)
    0.5
    """
    if np.isnan(score).any():
        return math.nan
    if score.shape[1] == 1:
        return roc_auc(target == 1, score[:, 0])
    return float(np.mean([roc_auc(target == number, score[:, number]) for number in np.unique(target)]))
