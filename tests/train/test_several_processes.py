"""Runs that several processes train: the same as one process, bit for bit the same after a kill."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import torch

import dsrd
from dsrd.errors import DsrdError
from dsrd.models import TemporalModel, model_class
from dsrd.processes import ALONE, Processes
from dsrd.train import checkpoint, parallel
from dsrd.train.run_folder import RunFolder
from support.program import Outcome, finish, start

PATIENCE = 300  # seconds: several processes on a busy machine
STREAM = "synth:events=800"
SMALL = {f"model__{key}": value for key, value in model_class("dsrd").card.small.items()}
RANDOM = {**SMALL, "model__dropout": 0.2, "model__stretch": 1.0, "evaluate__negatives": "random"}
WORDS = [word for key, value in RANDOM.items() for word in ("--set", f"{key.replace('__', '.')}={value}")]
TRAIN = ("train", "--dataset", STREAM, *WORDS, "--workers", "2", "--results", "none", "--json")


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def small(**more: object) -> dsrd.LinkPredictor:
    return dsrd.LinkPredictor(epochs=2, **{**SMALL, "model__stretch": 1.0, **more})


def train(folder: str, epochs: int) -> Outcome:
    return finish(start(*TRAIN, "--out", folder, "--set", f"train.epochs={epochs}"), PATIENCE)


def weights(folder: str) -> dict[str, torch.Tensor]:
    return checkpoint.load(RunFolder(Path(folder)).best)[0]["weights"]


def test_two_processes_train_what_one_does():
    """Without dropout: ages are still stretched at random, by the same factor in both."""
    seen: list[tuple[int, dict[str, float]]] = []
    one, two = small(final=True), small(final=True, workers=2)
    stream = dsrd.load(STREAM)
    one.fit(stream, progress=False)
    two.fit(stream, progress=False, on_epoch=lambda epoch, metrics: seen.append((epoch, dict(metrics))))
    assert [epoch for epoch, _ in seen] == [1, 2]
    assert two.fitted.folder is None
    for ours, theirs in ((one.fitted.evaluated, two.fitted.evaluated), (one.module, two.module)):
        for (name, weight), other in zip(ours.state_dict().items(), theirs.state_dict().values(), strict=True):
            torch.testing.assert_close(
                other, weight, rtol=1e-2, atol=1e-4, msg=lambda text, name=name: f"{name}: {text}"
            )
    assert seen[1][1]["val_ap"] == pytest.approx(one.fitted.progress.history[1]["val_ap"], abs=0.5)
    assert [line.get("processes") for line in two.fitted.progress.history] == [2, 2]
    pairs = [(1, 2), (3, 4)]
    assert two.predict(pairs)["probability"] == pytest.approx(one.predict(pairs)["probability"], abs=1e-2)


def test_a_killed_process_ends_the_command_which_then_continues():
    whole = train("whole", epochs=4)
    assert whole.code == 0, whole.err
    assert whole.json["machine"]["processes"] == 2
    assert whole.json["config"]["train"]["workers"] == 2

    command = start(*TRAIN, "--out", "cut", "--set", "train.epochs=4")
    victim = worker_after_an_epoch(command.pid, Path("cut"))
    os.kill(victim, signal.SIGKILL)
    outcome = finish(command, PATIENCE)
    assert outcome.code == 1
    assert "cut: process 2 of 2 was killed by signal 9" in outcome.error
    assert "run the same training again, into the same folder" in outcome.error
    assert not RunFolder(Path("cut")).record.exists()

    again = train("cut", epochs=4)
    assert again.code == 0, again.err
    assert "continues after epoch" in again.err
    assert again.json["digests"]["weights"] == whole.json["digests"]["weights"]
    assert again.json["results"] == whole.json["results"]
    assert {file.name for file in Path("cut").iterdir()} == {file.name for file in Path("whole").iterdir()}


def worker_after_an_epoch(command: int, folder: Path) -> int:
    """The second of the processes that train, once they have finished an epoch."""
    began = time.monotonic()
    while time.monotonic() - began < PATIENCE:
        if (folder / "log.jsonl").exists():
            for child in psutil.Process(command).children():
                words = child.cmdline()
                if "dsrd.train.worker" in words and words[-2:] == ["1", "2"]:
                    return child.pid
        time.sleep(0.01)
    raise AssertionError("no epoch was finished")


def test_an_error_of_a_process_is_one_line(monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(DsrdError, match=r"epoch 1: training diverged.*lower train\.lr") as error:
        small(workers=2, lr=1e30).fit(STREAM, progress=False)
    assert "\n" not in str(error.value)


def test_another_number_of_processes_is_another_run():
    assert small(workers=2).run_for(STREAM).digest != small().run_for(STREAM).digest


def test_a_model_with_a_loss_of_its_own_is_not_shared_out():
    class Own(model_class("dsrd")):  # type: ignore[misc]
        def loss(self, *arguments: object) -> torch.Tensor:
            return torch.zeros(())

    own = Own.__new__(Own)
    parallel.join(own, ALONE)
    with pytest.raises(DsrdError, match="has a `loss` of its own, which cannot be shared out; write `asks`"):
        parallel.join(own, Processes(0, 2))
    assert Own.loss is not TemporalModel.loss


def test_a_launcher_and_the_settings_must_agree(monkeypatch: pytest.MonkeyPatch):
    for name, value in {"RANK": "0", "WORLD_SIZE": "3", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(DsrdError, match=r"train\.workers=2: the launcher has started 3 processes"):
        small(workers=2).fit(STREAM, progress=False)


@pytest.mark.slow
def test_torchrun_trains_what_workers_train():
    words = [word for word in TRAIN if word not in ("--workers", "2")]
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "-m", "dsrd"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [*launcher, *words, "--out", "launched", "--set", "train.epochs=2"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    assert len([line for line in done.stdout.splitlines() if line.startswith("{")]) == 1, "only one process prints"
    record = json.loads(done.stdout.splitlines()[-1])
    assert record["machine"]["processes"] == 2
    assert train("here", epochs=2).json["digests"]["weights"] == record["digests"]["weights"]


@pytest.mark.slow
def test_ray_trains_what_workers_train():
    pytest.importorskip("ray", reason="Ray is not installed (extra `ray`)")
    seen: list[int] = []
    model = small(workers=2)
    model.fit(STREAM, folder="ray", ray="local", progress=False, on_epoch=lambda epoch, _: seen.append(epoch))
    small(workers=2).fit(STREAM, folder="here", progress=False)
    assert seen == [1, 2]
    assert all(torch.equal(weight, weights("here")[name]) for name, weight in weights("ray").items())
