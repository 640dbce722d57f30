"""A split that comes with the data, and the wrong targets that its validation and test events are ranked among."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dsrd.events import NULL, Events, as_tensor

RANKED = ("val", "test")


class OtherTargets:
    """Candidates of events that are ranked among all `targets` except their own.

    Read like a matrix [E, m] whose rows are made when they are asked for: written out, a thousand targets of
    20,000 events fill 160 MB. A row that has fewer candidates than others ends in NULL.

    >>> candidates = OtherTargets(torch.tensor([7, 9]), torch.tensor([9, 8, 7]))
    >>> candidates.shape, candidates[:].tolist()
    ((2, 2), [[8, 9], [7, 8]])
    """

    def __init__(self, true: Tensor, targets: Tensor) -> None:
        self.targets = as_tensor(np.unique(targets.numpy()))  # [T], sorted
        listed = torch.isin(true, self.targets)
        # [E]: the place to leave out; behind the last one for an event whose own target is not listed
        self._place = torch.where(listed, torch.searchsorted(self.targets, true), len(self.targets))
        self._width = len(self.targets) - bool(listed.all())
        self._padded = torch.cat([self.targets, self.targets.new_tensor([NULL])])

    def __len__(self) -> int:
        return len(self._place)

    @property
    def shape(self) -> tuple[int, int]:
        return len(self), self._width

    def __getitem__(self, rows: slice | Tensor) -> Tensor:
        """The candidates of some events.  # [B, m]"""
        column = torch.arange(self._width)
        return self._padded[column + (column >= self._place[rows, None])]

    def digested(self) -> list[NDArray[np.int64]]:
        """What all rows follow from."""
        return [self.targets.numpy(), self._place.numpy()]


Candidates = Tensor | OtherTargets
"""Wrong targets of events: [E, m], NULL where a row has fewer. `candidates[rows]` are those of some events."""


@dataclass(frozen=True)
class OwnSplit:
    """Where validation and test begin, and what their events are ranked among."""

    val_start: int  # training: all events before this one
    test_start: int
    candidates: Mapping[str, Tensor] | None = None  # of val and test: [E, m]; None: all other targets

    def masks(self, events: int) -> dict[str, NDArray[np.bool_]]:
        """Which of so many events belong to which part.

        >>> OwnSplit(2, 3).masks(4)["train"].tolist()
        [True, True, False, False]
        """
        row = np.arange(events)
        train, test = row < self.val_start, row >= self.test_start
        return {"train": train, "val": ~(train | test), "test": test}

    def candidates_of(self, events: Events) -> Mapping[str, Candidates]:
        """The candidates of validation and test, where `events` is the whole stream."""
        if self.candidates is not None:
            return self.candidates
        parts = {"val": slice(self.val_start, self.test_start), "test": slice(self.test_start, None)}
        return {part: OtherTargets(events.dst[rows], events.dst) for part, rows in parts.items()}

    @property
    def borders(self) -> tuple[int, int]:
        return self.val_start, self.test_start
