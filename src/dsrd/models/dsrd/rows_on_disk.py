"""Rows of nodes in mapped files: rows that have slept for longer than the slowest scale leave memory.

Nothing is forgotten: a row comes back from the file when its node is read or written, and has decayed by its age
as in memory. How often memory is given back changes no score.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dsrd import mapped
from dsrd.events import as_tensor
from dsrd.models.dsrd.clock import EVENTS
from dsrd.models.dsrd.walk_state import NodeRows
from dsrd.state import State

BYTES = 1 << 28
"""Memory is given back when events have touched rows of so many bytes."""


def mapped_rows(shape: tuple[int, ...], dtype: torch.dtype, rows: int) -> Tensor:
    """Rows of zeros in a file; numpy has no bfloat16."""
    stored = torch.int16 if dtype == torch.bfloat16 else dtype
    return as_tensor(mapped.mapped_zeros((rows, *shape), _numpy(stored))).view(dtype)


def grown_rows(rows: Tensor, count: int) -> Tensor:
    """The same rows and more of zeros; rows in memory go to a file."""
    array = _array(rows)
    if mapped.is_mapped(array):
        return as_tensor(mapped.grown(array, count)).view(rows.dtype)
    larger = mapped_rows(tuple(rows.shape[1:]), rows.dtype, count)
    larger[: len(rows)] = rows
    return larger


class Sleepers:
    """Gives back the memory of rows that sleep, now and then."""

    def __init__(self) -> None:
        self._swept = 0.0  # clock reading

    def sweep(self, state: State, slowest: float) -> None:
        """`slowest` is the number of events after which a node sleeps. Call it after events were observed."""
        now = float(state["clock"][EVENTS])
        if 0 <= now - self._swept < BYTES / (2 * state.bytes_per_node()):
            return
        self._swept = now
        for name in NodeRows._fields:  # a state that was restored is in memory
            if not mapped.is_mapped(_array(state[name])):
                state[name] = grown_rows(state[name], len(state[name]))
        resting = now - state["last"].numpy() > slowest
        for name in NodeRows._fields:
            mapped.release(_array(state[name]), resting)


def _array(rows: Tensor) -> NDArray[Any]:
    return (rows.view(torch.int16) if rows.dtype == torch.bfloat16 else rows).numpy()


def _numpy(dtype: torch.dtype) -> np.dtype[Any]:
    return torch.empty(0, dtype=dtype).numpy().dtype
