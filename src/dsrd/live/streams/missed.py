"""Events of the log that a sink did not get, because the process was killed between the log and the sink."""

from __future__ import annotations

import math
from collections.abc import Iterator

from dsrd.live.data_folder import Base, DataFolder
from dsrd.live.log import Entry, Log
from dsrd.live.snapshots import DamagedSnapshotError, Snapshots
from dsrd.live.timeline import Timeline, commits_of
from dsrd.live.watch import Measured


def missed(folder: DataFolder, base: Base, after: int) -> Iterator[tuple[list[Measured], Timeline]]:
    """The events that the model has seen after the first `after` ones, measured again as they were then.

    The model goes along the log once more, from the newest snapshot that is old enough, apart from the engine.
    """
    log = Log(folder.log, read_only=True)
    try:
        timeline = _before(folder, base, log, after)
        for entry in _commits(log, timeline.seq):
            coming = timeline.applied + timeline.num_waiting + len(entry.src)
            before = timeline.applied
            seen, bits = timeline.advance(entry, coming - before if coming > after else 0)
            if bits is None:
                continue
            knows_sources = timeline.present.model.has_intensity
            name = timeline.nodes.name
            yield (
                [
                    Measured(
                        before + row + 1,
                        name(int(seen.src[row])),
                        name(int(seen.dst[row])),
                        float(seen.time[row]),
                        entry.at,
                        float(bits[row, 0]) if knows_sources else math.nan,
                        float(bits[row, 1]),
                        math.nan,
                        math.nan,
                    )
                    for row in range(max(after - before, 0), len(bits))
                ],
                timeline,
            )
    finally:
        log.close()


def _before(folder: DataFolder, base: Base, log: Log, after: int) -> Timeline:
    """The model as it was at or before event `after`."""
    snapshots = Snapshots(folder.snapshots, base.digest)
    for moment, path in snapshots.newest_first([]):
        if not 0 < moment.applied <= after or moment.seq > log.last:
            continue
        timeline = Timeline(folder.open_run(base), base.window, base.held)
        try:
            timeline.present.adopt(snapshots.read(path))
        except DamagedSnapshotError:
            continue
        for seq in timeline.replay(log.entries(), moment.seq, moment.applied):
            if seq >= moment.seq:
                break
        if timeline.digest == moment.digest:
            return timeline
    return Timeline(folder.open_run(base), base.window, base.held)


def _commits(log: Log, after: int) -> Iterator[Entry]:
    for entry in log.entries(after):
        yield from commits_of(entry.part(after, entry.last) if entry.first <= after else entry)
