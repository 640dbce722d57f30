"""Helpers for tests of `dsrd stream`: events, what an uninterrupted engine says of them, and processes to kill."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dsrd.history.pair_table import EMPTY
from dsrd.live.engine import Engine
from dsrd.live.settings import LiveSettings
from support.program import start

START = 3e6  # after the last event of the run
QUIET = LiveSettings(watch=0.0, snapshot_events=0, snapshot_minutes=0)


def events(count: int) -> list[dict[str, Any]]:
    """Events with a few new nodes. No equal times: what an event has in its own moment depends on the batches."""
    draw = np.random.default_rng(5)
    source, target = draw.integers(1, 48, (2, count)).tolist()
    time = (START + np.cumsum(draw.integers(1, 3, count))).tolist()
    return [
        {"source": source[row], "target": target[row], "time": time[row], "note": f"e{row}"}
        for row in range(count)
    ]


def as_jsonl(records: Sequence[dict[str, Any]]) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


@dataclass(frozen=True)
class Twin:
    """What an engine that was never stopped made of the events."""

    digest: str
    state: dict[str, bytes]
    partner_bits: list[float]


def fields_of(engine: Engine) -> dict[str, bytes]:
    """The model's state. Tables of pairs have more or less room, depending on the sizes of batches: their entries
    are compared, by ascending key."""
    state = {name: value.numpy() for name, value in engine.live.timeline.present.state().items()}
    for table in ("", "follow_"):
        if f"{table}key" in state:
            key = state[f"{table}key"]
            entries = np.argsort(key)[np.count_nonzero(key == EMPTY) :]  # EMPTY is below all keys
            for name in ("key", "met", "count", "met_last"):
                state[table + name] = state[table + name][entries]
    return {name: value.tobytes() for name, value in state.items()}


def twin_of(run: Path, folder: Path, records: Sequence[dict[str, Any]]) -> Twin:
    plain = [{key: record[key] for key in ("source", "target", "time")} for record in records]
    with Engine(folder, run, QUIET) as engine:
        measured = engine.observe(plain, measure=True).measured
        return Twin(engine.state().digest, fields_of(engine), [event.partner_bits for event in measured])


def assert_nothing_is_lost(data: Path, twin: Twin, num_events: int) -> None:
    """The folder is as if the engine had never been stopped."""
    with Engine(data, settings=QUIET) as engine:
        state = engine.state()
        assert (state.seq, state.digest) == (num_events, twin.digest)
        assert fields_of(engine) == twin.state


def assert_lines_are_those_of(
    lines: Sequence[dict[str, Any]], twin: Twin, records: Sequence[dict[str, Any]]
) -> None:
    """Every event once, in order, as it came, with what the twin made of it."""
    assert [each["seq"] for each in lines] == list(range(1, len(records) + 1))
    assert np.allclose([each["partner_bits"] for each in lines], twin.partner_bits, rtol=1e-4, atol=1e-4)
    ends = [(str(each["source"]), str(each["target"]), each["time"]) for each in lines]
    assert ends == [(str(each["source"]), str(each["target"]), each["time"]) for each in records]


def kill_when(process: subprocess.Popen[str], ready: Callable[[], bool]) -> None:
    """SIGKILL a process in the middle of its work."""
    wait_for(process, ready)
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait(30) == -signal.SIGKILL


def wait_for(process: subprocess.Popen[str], ready: Callable[[], bool]) -> None:
    until = time.monotonic() + 240  # of a busy machine
    while not ready():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until
        time.sleep(0.002)


def stop(process: subprocess.Popen[str], number: signal.Signals = signal.SIGTERM) -> str:
    """Ask a process to stop; it must do so cleanly. Returns what it said."""
    os.kill(process.pid, number)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return out


def stream(*words: object) -> subprocess.Popen[str]:
    return start("stream", *words, "--threads", 1)


def num_logged(data: Path) -> int:
    """Events in the log, as another process sees it."""
    if not (data / "log.sqlite").exists():
        return 0
    try:
        with sqlite3.connect(f"file:{data / 'log.sqlite'}?mode=ro", uri=True) as log:
            return int(log.execute("select coalesce(max(last), 0) from entries").fetchone()[0])
    except sqlite3.OperationalError:  # no tables yet
        return 0
