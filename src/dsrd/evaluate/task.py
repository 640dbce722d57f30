"""`Task`: a data set prepared for training and evaluation, with its evaluation passes as a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

from dsrd.data.dataset import Dataset
from dsrd.data.own_split import Candidates
from dsrd.data.split import Split, split, split_from_masks
from dsrd.errors import DsrdError
from dsrd.events import Events
from dsrd.history.past import Past

FULL_SEED = 1  # of the neighbours sampled in evaluation; training uses the number of the epoch


Setting = Literal["transductive", "inductive"]


@dataclass(frozen=True)
class Pass:
    """One run through events: what is scored, from which state, against which negatives."""

    name: str
    part: Literal["val", "test"]
    setting: Setting
    events: Events
    stream: Events  # all events of the same period, including `events`
    pool: Events  # the events whose nodes and pairs become negatives
    seed: int  # of the negatives
    last_observed: float  # pairs up to this time are not inductive negatives
    start: Literal["train", "val"]  # it starts from the state after training, or after validation
    candidates: Candidates | None = None  # wrong targets that came with the data: [E, m]


def passes(split: Split) -> list[Pass]:
    """The four evaluation passes of the published protocol."""
    trained, validated = float(split.train.time[-1]), float(split.val.time[-1])
    return [
        Pass("val", "val", "transductive", split.val, split.val, split.full, 0, trained, "train"),
        Pass("val/new", "val", "inductive", split.val_new, split.val, split.val_new, 1, trained, "train"),
        Pass("test", "test", "transductive", split.test, split.test, split.full, 2, validated, "val"),
        Pass("test/new", "test", "inductive", split.test_new, split.test, split.test_new, 3, validated, "val"),
    ]


@dataclass(frozen=True)
class Task:
    """A data set with its split, its histories and its evaluation passes."""

    dataset: Dataset
    split: Split
    train_past: Past  # the history that training may read: the training events
    full_past: Past  # the history that evaluation may read: all events, strictly before each query
    passes: Mapping[str, Pass]

    @classmethod
    def of(cls, dataset: Dataset) -> Task:
        """Split a data set as published, or as it came with the data, and index it."""
        own = dataset.own_split
        if own is not None:
            return cls.of_parts(dataset, own.masks(len(dataset.events)), own.candidates_of(dataset.events))
        try:
            parts = split(dataset.events)
        except DsrdError as error:
            raise DsrdError(f"{dataset.name}: {error}") from error
        return cls._indexed(dataset, parts, passes(parts))

    @classmethod
    def of_parts(
        cls, dataset: Dataset, parts: Mapping[str, Any], candidates: Mapping[str, Candidates] | None = None
    ) -> Task:
        """A data set with a split of its own: masks [E] of `train`, `val` and `test`. No node is withheld.

        `candidates`, by part, are the wrong targets that each event of `val` or `test` is ranked against: [E, m],
        shorter rows padded with NULL. They replace drawn candidates. There are no new-node passes.
        """
        own_split, remaining = split_from_masks(dataset.events, parts), dict(candidates or {})
        own_passes = []
        for pass_ in passes(own_split):
            if pass_.setting == "transductive":
                targets = remaining.pop(pass_.part, None)
                if targets is not None and (len(targets.shape) != 2 or len(targets) != len(pass_.events)):
                    raise DsrdError(
                        f"{dataset.name}: candidates of {pass_.part} have shape {tuple(targets.shape)}; "
                        f"give a row for each of its {len(pass_.events)} events"
                    )
                own_passes.append(replace(pass_, candidates=targets))
        if remaining:
            raise DsrdError(f"{dataset.name}: candidates of {', '.join(remaining)}; give them for val and test")
        return cls._indexed(dataset, own_split, own_passes)

    @classmethod
    def _indexed(cls, dataset: Dataset, parts: Split, own_passes: Sequence[Pass]) -> Task:
        index = partial(Past, edge_x=dataset.edge_x, node_x=dataset.node_x, num_nodes=dataset.num_nodes)
        return cls(
            dataset,
            parts,
            train_past=index(parts.train),
            full_past=index(parts.full, seed=FULL_SEED),
            passes={pass_.name: pass_ for pass_ in own_passes},
        )
