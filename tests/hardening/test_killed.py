"""A run that dies at any moment goes on from its folder, and ends with the same tensors bit for bit.

The moments are fault points in the code (`dsrd.faults`): in the middle of an epoch, of the writing of a file (half
of it is on the disk then), between writing and renaming, and of an update.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import dsrd
from dsrd import faults
from front.conftest import COLUMNS, HEADER, rows
from support.forked import exit_code_of

SMALL = {"model__dim": 8, "model__time_dim": 4, "model__dropout": 0.3, "model__neighbors": 3}
FILES = ("best.safetensors", "last.safetensors", "now.safetensors")


def train(folder: Path) -> None:
    stream = dsrd.load("calls.csv", **COLUMNS, features=["cost"], cache=False)
    model = dsrd.LinkPredictor("tgn", epochs=2, train__batch_size=40, lr=0.01, **SMALL)
    model.fit(stream, folder=folder, progress=False)
    model.evaluate(progress=False)


def update(folder: Path) -> None:
    dsrd.open(folder).observe("grown.csv").save()


def killed(work: Callable[[Path], None], folder: Path, moment: int) -> None:
    """Do the work in a process that dies at this moment."""

    def child() -> None:
        faults.arm(f"die:{moment}")
        work(folder)

    assert exit_code_of(child) == faults.DIED


def moments_of(work: Callable[[Path], None], folder: Path) -> list[str]:
    """The names of all moments that the work comes to; it is done here, so that forked processes are warm."""
    Path("moments").unlink(missing_ok=True)
    faults.arm("list:moments")
    try:
        work(folder)
    finally:
        faults.arm("")
    return Path("moments").read_text().splitlines()


def chosen(names: list[str], count: int) -> list[int]:
    """Numbers of so many moments, from 1: of every kind as far as they reach, and evenly over the whole work."""
    evenly = {1 + round(step * (len(names) - 1) / max(count - 1, 1)) for step in range(count)}
    moments = sorted({names.index(name) + 1 for name in names} | evenly)
    count = min(count, len(moments))
    return [moments[round(step * (len(moments) - 1) / max(count - 1, 1))] for step in range(count)]


def assert_same_run(one: Path, other: Path) -> None:
    for name in FILES:
        tensors, expected = load_file(one / name), load_file(other / name)
        assert tensors.keys() == expected.keys()
        assert [key for key in tensors if not torch.equal(tensors[key], expected[key])] == [], name
    assert (
        dsrd.open(one).fitted.online.stream.dataset().digest
        == dsrd.open(other).fitted.online.stream.dataset().digest
    )
    assert not list(one.glob(".*.part"))


@pytest.fixture
def _log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of its own, with a log of calls and a longer one."""
    monkeypatch.chdir(tmp_path)
    write_logs()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def write_logs() -> None:
    """A log of calls, and a longer one."""
    Path("calls.csv").write_text(HEADER + rows(0, 240))
    Path("grown.csv").write_text(HEADER + rows(0, 300))


def check_moments(training: int, updating: int) -> dict[str, list[str]]:
    """Kill at so many moments of each work; the names of those moments. An error if a tensor differs."""
    tried: dict[str, list[str]] = {}
    names = moments_of(train, Path("whole"))
    moments = chosen(names, training)
    tried["training"] = [names[moment - 1] for moment in moments]
    for moment in moments:
        killed(train, Path("killed"), moment)
        assert exit_code_of(lambda: train(Path("killed"))) == 0, names[moment - 1]
        assert_same_run(Path("killed"), Path("whole"))
        shutil.rmtree("killed")
    shutil.copytree("whole", "before")
    names = moments_of(update, Path("whole"))
    moments = chosen(names, updating)
    tried["update"] = [names[moment - 1] for moment in moments]
    for moment in moments:
        shutil.copytree("before", "killed")
        killed(update, Path("killed"), moment)
        assert exit_code_of(lambda: update(Path("killed"))) == 0, names[moment - 1]
        assert_same_run(Path("killed"), Path("whole"))
        shutil.rmtree("killed")
    return tried


@pytest.mark.usefixtures("_log")
def test_a_run_killed_at_a_few_moments_ends_with_the_same_tensors():
    check_moments(training=4, updating=3)


@pytest.mark.slow
@pytest.mark.usefixtures("_log")
def test_a_run_killed_at_fifty_moments_ends_with_the_same_tensors():
    tried = check_moments(training=35, updating=15)
    assert sum(map(len, tried.values())) == 50


def test_fault_points_are_off_unless_asked_for():
    assert "DSRD_FAULT" not in os.environ
    assert faults._passed is None
    faults.point("nothing happens")
