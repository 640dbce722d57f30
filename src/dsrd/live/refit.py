"""Training anew on all events of an engine, in a process of its own, beside the engine.

A refit is a run folder `refits/N` in the data folder. Its last file to be written is `refit.json`: a folder
without it is not complete and is not used. The engine notices a complete one and swaps; see `dsrd.live.swap`.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from dsrd.data.dataset import Dataset
from dsrd.data.growing import Arrival, GrowingStream
from dsrd.decoding import own_json
from dsrd.errors import DsrdError
from dsrd.estimator.fitted import Callbacks, train
from dsrd.evaluate.task import Task
from dsrd.events import Events, as_tensor
from dsrd.files import locked, write_json
from dsrd.live.data_folder import Base, DataFolder, run_digest
from dsrd.live.log import Log
from dsrd.live.nodes import Nodes
from dsrd.live.pending import Columns, Pending
from dsrd.train.run_folder import RunFolder


@dataclass(frozen=True)
class Refit:
    """A complete refit."""

    number: int
    digest: str  # of its weights and events
    held: int  # events of the log that it was trained on
    events: int  # all events it was trained on
    at: float  # when training began, by the clock of this machine

    @property
    def run(self) -> str:
        return f"refits/{self.number}"

    def base(self, window: float) -> Base:
        """What an engine starts from to use it."""
        return Base(self.run, self.digest, self.held, window)


def newest_refit(folder: DataFolder) -> Refit | None:
    """The complete refit with the highest number."""
    for number in sorted(_numbers(folder), reverse=True):
        with suppress(FileNotFoundError, ValueError, TypeError):
            noted = own_json(folder.refits / str(number) / "refit.json")
            return Refit(number, **noted)
    return None


def number_of(base: Base) -> int:
    """The number of the refit that a folder uses; 0 for the run it was started with."""
    kind, _, number = base.run.partition("/")
    return int(number) if kind == "refits" and number.isdecimal() else 0


def refit(folder: DataFolder, settings: Mapping[str, Any] | None = None, on_epoch: Callbacks = ()) -> Refit:
    """Train the run in use anew, with its own settings or changed ones, on its events and those of the log.

    The number of epochs is found on the latest events, then the weights are trained on all of them. If no engine
    uses the folder it starts with the new weights; a running engine notices them itself.
    """
    base = folder.base()
    with locked(folder.refits, f"{folder.refits}: another process trains there; wait for it"):
        began = time.time()
        _remove_incomplete(folder)
        dataset, held = logged_dataset(folder, base)
        number = max(_numbers(folder), default=0) + 1
        target = RunFolder(folder.refits / str(number))
        run = replace(folder.open_run(base).run, dataset=dataset.name)
        run = run.with_overrides({"evaluate.order": "fast", **(settings or {}), "train.final": True})
        with target.claimed(run):
            target.write_history(dataset)
            fitted = train(run, Task.of(dataset), target, on_epoch)
            fitted.hold_out()
            fitted.save_changes(target, history=True)
        done = Refit(number, run_digest(fitted), held, len(dataset.events), began)
        noted = {key: value for key, value in asdict(done).items() if key != "number"}
        write_json(target.path / "refit.json", noted)
    _use_if_idle(folder, done)
    return done


def logged_dataset(folder: DataFolder, base: Base) -> tuple[Dataset, int]:
    """The events of the run in use and of the log so far, in the order in which the model sees them.

    Also how many of the log there are. Events that wait for older ones are left out.
    """
    data = folder.open_run(base).online.stream.dataset()
    nodes, pending, released = Nodes(data.names, data.num_nodes), Pending(base.window), []
    new_names: list[tuple[str, bool]] = []
    log = Log(folder.log, read_only=True)
    try:
        for entry in log.entries():
            new = nodes.missing(entry.names)
            nodes.add(new)
            new_names += new
            released.append(pending.push(Columns(entry.src, entry.dst, entry.time, entry.x)))
    finally:
        log.close()
    if not released:
        return replace(data, own_split=None, catalogued=False), 0
    logged = Columns.cat(*released)
    new_events = logged.take(slice(base.held, None))
    count = len(new_events.time)
    stream = GrowingStream(replace(data, own_split=None, catalogued=False))
    first = stream.num_events + 1
    stream.append(
        Arrival(
            events=Events.from_numpy(*new_events[:3], np.arange(first, first + count)),
            edge_x=as_tensor(new_events.x.copy()),
            label=as_tensor(np.full(count, np.nan, np.float32)),
            row=np.arange(count),
            known=np.ones(count, np.bool_),
            new_names=tuple(new_names),
            late=0,
            skipped=0,
        )
    )
    return stream.dataset(), len(logged.time)


def make_way(niceness: int) -> None:
    """Let other processes of this machine go first."""
    with suppress(AttributeError, OSError):  # not on Windows
        os.nice(niceness)


def _use_if_idle(folder: DataFolder, done: Refit) -> None:
    """Start from the new weights next time; not if an engine runs, which sees to it itself."""
    try:
        with folder.claimed():
            base = folder.base()
            if done.number > number_of(base):
                folder.use(done.base(base.window))
    except DsrdError:
        return


def _numbers(folder: DataFolder) -> list[int]:
    return [int(path.name) for path in folder.refits.glob("[0-9]*") if path.name.isdecimal()]


def _remove_incomplete(folder: DataFolder) -> None:
    """What a kill in the middle of training has left."""
    for number in _numbers(folder):
        path: Path = folder.refits / str(number)
        if not (path / "refit.json").exists():
            shutil.rmtree(path)
