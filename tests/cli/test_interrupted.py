"""Killed and interrupted runs: nothing is lost, and the end is the same, bit for bit."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from subprocess import Popen

import pytest
import torch
from safetensors.torch import load_file

from dsrd.files import LOCK, locked
from support.program import STREAM, TRAINED, done, dsrd, finish, refused, start

EPOCHS = 8
RUN = (
    "train",
    *("--dataset", STREAM, "--model", TRAINED, "--threads", "1", "--json", "--set", f"train.epochs={EPOCHS}"),
    *("--set", "train.batch_size=20", "--set", "train.lr=0.01", "--set", "model.dropout=0.3"),
    *("--set", "model.dim=16", "--set", "model.time_dim=8", "--set", "evaluate.negatives=random"),
)
DIE_BEFORE_RENAMING = """
import os, signal, sys
from dsrd.cli import main
real, left = os.replace, int(sys.argv.pop(1))
def replace(*names):
    global left
    left -= 1
    os.kill(os.getpid(), signal.SIGKILL) if left == 0 else real(*names)
os.replace = replace
main()
"""


def killed_before_renaming(number: int, folder: str) -> None:
    """Run until the given number of files is written but for the renaming of the last, then kill -9."""
    outcome = finish(start(number, *RUN, "--out", folder, code=DIE_BEFORE_RENAMING))
    assert outcome.code == -signal.SIGKILL, outcome.err


def after(epochs: int, process: Popen[str], folder: Path) -> None:
    """Wait until a run has logged so many epochs."""
    log = folder / "log.jsonl"
    began = time.monotonic()
    while not log.exists() or len(log.read_text().splitlines()) < epochs:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() - began < 60
        time.sleep(0.002)


def assert_same_tensors(one: Path, other: Path) -> None:
    for name in ("best.safetensors", "last.safetensors"):
        mine, theirs = load_file(one / name), load_file(other / name)
        assert mine.keys() == theirs.keys()
        assert [key for key in mine if not torch.equal(mine[key], theirs[key])] == []


def without_timing(record: dict) -> dict:
    return {key: record[key] for key in ("results", "validation", "ceiling", "config", "digests", "parameters")}


def test_a_run_killed_three_times_ends_as_one_that_was_not():
    killed_before_renaming(1, "killed")  # config.json: the folder holds nothing but a temporary file
    left = [path for path in Path("killed").iterdir() if path.name != LOCK]
    assert [path.suffix for path in left] == [".part"]
    killed_before_renaming(9, "killed")  # best.safetensors of a later epoch: last.safetensors is an epoch behind
    assert Path("killed/last.safetensors").exists()
    assert list(Path("killed").glob(".*.part"))
    process = start(*RUN, "--out", "killed")
    after(5, process, Path("killed"))
    process.kill()  # anywhere in the sixth epoch
    assert finish(process).code == -signal.SIGKILL
    assert not Path("results.jsonl").exists()

    resumed = done(*RUN, "--out", "killed")
    assert "killed: goes on after epoch" in resumed.err
    whole = done(*RUN, "--out", "whole", "--results", "other.jsonl")
    assert_same_tensors(Path("killed"), Path("whole"))
    assert without_timing(resumed.json) == without_timing(whole.json)
    assert len(Path("killed/log.jsonl").read_text().splitlines()) == EPOCHS
    assert Path("results.jsonl").read_text() == resumed.out
    assert not list(Path("killed").glob(".*.part"))


def test_ctrl_c_is_one_line_and_the_run_goes_on_later():
    process = start(*RUN, "--out", "run")
    after(2, process, Path("run"))
    process.send_signal(signal.SIGINT)
    outcome = finish(process)
    assert outcome.code == 130
    assert outcome.out == ""
    lines = [line for line in outcome.err.splitlines() if line]
    assert lines == ["interrupted; a training run goes on from its last epoch when given the same command"]
    assert not list(Path("run").glob(".*.part"))
    assert not Path("results.jsonl").exists()

    resumed = done(*RUN, "--out", "run")
    assert "run: goes on after epoch" in resumed.err
    assert resumed.json["timing"]["epochs"] == EPOCHS
    assert Path("results.jsonl").read_text() == resumed.out


def test_a_folder_somebody_is_training_in_is_left_alone():
    with locked(Path("run"), message=""):
        error = refused(*RUN, "--out", "run")
    assert "run: another process is at work in this folder; wait for it or choose another folder" in error


def test_ctrl_c_while_writing_leaves_nothing(monkeypatch: pytest.MonkeyPatch):
    def half(table: object, path: str) -> None:
        Path(path).write_text("source,tar")
        raise KeyboardInterrupt

    monkeypatch.setattr("pyarrow.csv.write_csv", half)
    outcome = dsrd("data", "synth", "drawn.csv", "--set", "events=500")
    assert outcome.code == 130
    assert outcome.err.startswith("interrupted")
    assert list(Path().iterdir()) == []
