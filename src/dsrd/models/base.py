"""The contract of a model: `score` reads, `observe` writes, and nothing else touches state."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from dsrd.errors import DsrdError, unknown
from dsrd.events import NULL, Events, Query
from dsrd.history.past import Past
from dsrd.models.card import ModelCard
from dsrd.negatives.sampling import TrainingNegatives
from dsrd.nn.distinct import distinct
from dsrd.nn.linear import Merge
from dsrd.state import State


@dataclass(frozen=True, kw_only=True)
class GraphSpec:
    """The sizes a model is built for: enough to rebuild it from a checkpoint without the data."""

    num_nodes: int = 1  # nodes expected; the state grows beyond it where more arrive
    node_dim: int = 0
    edge_dim: int = 0
    num_events: int = 0  # training events, by which a model may choose its size
    whole_moments: bool = False  # all events of a timestamp are observed in one batch, as under `strict`


@dataclass(frozen=True)
class Questions:
    """What training asks a head about a batch: which of these pairs are events? A share can be asked alone.

    The losses of all shares add up to the loss of the whole, and so do their gradients.

    >>> batch = Events.from_numpy([1, 2], [3, 4], [0.0, 1.0])
    >>> asked = Questions.of(batch.query(), batch.query())
    >>> asked.share(0, 2).query.src.tolist(), asked.share(0, 2).weight
    ([1, 1], 0.5)
    """

    query: Query  # [Q] the events first, then one kind of negatives after the other
    sizes: tuple[int, ...]  # of the events and of each kind of negatives
    head: str = ""
    noise: Tensor | None = None  # [Q] log intensity of the noise among these pairs, subtracted from logits
    weight: float = 1.0  # of the mean loss of these pairs in the loss of the batch

    @classmethod
    def of(cls, events: Query, *negatives: Query, head: str = "", noise: Tensor | None = None) -> Questions:
        """Questions about events and negatives of any number; `noise` is in that order."""
        parts = (events, *negatives)
        return cls(Query.cat(*parts), tuple(len(part) for part in parts), head, noise)

    def share(self, rank: int, count: int) -> Questions:
        """The part of `count` parts that is number `rank`, counted from 0.

        Every kind of pairs is cut in proportion, so that an event stays with its negatives, which share its source
        and time. Fewer events than parts are not cut: each part then has all of them, at a lower weight.
        """
        if self.sizes[0] < count:
            return replace(self, weight=self.weight / count)
        rows, sizes, start = list[Tensor](), list[int](), 0
        for size in self.sizes:
            first, stop = size * rank // count, size * (rank + 1) // count
            rows.append(torch.arange(start + first, start + stop))
            sizes.append(stop - first)
            start += size
        row = torch.cat(rows)
        noise = None if self.noise is None else self.noise[row]
        weight = self.weight * len(row) / len(self.query)
        return Questions(self.query[row], tuple(sizes), self.head, noise, weight)


MANY_AT_ONCE = 2_000  # pairs that `score_many` scores in one call: more do not fit the cache
ACTIVITY = "activity"
"""The name under which questions ask for `activity`, which is no head: it does not read the target."""


class TemporalModel(nn.Module, ABC):
    """A model of an event stream. Subclasses are final, one per file, with their settings in `Config`.

    `exact`: `score` also reads the events of `past.unobserved` before each query, so that scores do not depend on
    how the stream is cut into batches. A model without state is exact anyway.
    """

    Config: ClassVar[type[Any]]
    card: ClassVar[ModelCard]
    heads: tuple[str, ...] = ("link",)  # questions `score` can answer, the default one first
    exact: ClassVar[bool] = False

    def __init__(self, config: Any, graph: GraphSpec) -> None:
        super().__init__()
        self.config = config
        self.graph = graph
        self.any_clock = self.card.any_clock  # a model may set its own if that depends on its settings
        self.state = State(graph.num_nodes)

    def calibrate(self, train: Events) -> None:
        """Measure constants of the training stream, once, and keep them in buffers."""

    def for_negatives(self, strategy: str, protocol: str) -> TemporalModel:
        """The model to score these negatives with: itself, unless published results use another variant there."""
        return self

    def head_called(self, head: str | None) -> str:
        """The head of that name, the first head if none is named; an unknown name is an error."""
        if head and head not in self.heads:
            raise unknown("head", head, self.heads)
        return head or self.heads[0]

    def asks(self, batch: Events, negatives: TrainingNegatives) -> tuple[Questions, ...]:
        """What training asks about a batch; as published, one random negative per event.

        Everything random about it comes from `negatives`: processes that train together then ask the same.
        """
        return (Questions.of(batch.query(), negatives.sample(batch)),)

    def loss_of(self, questions: Iterable[Questions], past: Past) -> Tensor:
        """The loss of questions, or of a share of them."""
        return torch.stack([self._loss_of(asked, past) for asked in questions]).sum()

    def _loss_of(self, asked: Questions, past: Past) -> Tensor:
        query = asked.query.to(self.device)
        about_source = asked.head == ACTIVITY
        logits = self.activity(query, past) if about_source else self.score(query, past, asked.head)
        if asked.noise is not None:
            logits = logits - asked.noise.to(self.device)
        return link_loss(logits, asked.sizes[0]) * asked.weight

    def loss(self, batch: Events, negatives: TrainingNegatives, past: Past) -> Tensor:
        """The training loss of a batch. To train something else, write `asks`."""
        return self.loss_of(self.asks(batch, negatives), past)

    @abstractmethod
    def score(self, query: Query, past: Past, head: str = "") -> Tensor:
        """How likely each pair is to interact, as logits. Reads state and past, changes neither.  # [Q]

        `head` is one of `heads`, empty for the first; a model with one head ignores it.
        """

    def score_many(self, source: int, targets: Tensor, time: float, past: Past, head: str = "") -> Tensor:
        """`score` of one source with many targets at one time, equal to it within rounding; without gradients.

        # [C] -> [C], in main memory
        """
        scores = [torch.zeros(0)]
        with torch.no_grad():
            for start in range(0, len(targets), MANY_AT_ONCE):
                piece = targets[start : start + MANY_AT_ONCE]
                ends = torch.full_like(piece, source), piece, torch.full(piece.shape, time, dtype=torch.float64)
                scores.append(self.score(Query(*ends).to(self.device), past, head).float().cpu())
        return torch.cat(scores)

    @property
    def has_first_features(self) -> bool:
        """Whether a cheap first score can find the best of many targets."""
        return False

    def first_features(
        self, source: int, targets: Sequence[Tensor], time: float, past: Past
    ) -> tuple[Tensor, Iterator[Tensor]]:
        """A few cheap numbers from which `score` can be guessed: about the source, about each piece of targets.

        # [c], ... -> [S], ([c, F], ...)
        """
        raise DsrdError(f"{type(self).__name__} has no cheap first score; rank all targets")

    @property
    def has_intensity(self) -> bool:
        """Whether the head `pair` is a log probability: log(S D p(source, target | an event happens at t)).

        S and D are the numbers of sources and targets in training (`num_sources`, `num_targets`). It is the sum of
        two factors that can be read on their own: `activity`, log(S p(source | t)), and the head `partner`,
        log(D p(target | source, t)). Each is a log ratio against a uniform choice, so its sigmoid is the
        probability of being true rather than drawn uniformly.
        """
        return "pair" in self.heads

    def activity(self, query: Query, past: Past) -> Tensor:
        """log(S p(source | an event happens at t)) of each query's source; its target is not read.  # [Q]"""
        raise DsrdError(f"{type(self).__name__} has no intensity; ask a model that has, such as the default one")

    def answer_uniformly(self, factor: str) -> None:
        """Change the weights so that `partner` or `activity` is 0 for all candidates: nothing is known."""
        raise DsrdError(f"{type(self).__name__} has no intensity, so no factor {factor} to set aside")

    def observe(self, events: Events, past: Past) -> None:
        """Update the state with events that happened: the only place where state may change."""

    def embed(self, node: Tensor, time: Tensor, past: Past) -> Tensor:
        """A vector for each node at each time; changes nothing.  # [n] -> [n, d]"""
        name = type(self).__module__.rpartition(".")[2]
        raise DsrdError(f"{name} has no embeddings; ask a model that learns vectors of nodes")

    def embed_event(self, query: Query, past: Past) -> Tensor:
        """A vector for the source of each event; a model of pairs knows the target too.  # [n] -> [n, d]"""
        return self.embed(query.src, query.time, past)

    @property
    def links_read(self) -> int:
        """Interactions read for an endpoint of a query at most: the memory of a step grows with them."""
        return int(getattr(self.config, "neighbors", 0))

    def decay_parameters(self) -> list[nn.Parameter]:
        """Parameters that are learned decays; `train.decay_lr` is their learning rate."""
        return []

    def learned(self) -> dict[str, Any]:
        """Learned constants worth reading, as nested values fit for JSON; empty if there are none."""
        return {}

    @property
    def device(self) -> torch.device:
        """The device of the weights, where queries go too; the CPU for a model without weights."""
        return next((p.device for p in self.parameters()), torch.device("cpu"))

    @property
    def stateless(self) -> bool:
        """Whether the model keeps nothing of the events it observes."""
        return len(self.state) == 0

    @property
    def state_from_events(self) -> bool:
        """Whether the state depends on the observed events alone, not on batches or weights.

        Such a state can be computed again bit for bit instead of being kept.
        """
        return self.stateless

    @property
    def num_parameters(self) -> int:
        """How many numbers training may change."""
        return sum(p.numel() for p in self.parameters() if p.requires_grad)


