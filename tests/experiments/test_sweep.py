"""Sweeps on this machine: processes, failures, kills, and what is never done twice."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

import dsrd.models
from dsrd.errors import DsrdError
from dsrd.experiments import Sweep, load_plan, records, sweep
from dsrd.experiments.folder import SweepFolder
from dsrd.files import locked
from support.sweeps import LEARNED, OTHER_STREAM, PLAN, RULE, STREAM, comparable, lines, run_here

KILLED_SWEEPS = Path(__file__).parent.parent / "support" / "killed_sweeps.py"


def test_two_processes_give_what_one_process_gives(in_one_process: Sweep):
    done = sweep(PLAN, folder="two", jobs=2, threads=1, progress=False)
    assert not done.failed
    assert done.labels == (RULE, LEARNED, LEARNED)
    assert comparable(done.records) == comparable(in_one_process.records)
    assert list(records.read(done.records_file)) == list(done.records)
    assert all(record["machine"]["threads"] == 1 for record in done.records)
    assert not list(Path("two/runs").glob("*/events.arrow")), "a sweep keeps no copy of the events for each run"


def test_nothing_is_repeated_and_what_is_added_is_run(monkeypatch: pytest.MonkeyPatch):
    started = run_here(monkeypatch)
    first = sweep(PLAN, folder="out", progress=False)
    assert len(started) == len(first.records) == 3
    before = Path("out/records.jsonl").read_bytes()
    again = sweep(PLAN, folder="out", progress=False)
    assert len(started) == 3
    assert again.records == first.records
    assert Path("out/records.jsonl").read_bytes() == before

    more = {**PLAN, "seeds": [0, 1, 2]}
    longer = sweep(more, folder="out", progress=False)
    assert len(started) == 4
    assert len(longer.records) == len(lines(longer.records_file)) == 4


def test_records_are_found_again_where_run_folders_are_gone(monkeypatch: pytest.MonkeyPatch):
    started = run_here(monkeypatch)
    done = sweep(PLAN, folder="out", progress=False)
    for folder in ("runs", "planned", "started", "logs", "locks"):
        subprocess.run(["rm", "-rf", f"out/{folder}"], check=True)
    assert sweep(PLAN, folder="out", progress=False).records == done.records
    assert len(started) == 3


def test_a_record_that_was_not_collected_is_and_half_a_line_is_not(monkeypatch: pytest.MonkeyPatch):
    """A sweep that is killed after a run has ended, or a file that a full disk has cut."""
    started = run_here(monkeypatch)
    done = sweep(PLAN, folder="out", progress=False)
    kept = done.records_file.read_text().splitlines(keepends=True)
    done.records_file.write_text(kept[0] + kept[1][:100])
    again = sweep(PLAN, folder="out", progress=False)
    assert len(started) == 3
    assert comparable(records.read(again.records_file)) == comparable(done.records)


def test_a_run_that_fails_does_not_stop_the_others(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture):
    started = run_here(monkeypatch)
    broken = {"name": LEARNED, "label": "broken", "settings": {"train.device": "cuda:7"}, "seeds": [0]}
    plan = {**PLAN, "models": [broken, *PLAN["models"]]}
    done = sweep(plan, folder="out")
    assert len(done.records) == 3
    (name, reason), *others = done.failed.items()
    assert not others
    assert "broken on synth:events=800,seed=1" in name
    assert "train.device=cuda:7" in reason
    assert re.search(r"failed: broken on .*train.device=cuda:7", capsys.readouterr().err)
    key = load_plan(plan).runs[0].key
    assert "Traceback" in json.loads(Path(f"out/failed/{key}.json").read_text())["details"]

    assert sweep(plan, folder="out", progress=False).failed == done.failed
    assert started.count(key) == 2, "the same command tries a failed run again"
    assert len(started) == 5


def test_a_process_that_is_killed_fails_with_a_reason(monkeypatch: pytest.MonkeyPatch):
    """As when the memory is full."""
    models = Path("models").absolute()
    models.mkdir()
    code = "import os, signal\nfrom dsrd.models.edgebank import EdgeBank as Base\n"
    code += (
        "class Dies(Base):\n    def observe(self, events, past):\n        os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    (models / "dies.py").write_text(code)
    monkeypatch.setenv("DSRD_MODELS", str(models))
    monkeypatch.setattr(dsrd.models, "__path__", [*dsrd.models.__path__, str(models)])
    done = sweep({**PLAN, "models": [{"name": "dies", "seeds": [0]}]}, folder="out", progress=False)
    assert "its process was killed; often the memory was full" in next(iter(done.failed.values()))


def test_a_folder_at_work_is_refused():
    with (
        locked(Path("out"), message=""),
        pytest.raises(DsrdError, match="another sweep is at work in this folder"),
    ):
        sweep(PLAN, folder="out", progress=False)


@pytest.mark.parametrize(("given", "words"), [({"jobs": 0}, "jobs=0"), ({"threads": -1}, "threads=-1")])
def test_wrong_numbers_are_refused(given: dict[str, int], words: str):
    with pytest.raises(DsrdError, match=words):
        sweep(PLAN, folder="out", progress=False, **given)


def test_missing_data_are_refused_before_anything_runs(monkeypatch: pytest.MonkeyPatch):
    started = run_here(monkeypatch)
    plan = {**PLAN, "datasets": [STREAM, "uci"]}
    with pytest.raises(DsrdError, match=r"data set uci is not here; fetch it \(https://"):
        sweep(plan, folder="out", progress=False)
    assert not started
    assert not Path("out").exists()
    assert len(sweep(plan, folder="out", present=True, progress=False).records) == 3


def test_ten_kills_lose_nothing_and_repeat_nothing(in_one_process: Sweep):
    """The sweep and its runs are killed at random moments. Each kill costs the epochs at work, nothing else."""
    kills, jobs, epochs = 10, 2, 4
    models = [{**model, "seeds": [0, 1, 2]} for model in PLAN["models"][1:]]
    settings = {**PLAN["settings"], "train.epochs": epochs}
    plan = {**PLAN, "datasets": [STREAM, OTHER_STREAM], "models": models, "settings": settings}
    command = [sys.executable, str(KILLED_SWEEPS), "killed/out", str(kills)]
    Path("killed").mkdir()
    done = subprocess.run(command, input=json.dumps(plan), text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    notes = lines(Path("killed/notes"))
    assert not [line for line in notes if line.startswith("failed")]
    assert len([line for line in notes if line.startswith("killed")]) == kills
    assert any("killed with 0 of" not in line for line in notes if line.startswith("killed")), "killed too early"

    runs = load_plan(plan).runs
    digests = [record["digests"]["config"] for record in records.read(Path("killed/out/records.jsonl"))]
    assert sorted(digests) == sorted(run.digest for run in runs), "every run once"
    evaluated = [line.split()[1] for line in notes if line.startswith("evaluated")]
    assert len(evaluated) == len(set(evaluated)), "no run is evaluated again once its record is written"
    trained = [line.split()[1] for line in notes if line.startswith("epoch")]
    assert len(trained) <= len(runs) * epochs + kills * jobs


def test_killed_runs_end_in_the_same_weights(monkeypatch: pytest.MonkeyPatch, in_one_process: Sweep):
    """Killed in the middle of the real thing: a process of the sweep, and its processes."""
    command = [
        sys.executable,
        "-c",
        f"from dsrd.experiments import sweep; sweep({PLAN!r}, folder='out', threads=1)",
    ]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    key, folder = load_plan(PLAN).runs[1].key, SweepFolder(Path("out"))
    began = time.monotonic()
    while not (folder.run(key).path / "log.jsonl").exists():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() - began < 600
        time.sleep(0.01)
    process.kill()
    process.wait()
    assert len(folder.records()) < 3
    run_here(monkeypatch)
    done = sweep(PLAN, folder="out", progress=False)
    assert comparable(done.records) == comparable(in_one_process.records)
