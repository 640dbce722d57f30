"""What a model is: `score` reads, `observe` writes, and nothing else touches state."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from dsrd.errors import DsrdError, unknown
from dsrd.events import NULL, Events, Query
from dsrd.history.past import Past
from dsrd.negatives.sampling import TrainingNegatives
from dsrd.nn.heads import MergeHead
from dsrd.state import State


@dataclass(frozen=True, kw_only=True)
class GraphSpec:
    """What a model is built for: enough to rebuild it from a checkpoint without the data."""

    num_nodes: int = 1  # capacity to start with; state grows beyond it
    node_dim: int = 0
    edge_dim: int = 0
    whole_moments: bool = False  # events of one timestamp reach its state all at once, as under `strict`


@dataclass(frozen=True)
class Preset:
    """Settings that belong together, under a name: `--preset NAME`."""

    about: str  # a few words
    model: Mapping[str, Any]  # settings of the model, over its defaults
    recipe: Mapping[str, Any]  # how it is trained, over the published defaults


def by_dataset(setting: str, groups: Mapping[Any, str]) -> dict[str, dict[str, Any]]:
    """Published settings that come in groups: value -> names of the data sets that have it.

    >>> by_dataset("dropout", {0.1: "uci enron", 0.3: "lastfm"})["lastfm"]
    {'dropout': 0.3}
    """
    return {name: {setting: value} for value, names in groups.items() for name in names.split()}


class TemporalModel(nn.Module, ABC):
    """A model of an event stream. Subclasses are final, one per file, and say what is in their `Config`.

    `exact`: `score` folds the events of `past.unobserved` before each query into what it reads, so that scores
    do not depend on how the stream is cut into batches. Models without state are exact anyway.
    """

    Config: ClassVar[type[Any]]
    paper: ClassVar[str]  # who published it, where
    reads: ClassVar[str]  # what a score looks at, for the table of models
    cost: ClassVar[str] = "not said"  # of one score, in a few words (k: `neighbors`)
    published: ClassVar[Mapping[str, Mapping[str, Any]]] = {}  # settings of the published rows, by data set
    small: ClassVar[Mapping[str, Any]] = {}  # settings that make a test quick
    skips: ClassVar[Mapping[str, str]] = {}  # conformance checks that cannot hold, each with its reason
    recipe: ClassVar[Mapping[str, Any]] = {}  # how it likes to be trained, over the published defaults
    presets: ClassVar[Mapping[str, Preset]] = {}  # further variants, by name
    heads: tuple[str, ...] = ("link",)  # questions `score` can answer, the default one first
    exact: ClassVar[bool] = False
    rule: ClassVar[bool] = False  # learns nothing; shown beside every result
    any_clock: bool = False  # scores do not depend on the unit of time

    def __init__(self, config: Any, graph: GraphSpec) -> None:
        super().__init__()
        self.config = config
        self.graph = graph
        self.state = State(graph.num_nodes)

    def calibrate(self, train: Events) -> None:
        """Measure once on the training stream what the model needs to know of it; kept in buffers."""

    def for_negatives(self, strategy: str, protocol: str) -> TemporalModel:
        """The model to ask under these negatives: itself, unless its published row differs by them."""
        return self

    def head_called(self, head: str | None) -> str:
        """The head of that name, the first one if none is named; a name nobody knows is an error."""
        if head and head not in self.heads:
            raise unknown("head", head, self.heads)
        return head or self.heads[0]

    def loss(self, batch: Events, negatives: TrainingNegatives, past: Past) -> Tensor:
        """What training lowers: the published recipe, one random negative per event."""
        query = Query.cat(batch.query(), negatives.sample(batch)).to(self.device)
        return told_apart(self.score(query, past), len(batch))

    @abstractmethod
    def score(self, query: Query, past: Past, head: str = "") -> Tensor:
        """How likely each pair is to interact: logits. Reads state and past, changes neither.  # [Q]

        `head` is one of `heads`, empty for the first: a model with one question ignores it.
        """

    def observe(self, events: Events, past: Past) -> None:
        """Take in events that happened; the only place where state may change."""

    def embed(self, node: Tensor, time: Tensor, past: Past) -> Tensor:
        """A vector for each node at each time; changes nothing.  # [n] -> [n, d]"""
        name = type(self).__module__.rpartition(".")[2]
        raise DsrdError(f"{name} has no embeddings; ask a model that learns vectors of nodes")

    def learned(self) -> dict[str, Any]:
        """Constants that training found and a person can read: nested, fit for JSON; empty if there are none."""
        return {}

    @property
    def device(self) -> torch.device:
        """Where the weights are, and so where queries are answered; main memory for a model without any."""
        return next((p.device for p in self.parameters()), torch.device("cpu"))

    @property
    def stateless(self) -> bool:
        return len(self.state) == 0

    @property
    def state_from_events(self) -> bool:
        """Whether the state follows from the events alone, however they were cut into batches and whatever the
        weights were: it can then be made again bit for bit instead of being kept."""
        return self.stateless

    @property
    def num_parameters(self) -> int:
        """Learned numbers: what the optimiser may change."""
        return sum(p.numel() for p in self.parameters() if p.requires_grad)