def link_loss(logits: Tensor, num_events: int, weight: Tensor | None = None) -> Tensor:
    """Binary cross-entropy of logits; the first `num_events` are events that happened, the others negatives.

    The mean, or with weights the weighted sum.  # [Q], [Q]
    """
    label = torch.zeros_like(logits)
    label[:num_events] = 1
    if weight is None:
        return binary_cross_entropy_with_logits(logits, label)
    return (binary_cross_entropy_with_logits(logits, label, reduction="none") * weight).sum()


class PairEncoder(TemporalModel):
    """A model whose embedding of an endpoint depends on the other endpoint too."""

    def __init__(self, config: Any, graph: GraphSpec, out_dim: int) -> None:
        super().__init__(config, graph)
        self.head = Merge([out_dim, out_dim], out_dim, 1)

    @abstractmethod
    def ends(self, query: Query, past: Past) -> tuple[Tensor, Tensor]:
        """Embeddings of both endpoints of each pair.  # [Q] -> [Q, out_dim] twice"""

    def embed(self, node: Tensor, time: Tensor, past: Past) -> Tensor:
        """The node in a pair with the null node, which shares nothing with it."""
        return self.ends(with_null_partner(node, time), past)[0]

    def embed_event(self, query: Query, past: Past) -> Tensor:
        return self.ends(query, past)[0]

    def score(self, query: Query, past: Past, head: str = "") -> Tensor:
        logits: Tensor = self.head(*self.ends(query, past))  # [Q, 1]
        return logits.squeeze(-1)


