"""`Writer`: the one thread that writes. It commits all requests that wait in one transaction, then observes them."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dsrd.errors import DsrdError
from dsrd.live.incoming import Incoming
from dsrd.live.intake import Group, Receipt
from dsrd.live.log import Entry, LogFailed
from dsrd.live.pending import Columns
from dsrd.live.tasks import Tasks
from dsrd.live.watch import Budget, Measured

if TYPE_CHECKING:
    from dsrd.live.engine import Engine

MEASURED = 256  # events of a commit whose surprise is measured where nobody asked for all


@dataclass(frozen=True)
class Observed:
    """What became of a request. `seq` is the number of the newest event in the log."""

    seq: int
    accepted: int
    duplicates: int
    late: int
    measured: tuple[Measured, ...] = ()
    """With `measure`: the events that the model saw with this commit, and how surprising they were."""


@dataclass(frozen=True)
class Request:
    events: Incoming
    measure: bool
    future: Future[Observed]


@dataclass(frozen=True)
class Job:
    """Something else that only this thread may do, such as packing the log."""

    run: Callable[[], Any]
    future: Future[Any]
