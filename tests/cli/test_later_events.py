"""`dsrd update`, `surprise`, `compare`, `demo --own-data`, and `python -m dsrd`."""

from __future__ import annotations

import csv
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from support.call_log import CALLS, write_calls
from support.program import QUICK, STREAM, TRAIN, TRAINED, done, refused

HEADER = "caller,callee,when,cost,kind,remark\n"
TOMORROW = HEADER + "Ann,Bob,2024-05-21T08:00:00Z,1,0,fine\nzoe,Ann,2024-05-21T09:00:00Z,1,0,new\n"


@pytest.fixture(scope="module")
def once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("live")
    calls = write_calls(folder / "calls.csv")
    done(*TRAIN, "-d", calls, *CALLS, "-o", folder / "run", "--results", "none")
    return folder / "run"


@pytest.fixture
def run(once: Path) -> Path:
    shutil.copytree(once, "run")
    return Path("run")


def test_update_adds_new_events_to_the_state(run: Path):
    Path("tomorrow.csv").write_text(TOMORROW)
    before = done("predict", run, "--node", "Ann").out
    message = done("update", run, "tomorrow.csv").out
    assert message == "run: 2 new events, 1 new nodes; 122 events up to 2024-05-21T09:00:00Z\n"
    assert done("predict", run, "--node", "Ann").out != before
    assert done("predict", run, "--node", "zoe", "--top", 1, "--json").json["predictions"][0]["known"]
    again = done("update", run, "tomorrow.csv", "--late", "drop", "--json").json
    assert (again["events"], again["nodes"]) == (123, 9)  # the last row is not older than the newest


def test_update_skips_rows_the_run_already_has(run: Path):
    log = write_calls(Path("calls.csv"))
    log.write_text(log.read_text() + TOMORROW.removeprefix(HEADER))
    outcome = done("update", run, log, "--json")
    assert outcome.json["new_events"] == 2
    assert "120 events were known already" in outcome.err


def test_a_refused_update_does_not_change_the_run(run: Path):
    Path("late.csv").write_text(HEADER + "Ann,Bob,2024-05-01T08:00:00Z,1,0,fine\n")
    error = refused("update", run, "late.csv")
    assert "late.csv: row 2: time 2024-05-01T08:00:00Z is older than the newest known event (2024-05-2" in error
    assert "unknown value of --late 'dorp'; did you mean 'drop'?" in refused(
        "update", run, "late.csv", "--late", "dorp"
    )
    assert "no.csv: no such file" in refused("update", run, "no.csv")
    Path("odd.csv").write_text("who,whom\n1,2\n")
    assert "odd.csv: there is no column 'caller'" in refused("update", run, "odd.csv")
    assert "no-run: not a run folder" in refused("update", "no-run", "late.csv")


def test_surprise_adds_bits_and_percentile(run: Path):
    Path("tomorrow.csv").write_text(TOMORROW)
    before = {path: path.read_bytes() for path in run.iterdir()}
    rows = list(csv.DictReader(done("surprise", run, "tomorrow.csv").out.splitlines()))
    assert list(rows[0]) == [*HEADER.strip().split(","), "surprise", "percentile", "known"]
    assert [row["known"] for row in rows] == ["true", "false"]
    assert all(float(row["surprise"]) > 0 for row in rows)
    done("surprise", run, "tomorrow.csv", "--out", "bits.csv")
    assert list(csv.DictReader(Path("bits.csv").read_text().splitlines())) == rows
    assert {path: path.read_bytes() for path in run.iterdir()} == before


def test_evaluate_on_new_events(run: Path):
    Path("tomorrow.csv").write_text(TOMORROW)
    result = done("evaluate", run, "--events", "tomorrow.csv", "--results", "none", "--json").json
    assert result["measured_on"] == "2 later events"
    words = ["evaluate", run, "--events", "tomorrow.csv", "--questions", "--results", "none"]
    assert done(*words, "--json").json["questions"]["partner"]["ranked_events"] == 2
    assert "P(random pair)" in done(*words).out  # one event is a first meeting, so some questions have few events
    assert "--events is only for a run folder" in refused(
        "evaluate", "-m", "edgebank", "-d", STREAM, "--events", "tomorrow.csv"
    )