def at_least(config: object, **least: int) -> None:
    """Refuse a model's settings that are below what it can work with."""
    for name, bound in least.items():
        if getattr(config, name) < bound:
            raise DsrdError(f"model.{name}={getattr(config, name)}: give {bound} or more")


def told_apart(logits: Tensor, true: int, share: Tensor | None = None) -> Tensor:
    """Cross-entropy of logits of which the first `true` belong to events that happened: its mean, or with shares
    the sum of each logit's share.  # [Q], [Q]"""
    label = torch.zeros_like(logits)
    label[:true] = 1
    if share is None:
        return binary_cross_entropy_with_logits(logits, label)
    return (binary_cross_entropy_with_logits(logits, label, reduction="none") * share).sum()


class PairEncoder(TemporalModel):
    """A model that embeds each endpoint as seen beside the other."""

    def __init__(self, config: Any, graph: GraphSpec, out_dim: int) -> None:
        super().__init__(config, graph)
        self.head = MergeHead(out_dim, out_dim)

    @abstractmethod
    def ends(self, query: Query, past: Past) -> tuple[Tensor, Tensor]:
        """Embeddings of both endpoints of each pair.  # [Q] -> [Q, out_dim] twice"""

    def embed(self, node: Tensor, time: Tensor, past: Past) -> Tensor:
        """The node beside nobody: what is left of a pair that has nothing in common."""
        return self.ends(beside_nobody(node, time), past)[0]

    def score(self, query: Query, past: Past, head: str = "") -> Tensor:
        logits: Tensor = self.head(*self.ends(query, past))
        return logits


class NodeEncoder(PairEncoder):
    """A model that embeds each endpoint on its own: equal (node, time) pairs in a call are embedded once."""

    @abstractmethod
    def encode(self, node: Tensor, time: Tensor, past: Past) -> Tensor:
        """What the past says of each node at each time.  # [Q] -> [Q, out_dim]"""

    def embed(self, node: Tensor, time: Tensor, past: Past) -> Tensor:
        return self.encode(node, time, past)

    def ends(self, query: Query, past: Past) -> tuple[Tensor, Tensor]:
        node, time, where = distinct(torch.cat([query.src, query.dst]), query.time.repeat(2))
        src, dst = self.encode(node, time, past)[where].chunk(2)
        return src, dst


def beside_nobody(node: Tensor, time: Tensor) -> Query:
    """Pairs that ask about the nodes alone: the partner is the node that no event has."""
    return Query(node, torch.full_like(node, NULL), time)


def distinct(node: Tensor, time: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Each (node, time) once, and where every row went.

    >>> node, time, where = distinct(torch.tensor([4, 2, 4]), torch.tensor([1.0, 1.0, 1.0]))
    >>> node.tolist(), time.tolist(), where.tolist()
    ([2, 4], [1.0, 1.0], [1, 0, 1])
    """
    moments, moment = torch.unique(time, return_inverse=True)
    key = node * len(moments) + moment
    keys, where = torch.unique(key, return_inverse=True)
    return keys.div(len(moments), rounding_mode="floor"), moments[keys % len(moments)], where
