"""Node classification: a small head on a model's embeddings, which stay as they are or learn along.

*Frozen*, as published: only the head learns. The published code walks through the stream once an epoch, the state
emptied at its start, and embeds every node again. A frozen model gives the same embeddings each time (evaluation
mode, one state through train, validation and test), so here they are computed once, in one walk, and the head
learns from what was stored: the same mathematics, a hundred times less work.

*End to end*: model and head learn together from the labels, one walk an epoch, from an empty state.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from dsrd.classify.task import PARTS, NodeTask
from dsrd.errors import DsrdError
from dsrd.evaluate.metrics import roc_auc
from dsrd.evaluate.protocol import Protocol, aligned
from dsrd.evaluate.scoring import Progress, silent
from dsrd.events import Events
from dsrd.history.past import Past
from dsrd.models import Snapshot, TemporalModel
from dsrd.nn.distinct import distinct

Probabilities = NDArray[np.float32]


@dataclass(frozen=True, kw_only=True)
class HeadConfig:
    """The published head and how it is trained."""

    hidden: tuple[int, int] = (80, 10)  # widths of its two hidden layers
    dropout: float = 0.1
    lr: float = 1e-4  # learning rate of Adam
    batch_size: int = 200  # questions per step
    epochs: int = 100  # at most so many
    patience: int = 20  # stop after so many epochs without a better validation

    def __post_init__(self) -> None:
        for name in ("batch_size", "epochs", "patience"):
            if getattr(self, name) < 1:
                raise DsrdError(f"head.{name}={getattr(self, name)}: give 1 or more")
        if len(self.hidden) != 2 or min(self.hidden) < 1:
            raise DsrdError(
                f"head.hidden={','.join(map(str, self.hidden))}: give two widths of 1 or more, as 80,10"
            )
        if not 0 < self.lr < math.inf:
            raise DsrdError(f"head.lr={self.lr}: give a number above 0")
        if not 0 <= self.dropout < 1:
            raise DsrdError(f"head.dropout={self.dropout}: give 0 to below 1")


class NodeHead(nn.Module):
    """Two hidden layers from an embedding to the classes' logits.

    With `normalised` embeddings come to one scale first: that of a model that learns along moves, and a jump of it
    can silence the narrow layer for good.
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
    """A trained head: probabilities by part, and how its training went."""

    head: NodeHead
    scores: Mapping[str, Probabilities]  # [n, outputs] of the questions of val and test
    val_auc: list[float]  # by epoch
    best_epoch: int
    state: Snapshot | None = None  # of a model that learned along, after the test events

    @property
    def dim(self) -> int:
        """Of the embeddings."""
        return self.head.dim

    @property
    def epochs(self) -> int:
        return len(self.val_auc)


@dataclass(frozen=True)
class Walk:
    """A model taken through the stream: asked before, or right after, it observes what brought the question up."""

    model: TemporalModel
    task: NodeTask
    past: Past  # over all events: it answers with what came before each question
    rules: Protocol
    batch_size: int

    def __call__(self, part: str, lags: bool = False) -> Iterator[tuple[slice, Past]]:
        """Batches of a part's questions and what may be looked at; the state moves on between them.

        With `lags`, state may miss the events just before a question: nothing leaks, and a model whose state
        cannot be brought forward need not go through a continuous stream event by event.
        """
        model, start = self.model, self.task.rows[part].start
        events = self.task.dataset.events[self.task.rows[part]]
        exact = model.exact or model.stateless  # knows everything before a question, observed or not
        same_time = self.task.visible == "same-time"
        for piece in self._pieces(events, exact, lags):
            now = self.past.during(events[piece])
            if same_time and not exact:
                self._observe(events[piece])  # one timestamp: its own events may be known
                now = self.past
            asked = self.task.between(start + piece.start, start + piece.stop)
            for first in range(asked.start, asked.stop, self.batch_size):
                yield slice(first, min(first + self.batch_size, asked.stop)), now
            if exact or not same_time:
                self._observe(events[piece])

    def _pieces(self, events: Events, exact: bool, lags: bool) -> Iterator[slice]:
        if self.task.visible == "same-time":
            return aligned(events, self.batch_size if exact else 1)
        rules = self.rules.lagging() if lags else self.rules
        return rules.flushes(events, self.batch_size, exact)

    def _observe(self, events: Events) -> None:
        self.model.observe(events.to(self.model.device), self.past)
        self.model.state.detach_()

    def embedded(self, questions: slice, past: Past) -> Tensor:
        """What the model makes of each node asked about.  # [B, dim]"""
        node, time = (column[questions].to(self.model.device) for column in (self.task.node, self.task.time))
        node, time, where = distinct(node, time)  # one source may act several times at once
        return self.model.embed(node, time, past)[where].float()

    @torch.no_grad()
    def width(self) -> int:
        """Of the embeddings; a model without any says so here."""
        return self.embedded(slice(0, 1), self.past).shape[1]


def embeddings(steps: Walk, progress: Progress = silent) -> Tensor:
    """What the frozen model makes of each question, in one walk from an empty state.  # [n, dim]

    The model's state is, before and after, that right after training.
    """
    trained = steps.model.state.snapshot()
    steps.model.state.reset()
    found = embedded_on_the_way(steps, PARTS, progress)
    steps.model.state.restore(trained)
    return found


@torch.no_grad()
def embedded_on_the_way(steps: Walk, parts: Sequence[str], progress: Progress = silent) -> Tensor:
    """What the model makes of each question of these parts; its state moves on from where it is.  # [n, dim]"""
    steps.model.eval()
    stored = [torch.empty(0, 0)]
    for part in parts:
        for asked, past in steps(part):
            stored.append(steps.embedded(asked, past).cpu())
            progress("embedding", asked.stop, len(steps.task.node))
    return torch.cat(stored[1:] or stored)


