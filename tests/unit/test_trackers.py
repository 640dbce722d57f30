"""Metrics of epochs, sent to TensorBoard and Weights & Biases and read back from the disk."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from dsrd.errors import DsrdError
from dsrd.trackers import TensorBoard, WandB

EPOCHS = {1: {"loss": 0.5, "val_ap": 90.0}, 2: {"loss": 0.25, "val_ap": 92.5, "val_auc": 93.0}}


def test_tensorboard_files_contain_the_logged_metrics(tmp_path: Path):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")

    def read(name: str) -> list[tuple[int, float]]:
        events = accumulator.EventAccumulator(str(tmp_path / "board"))
        events.Reload()
        return [(each.step, each.value) for each in events.Scalars(name)]

    tracker = TensorBoard(tmp_path / "board")
    tracker(1, EPOCHS[1])
    assert read("loss") == [(1, 0.5)], "on disk before it is closed"
    tracker(2, EPOCHS[2])
    tracker.close()
    assert read("loss") == [(1, 0.5), (2, 0.25)]
    assert read("val_ap") == [(1, 90.0), (2, 92.5)]
    assert read("val_auc") == [(2, 93.0)]


def test_wandb_starts_a_run_at_the_first_call_and_ends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """With a fake library that records its calls."""
    calls: list[object] = []

    class Run:
        def log(self, metrics: dict[str, float], step: int) -> None:
            calls.append((step, metrics))

        def finish(self) -> None:
            calls.append("finish")

    class Library:
        @staticmethod
        def init(**arguments: object) -> Run:
            calls.append(arguments)
            return Run()

    monkeypatch.setitem(sys.modules, "wandb", Library)  # type: ignore[arg-type]
    with WandB("calls", mode="offline") as tracker:
        assert calls == []
        for epoch, metrics in EPOCHS.items():
            tracker(epoch, metrics)
    tracker.close()
    assert calls == [{"project": "calls", "mode": "offline"}, (1, EPOCHS[1]), (2, EPOCHS[2]), "finish"]


def test_wandb_writes_an_offline_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")
    for name in ("WANDB_CONFIG_DIR", "WANDB_CACHE_DIR", "WANDB_DATA_DIR"):
        monkeypatch.setenv(name, str(tmp_path / "own"))
    tracker = WandB("calls", mode="offline", dir=tmp_path)
    for epoch, metrics in EPOCHS.items():
        tracker(epoch, metrics)
    tracker.close()
    (written,) = (tmp_path / "wandb").glob("offline-run-*/*.wandb")
    assert b"val_auc" in written.read_bytes()


@pytest.mark.parametrize(("library", "make"), [("tensorboard", lambda: TensorBoard("board")), ("wandb", WandB)])
def test_a_missing_library_is_a_one_line_error(library: str, make: type, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(DsrdError) as raised:
        make()
    assert str(raised.value) == f"{library} is not installed; run `pip install dsrd[trackers]`"


def test_importing_the_trackers_loads_neither_library():
    code = "import sys, dsrd.trackers; print([n for n in ('torch', 'tensorboard', 'wandb') if n in sys.modules])"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"
