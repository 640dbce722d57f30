"""Every test of a sweep works in an empty folder, without the user's data."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsrd.experiments import Sweep, sweep
from support.sweeps import PLAN, run_here


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DSRD_DATA", str(tmp_path / "no-data"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


@pytest.fixture(scope="session")
def in_one_process(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    """The tiny plan, run in this process: what every other place must give."""
    with pytest.MonkeyPatch.context() as patch:
        run_here(patch)
        return sweep(PLAN, folder=tmp_path_factory.mktemp("sweeps") / "here", progress=False)
