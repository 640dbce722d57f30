"""Run a sweep and kill it, again and again: `python killed_sweeps.py FOLDER KILLS < plan.json`.

This process has loaded everything. It forks the process of the sweep, which forks a process for every run; both do
what they do elsewhere, but start in no time. The sweep is killed (-9) at random moments.
Every epoch and every evaluation is noted in FOLDER/notes, a line each.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch._dynamo  # noqa: F401  loaded before the first fork: optimisers need it

import dsrd.estimator.link_predictor
import dsrd.train.record
from dsrd.experiments import sweeping
from dsrd.experiments.folder import SweepFolder
from dsrd.experiments.plan import Plan, load_plan
from dsrd.experiments.worker import work
from dsrd.train.trainer import Trainer

FOLDER, KILLS = Path(sys.argv[1]), int(sys.argv[2])
NOTES = FOLDER.parent / "notes"
EPOCH_SECONDS = 0.15  # longer epochs are killed more often


def note(line: str) -> None:
    with NOTES.open("a") as file:
        file.write(f"{line}\n")


class Forked:
    """At most two runs at a time, each in a forked process that ends with the sweep."""

    def __init__(self, folder: SweepFolder) -> None:
        self.folder, self.children = folder, dict[str, int]()
        self.alive, self.held = os.pipe()

    @property
    def has_room(self) -> bool:
        return len(self.children) < 2

    def start(self, key: str) -> None:
        child = os.fork()
        if child:
            self.children[key] = child
            return
        os.close(self.held)
        threading.Thread(target=lambda: (os.read(self.alive, 1), os._exit(1)), daemon=True).start()
        os._exit(work(str(self.folder.path), key) is not None)

    def ended(self) -> dict[str, str | None]:
        over: dict[str, str | None] = {}
        for key, child in list(self.children.items()):
            if os.waitpid(child, os.WNOHANG)[0]:
                del self.children[key]
                over[key] = self.folder.failure(key)
        return over

    def stop(self, key: str) -> None: ...

    def close(self) -> None: ...


@contextmanager
def opened(folder: SweepFolder, *_: Any) -> Iterator[Forked]:
    yield Forked(folder)


def watched() -> None:
    """Note what is done, and take a moment for it."""
    epoch, evaluate = Trainer._epoch, dsrd.estimator.link_predictor.LinkPredictor.evaluate

    def slow_epoch(self: Trainer) -> None:
        epoch(self)
        note(f"epoch {self.run.digest}")
        time.sleep(EPOCH_SECONDS)

    def noted(self: Any, *arguments: Any, **more: Any) -> Any:
        results = evaluate(self, *arguments, **more)  # the record is in the folder now
        note(f"evaluated {self.run.digest}")
        return results

    Trainer._epoch = slow_epoch  # type: ignore[method-assign]
    dsrd.estimator.link_predictor.LinkPredictor.evaluate = noted  # type: ignore[method-assign]


def noted_lines() -> int:
    return len(NOTES.read_text().splitlines()) if NOTES.exists() else 0


def once(plan: Plan, after: int | None) -> None:
    """Run the sweep in a process of its own, and kill it at a moment after so many more notes."""
    child = os.fork()
    if not child:
        done = sweeping.sweep(plan, folder=FOLDER, progress=False)
        note(f"failed {done.failed}") if done.failed else None
        os._exit(0)
    if after is not None:
        goal = noted_lines() + after
        while noted_lines() < goal:
            if os.waitpid(child, os.WNOHANG)[0]:
                return  # it has ended before
            time.sleep(0.01)
        time.sleep(chance.uniform(0, 0.3))
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


watched()
sweeping.opened = opened  # type: ignore[assignment]
checked = load_plan(json.load(sys.stdin))
chance = random.Random(0)
for _ in range(KILLS):
    once(checked, chance.randint(1, 3))
    finished = len(SweepFolder(FOLDER).records())
    note(f"killed with {finished} of {len(checked.runs)}")
once(checked, None)
