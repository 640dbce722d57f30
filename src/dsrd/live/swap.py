"""Swapping the weights of a running engine for newer ones, between two events."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any

from dsrd.decoding import own_json
from dsrd.files import write_json
from dsrd.live.data_folder import Base, DataFolder
from dsrd.live.lock import ReadWriteLock
from dsrd.live.log import Entry, Log
from dsrd.live.recovery import Recovered, catch_up, open_base
from dsrd.live.refit import newest_refit, number_of
from dsrd.live.watch import Drift

NOTED = 2.0  # seconds between notes about drift


def newer_base(folder: DataFolder, base: Base) -> Base | None:
    """What to start from to use the newest complete refit; None if that is in use."""
    refit = newest_refit(folder)
    return None if refit is None or refit.number <= number_of(base) else refit.base(base.window)


def prepared(folder: DataFolder, base: Base) -> Recovered:
    """The new weights at the end of the log as it is now. Questions and events go on meanwhile."""
    live = open_base(folder, base)
    log = Log(folder.log, read_only=True)
    try:
        catch_up(live.timeline, log, None)
    finally:
        log.close()
    return live


def swap(live: Recovered, new: Recovered, folder: DataFolder, log: Log, lock: ReadWriteLock) -> None:
    """Use the new weights from now on; only while nothing is written.

    What counts is `live.json`: it is replaced in one step, so a kill leaves the old weights or the new.
    """
    for _ in new.timeline.replay(_unseen(log, new.timeline.seq)):
        pass
    folder.use(new.base)
    with lock.writing():
        live.watch.judge_by(new.fitted.recent_surprises("").double().numpy())
        new.watch, new.notes = live.watch, live.notes
        vars(live).update(vars(new))


class Fresh:
    """Looks for weights that are newer than those in use, and notes how surprising recent events are."""

    def __init__(self, folder: DataFolder, live: Recovered, use: Callable[[Recovered], None]) -> None:
        self._folder, self._live, self._use = folder, live, use
        self._noted: Drift | None = None
        self._noted_at = -math.inf
        self._failed = 0

    def look(self) -> None:
        """Called every second."""
        self._note_drift()
        base = newer_base(self._folder, self._live.base)
        if base is None or number_of(base) <= self._failed:
            return
        self._failed = number_of(base)  # unless it works: not tried again
        self._use(prepared(self._folder, base))
        remove_old_snapshots(self._folder, base)

    def _note_drift(self) -> None:
        now = time.monotonic()
        if now - self._noted_at < NOTED:
            return
        drift = self._live.watch.drift()
        if drift.events and drift != self._noted:
            note_drift(self._folder, self._live.base.run, drift)
            self._noted = drift
        self._noted_at = now


def remove_old_snapshots(folder: DataFolder, base: Base) -> None:
    """Remove snapshots of other weights than those in use."""
    for path in folder.snapshots.glob("*.safetensors"):
        if not path.stem.endswith(base.digest[:16]):
            path.unlink(missing_ok=True)


def note_drift(folder: DataFolder, run: str, drift: Drift) -> None:
    """Write down how surprising recent events are, for whoever trains."""
    write_json(folder.drift, {"run": run, "at": time.time(), "drifted": drift.drifted, **asdict(drift)})


def noted_drift(folder: DataFolder) -> dict[str, Any] | None:
    """What an engine has noted; None before there was anything to note."""
    try:
        noted: dict[str, Any] = own_json(folder.drift)
    except (FileNotFoundError, ValueError):
        return None
    return noted


def _unseen(log: Log, after: int) -> Iterator[Entry]:
    for entry in log.entries(after):
        yield entry.part(after, entry.last) if entry.first <= after else entry
