"""Rows of nodes lent to events that are folded in for one answer and taken out again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dsrd.events import Events

Rows = tuple[NDArray[Any], ...]


def lent(rows: Sequence[NDArray[Any]], new: Events | None) -> tuple[Rows, Callable[[], None]]:
    """Arrays with a row for every node of new events, and what undoes all that is done to those rows.

    >>> row = np.zeros(3)
    >>> (lent_row,), put_back = lent([row], Events.from_numpy([1], [2], [0.0]))
    >>> lent_row[1] = 7
    >>> put_back()
    >>> row.tolist()
    [0.0, 0.0, 0.0]
    """
    if new is None or not len(new):
        return tuple(rows), lambda: None
    node = np.unique(np.concatenate(new.numpy()[:2]))
    more = int(node[-1]) + 1 - len(rows[0])
    if more > 0:  # somebody nobody has a row for yet: work on a copy
        rows = [np.concatenate([array, np.zeros((more, *array.shape[1:]), array.dtype)]) for array in rows]
    kept = [array[node] for array in rows]

    def put_back() -> None:
        for array, was in zip(rows, kept, strict=True):
            array[node] = was

    return tuple(rows), put_back