def fit_head(
    x: Tensor, task: NodeTask, config: HeadConfig = HeadConfig(), seed: int = 0, progress: Progress = silent
) -> TrainedHead:
    """Train the head on stored embeddings; the weights with the best validation ROC-AUC are kept.

    Batches come in time order, as published: nothing is shuffled.
    """
    torch.manual_seed(seed)
    head = NodeHead(x.shape[1], task.outputs, config)
    optimizer = torch.optim.Adam(head.parameters(), lr=config.lr)
    known = task.questions("train")

    def learn() -> None:
        head.train()
        for first in range(0, known.stop, config.batch_size):
            batch = slice(first, min(first + config.batch_size, known.stop))
            _step(optimizer, head(x[batch]), task.target[batch])

    def judge(part: str) -> Probabilities:
        head.eval()
        return probabilities(head(x[task.questions(part)]))

    val_auc, best_epoch = _learned(head, learn, lambda: judge("val"), task, config, progress)
    return TrainedHead(head, {part: judge(part) for part in ("val", "test")}, val_auc, best_epoch)


def fit_end_to_end(
    steps: Walk, config: HeadConfig = HeadConfig(), seed: int = 0, progress: Progress = silent
) -> TrainedHead:
    """Train model and head together; both are left with the weights of the best validation ROC-AUC.

    Each epoch empties the state and walks through the training events; validation goes on from there, as do the
    figures in the end, from the state that the best epoch left.
    """
    torch.manual_seed(seed)
    model, task = steps.model, steps.task
    head = NodeHead(steps.width(), task.outputs, config, normalised=True).to(model.device)
    both = nn.ModuleList([model, head])
    optimizer = torch.optim.Adam([p for p in both.parameters() if p.requires_grad], lr=config.lr)
    trained: Snapshot = {}
    best: Snapshot = {}
    draws = count()  # of neighbours chosen at random: anew for every batch, as in `train_epoch`

    def learn() -> None:
        nonlocal trained
        both.train()
        model.state.reset()
        for asked, past in steps("train", lags=True):
            embedded = steps.embedded(asked, past.redrawn(next(draws)))
            _step(optimizer, head(embedded), task.target[asked].to(model.device))
            progress("training end to end", asked.stop, task.questions("train").stop)
        trained = model.state.snapshot()

    @torch.no_grad()
    def judge(part: str, lags: bool = False) -> Probabilities:
        both.eval()
        return np.concatenate(
            [probabilities(head(steps.embedded(asked, past))) for asked, past in steps(part, lags)]
        )

    def keep() -> None:
        nonlocal best
        best = trained

    val_auc, best_epoch = _learned(both, learn, lambda: judge("val", lags=True), task, config, progress, keep)
    model.state.restore(best)
    scores = {part: judge(part) for part in ("val", "test")}
    end = model.state.snapshot()
    model.state.restore(best)
    return TrainedHead(head, scores, val_auc, best_epoch, end)


def _learned(
    net: nn.Module,
    learn: Callable[[], None],
    judge: Callable[[], Probabilities],
    task: NodeTask,
    config: HeadConfig,
    progress: Progress,
    keep: Callable[[], None] = lambda: None,
) -> tuple[list[float], int]:
    """Epochs until none is better any more; the best weights are taken up, `keep` is called when found."""
    held = task.targets("val")
    kept, val_auc, best_epoch = copy.deepcopy(net.state_dict()), list[float](), 0
    while len(val_auc) < config.epochs and len(val_auc) - best_epoch < config.patience:
        learn()
        auc = mean_auc(held, judge())
        if math.isnan(auc):
            raise DsrdError(
                "the head's scores are not numbers: the model's embeddings are not finite; train it again with a "
                "lower train.lr, or classify with a lower head.lr"
            )
        val_auc.append(auc)
        if not best_epoch or auc >= val_auc[best_epoch - 1]:
            kept, best_epoch = copy.deepcopy(net.state_dict()), len(val_auc)
            keep()
        progress("training the head", len(val_auc), config.epochs)
    net.load_state_dict(kept)
    return val_auc, best_epoch


def _step(optimizer: torch.optim.Optimizer, logits: Tensor, target: Tensor) -> None:
    optimizer.zero_grad()
    if logits.shape[1] == 1:
        loss = binary_cross_entropy_with_logits(logits.squeeze(1), target.float())
    else:
        loss = cross_entropy(logits, target)
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()


def probabilities(logits: Tensor) -> Probabilities:
    """Of the positive class, or of every class if there are more than two.  # [n, outputs] -> [n, outputs]"""
    found: Tensor = torch.sigmoid(logits) if logits.shape[1] == 1 else torch.softmax(logits, dim=1)
    return found.detach().cpu().numpy()


def mean_auc(target: NDArray[np.int64], score: Probabilities) -> float:
    """ROC-AUC of the positive class, or the mean over classes, each against the rest; absent ones left out.

    >>> round(mean_auc(np.array([0, 2, 2]), np.array([[0.8, 0.1, 0.1], [0.3, 0.1, 0.6], [0.9, 0.1, 0.0]])), 3)
    0.5
    """
    if np.isnan(score).any():
        return math.nan
    if score.shape[1] == 1:
        return roc_auc(target == 1, score[:, 0])
    return float(np.mean([roc_auc(target == number, score[:, number]) for number in np.unique(target)]))
