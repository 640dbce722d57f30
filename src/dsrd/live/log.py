"""`Log`: the durable list of accepted events, in SQLite.

A row of `entries` is what one commit accepted: its columns as bytes, the names of nodes that were new, and a
checksum. So a commit costs one row however many events it has. Ids of events and positions of sources are written
in the same transaction: after a kill an event is either in the log together with its id and its position, or it is
not there at all.

One connection writes; readers of other processes open the log read-only.
"""

from __future__ import annotations

import json
import sqlite3
import zlib
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from dsrd.errors import DsrdError, MachineError
from dsrd.live.nodes import Name

Ids = NDArray[np.int64]
Floats = NDArray[np.float64]
Singles = NDArray[np.float32]

PACKED = 1 << 16  # events in a row after packing
ASKED_AT_ONCE = 500  # ids in one question to SQLite
COLUMNS = ("src", "dst", "time", "x")  # of an entry, one value or row per event
TABLES = """
create table if not exists entries (
    last integer primary key, count integer not null, cuts blob not null, src blob not null, dst blob not null,
    time blob not null, x blob not null, names text not null, at real not null, checksum integer not null);
create table if not exists event_ids (id text primary key, at real not null) without rowid;
create table if not exists positions (source text primary key, position text not null);
create table if not exists counts (kind text primary key, count integer not null);
"""


@dataclass(frozen=True)
class Entry:
    """Events that were accepted together; their sequence numbers are `last - count + 1` to `last`."""

    last: int
    src: Ids  # [E]
    dst: Ids  # [E]
    time: Floats  # [E]
    x: Singles  # [E, edge_dim]
    names: tuple[Name, ...]  # of nodes that were new, in order of id
    at: float  # when, by the clock of this machine
    cuts: Ids  # [C, 2]: events and new names of each commit; several after packing

    @property
    def first(self) -> int:
        return self.last - len(self.src) + 1

    def part(self, after: int, until: int) -> Entry:
        """The events after one sequence number up to another, each the end of a commit; and their names."""
        ends = np.cumsum(self.cuts, axis=0)
        commits = (ends[:, 0] > after - self.first + 1) & (ends[:, 0] <= until - self.first + 1)
        rows = slice(max(after - self.first + 1, 0), until - self.first + 1)
        columns: dict[str, Any] = {name: getattr(self, name)[rows] for name in COLUMNS}
        last_name = int(ends[commits, 1].max(initial=0))
        names = self.names[last_name - int(self.cuts[commits, 1].sum()) : last_name]
        return replace(self, last=until, names=names, cuts=self.cuts[commits], **columns)

    @staticmethod
    def joined(entries: Sequence[Entry]) -> Entry:
        """Entries that follow each other as one."""
        if len(entries) == 1:
            return entries[0]
        columns: dict[str, Any] = {
            name: np.concatenate([getattr(each, name) for each in entries]) for name in (*COLUMNS, "cuts")
        }
        return replace(entries[-1], names=tuple(name for each in entries for name in each.names), **columns)


