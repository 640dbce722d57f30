"""Run folders with checkpoints of other runs, or with damaged files."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from support.call_log import CALLS, write_calls
from support.program import QUICK, STATELESS, STREAM, TRAIN, TRAINED, done, dsrd, refused

Trained = Callable[[str], Path]


def unfinished(folder: Path) -> list[object]:
    """Make a run look killed before its end; returns the command that continues it."""
    (folder / "record.json").unlink()
    return [*TRAIN, "-d", STREAM, "-o", folder]


@pytest.fixture
def run(trained_once: Trained) -> Path:
    """A copy of a run, to be damaged."""
    return Path(shutil.copytree(trained_once(TRAINED), "run"))


def test_weights_of_another_model_are_refused(run: Path, trained_once: Trained):
    shutil.copy(trained_once(STATELESS) / "best.safetensors", run)
    message = f"run/best.safetensors: holds a {STATELESS}, not a {TRAINED}; give the folder of a {TRAINED} run"
    assert message in refused("evaluate", run)
    assert message in refused(*unfinished(run))


def test_weights_of_another_size_are_refused(run: Path):
    done(
        "train",
        "-m",
        TRAINED,
        "-d",
        STREAM,
        "-o",
        "wide",
        *QUICK[:4],
        "--set",
        "model.dim=24",
        "--results",
        "none",
    )
    for file in ("best.safetensors", "last.safetensors"):
        shutil.copy(f"wide/{file}", run)
    assert "run/best.safetensors: does not fit the model's settings" in refused("evaluate", run)
    assert "run/last.safetensors: does not fit the model's settings" in refused(*unfinished(run))


def test_weights_of_another_data_set_are_refused(run: Path):
    message = "run: holds its own events; leave the stream out"
    assert message in refused("evaluate", run, "--dataset", "synth:events=500")
    Path("ask.csv").write_text("source,target\n1,2\n")
    assert message in refused("predict", run, "--pairs", "ask.csv", "--dataset", "synth:events=500")


def test_data_changed_after_training_are_refused(calls: Path):
    words = [*TRAIN, "-d", calls, "-o", "run", *CALLS]
    done(*words)
    write_calls(calls, rows=119)
    assert "run: was trained on other data" in refused(*words)
    Path("run/record.json").unlink()
    assert "run: was trained on other data" in refused(*words)
    for file in Path("run").glob("*.arrow"):
        file.unlink()
    assert "run/last.safetensors: was trained on other data" in dsrd(*words, "--no-history").error
    assert "run/best.safetensors: was trained on other data" in refused("evaluate", "run", "-d", calls)
    write_calls(calls)
    done("evaluate", "run", "-d", calls, "--results", "none")


@pytest.mark.parametrize("size", [0, 4, 300, -100])
def test_a_truncated_checkpoint_is_refused(run: Path, size: int):
    for file in ("best.safetensors", "last.safetensors"):
        content = (run / file).read_bytes()
        (run / file).write_bytes(content[:size])
    error = refused("evaluate", run)
    assert "run/best.safetensors: not a dsrd checkpoint, or a damaged one" in error
    assert error.endswith("train again")
    assert "run/last.safetensors: not a dsrd checkpoint, or a damaged one" in refused(*unfinished(run))


def test_a_checkpoint_of_another_program_is_refused(run: Path):
    save_file({"layer.weight": torch.zeros(3)}, run / "best.safetensors")
    assert "best.safetensors: not a dsrd checkpoint" in refused("evaluate", run)
    save_file({"weights/layer": torch.zeros(3)}, run / "best.safetensors", metadata={"dsrd": "{}"})
    assert "best.safetensors: lacks something or does not fit ('data'); train again" in refused("evaluate", run)


def test_a_run_killed_after_its_first_epoch_can_be_evaluated(run: Path):
    unfinished(run)
    (run / "last.safetensors").unlink()
    assert done("evaluate", run, "--results", "none", "--json").json["parameters"] > 0


def test_a_missing_checkpoint_is_refused(run: Path):
    (run / "best.safetensors").unlink()
    assert "run/best.safetensors: no such checkpoint" in refused("evaluate", run)
    assert "run/best.safetensors: no such checkpoint" in refused(*unfinished(run))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "damaged"),
        ('{"dataset": "synth', "damaged"),
        ("[1]", "damaged"),
        ('{"dataset": "synth"}', "damaged"),
        (None, "train.epochs=-3: give 1 or more"),
    ],
)
def test_a_damaged_configuration_is_refused(run: Path, content: str | None, message: str):
    if content is None:
        stored = json.loads((run / "config.json").read_text())
        stored["train"]["epochs"] = -3
        content = json.dumps(stored)
    (run / "config.json").write_text(content)
    error = refused("evaluate", run)
    assert error.startswith("error: run/config.json: damaged (")
    assert message in error


def test_a_damaged_record_is_refused(run: Path):
    command = [*TRAIN, "-d", STREAM, "-o", run]
    (run / "record.json").write_text('{"dataset"')
    assert "run/record.json: damaged" in refused(*command)
    (run / "record.json").write_text("{}")
    assert "remove it and run again" in refused(*command)


def test_a_file_in_place_of_a_run_folder_is_refused():
    Path("run").write_text("not a folder")
    assert "run: is a file; give the folder of a trained or saved run" in refused("evaluate", "run")
