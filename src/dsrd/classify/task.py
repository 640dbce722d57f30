"""The questions of node classification: which class does a node have at a time, and which events may be used?

The label of an *event* is the class of its source at that time. Each labelled event is one question, and the
prediction may use everything strictly before it. Of the event itself it may know the source, the time and the
target, as models of pairs do in the published protocol, but not the features. The label of a *node* never changes.
Each node is one question, at its first event as source or target. The node has no history then, but the events of
its first timestamp introduce it (a paper comes with its references) and do not reveal its label, so they are
visible. With *ends*, both ends of every event are questions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, cast, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dsrd.data.dataset import Dataset, digest_of
from dsrd.data.split import cut
from dsrd.errors import DsrdError, unknown
from dsrd.events import NULL, as_tensor
from dsrd.history.past import Past

Asks = Literal["events", "nodes", "ends"]
"""Who has the label: the source of an event at its time, or a node (asked once, or at each of its events)."""

Visible = Literal["before", "target", "same-time"]
"""What a prediction may use: events strictly before the question, also whom the event is with, or also all events
of the same time."""

DEFAULT_VISIBLE: Mapping[Asks, Visible] = {"events": "target", "nodes": "same-time", "ends": "same-time"}
PARTS = ("train", "val", "test")
MOST_CLASSES = 100
NAN = float("nan")


@dataclass(frozen=True)
class NodeTask:
    """Questions in time order, split at the times of link prediction; no node is withheld."""

    dataset: Dataset
    rows: Mapping[str, slice]  # of the stream, by part
    node: Tensor  # [n] int64
    row: Tensor  # [n] int64, ascending: the event of each question
    target: Tensor  # [n] int64: class number
    names: list[str]  # of the classes, as in the data
    asks: Asks
    visible: Visible

    @classmethod
    def of(
        cls,
        dataset: Dataset,
        asks: str | None = None,
        visible: str | None = None,
        node_label: Tensor | None = None,
    ) -> NodeTask:
        """Check the labels of a data set and split it; `node_label` [N] has the classes of nodes, nan for none.

        By default the questions are about nodes if `node_label` is there, otherwise about events. Without
        `node_label`, `nodes` and `ends` use the labels of the events if no source has two different ones.
        """
        _require_known("asks", asks, Asks)
        _require_known("visible", visible, Visible)
        subject = cast(Asks, asks or ("events" if node_label is None else "nodes"))
        usable = cast(Visible, visible or DEFAULT_VISIBLE[subject])
        if usable == "target" and subject != "events":
            raise DsrdError(
                f"visible=target: is for labels of events, these are of {subject}; use before or same-time"
            )
        rows = _rows(dataset)
        if subject == "events":
            node, row, label = _of_events(dataset)
        else:
            classes = _source_labels(dataset) if node_label is None else node_label
            node, row, label = (_of_nodes if subject == "nodes" else _of_ends)(dataset, classes.numpy())
        labelled = ~np.isnan(label)
        target, names = _classes(dataset.name, label[labelled])
        node, row = node[labelled], row[labelled]
        task = cls(dataset, rows, as_tensor(node), as_tensor(row), as_tensor(target), names, subject, usable)
        for part in PARTS:
            task._require_two_classes(part)
        return task

    def _require_two_classes(self, part: str) -> None:
        present = [name for name, count in self.counts(part).items() if count]
        if len(present) < 2:
            has = f"only the label {present[0]}" if present else "no label"
            raise DsrdError(
                f"{self.dataset.name}: the {part} events have {has}; a figure needs two classes in each of train, "
                "val and test: give a longer stream, or one whose labels occur throughout"
            )

    def between(self, start: int, stop: int) -> slice:
        """The questions of these rows of the stream."""
        first, last = np.searchsorted(self.row.numpy(), [start, stop]).tolist()
        return slice(first, last)

    def questions(self, part: str) -> slice:
        return self.between(self.rows[part].start, self.rows[part].stop)

    def targets(self, part: str) -> NDArray[np.int64]:
        return self.target[self.questions(part)].numpy()

    def counts(self, part: str) -> dict[str, int]:
        """The number of questions of the part in each class."""
        counts = np.bincount(self.targets(part), minlength=len(self.names)).tolist()
        return dict(zip(self.names, counts, strict=True))

    @cached_property
    def time(self) -> Tensor:
        """The time of each question: that of its event, or right after all events of that time.  # [n] float64"""
        at = self.dataset.events.time[self.row]
        return at if self.visible != "same-time" else torch.nextafter(at, torch.full_like(at, np.inf))

    def with_past(self, part: str, past: Past) -> float:
        """Share of the part's questions about a node with visible events; all other nodes look the same."""
        rows = self.questions(part)
        return float((past.degree(self.node[rows], self.time[rows]) > 0).double().mean())

    @cached_property
    def partner(self) -> Tensor:
        """The target of each question's event if it is visible, otherwise nobody.  # [n] int64"""
        if self.visible != "target":
            return torch.full_like(self.node, NULL)
        return self.dataset.events.dst[self.row]

    @property
    def outputs(self) -> int:
        """The number of logits: one for two classes, otherwise one per class."""
        return 1 if len(self.names) == 2 else len(self.names)

    @property
    def digest(self) -> str:
        stops = np.array([self.rows[part].stop for part in PARTS])
        return digest_of(self.node.numpy(), self.time.numpy(), self.target.numpy(), stops)