class NodeEncoder(PairEncoder):
    """A model that embeds each endpoint by itself: equal (node, time) pairs of a call are embedded once."""

    @abstractmethod
    def encode(self, node: Tensor, time: Tensor, past: Past) -> Tensor:
        """An embedding of each node at each time.  # [Q] -> [Q, out_dim]"""

    def embed(self, node: Tensor, time: Tensor, past: Past) -> Tensor:
        """A vector for each node at each time, without a partner.  # [n] -> [n, out_dim]"""
        return self.encode(node, time, past)

    def embed_event(self, query: Query, past: Past) -> Tensor:
        node, time, where = distinct(query.src, query.time)  # a source may have several events at the same time
        return self.embed(node, time, past)[where]

    def ends(self, query: Query, past: Past) -> tuple[Tensor, Tensor]:
        """Embeddings of both endpoints of each pair.  # [Q] -> [Q, out_dim] twice"""
        node, time, where = distinct(torch.cat([query.src, query.dst]), query.time.repeat(2))
        src, dst = self.encode(node, time, past)[where].chunk(2)
        return src, dst


def with_null_partner(node: Tensor, time: Tensor) -> Query:
    """Pairs of each node with the null node, which takes part in no event."""
    return Query(node, torch.full_like(node, NULL), time)
