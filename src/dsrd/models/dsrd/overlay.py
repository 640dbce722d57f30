"""Rows of nodes lent to events that are folded in for one answer and taken out again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dsrd.events import Events

Rows = tuple[NDArray[Any], ...]


@contextmanager
def lent(rows: Sequence[NDArray[Any]], new: Events | None) -> Iterator[Rows]:
    """Arrays with a row for every node of new events; all that is done to those rows is undone in the end.

    >>> row = np.zeros(3)
    >>> with lent([row], Events.from_numpy([1], [2], [0.0])) as (lent_row,):
    ...     lent_row[1] = 7
    >>> row.tolist()
    [0.0, 0.0, 0.0]
    """
    if new is None or not len(new):
        yield tuple(rows)
        return
    node = np.unique(np.concatenate(new.numpy()[:2]))
    more = int(node[-1]) + 1 - len(rows[0])
    if more > 0:  # somebody nobody has a row for yet: work on a copy
        rows = [np.concatenate([array, np.zeros((more, *array.shape[1:]), array.dtype)]) for array in rows]
    kept = [array[node] for array in rows]
    try:
        yield tuple(rows)
    finally:
        for array, was in zip(rows, kept, strict=True):
            array[node] = was
