"""What must hold: every acknowledged event is in the log once, and answers are those of an uninterrupted twin."""

from __future__ import annotations

import random
import shutil
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from dsrd.errors import DsrdError
from dsrd.live import Engine
from dsrd.live.log import Log
from soaking.load import Told
from soaking.process import Client

PAIRS = 40  # compared after each recovery
NODES = 3


def times_in(log: Path, after: int = 0) -> np.ndarray:
    """Times of the events in a log, in its order."""
    opened = Log(log, read_only=True)
    try:
        return np.concatenate([np.zeros(0), *(entry.time for entry in opened.entries(after))])
    finally:
        opened.close()


def lost_and_twice(log: Path, told: Told) -> tuple[int, int]:
    """Acknowledged events that the log does not have, and events that it has more than once."""
    count = Counter(times_in(log).tolist())
    with told.lock:
        lost = sum(not count[time] for time in told.acknowledged.values())
        twice = sum(count[time] > 1 for time in told.sent)
    return lost, twice


@dataclass
class Twin:
    """An engine that is never interrupted. It gets the events of the server's log, cut in another way."""

    engine: Engine
    rng: random.Random
    names: list[str] = field(default_factory=list)  # by id
    known: set[str] = field(default_factory=set)
    compared: int = 0
    unequal: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        nodes = self.engine.live.timeline.nodes
        self.names = [nodes.name(node) for node in range(nodes.count)]
        self.known = set(self.names)

    def catch_up(self, log: Path) -> int:
        """Observe what the log has and the twin has not; the number of the newest event."""
        opened, known = Log(log, read_only=True), self.engine.state().seq
        events: list[dict[str, Any]] = []
        try:
            for entry in opened.entries():
                new = [name for name, _ in entry.names if name not in self.known]
                self.names += new
                self.known.update(new)
                if entry.last <= known:
                    continue
                rows = range(max(known - entry.first + 1, 0), len(entry.src))
                events += [
                    {
                        "source": self.names[entry.src[row]],
                        "target": self.names[entry.dst[row]],
                        "time": entry.time[row],
                    }
                    for row in rows
                ]
        finally:
            opened.close()
        start = 0
        while start < len(events):
            stop = start + self.rng.choice([1, 7, 50, 200, 500])
            self.engine.observe([{**each, "time": float(each["time"])} for each in events[start:stop]])
            start = stop
        return self.engine.state().seq

    def compare(self, client: Client, log: Path, when: str) -> None:
        """Ask the server and the twin the same; every figure must be the same number."""
        seq, state = self.catch_up(log), client.ask("GET", "/v1/state")
        if state.status != 200 or state.body["seq"] != seq or state.body["digest"] != self.engine.state().digest:
            self.unequal.append(f"{when}: state {state}; the twin has {self.engine.state()}")
            return
        pairs = [tuple(self.rng.sample(self.names[1:], 2)) for _ in range(PAIRS)]
        asked = {"pairs": [{"source": source, "target": target} for source, target in pairs]}
        self._same(client.ask("POST", "/v1/score", asked), self.engine.score(pairs), when)
        for node in self.rng.sample(self.names[1:], NODES):
            self._same(
                client.ask("POST", "/v1/partners", {"node": node, "k": 10}), self.engine.partners(node, 10), when
            )

    def _same(self, told: Any, scored: Any, when: str) -> None:
        answer = scored.answer
        rate = [None] * len(scored.source) if answer.rate is None else answer.rate.tolist()
        columns = zip(scored.target, answer.partner.tolist(), rate, answer.surprise.tolist(), strict=True)
        expected = [list(row) for row in columns]
        got = [[row[key] for key in ("target", "partner", "rate", "surprise")] for row in told.body["scores"]]
        self.compared += len(expected)
        if got != expected:
            rows = [pair for pair in zip(got, expected, strict=False) if pair[0] != pair[1]]
            self.unequal.append(f"{when}: {len(rows)} of {len(expected)} answers differ, such as {rows[:1]}")


def open_torn_copy(data: Path, rng: random.Random) -> str:
    """Cut or flip a copy of the log anywhere: what is read from it must be the beginning of the log, or an error.

    The empty string if that holds.
    """
    whole = times_in(data / "log.sqlite") if (data / "log.sqlite").exists() else np.zeros(0)
    with tempfile.TemporaryDirectory() as folder:
        for file in data.glob("log.sqlite*"):
            if not file.name.endswith("-shm"):
                shutil.copy(file, Path(folder) / file.name)
        torn = rng.choice(sorted(Path(folder).iterdir()))
        content = bytearray(torn.read_bytes())
        if not content:
            return ""
        if torn.name.endswith("-wal"):
            content = content[: rng.randrange(len(content))]
        else:
            content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        torn.write_bytes(content)
        try:
            log = Log(Path(folder) / "log.sqlite")
            try:
                times = np.concatenate([np.zeros(0), *(entry.time for entry in log.entries())])
            finally:
                log.close()
        except DsrdError:
            return ""
        if len(times) <= len(whole) and (times == whole[: len(times)]).all():
            return ""
        return f"{torn.name}: a damaged copy was read as other events"
