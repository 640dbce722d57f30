"""The SLURM script: what it asks for, and that each of its tasks finishes its run."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from dsrd.experiments import Sweep, load_plan, records, sweep
from dsrd.experiments.estimate import Estimate
from dsrd.experiments.folder import SweepFolder
from dsrd.experiments.places import slurm
from dsrd.experiments.places.slurm import write_scripts
from support.sweeps import PLAN, comparable, run_here


def scripts(folder: str = "out with space", **more: object) -> list[Path]:
    runs = load_plan(PLAN).runs
    estimates = {run.key: Estimate(1000.0 * number, 3000.0, "last time") for number, run in enumerate(runs)}
    return write_scripts(SweepFolder(Path(folder)), "tiny", runs, estimates, **more)  # type: ignore[arg-type]


def options(text: str) -> dict[str, str]:
    return dict(re.findall(r"^#SBATCH --([\w-]+)=(.*)$", text, re.M))


def test_what_the_script_asks_for():
    (path,) = scripts(threads=3, at_a_time=2, data_dir="data")
    asked = options(path.read_text())
    assert asked["array"] == "0-2%2"
    assert asked["cpus-per-task"] == "3"
    assert asked["time"] == "01:30:00", "twice the longest estimate, in half hours"
    assert asked["mem"] == "4608M", "half more than the largest estimate"
    assert "#SBATCH --requeue" in path.read_text()
    assert f"--data-dir {Path('data').absolute()}" in path.read_text()
    assert subprocess.run(["bash", "-n", path], check=False).returncode == 0
    assert os.access(path, os.X_OK)


def test_many_runs_are_several_arrays(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(slurm, "MOST_TASKS", 2)
    first, second = scripts()
    assert (first.name, second.name) == ("sweep-1.sh", "sweep-2.sh")
    assert [options(path.read_text())["array"] for path in (first, second)] == ["0-1", "0-0"]
    keys = [run.key for run in load_plan(PLAN).runs]
    assert [key for path in (first, second) for key in keys if key in path.read_text()] == keys
    assert all(f"/{path.name}" in path.read_text().split("sbatch")[1] for path in (first, second)), (
        "how to submit it"
    )


def test_a_task_finishes_its_run_and_the_sweep_finds_it(monkeypatch: pytest.MonkeyPatch, in_one_process: Sweep):
    (path,) = scripts()
    environment = {**os.environ, "SLURM_ARRAY_TASK_ID": "1"}
    for _ in range(2):  # the second time it returns at once
        done = subprocess.run(["bash", path], env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    found = list(records.read(path.parent / "records.jsonl"))
    assert comparable(found) == comparable([in_one_process.records[1]])
    started = run_here(monkeypatch)
    whole = sweep(PLAN, folder=path.parent, progress=False)
    assert len(started) == 2
    assert comparable(whole.records) == comparable(in_one_process.records)


def test_a_task_that_fails_says_so():
    broken = {**PLAN, "models": [{"name": "edgebank", "settings": {"train.device": "cuda:7"}}], "seeds": [0]}
    run = load_plan(broken).runs[0]
    (path,) = write_scripts(SweepFolder(Path("out")), "tiny", [run], {})
    assert options(path.read_text())["time"] == "72:00:00", "nothing is known about it"
    environment = {**os.environ, "SLURM_ARRAY_TASK_ID": "0"}
    done = subprocess.run(["bash", path], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "error: train.device=cuda:7" in done.stderr
    assert "train.device=cuda:7" in (SweepFolder(Path("out")).failure(run.key) or "")
