"""`Intake` decides which incoming events are new, in time and acceptable, and gives their nodes ids."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dsrd.errors import DsrdError
from dsrd.live.incoming import EventError, Incoming
from dsrd.live.log import Floats, Ids, Singles
from dsrd.live.nodes import Name, Nodes
from dsrd.live.present import Present
from dsrd.live.settings import LiveSettings

LATE, DUPLICATE, REFUSED = "late", "duplicates", "refused"
"""What is counted besides accepted events: dropped because late, seen before, in a refused request."""

LAST_DATE = 253_402_300_799.0  # seconds since 1970; in the year 10000 a time is no date any more


@dataclass(frozen=True)
class Receipt:
    """What became of the events of a request. `seq` is the number of the newest event in the log."""

    seq: int
    accepted: int
    duplicates: int
    late: int
    rows: NDArray[np.int64]  # of the request: those that were accepted, in the order of the log


@dataclass
class Group:
    """Accepted events of several requests, to be committed together."""

    src: list[Ids] = field(default_factory=list)
    dst: list[Ids] = field(default_factory=list)
    time: list[Floats] = field(default_factory=list)
    x: list[Singles] = field(default_factory=list)
    names: list[Name] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    positions: dict[str, int] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    num_events: int = 0


class Intake:
    """Takes requests one after the other; a request is accepted as a whole, or refused with an error.

    What a group of requests changes is undone if the group cannot be committed.
    """

    def __init__(
        self,
        nodes: Nodes,
        settings: LiveSettings,
        newest: float,
        floor: float,
        positions: dict[str, int],
        known_ids: Callable[[Sequence[str]], set[str]],
        present: Present,
    ) -> None:
        """`newest` is the time of the newest event so far, `floor` that of the newest event of the run."""
        self._floor, self._dates, self._written = floor, present.dates, present.written_time
        self._nodes, self._settings = nodes, settings
        self.newest, self._positions, self._known_ids = newest, positions, known_ids
        self._before: tuple[float, int] = (newest, nodes.count)
        self._group = Group()

    @property
    def group(self) -> Group:
        """What was accepted since `start_group`."""
        return self._group

    @property
    def oldest_allowed(self) -> float:
        """Events before this time are late."""
        return max(self._floor, self.newest - self._settings.window)

    def start_group(self) -> None:
        """Whatever came before is committed."""
        self._before = (self.newest, self._nodes.count)
        self._group = Group()

    def undo_group(self) -> None:
        """Nothing of the group could be committed."""
        self.newest, count = self._before
        self._nodes.forget(count, self._group.names)
        self._group = Group()

    def position(self, source: str) -> int | None:
        """How far a source was read."""
        return self._group.positions.get(source, self._positions.get(source))

    def take(self, request: Incoming, seq: int) -> Receipt:
        """Accept the events of a request that are new and not late; `seq` is that of the newest event so far."""
        rows = self._unread(request)
        rows, duplicates = self._not_known(request, rows)
        rows = rows[np.argsort(request.time[rows], kind="stable")]
        late = request.time[rows] < self.oldest_allowed
        if late.any() and self._settings.late == "refuse":
            first = int(rows[late].min())
            self._refuse(len(request))
            raise LateEventError(
                first,
                f"time {self._written(float(request.time[first]))} is older than the newest event "
                f"({self._written(self.newest)}); send events in order of time, or let the engine drop or reorder "
                "late ones",
            )
        rows = rows[~late]
        self._check_ahead(request, rows)
        src, dst, new = self._node_ids(request, rows)
        group = self._group
        group.src.append(src)
        group.dst.append(dst)
        group.time.append(request.time[rows])
        group.x.append(request.x[rows])
        group.names += new
        group.ids += [each for each in (request.id[row] for row in rows) if each is not None]
        group.num_events += len(rows)
        if request.position is not None and len(request):
            group.positions[request.position.source] = max(
                self.position(request.position.source) or 0, *request.position.after
            )
        if len(rows):
            self.newest = max(self.newest, float(request.time[rows[-1]]))
        for kind, count in ((DUPLICATE, duplicates), (LATE, int(late.sum()))):
            if count:
                group.counts[kind] = group.counts.get(kind, 0) + count
        return Receipt(seq + len(rows), len(rows), duplicates, int(late.sum()), rows)

    def _refuse(self, count: int) -> None:
        self._group.counts[REFUSED] = self._group.counts.get(REFUSED, 0) + count

    def _unread(self, request: Incoming) -> NDArray[np.int64]:
        """The rows whose source has not been read as far yet."""
        rows = np.arange(len(request))
        if request.position is None:
            return rows
        read = self.position(request.position.source)
        return rows if read is None else rows[np.array(request.position.after, object) > read]

    def _not_known(self, request: Incoming, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], int]:
        """Rows without those whose id was seen before; and how many of the request were seen before."""
        unread = len(request) - len(rows)
        named = [request.id[row] for row in rows]
        asked = [each for each in named if each is not None]
        if not asked:
            return rows, unread
        seen = self._known_ids(asked) | set(self._group.ids)
        kept = []
        for row, each in zip(rows.tolist(), named, strict=True):
            if each is None or each not in seen:
                kept.append(row)
            if each is not None:
                seen.add(each)
        return np.array(kept, np.int64), unread + len(rows) - len(kept)

    def _check_ahead(self, request: Incoming, rows: NDArray[np.int64]) -> None:
        latest = float(request.time[rows[-1]]) if len(rows) else 0.0
        if self._dates and latest > min(time.time() + self._settings.ahead, LAST_DATE):
            self._refuse(len(request))
            written = self._written(latest) if latest <= LAST_DATE else latest
            raise EventError(
                int(rows[-1]),
                f"time {written} is more than {self._settings.ahead:g} seconds ahead of this machine's clock; "
                "correct it, or allow more with the setting `ahead`",
            )

    def _node_ids(self, request: Incoming, rows: NDArray[np.int64]) -> tuple[Ids, Ids, list[Name]]:
        nodes, order = self._nodes, rows.tolist()
        if nodes.numbered:
            src, dst = (self._numbers(names, order) for names in (request.source, request.target))
            if len(rows):
                nodes.grow(int(max(src.max(), dst.max())))
            return src, dst, []
        ends = [end for row in order for end in ((request.source[row], False), (request.target[row], True))]
        new = nodes.missing(ends)
        nodes.add(new)
        src_ids, dst_ids = nodes.sources, nodes.targets
        src = np.array([src_ids[request.source[row]] for row in order], np.int64)
        dst = np.array([dst_ids[request.target[row]] for row in order], np.int64)
        return src, dst, new

    def _numbers(self, names: Sequence[str], rows: Sequence[int]) -> Ids:
        ids = np.zeros(len(rows), np.int64)
        for place, row in enumerate(rows):
            try:
                ids[place] = self._nodes.number(names[row])
            except DsrdError as error:
                raise EventError(row, str(error)) from None
        return ids


class LateEventError(EventError):
    """An event older than the newest one, in an engine that refuses these."""
