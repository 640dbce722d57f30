"""`Task`: a data set made ready for training and evaluation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from torch import Tensor

from dsrd.data.dataset import Dataset
from dsrd.data.split import Split, split, split_from_masks
from dsrd.errors import DsrdError
from dsrd.evaluate.protocol import Pass, passes
from dsrd.history.past import Past

FULL_SEED = 1  # of the neighbours sampled in evaluation; training takes the epoch's number


@dataclass(frozen=True)
class Task:
    """A data set made ready: its split, its pasts, its passes; negatives are drawn once and kept."""

    dataset: Dataset
    split: Split
    train_past: Past  # what training may look at: the training events
    full_past: Past  # what evaluation may look at: everything, strictly before each query
    passes: Mapping[str, Pass]

    @classmethod
    def of(cls, dataset: Dataset) -> Task:
        """Split a data set as published and index it."""
        try:
            parts = split(dataset.events)
        except DsrdError as error:
            raise DsrdError(f"{dataset.name}: {error}") from error
        return cls._indexed(dataset, parts, passes(parts))

    @classmethod
    def of_parts(
        cls, dataset: Dataset, parts: Mapping[str, Any], candidates: Mapping[str, Tensor] | None = None
    ) -> Task:
        """A data set that comes with its split: masks [E] of `train`, `val`, `test`, and nobody withheld.

        `candidates`, by part, are the wrong targets to rank each event of `val` or `test` against: [E, m], rows
        with fewer filled up with NULL. They take the place of drawn ones. There are no new-node passes.
        """
        found, wrong = split_from_masks(dataset.events, parts), dict(candidates or {})
        kept = []
        for each in passes(found):
            if each.setting == "transductive":
                there = wrong.pop(each.part, None)
                if there is not None and (there.ndim != 2 or len(there) != len(each.events)):
                    raise DsrdError(
                        f"{dataset.name}: candidates of {each.part} have shape {tuple(there.shape)}; "
                        f"give a row for each of its {len(each.events)} events"
                    )
                kept.append(replace(each, candidates=there))
        if wrong:
            raise DsrdError(f"{dataset.name}: candidates of {', '.join(wrong)}; give them for val and test")
        return cls._indexed(dataset, found, kept)

    @classmethod
    def _indexed(cls, dataset: Dataset, parts: Split, every: Sequence[Pass]) -> Task:
        index = partial(Past, edge_x=dataset.edge_x, node_x=dataset.node_x, num_nodes=dataset.num_nodes)
        return cls(
            dataset,
            parts,
            train_past=index(parts.train),
            full_past=index(parts.full, seed=FULL_SEED),
            passes={each.name: each for each in every},
        )
