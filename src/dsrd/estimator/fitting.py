"""How a run is fitted: in this process, or by several that share every batch."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from dsrd.config import RunConfig
from dsrd.data.dataset import Dataset
from dsrd.errors import DsrdError
from dsrd.estimator.fitted import Callbacks, Fitted, clock_notes, open_folder, train, training_data
from dsrd.evaluate.scoring import measured_heads
from dsrd.evaluate.task import Task
from dsrd.files import write_json
from dsrd.processes import ALONE, Processes, connected, launched
from dsrd.ray_cluster import LOCAL
from dsrd.train.launch import refuse_too_many, train_in_processes
from dsrd.train.run_folder import RunFolder
from dsrd.train.sizes import fitting_model

Note = Callable[[str], None]


class Where(NamedTuple):
    """Where a run is trained and saved."""

    folder: Path | None = None  # the run folder; None: nothing is saved
    history: bool = True  # whether the events are saved too
    ray: str | None = None  # the address of a Ray cluster, or `local`; None: processes of this machine


def fitted(run: RunConfig, dataset: Dataset, where: Where, on_epoch: Callbacks, note: Note) -> Fitted:
    """Train a run on a data set, or continue its training from its folder."""
    task = Task.of(dataset)
    # built here once, and not kept, so that bad settings fail before a folder is written
    untrained = fitting_model(run, task)
    measured_heads(untrained, run.evaluate)
    for line in clock_notes(untrained, run, dataset):
        note(line)
    processes = _processes(run, where)
    elsewhere = run.train.workers > processes.count and untrained.num_parameters > 0
    if elsewhere and where.ray is None:
        refuse_too_many(run.train.workers)

    def trained(task: Task, target: RunFolder | None) -> Fitted:
        if elsewhere:
            return _trained_elsewhere(run, task, target, where, on_epoch)
        return train(run, task, target, on_epoch, processes)

    with connected(processes):
        if where.folder is None:
            return trained(task, None)
        target = RunFolder(where.folder)
        with _claimed(target, run, processes):
            data = training_data(target, dataset, note)
            if target.record.exists() and target.best.exists():
                note(f"{target.path}: this run is complete")
                return open_folder(target, None if target.has_history else dataset)
            if where.history and not target.has_history and processes.is_first:
                target.write_history(data)
            result = trained(task if data is dataset else Task.of(data), target)
            if processes.is_first:
                result.save_changes(target, history=target.has_history)
            return result


def _processes(run: RunConfig, where: Where) -> Processes:
    """The processes that a launcher such as `torchrun` has started for this run; else this one alone."""
    started = launched()
    if where.ray is not None or run.train.workers == 1 or started is None:
        return ALONE
    if started.count != run.train.workers:
        raise DsrdError(
            f"train.workers={run.train.workers}: the launcher has started {started.count} processes; give "
            "both the same number"
        )
    return started


@contextmanager
def _claimed(target: RunFolder, run: RunConfig, processes: Processes) -> Iterator[None]:
    """The first process claims the folder before the others look into it."""
    if processes.is_first:
        with target.claimed(run):
            processes.wait()
            yield
    else:
        processes.wait()
        yield


def _trained_elsewhere(
    run: RunConfig, task: Task, target: RunFolder | None, where: Where, on_epoch: Callbacks
) -> Fitted:
    """Train in other processes and open what they have written."""
    callbacks = [on_epoch] if callable(on_epoch) else list(on_epoch)
    if target is not None:
        train_in_processes(run, task, target, callbacks, where.ray)
        result = open_folder(target, None if target.has_history else task.dataset)
        result._task = task
        return result
    if where.ray not in (None, LOCAL):
        raise DsrdError("several machines need a run folder that all of them see; name one")
    with tempfile.TemporaryDirectory() as temporary:
        folder = RunFolder(Path(temporary))
        write_json(folder.settings, run.to_dict())
        train_in_processes(run, task, folder, callbacks, where.ray)
        result = open_folder(folder, task.dataset)
        result.state_after_training()  # read while the folder is there
        result.folder, result._task = None, task
    return result