def test_final_trains_again_on_all_events():
    words = [*TRAIN, "-d", STREAM, "-o", "run"]
    first = done(*words, "--json").json
    assert "final" not in first
    final = done(*words, "--final", "--json").json
    assert final["final"]["events"] == 1000
    assert final["results"] == first["results"]
    assert Path("run/final.safetensors").exists()
    assert not Path("run/final-last.safetensors").exists()
    assert done("predict", "run", "--node", 3, "--json").json["rows"] == 10


def test_compare_shows_settings_that_differ(trained_once: Callable[[str], Path]):
    shutil.copytree(trained_once(TRAINED), "a")
    done("train", "-m", TRAINED, *QUICK, "-d", STREAM, "-o", "b", "--seed", 1, "--set", "train.lr=0.01")
    shown = done("compare", "a", "b").out
    settings = shown.split("settings that differ")[1].split("cost")[0]
    assert "seed" in settings
    assert "train.lr" in settings
    assert "train.epochs" not in settings
    assert "best epoch" in shown
    result = done("compare", "a", "b", "--json").json["runs"]
    assert {name: run["settings"] for name, run in result.items()} == {
        "a": {"seed": 0, "train.lr": 0.0001},
        "b": {"seed": 1, "train.lr": 0.01},
    }
    assert result["a"]["best_epoch"] == 1
    assert result["a"]["results"] == json.loads(Path("a/record.json").read_text())["results"]


def test_compare_warns_of_different_events_and_protocols(trained_once: Callable[[str], Path]):
    shutil.copytree(trained_once(TRAINED), "a")
    done("train", "-m", TRAINED, *QUICK, "-d", "synth:events=900", "-o", "b", "--protocol", "dyglib")
    message = done("compare", "a", "b").err
    assert "measured on different events" in message
    assert "measured by different protocols" in message
    assert "compare needs two or more runs" in refused("compare", "a")
    assert "the same run is given twice" in refused("compare", "a", "a")
    Path("b/record.json").unlink()
    assert "b: this run is not complete" in refused("compare", "a", "b")


@pytest.mark.parametrize(
    "words", ["train -d synth -d synth", "evaluate run --head=a --head b", "models --json --json"]
)
def test_an_option_given_twice_is_refused(words: str):
    assert "is given twice; keep one" in refused(*words.split())


def test_repeatable_options_may_be_repeated(run: Path):
    assert done("predict", run, "--node", "Ann", "--node", "Bob", "--top", 1, "--json").json["rows"] == 2


def test_python_m_dsrd_runs_the_program():
    result = subprocess.run(
        [sys.executable, "-m", "dsrd", "--version"], capture_output=True, text=True, check=True
    )
    assert result.stdout.startswith("dsrd ")


def test_demo_own_data_runs_every_step():
    shown = done("demo", "--own-data", "--folder", "walk", "--threads", 1).out
    for part in (
        "# 1. a call log",
        "$ dsrd train --dataset calls.csv",
        "learns nothing",
        "most unexpected",
        "new events",
    ):
        assert part in shown
    assert {"calls.csv", "tomorrow.csv", "ask.csv", "calls.run", "surprise.csv"} <= {
        path.name for path in Path("walk").iterdir()
    }
    assert "--json cannot be used with --own-data" in refused("demo", "--own-data", "--json")


def test_progress_lines_in_a_log_start_with_the_time(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("dsrd.reporter.LINE_EVERY", 0.0)
    lines = done(*TRAIN, "-d", STREAM, "-o", "run", "--json").err.splitlines()
    assert any("epoch 1: loss 0." in line and "val AP" in line for line in lines)
    assert not any("\r" in line or "\x1b" in line for line in lines)
