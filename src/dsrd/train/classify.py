"""Node classification with a frozen backbone, as published: only a small head learns.

The label of an interaction belongs to its source at that time. The published code walks through the stream once an
epoch, the state emptied at its start, and embeds every source again. A frozen backbone gives the same embeddings
each time (evaluation mode, one state through train, validation and test), so here they are computed once, in one
walk, and the head learns from what was stored: the same mathematics, a hundred times less work.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from dsrd.data.dataset import Dataset, digest_of
from dsrd.errors import DsrdError
from dsrd.evaluate.evaluator import Progress, silent
from dsrd.evaluate.metrics import roc_auc
from dsrd.evaluate.protocol import Protocol
from dsrd.events import Events, as_tensor
from dsrd.graph.past import Past
from dsrd.models import TemporalModel
from dsrd.models.base import distinct

PARTS = ("train", "val", "test")
CUTS = (0.7, 0.85)  # quantiles of time at which training and validation end
MOST_CLASSES = 100
UNLABELLED = -1


@dataclass(frozen=True, kw_only=True)
class HeadConfig:
    """The published head and how it is trained."""

    hidden: tuple[int, int] = (80, 10)
    dropout: float = 0.1
    lr: float = 1e-4
    batch_size: int = 200
    epochs: int = 100
    patience: int = 20


@dataclass(frozen=True)
class NodeTask:
    """Labelled events, cut in time; no node is withheld."""

    dataset: Dataset
    rows: Mapping[str, slice]  # of the stream, by part
    target: Tensor  # [E] int64: class number, UNLABELLED where there is none
    names: list[str]  # of the classes, as in the data

    @classmethod
    def of(cls, dataset: Dataset) -> NodeTask:
        """Check the labels of a data set and cut it."""
        target, names = _classes(dataset)
        task = cls(dataset, cut(dataset.events.time.numpy(), dataset.name), target, names)
        for part in PARTS:
            found = np.unique(task.target[task.labelled(part)].numpy())
            if len(found) < 2:
                has = f"only the label {names[int(found[0])]}" if len(found) else "no label"
                raise DsrdError(
                    f"{dataset.name}: the {part} events have {has}; a figure needs two classes in each of train, "
                    "val and test: give a longer stream, or one whose labels occur throughout"
                )
        return task

    def labelled(self, part: str) -> Tensor:
        """Numbers of the part's labelled events, in time order."""
        rows = self.rows[part]
        there: Tensor = torch.nonzero(self.target[rows] != UNLABELLED).squeeze(1) + rows.start
        return there

    def with_past(self, part: str, past: Past) -> float:
        """Share of the part's labelled events whose source had an event strictly before; others look alike."""
        events = self.dataset.events[self.labelled(part)]
        return float((past.degree(events.src, events.time) > 0).double().mean())

    @property
    def outputs(self) -> int:
        """Logits of the head: one says it all for two classes."""
        return 1 if len(self.names) == 2 else len(self.names)

    @property
    def digest(self) -> str:
        return digest_of(self.target.numpy(), np.array([self.rows[part].stop for part in PARTS]))


def _classes(dataset: Dataset) -> tuple[Tensor, list[str]]:
    """Class numbers by event, in the order of the labels; with two of them the larger one is the positive."""
    if dataset.label is None:
        raise DsrdError(
            f"{dataset.name}: has no labels; name their column when training: `dsrd train --label COLUMN`"
        )
    label = dataset.label.numpy()
    there = ~np.isnan(label)
    values, number = np.unique(label[there], return_inverse=True)
    if not len(values):
        raise DsrdError(f"{dataset.name}: no event has a label; give a stream with labels")
    if len(values) == 1:
        raise DsrdError(
            f"{dataset.name}: every label is {values[0]:g}, nothing to tell apart; give a stream with two classes"
        )
    if len(values) > MOST_CLASSES or (values != np.round(values)).any():
        raise DsrdError(
            f"{dataset.name}: labels are not classes ({len(values)} values from {values[0]:g} to {values[-1]:g}); "
            f"give whole numbers, at most {MOST_CLASSES} different ones"
        )
    target = np.full(len(label), UNLABELLED, dtype=np.int64)
    target[there] = number
    return as_tensor(target), [f"{value:g}" for value in values]


def cut(time: NDArray[np.float64], name: str = "split") -> dict[str, slice]:
    """Rows of train, validation and test by the published quantiles; equal timestamps stay on the earlier side.

    A stream with few distinct times can have both quantiles at one of them. It is then cut between the timestamps
    that come nearest to the published shares and leave no part empty.

    >>> cut(np.array([0.0, 1.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 3.0]))
    {'train': slice(0, 2, None), 'val': slice(2, 8, None), 'test': slice(8, 9, None)}
    """
    events = len(time)
    borders = np.flatnonzero(np.diff(time)) + 1  # rows at which another time begins
    if len(borders) < 2:
        raise DsrdError(
            f"{name}: {len(borders) + 1 if events else 0} distinct times cannot be cut into train, val and test; "
            "give a stream with at least 3, better many more"
        )
    first, second = np.searchsorted(time, np.quantile(time, CUTS), side="right").tolist()
    if not 0 < first < second < events:
        wanted = [share * events for share in CUTS]
        nearest = int(np.abs(borders - wanted[1]).argmin())
        begin = np.arange(len(borders) - 1)
        end = np.maximum(nearest, begin + 1)  # for each first border the best second one after it
        best = int((np.abs(borders[begin] - wanted[0]) + np.abs(borders[end] - wanted[1])).argmin())
        first, second = int(borders[begin[best]]), int(borders[end[best]])
    return {"train": slice(0, first), "val": slice(first, second), "test": slice(second, events)}