def _require_known(name: str, value: str | None, kind: object) -> None:
    if value is not None and value not in get_args(kind):
        raise unknown(f"value of {name}", value, get_args(kind))


def _rows(dataset: Dataset) -> dict[str, slice]:
    time = dataset.events.time.numpy()
    first, second = cut(time)
    if not 0 < first < second < len(time):
        raise DsrdError(
            f"{dataset.name}: {len(np.unique(time))} distinct times cannot be cut into train, val and test; "
            "give a stream with at least 3, better many more"
        )
    return {"train": slice(0, first), "val": slice(first, second), "test": slice(second, len(time))}


Questions = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]]
"""Node, row of the stream and label (nan: no question) of each possible question."""


def _of_events(dataset: Dataset) -> Questions:
    return dataset.events.src.numpy(), np.arange(len(dataset.events)), _event_labels(dataset)


def _of_ends(dataset: Dataset, node_label: NDArray[np.float32]) -> Questions:
    """The source and the target of each event, in the order of the stream."""
    src, dst, _, _ = dataset.events.numpy()
    ends = np.stack([src, dst], axis=1).reshape(-1)  # [2E]
    return ends, np.arange(len(ends)) // 2, node_label[ends]


def _of_nodes(dataset: Dataset, node_label: NDArray[np.float32]) -> Questions:
    """Each node once, at its first event."""
    ends, row, label = _of_ends(dataset, node_label)
    first = np.sort(np.unique(ends, return_index=True)[1])
    return ends[first], row[first], label[first]


def _source_labels(dataset: Dataset) -> Tensor:
    """The label that each source has in all its labelled events; nan for other nodes."""
    label, src = _event_labels(dataset), dataset.events.src.numpy()
    labelled = ~np.isnan(label)
    node_label = np.full(dataset.num_nodes, NAN, np.float32)
    node_label[src[labelled]] = label[labelled]
    changed = labelled & (label != node_label[src])
    if changed.any():
        node = int(src[changed.argmax()])
        name = node if dataset.names is None else dataset.names[node]
        raise DsrdError(
            f"{dataset.name}: node {name} has different labels over time, so it has no class of its own; "
            "ask about events instead"
        )
    return as_tensor(node_label)


def _event_labels(dataset: Dataset) -> NDArray[np.float32]:
    if dataset.label is None:
        raise DsrdError(
            f"{dataset.name}: has no labels; name their column when the stream is read (`label`), or give the "
            "classes of nodes"
        )
    return dataset.label.numpy()


def _classes(name: str, label: NDArray[np.float32]) -> tuple[NDArray[np.int64], list[str]]:
    """Class numbers in the order of the labels; of two labels the larger one is the positive class."""
    values, number = np.unique(label, return_inverse=True)
    if not len(values):
        raise DsrdError(f"{name}: no event has a label; give a stream with labels")
    if len(values) == 1:
        raise DsrdError(
            f"{name}: every label is {values[0]:g}, nothing to tell apart; give a stream with two classes"
        )
    if len(values) > MOST_CLASSES or (values != np.round(values)).any():
        raise DsrdError(
            f"{name}: labels are not classes ({len(values)} values from {values[0]:g} to {values[-1]:g}); "
            f"give whole numbers, at most {MOST_CLASSES} different ones"
        )
    return number.astype(np.int64), [f"{value:g}" for value in values]