class Log:
    """Accepted events on disk."""

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        self.path = path
        if read_only and not path.exists():
            raise self._missing()
        with _faults(path):
            mode = "ro" if read_only else "rwc"
            self._db = sqlite3.connect(
                f"file:{_quoted(path)}?mode={mode}", uri=True, check_same_thread=False, isolation_level=None
            )
            if not read_only:
                self._db.execute("pragma journal_mode=wal")
                self._db.execute("pragma synchronous=full")
                self._db.executescript(f"begin immediate;{TABLES}commit;")
            elif not self._db.execute("select 1 from sqlite_master where name = 'entries'").fetchone():
                raise self._missing()

    def _missing(self) -> DsrdError:
        return DsrdError(f"{self.path}: there is no log; start the server that writes it first")

    def close(self) -> None:
        with _faults(self.path):
            self._db.close()

    @property
    def last(self) -> int:
        """The sequence number of the newest event; 0 before the first."""
        with _faults(self.path):
            return int(self._db.execute("select coalesce(max(last), 0) from entries").fetchone()[0])

    def append(
        self,
        entry: Entry | None,
        ids: Iterable[str] = (),
        positions: Mapping[str, int] | None = None,
        counts: Mapping[str, int] | None = None,
    ) -> None:
        """Commit events, their ids, positions of sources and what is counted, or nothing of it."""
        with self._transaction():
            if entry is not None:
                self._insert(entry)
                self._db.executemany("insert into event_ids values (?, ?)", ((each, entry.at) for each in ids))
            for source, position in (positions or {}).items():
                self._db.execute("insert or replace into positions values (?, ?)", (source, str(position)))
            for kind, count in (counts or {}).items():
                self._db.execute(
                    "insert into counts values (?, ?) "
                    "on conflict(kind) do update set count = count + excluded.count",
                    (kind, count),
                )

    def _insert(self, entry: Entry) -> None:
        blobs = (entry.cuts, entry.src, entry.dst, entry.time, entry.x)
        columns = [np.ascontiguousarray(blob).tobytes() for blob in blobs]
        names = json.dumps(entry.names)
        row = (entry.last, len(entry.src), *columns, names, entry.at, _checksum(columns, names))
        self._db.execute("insert into entries values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", row)

    def entries(self, after: int = 0) -> Generator[Entry, None, None]:
        """Entries with events after a sequence number; a damaged one is an error that names it."""
        with _faults(self.path):
            rows = self._db.execute("select * from entries where last > ? order by last", (after,))
            expected = None
            for last, count, *columns, names, at, checksum in rows:
                if _checksum(columns, names) != checksum or (expected is not None and last - count != expected):
                    raise DsrdError(
                        f"{self.path}: the entry of events {last - count + 1} to {last} is damaged; put back a "
                        "copy of this file, or start again from the run with a new data folder"
                    )
                expected = last
                cuts, src, dst = (np.frombuffer(column, np.int64) for column in columns[:3])
                cuts = cuts.reshape(-1, 2)
                time, x = np.frombuffer(columns[3], np.float64), np.frombuffer(columns[4], np.float32)
                named = tuple((name, bool(target)) for name, target in json.loads(names))
                yield Entry(last, src, dst, time, x.reshape(count, -1), named, at, cuts)

    def known_ids(self, ids: Sequence[str]) -> set[str]:
        """Those of these event ids that the log has."""
        known: set[str] = set()
        with _faults(self.path):
            for start in range(0, len(ids), ASKED_AT_ONCE):
                part = ids[start : start + ASKED_AT_ONCE]
                marks = ",".join("?" * len(part))
                rows = self._db.execute(f"select id from event_ids where id in ({marks})", part)
                known.update(row[0] for row in rows)
        return known

    def positions(self) -> dict[str, int]:
        """How far each source was read."""
        with _faults(self.path):
            return {source: int(text) for source, text in self._db.execute("select * from positions")}

    def counts(self) -> dict[str, int]:
        """What was counted over the life of the log."""
        with _faults(self.path):
            return dict(self._db.execute("select kind, count from counts"))

    def pack(self, until: int) -> int:
        """Join entries up to a sequence number into larger rows, which are read faster; the rows saved."""
        with _faults(self.path):
            sizes = self._db.execute("select last, count from entries where last <= ? order by last", (until,))
            small = [(last, count) for last, count in sizes if count < PACKED // 2]
        saved = 0
        for group in _groups(small):
            first, last = group[0][0] - group[0][1], group[-1][0]
            with closing(self.entries(first)) as entries:
                parts = list(takewhile(lambda entry, last=last: entry.last <= last, entries))  # type: ignore[misc]
            joined = Entry.joined(parts)
            with self._transaction():
                self._db.execute("delete from entries where last > ? and last <= ?", (first, last))
                self._insert(joined)
            saved += len(parts) - 1
        return saved

    def forget_ids(self, before: float) -> int:
        """Remove ids of events that were accepted before a time; how many."""
        with self._transaction():
            return self._db.execute("delete from event_ids where at < ?", (before,)).rowcount

    def vacuum(self) -> None:
        """Give the space of removed rows back to the disk."""
        with _faults(self.path):
            self._db.execute("vacuum")
            self._db.execute("pragma wal_checkpoint(truncate)")

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with _faults(self.path):
            self._db.execute("begin immediate")
            try:
                yield
                self._db.execute("commit")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("rollback")
                raise


class LogFailedError(MachineError):
    """The disk did not take a commit, and it is not known what it holds: the log must be opened again."""


@contextmanager
def _faults(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.OperationalError as error:
        if "disk is full" in str(error):
            raise MachineError(f"{path}: the disk is full; free some space and send the events again") from error
        raise LogFailedError(
            f"{path}: cannot be written or read ({error}); start again when that is mended"
        ) from error
    except sqlite3.DatabaseError as error:
        raise DsrdError(f"{path}: is damaged or not a log ({error}); put back a copy of it") from error


def _checksum(columns: Sequence[bytes], names: str) -> int:
    value = 0
    for column in columns:
        value = zlib.crc32(column, value)
    return zlib.crc32(names.encode(), value)


def _groups(entries: Sequence[tuple[int, int]]) -> Iterator[list[tuple[int, int]]]:
    """Neighbouring entries (last, count) with at most `PACKED` events together, two or more."""
    group: list[tuple[int, int]] = []
    events = 0
    for last, count in entries:
        if group and (events + count > PACKED or last - count != group[-1][0]):
            if len(group) > 1:
                yield group
            group, events = [], 0
        group.append((last, count))
        events += count
    if len(group) > 1:
        yield group


def _quoted(path: Path) -> str:
    return quote(str(path.absolute()))
