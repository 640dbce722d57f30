"""The small plan as it is, on each of the three places, and the report of its folder."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import dsrd
from dsrd.experiments import load_plan, sweep
from support.sweeps import comparable

PLAN = Path(__file__).parents[2] / "plans" / "small.toml"


def submitted(folder: Path) -> Any:
    """What the tasks of the SLURM script leave, run one after the other by this machine."""
    done = subprocess.run(
        [sys.executable, "-m", "dsrd", "sweep", PLAN, "--slurm", "--out", folder], check=False, capture_output=True
    )
    assert done.returncode == 0, done.stderr
    for task in range(len(load_plan(PLAN).runs)):
        environment = {**os.environ, "SLURM_ARRAY_TASK_ID": str(task)}
        subprocess.run(["bash", folder / "sweep.sh"], env=environment, check=True, capture_output=True)
    return sweep(PLAN, folder=folder, progress=False)


@pytest.mark.slow
def test_the_small_plan_and_its_report_are_the_same_on_three_places(tmp_path: Path):
    pytest.importorskip("ray", reason="Ray is not installed (extra `ray`)")
    places = {
        "jobs": sweep(PLAN, folder=tmp_path / "jobs", jobs=2, threads=1, progress=False),
        "ray": sweep(PLAN, folder=tmp_path / "ray", ray="local", threads=1, progress=False),
        "slurm": submitted(tmp_path / "slurm"),
    }
    tables = {}
    for place, done in places.items():
        assert not done.failed
        assert len(done.records) == 12
        assert comparable(done.records) == comparable(places["jobs"].records), place
        made = dsrd.report(tmp_path / place, out=tmp_path / f"{place}-report", progress=False)
        assert made.page is not None
        assert made.page.stat().st_size > 100_000
        tables[place] = {
            (each.dataset, each.row, each.setting, each.negatives, each.metric, each.seed): each.value
            for each in made.numbers
        }
    assert tables["jobs"] == tables["ray"] == tables["slurm"]
