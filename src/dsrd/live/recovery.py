"""Recovery: the newest whole snapshot and the log after it give what an engine was when it stopped."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from dsrd.errors import DsrdError
from dsrd.estimator.fitted import Fitted
from dsrd.live.data_folder import Base, DataFolder
from dsrd.live.incoming import EventReader
from dsrd.live.log import Log
from dsrd.live.snapshots import DamagedSnapshotError, Moment, Snapshots
from dsrd.live.timeline import Timeline
from dsrd.live.watch import Watch

Progress = Callable[[int, int], None]
"""Called with the events of the log that are back, and all of them."""


@dataclass
class Recovered:
    """What an engine works with after a start; the writer alone changes it."""

    base: Base
    fitted: Fitted
    timeline: Timeline
    snapshots: Snapshots
    reader: EventReader
    watch: Watch
    floor: float  # time of the newest event of the run; older ones are late in any case
    last_snapshot: int = 0  # the number of the newest event in a snapshot; 0: there is none
    notes: list[str] = field(default_factory=list)  # snapshots that could not be used


def recover(folder: DataFolder, log: Log, progress: Progress | None = None) -> Recovered:
    """Open the run in use and go along the log, from the newest snapshot that is whole.

    A snapshot that is damaged, or does not belong to this log, is skipped with a note and the next older one used.
    """
    base = folder.base()
    snapshots = Snapshots(folder.snapshots, base.digest)
    notes: list[str] = []
    last = log.last
    for moment, path in snapshots.newest_first(notes):
        if moment.seq > last:
            notes.append(f"{path}: holds {moment.seq:,} events, the log only {last:,}; skipped")
            continue
        try:
            state = snapshots.read(path)
            live = open_base(folder, base)
            live.timeline.present.adopt(state)
            catch_up(live.timeline, log, moment, progress)
        except (DamagedSnapshotError, WrongEventsError) as error:
            notes.append(f"{path}: {error}; skipped")
            continue
        live.last_snapshot = moment.seq
        break
    else:
        live = open_base(folder, base)
        catch_up(live.timeline, log, None, progress)
    live.notes = notes
    return live


def open_base(folder: DataFolder, base: Base) -> Recovered:
    """The run in use, before the events of the log."""
    fitted = folder.open_run(base)
    data = fitted.online.stream.dataset()
    timeline = Timeline(fitted, base.window, base.held)
    watch = Watch(fitted.recent_surprises("").double().numpy())
    snapshots = Snapshots(folder.snapshots, base.digest)
    return Recovered(base, fitted, timeline, snapshots, EventReader(data), watch, timeline.newest)


def catch_up(timeline: Timeline, log: Log, moment: Moment | None, progress: Progress | None = None) -> None:
    """Go along the log; the state holds the events of a snapshot already."""
    until, applied = (0, 0) if moment is None else (moment.seq, moment.applied)
    last = log.last if progress is not None else 0
    for seq in timeline.replay(log.entries(), until, applied):
        if moment is not None and seq == until and timeline.digest != moment.digest:
            raise WrongEventsError("belongs to other events than those of the log")
        if progress is not None:
            progress(seq, last)


class WrongEventsError(DsrdError):
    """A snapshot of other events than those of the log."""
