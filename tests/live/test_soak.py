"""The soak: a short one, and that it notices what it looks for."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dsrd.live.engine import Engine
from dsrd.live.log import Entry, Log

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(autouse=True)
def _parts_of_the_soak(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its modules lie beside the script."""
    monkeypatch.syspath_prepend(BENCHMARKS)


def soak(folder: Path, *options: str) -> tuple[int, dict[str, Any], str]:
    command = [sys.executable, str(BENCHMARKS / "soak.py"), "--folder", str(folder), *options]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout.splitlines()[-1]), done.stderr


def check(code: int, record: dict[str, Any], errors: str) -> None:
    assert record["faults"] == [], errors
    assert (record["lost"], record["counted_twice"], record["answers_unequal"]) == (0, 0, 0)
    assert record["server_errors"] == 0
    assert record["acknowledged_events"] > 20
    assert record["answers_compared"] > 50
    assert code == 0


def test_a_short_soak(tmp_path: Path):
    saved = tmp_path / "soak.jsonl"
    options = ("--minutes", "0.1", "--kills", "1", "--cases", "15", "--no-disk", "--save", str(saved))
    code, record, errors = soak(tmp_path, *options, "--pause", "0.1")
    check(code, record, errors)
    assert record["kills"] >= 1
    assert record["bad_requests"] > 15
    assert json.loads(saved.read_text())["benchmark"] == "soak"


@pytest.mark.slow
def test_a_soak_with_everything(tmp_path: Path):
    code, record, errors = soak(tmp_path, "--minutes", "1.5", "--kills", "8", "--cases", "200")
    check(code, record, errors)
    assert record["kills"] >= 2
    if record["full_disk"]["tried"]:
        assert record["full_disk"]["refused"] > 0


# --- What a soak must notice -------------------------------------------------------------------------------------


def log_with(path: Path, *times: float) -> Path:
    log = Log(path)
    for number, time in enumerate(times, start=1):
        one = np.array([1], np.int64)
        entry = Entry(
            number, one, one, np.array([time]), np.zeros((1, 0), np.float32), (), 0.0, np.array([[1, 0]])
        )
        log.append(entry, [f"e{number}"])
    log.close()
    return path


def test_lost_and_doubled_events_are_noticed(tmp_path: Path):
    from soaking.checks import lost_and_twice
    from soaking.load import Told

    told = Told(acknowledged={"a": 1.0, "b": 2.0, "c": 3.0}, sent={1.0, 2.0, 3.0, 4.0})
    assert lost_and_twice(log_with(tmp_path / "whole", 1.0, 2.0, 3.0, 4.0), told) == (0, 0)
    assert lost_and_twice(log_with(tmp_path / "lost", 1.0, 3.0), told) == (1, 0)
    assert lost_and_twice(log_with(tmp_path / "twice", 1.0, 2.0, 2.0, 3.0), told) == (0, 1)


def test_old_answers_and_server_errors_are_noticed():
    from soaking.load import Told

    told = Told()
    told.saw("score", 200, {"seq": 5}, since=5)
    told.saw("score", 503, {"error": "catching up"})
    told.saw("observe", 422, {"error": "late"})
    assert told.faults == []
    told.saw("score", 200, {"seq": 4}, since=5)
    told.saw("score", 500, "oops")
    assert len(told.faults) == 2


def test_other_answers_than_those_of_the_twin_are_noticed(run: Path, tmp_path: Path):
    from soaking.checks import Twin
    from soaking.process import Answered

    class Server:
        """Answers like an engine, or a little wrong."""

        def __init__(self, engine: Engine, error: float = 0.0) -> None:
            self.engine, self.error = engine, error

        def ask(self, method: str, path: str, body: Any = None) -> Answered:
            if path == "/v1/state":
                return Answered(200, {"seq": self.engine.state().seq, "digest": self.engine.state().digest})
            if path == "/v1/score":
                scored = self.engine.score([(each["source"], each["target"]) for each in body["pairs"]])
            else:
                scored = self.engine.partners(body["node"], body["k"])
            columns = scored.target, scored.answer.partner, scored.answer.rate, scored.answer.surprise
            names = "target", "partner", "rate", "surprise"
            rows = [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
            return Answered(200, {"scores": [row | {"partner": row["partner"] + self.error} for row in rows]})

    with Engine(tmp_path / "data", run) as engine, Engine(tmp_path / "twin", run) as other:
        for step in range(5):
            engine.observe([{"source": step + 1, "target": 20 + step, "time": 1e7 + step}])
        twin, log = Twin(other, random.Random(1)), engine.folder.log
        twin.compare(Server(engine), log, "now")
        assert twin.unequal == []
        assert twin.compared > 40
        twin.compare(Server(engine, 1e-12), log, "now")
        assert "differ" in twin.unequal[0]
        engine.observe([{"source": 1, "target": 2, "time": 2e7}])
        other.observe([{"source": 1, "target": 3, "time": 2e7}])
        twin.compare(Server(engine), log, "now")
        assert "state" in twin.unequal[-1]


def test_a_torn_log_keeps_what_was_committed(tmp_path: Path):
    from soaking.checks import open_torn_copy, times_in
    from soaking.faults import tear_wal

    held = Log(log_with(tmp_path / "log.sqlite", 1.0, 2.0))  # keeps the write-ahead log from being removed
    try:
        one = np.array([1], np.int64)
        entry = Entry(3, one, one, np.array([3.0]), np.zeros((1, 0), np.float32), (), 0.0, np.array([[1, 0]]))
        held.append(entry)
        rng = random.Random(1)
        copy = tmp_path / "copy"
        copy.mkdir()
        for name in ("log.sqlite", "log.sqlite-wal"):
            (copy / name).write_bytes((tmp_path / name).read_bytes())
        assert tear_wal(copy, rng) == "torn log"
        assert [open_torn_copy(copy, rng) for _ in range(30)] == [""] * 30
        reopened = Log(copy / "log.sqlite")
        assert [entry.last for entry in reopened.entries()] == [1, 2, 3]
        reopened.close()
        assert times_in(copy / "log.sqlite").tolist() == [1.0, 2.0, 3.0]
    finally:
        held.close()