@torch.no_grad()
def embeddings(
    model: TemporalModel,
    task: NodeTask,
    past: Past,
    rules: Protocol,
    batch_size: int = 200,
    progress: Progress = silent,
) -> Tensor:
    """What the frozen model makes of each event's source right before the event, in one walk.  # [E, dim]

    `past` is the full one, also for training events: it answers with what came before each of them. The model's
    state is, before and after, that right after training.
    """
    past, trained = past.to(model.device), model.state.snapshot()
    model.eval()
    model.state.reset()
    stored: list[Tensor] = []
    done, total = 0, len(task.dataset.events)
    for part in PARTS:
        events = task.dataset.events[task.rows[part]]
        for flush in rules.flushes(events, batch_size, exact=model.exact or model.stateless):
            now = past.during(events[flush])
            stored += [
                _embedded(model, batch.to(model.device), now) for batch in events[flush].batches(batch_size)
            ]
            model.observe(events[flush].to(model.device), past)
            progress("embedding", done + flush.stop, total)
        done += len(events)
    model.state.restore(trained)
    return torch.cat(stored)


def _embedded(model: TemporalModel, batch: Events, past: Past) -> Tensor:
    node, time, where = distinct(batch.src, batch.time)  # a source may act several times at once
    return model.embed(node, time, past)[where].float().cpu()


class NodeHead(nn.Module):
    """Two hidden layers from an embedding to the classes' logits."""

    def __init__(self, dim: int, outputs: int, config: HeadConfig) -> None:
        super().__init__()
        wide, narrow = config.hidden
        self.layers = nn.Sequential(
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
class Fitted:
    """A trained head: probabilities by part, and how its training went."""

    head: NodeHead
    scores: Mapping[str, NDArray[np.float32]]  # [n, outputs] of the part's labelled events
    epochs: int
    best_epoch: int


def fit_head(
    x: Tensor, task: NodeTask, config: HeadConfig = HeadConfig(), seed: int = 0, progress: Progress = silent
) -> Fitted:
    """Train the head on stored embeddings; the weights with the best validation ROC-AUC are kept."""
    torch.manual_seed(seed)
    head = NodeHead(x.shape[1], task.outputs, config)
    optimizer = torch.optim.Adam(head.parameters(), lr=config.lr)
    rows = {part: task.labelled(part) for part in PARTS}
    held = task.target[rows["val"]].numpy()
    kept, best, best_epoch, epoch = copy.deepcopy(head.state_dict()), -math.inf, 0, 0
    while epoch < config.epochs and epoch - best_epoch < config.patience:
        epoch += 1
        _head_epoch(head, x, task, rows["train"], optimizer, config.batch_size)
        auc = mean_auc(held, _probabilities(head, x[rows["val"]]))
        if math.isnan(auc):
            raise DsrdError(
                "the head's scores are not numbers: the backbone's embeddings are not finite; train it again "
                "with a lower train.lr"
            )
        if auc >= best:
            kept, best, best_epoch = copy.deepcopy(head.state_dict()), auc, epoch
        progress("training the head", epoch, config.epochs)
    head.load_state_dict(kept)
    scores = {part: _probabilities(head, x[rows[part]]) for part in PARTS}
    return Fitted(head, scores, epoch, best_epoch)


def _head_epoch(
    head: NodeHead, x: Tensor, task: NodeTask, rows: Tensor, optimizer: torch.optim.Optimizer, batch_size: int
) -> None:
    """Batches in time order, as published: nothing is shuffled."""
    head.train()
    for batch in torch.split(rows, batch_size):
        optimizer.zero_grad()
        logits, target = head(x[batch]), task.target[batch]
        if task.outputs == 1:
            loss = binary_cross_entropy_with_logits(logits.squeeze(1), target.float())
        else:
            loss = cross_entropy(logits, target)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()


@torch.no_grad()
def _probabilities(head: NodeHead, x: Tensor) -> NDArray[np.float32]:
    head.eval()
    logits = head(x)
    found: Tensor = torch.sigmoid(logits) if logits.shape[1] == 1 else torch.softmax(logits, dim=1)
    return found.numpy()


def mean_auc(target: NDArray[np.int64], score: NDArray[np.float32]) -> float:
    """ROC-AUC of the positive class, or the mean over classes, each against the rest; absent ones left out.

    >>> round(mean_auc(np.array([0, 2, 2]), np.array([[0.8, 0.1, 0.1], [0.3, 0.1, 0.6], [0.9, 0.1, 0.0]])), 3)
    0.5
    """
    if np.isnan(score).any():
        return math.nan
    if score.shape[1] == 1:
        return roc_auc(target == 1, score[:, 0])
    return float(np.mean([roc_auc(target == number, score[:, number]) for number in np.unique(target)]))
