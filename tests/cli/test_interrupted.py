"""Killed and interrupted runs can be continued, and end with the same weights bit for bit."""

from __future__ import annotations

import re
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
MANY_EPOCHS = 40  # too many to end before a signal comes, however busy the machine is
SETTINGS = (
    *("--dataset", STREAM, "--model", TRAINED, "--threads", "1", "--json"),
    *("--set", "train.batch_size=20", "--set", "train.lr=0.01", "--set", "model.dropout=0.3"),
    *("--set", "model.dim=16", "--set", "model.time_dim=8", "--set", "evaluate.negatives=random"),
)
RUN = ("train", *SETTINGS, "--set", f"train.epochs={EPOCHS}")
LONG_RUN = ("train", *SETTINGS, "--set", f"train.epochs={MANY_EPOCHS}", "--set", f"train.patience={MANY_EPOCHS}")
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
    """Run a command and kill it (-9) just before it renames its file number `number`."""
    outcome = finish(start(number, *RUN, "--out", folder, code=DIE_BEFORE_RENAMING))
    assert outcome.code == -signal.SIGKILL, outcome.err


def after(epochs: int, process: Popen[str], folder: Path) -> None:
    """Wait until a run has logged this many epochs."""
    log = folder / "log.jsonl"
    began = time.monotonic()
    while not log.exists() or len(log.read_text().splitlines()) < epochs:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() - began < 60
        time.sleep(0.002)


def assert_same_tensors(one: Path, other: Path) -> None:
    for name in ("best.safetensors", "last.safetensors"):
        tensors, expected = load_file(one / name), load_file(other / name)
        assert tensors.keys() == expected.keys()
        assert [key for key in tensors if not torch.equal(tensors[key], expected[key])] == []


def without_timing(record: dict) -> dict:
    return {key: record[key] for key in ("results", "validation", "ceiling", "config", "digests", "parameters")}


def test_a_run_killed_three_times_ends_with_the_same_weights():
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
    assert "killed: continues after epoch" in resumed.err
    whole = done(*RUN, "--out", "whole", "--results", "other.jsonl")
    assert_same_tensors(Path("killed"), Path("whole"))
    assert without_timing(resumed.json) == without_timing(whole.json)
    assert len(Path("killed/log.jsonl").read_text().splitlines()) == EPOCHS
    assert Path("results.jsonl").read_text() == resumed.out
    assert not list(Path("killed").glob(".*.part"))


def test_ctrl_c_prints_one_line_and_the_run_can_be_continued():
    process = start(*LONG_RUN, "--out", "run")
    after(2, process, Path("run"))
    process.send_signal(signal.SIGINT)
    outcome = finish(process)
    assert outcome.code == 130
    assert outcome.out == ""
    is_progress = re.compile(r"\d+:\d\d  ").match  # lines that a slow machine prints every few seconds
    lines = [line for line in outcome.err.splitlines() if line and not is_progress(line)]
    assert lines == ["interrupted; the same command continues a training run after its last epoch"]
    assert not list(Path("run").glob(".*.part"))
    assert not Path("results.jsonl").exists()

    resumed = done(*LONG_RUN, "--out", "run")
    assert "run: continues after epoch" in resumed.err
    assert resumed.json["timing"]["epochs"] == MANY_EPOCHS
    assert Path("results.jsonl").read_text() == resumed.out


def test_a_folder_locked_by_another_training_is_refused():
    with locked(Path("run"), message=""):
        error = refused(*RUN, "--out", "run")
    assert "run: another process is at work in this folder; wait for it or choose another folder" in error


def test_ctrl_c_while_writing_leaves_no_file(monkeypatch: pytest.MonkeyPatch):
    def half(table: object, path: str) -> None:
        Path(path).write_text("source,tar")
        raise KeyboardInterrupt

    monkeypatch.setattr("pyarrow.csv.write_csv", half)
    outcome = dsrd("data", "synth", "drawn.csv", "--set", "events=500")
    assert outcome.code == 130
    assert outcome.err.startswith("interrupted")
    assert list(Path().iterdir()) == []
