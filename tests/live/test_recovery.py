"""Recovery: after a kill, with damaged files, from packed logs, an engine is as if it had never stopped."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from dsrd.errors import DsrdError
from dsrd.live import Engine
from dsrd.live.log import Log
from live.rows import QUIET, abandon, answers, in_batches, rows

KILLED = """
import sys
from pathlib import Path
from dsrd.live import Engine, LiveSettings
from live.rows import rows

data, run = sys.argv[1:]
with Engine(data, run, LiveSettings(snapshot_events=60, watch=0.1)) as engine:
    print("ready", flush=True)
    first = engine.state().seq
    for start in range(first, 5000, 7):
        done = engine.observe(rows(7, start))
        print(done.seq, flush=True)
"""


@pytest.mark.parametrize("model", ["run", "tgn"])
@pytest.mark.parametrize("snapshots", [(), (35,), (35, 70)])
def test_recovery_equals_never_having_stopped(
    model: str, snapshots: tuple[int, ...], tmp_path: Path, request: pytest.FixtureRequest
):
    folder = request.getfixturevalue(model)
    with Engine(tmp_path / "twin", folder, QUIET) as twin:
        in_batches(twin, 105)
        expected = answers(twin)
        in_batches(twin, 35, 105)
        expected_later = answers(twin)
    stopped, begun = Engine(tmp_path / "data", folder, QUIET), 0
    for until in (*snapshots, 105):
        in_batches(stopped, until - begun, begun)
        if until < 105:
            assert stopped.snapshot() == until
        begun = until
    abandon(stopped)
    with Engine(tmp_path / "data", settings=QUIET) as engine:
        assert engine.live.last_snapshot == max(snapshots, default=0)
        assert answers(engine) == expected
        in_batches(engine, 35, 105)
        assert answers(engine) == expected_later


@pytest.mark.parametrize("model", ["run", "tgn"])
def test_a_packed_log_gives_the_same(model: str, tmp_path: Path, request: pytest.FixtureRequest):
    engine = Engine(tmp_path, request.getfixturevalue(model), QUIET)
    in_batches(engine, 35)
    engine.snapshot()
    in_batches(engine, 70, 35)
    assert engine.compact(vacuum=True) == 14  # 15 rows became one
    newest = max((tmp_path / "snapshots").iterdir())
    in_batches(engine, 14, 105)
    expected = answers(engine)
    abandon(engine)
    newest.unlink()  # the older snapshot lies inside the packed row
    with Engine(tmp_path, settings=QUIET) as engine:
        assert engine.live.last_snapshot == 35
        assert answers(engine) == expected


def test_damaged_snapshots_are_skipped_with_a_note(run: Path, tmp_path: Path):
    engine = Engine(tmp_path, run, QUIET)
    for part in range(4):
        in_batches(engine, 21, 21 * part)
        engine.snapshot()
    in_batches(engine, 7, 84)
    expected = answers(engine)
    abandon(engine)
    snapshots = sorted((tmp_path / "snapshots").iterdir())
    assert len(snapshots) == 3
    newest, middle = snapshots[2], snapshots[1]
    newest.write_bytes(newest.read_bytes()[: newest.stat().st_size // 2])  # torn
    content = bytearray(middle.read_bytes())
    content[-100] ^= 1  # one bit
    middle.write_bytes(content)
    (tmp_path / "snapshots" / ".half.part").write_bytes(b"half")
    with Engine(tmp_path, settings=QUIET) as engine:
        assert engine.live.last_snapshot == 42
        assert len(engine.live.notes) == 2
        assert all(path.name in " ".join(engine.live.notes) for path in (newest, middle))
        assert answers(engine) == expected


def test_a_snapshot_of_another_log_is_not_used(run: Path, tmp_path: Path):
    with Engine(tmp_path / "data", run, QUIET) as engine:
        in_batches(engine, 42)
    with Engine(tmp_path / "other", run, QUIET) as other:
        other.observe(rows(60, 100))
        expected = answers(other)
    for path in (tmp_path / "other" / "snapshots").iterdir():
        path.unlink()
    snapshot = next((tmp_path / "data" / "snapshots").iterdir())
    snapshot.rename(tmp_path / "other" / "snapshots" / snapshot.name)
    with Engine(tmp_path / "other", settings=QUIET) as other:
        assert "other events" in other.live.notes[0] or "other events" in " ".join(other.live.notes)
        assert answers(other) == expected


def test_a_log_that_was_cut_off_does_not_use_later_snapshots(run: Path, tmp_path: Path):
    with Engine(tmp_path, run, QUIET) as engine:
        in_batches(engine, 42)
    (tmp_path / "log.sqlite").unlink()
    with Engine(tmp_path, settings=QUIET) as engine:
        assert engine.state().seq == 0
        assert "the log only 0" in engine.live.notes[0]


def test_a_damaged_log_is_named(run: Path, tmp_path: Path):
    with Engine(tmp_path, run, QUIET) as engine:
        in_batches(engine, 21)
    with sqlite3.connect(tmp_path / "log.sqlite") as log:
        log.execute("update entries set src = zeroblob(56) where last = 14")
    log.close()
    with pytest.raises(DsrdError, match=r"log\.sqlite: the entry of events 8 to 14 is damaged"):
        Engine(tmp_path, settings=QUIET)
    (tmp_path / "log.sqlite").write_bytes(b"this is no log" * 1000)
    with pytest.raises(DsrdError, match=r"log\.sqlite: is damaged or not a log"):
        Engine(tmp_path, settings=QUIET)


@pytest.mark.parametrize("journal", ["delete", "wal"])
def test_a_log_that_was_killed_while_it_was_made_is_made_anew(tmp_path: Path, journal: str):
    path = tmp_path / "log.sqlite"
    path.touch()
    with closing(sqlite3.connect(path)) as file:
        file.execute(f"pragma journal_mode={journal}")
    with pytest.raises(DsrdError, match="there is no log; start the server that writes it first"):
        Log(path, read_only=True)
    log = Log(path)
    assert log.last == 0
    log.close()


def test_a_data_folder_can_be_moved(run: Path, tmp_path: Path):
    with Engine(tmp_path / "here", run, QUIET) as engine:
        in_batches(engine, 42)
        expected = answers(engine)
    (tmp_path / "here").rename(tmp_path / "there")
    with Engine(tmp_path / "there", settings=QUIET) as engine:
        assert answers(engine) == expected


@pytest.mark.parametrize(("model", "kills"), [("run", 2), ("tgn", 1)])
def test_a_kill_loses_nothing_acknowledged_and_counts_nothing_twice(
    model: str, kills: int, tmp_path: Path, request: pytest.FixtureRequest
):
    folder, draw = request.getfixturevalue(model), random.Random(3)
    paths = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-c", KILLED, str(tmp_path / "data"), str(folder)]
    acknowledged = 0
    for _ in range(kills):
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": paths}
        ) as process:
            assert process.stdout is not None
            lines = [line.strip() for line, _ in zip(process.stdout, range(draw.randrange(6, 40)), strict=False)]
            process.send_signal(signal.SIGKILL)
            lines += [line.strip() for line in process.stdout.read().split("\n")[:-1]]
        acknowledged = max([acknowledged, *(int(line) for line in lines if line.isdecimal())])
    with Engine(tmp_path / "data", settings=QUIET) as engine:
        found: dict[str, Any] = answers(engine)
    seq = found["state"].seq
    assert acknowledged <= seq <= acknowledged + 7
    assert acknowledged > 21
    with Engine(tmp_path / "twin", folder, QUIET) as twin:
        in_batches(twin, seq)
        assert answers(twin) == found
