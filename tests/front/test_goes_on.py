"""A run can be saved, moved, opened elsewhere and updated, with the same results as without interruption."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch

import dsrd
from dsrd.errors import DsrdError
from dsrd.models import model_class, names
from dsrd.train import checkpoint

from .conftest import COLUMNS, HEADER, estimator, rows

PAIRS = [("ann", "bob"), ("eve", "new5"), ("zoe", "ann")]


def answers(model: dsrd.LinkPredictor) -> np.ndarray:
    tables = model.predict(PAIRS), model.partners(["ann", "eve"], k=4)
    return np.concatenate([table[name] for table in tables for name in ("probability", "partner", "surprise")])


def test_a_run_survives_update_move_and_reopening():
    """Train, append to the file, update, move, open elsewhere: the scores are equal bit for bit."""
    stream = dsrd.load("calls.csv", **COLUMNS)
    model = dsrd.LinkPredictor(epochs=1).fit(stream, progress=False)
    model.save("calls.dsrd")
    model.save("weights.dsrd", history=False)
    dsrd.open("calls.dsrd").observe("day.csv").save()
    Path("elsewhere").mkdir()
    shutil.move("calls.dsrd", "elsewhere/moved")
    Path("calls.csv").unlink()
    os.chdir("elsewhere")
    moved, at_once = dsrd.open("moved"), dsrd.open("../weights.dsrd", "../grown.csv")
    assert np.array_equal(answers(moved), answers(at_once))
    assert np.array_equal(moved.embed(), at_once.embed())
    assert moved.nodes == at_once.nodes


@pytest.mark.parametrize("name", names())
def test_an_updated_run_scores_like_one_that_observed_everything_at_once(saved: Callable[[str], Path], name: str):
    model = dsrd.open(saved(name))
    model.save("went-on")
    model.save("weights", history=False)
    dsrd.open("went-on").observe("grown.csv").save()
    went_on, at_once = dsrd.open("went-on"), dsrd.open("weights", "grown.csv")
    assert np.array_equal(answers(went_on), answers(at_once))
    assert np.array_equal(answers(went_on), answers(model.observe("day.csv"))), "saving changed something"


@pytest.mark.parametrize("name", ["dsrd", "tgn", "jodie"])
def test_the_way_events_arrive_does_not_matter(opened: Callable[[str], dsrd.LinkPredictor], name: str):
    """One by one, all at once, or split inside a timestamp."""
    model = opened(name)
    model.save("again")
    other = dsrd.open("again")
    lines = [line.split(",") for line in rows(240, 252).splitlines()]
    events = [(caller, callee, date, float(cost)) for caller, callee, date, cost in lines]
    events += [("ann", "bob", events[-1][2], 1.0), ("bob", "new9", events[-1][2], 2.0)]
    table = {name: [event[i] for event in events] for i, name in enumerate(["caller", "callee", "date", "cost"])}
    model.observe(pa.table(table))
    for row in range(len(events)):
        other.observe(pa.table(table).slice(row, 1))
    assert np.array_equal(answers(model), answers(other))


def test_fitting_a_longer_log_keeps_the_events_of_the_run(capsys: pytest.CaptureFixture[str]):
    settings = {"epochs": 1, "dim": 8}
    first = dsrd.LinkPredictor(**settings).fit(dsrd.load("calls.csv", **COLUMNS), folder="run", progress=False)
    before = first.evaluate(progress=False).record
    with Path("calls.csv").open("a") as log:
        log.write(rows(240, 300))
    longer = {**settings, "epochs": 2}
    again = dsrd.LinkPredictor(**longer).fit(dsrd.load("calls.csv", **COLUMNS), folder="run")
    assert "60 events follow those that the run" in capsys.readouterr().err
    assert again.evaluate(progress=False).record["digests"]["data"] == before["digests"]["data"]
    assert again.fitted.progress.epoch == 2
    assert again.observe("calls.csv").fitted.online.stream.num_events == 300


def test_a_bipartite_log_can_grow():
    bipartite = {**COLUMNS, "bipartite": True}
    model = estimator("tgn").fit(dsrd.load("calls.csv", **bipartite), folder="run", progress=False)
    model.save("weights", history=False)
    at_once = dsrd.open("weights", "grown.csv")
    went_on = dsrd.open("run").observe("grown.csv")
    assert at_once.nodes == went_on.nodes
    assert np.array_equal(answers(went_on), answers(at_once))


def test_known_events_are_not_observed_twice(opened: Callable[[str], dsrd.LinkPredictor]):
    model = opened("dsrd").observe("grown.csv")
    before = answers(model)
    assert np.array_equal(answers(model.observe("grown.csv")), before)
    assert model.fitted.online.stream.num_events == 300


@pytest.mark.parametrize(("late", "events"), [("drop", 240), ("now", 241)])
def test_late_events(opened: Callable[[str], dsrd.LinkPredictor], late: str, events: int):
    model = opened("dsrd")
    Path("late.csv").write_text(HEADER + "ann,bob,2024-05-02T00:00:00Z,1\n")
    before = answers(model)
    with pytest.raises(DsrdError, match=r"late\.csv: row 2: time 2024-05-02T00:00:00Z is older than the newest"):
        model.observe("late.csv")
    assert np.array_equal(answers(model), before)
    stream = model.observe("late.csv", late=late).fitted.online.stream
    assert stream.num_events == events
    assert np.array_equal(answers(model), before) == (late == "drop")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("caller,callee,date\nann,bob,2024-06-01\n", "'cost'"),
        (HEADER + "ann,bob,tomorrow,1\n", "row 2: time is 'tomorrow', neither a number nor a date"),
        (HEADER + "ann,,2024-06-01,1\n", "row 2: target is empty"),
        (HEADER + "ann,bob,2024-06-01,much\n", "row 2: feature 'cost' is 'much', not a number"),
        ("caller,callee,date,cost,cost\n", "'cost'"),
    ],
)
def test_bad_events_change_nothing(opened: Callable[[str], dsrd.LinkPredictor], text: str, message: str):
    model = opened("dsrd")
    before, files = answers(model), {path: path.read_bytes() for path in Path("dsrd.run").iterdir()}
    Path("bad.csv").write_text(text)
    for take in (model.observe, model.surprise, model.evaluate):
        with pytest.raises(DsrdError) as error:
            take("bad.csv")
        assert message in str(error.value)
        assert "\n" not in str(error.value)
        assert "--" not in str(error.value)
    assert np.array_equal(answers(model), before)
    assert {path: path.read_bytes() for path in Path("dsrd.run").iterdir()} == files


def test_save_writes_only_the_run(saved: Callable[[str], Path]):
    model = dsrd.open(saved("tgn"))
    Path("mine").mkdir()
    Path("mine/thesis.txt").write_text("years of work")
    with pytest.raises(DsrdError, match="not empty and not a run"):
        model.save("mine")
    model.save("run")
    other = dsrd.open(saved("dsrd"))
    with pytest.raises(DsrdError, match="holds another run"):
        other.save("run")
    assert dsrd.open(other.save("run", overwrite=True)).run.model == "dsrd"
    assert sorted(path.name for path in Path().glob(".*")) == []


def test_a_save_that_fails_leaves_the_run_it_was_to_overwrite(
    saved: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
):
    dsrd.open(saved("tgn")).save("run")
    before = {path.name: path.read_bytes() for path in Path("run").iterdir()}
    other, rename = dsrd.open(saved("dsrd")), Path.rename

    def fail_at_the_end(self: Path, target: Path) -> Path:
        if self.name.endswith(".part") and target.name == "run":
            raise OSError("the power is gone")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", fail_at_the_end)
    with pytest.raises(OSError, match="the power is gone"):
        other.save("run", overwrite=True)
    assert {path.name: path.read_bytes() for path in Path("run").iterdir()} == before
    assert sorted(path.name for path in Path().glob(".*")) == []


def test_a_run_saved_without_events_asks_for_the_stream(saved: Callable[[str], Path]):
    dsrd.open(saved("tgn")).save("bare", history=False)
    assert not list(Path("bare").glob("*.arrow"))
    with pytest.raises(DsrdError, match="bare: was saved without its events; give the stream too"):
        dsrd.open("bare")
    with pytest.raises(DsrdError, match="was trained on other data"):
        dsrd.open("bare", "day.csv")
    assert answers(dsrd.open("bare", "calls.csv")).shape == (33,)


def test_run_folders_of_earlier_versions_open(saved: Callable[[str], Path]):
    """They have no events and no current state; their settings and notes have fewer entries and name a path."""
    shutil.copytree(saved("tgn"), "old")
    for name in ("events.arrow", "nodes.arrow", "now.safetensors"):
        Path("old", name).unlink()
    config = json.loads(Path("old/config.json").read_text())
    del config["train"]["final"], config["data"]["time_format"], config["checksum"]
    Path("old/config.json").write_text(json.dumps({**config, "dataset": "calls.csv"}))
    groups, note = checkpoint.load(Path("old/best.safetensors"))
    del note["events"]
    checkpoint.save(Path("old/best.safetensors"), groups, note)
    old, new = dsrd.open("old"), dsrd.open(saved("tgn"))
    assert np.array_equal(answers(old), answers(new))
    assert old.evaluate(progress=False).record["results"] == new.evaluate(progress=False).record["results"]
    after = answers(old.observe("day.csv"))
    old.save()
    Path("calls.csv").unlink()
    assert np.array_equal(answers(dsrd.open("old")), after), "updated, it holds its events"


def test_two_updates_of_one_run_lose_no_events(opened: Callable[[str], dsrd.LinkPredictor]):
    first = opened("dsrd")
    second = dsrd.open("dsrd.run")
    first.observe("day.csv").save()
    Path("other.csv").write_text(HEADER + "eve,ann,2024-06-02T00:00:00Z,1\n")
    second.observe("other.csv")
    with pytest.raises(DsrdError, match=r"dsrd\.run: has observed other events meanwhile; open it again"):
        second.save()
    assert dsrd.open("dsrd.run").fitted.online.stream.num_events == 300


@pytest.mark.parametrize("file", ["events.arrow", "nodes.arrow", "now.safetensors", "best.safetensors"])
def test_a_damaged_file_is_named(saved: Callable[[str], Path], file: str):
    shutil.copytree(saved("tgn"), "run")
    Path("run", file).write_bytes(Path("run", file).read_bytes()[:100])
    with pytest.raises(DsrdError, match=file):
        dsrd.open("run")


def test_a_state_that_lags_behind_the_events_catches_up(opened: Callable[[str], dsrd.LinkPredictor]):
    """A kill between the two writes of `save` leaves new events and an old state."""
    model = opened("dsrd")
    kept = Path("dsrd.run/now.safetensors").read_bytes()
    after = answers(model.observe("day.csv"))
    model.save()
    Path("dsrd.run/now.safetensors").write_bytes(kept)
    assert np.array_equal(answers(dsrd.open("dsrd.run")), after)


def test_final_trains_on_all_events_and_records_it():
    stream = dsrd.load("calls.csv", **COLUMNS)
    chosen = dsrd.LinkPredictor(epochs=2, dim=8).fit(stream, progress=False)
    model = dsrd.LinkPredictor(epochs=2, dim=8).fit(stream, final=True, folder="run", progress=False)
    record = model.evaluate(progress=False).record
    assert record["results"] == chosen.evaluate(progress=False).record["results"]
    assert record["final"]["epochs"] == record["timing"]["best_epoch"]
    assert record["final"]["events"] == 240
    assert record["config"]["train"]["final"]
    same = [torch.equal(a, b) for a, b in zip(chosen.module.parameters(), model.module.parameters(), strict=True)]
    assert not all(same)
    assert np.array_equal(answers(dsrd.open("run")), answers(model))
    copied = dsrd.open(model.save("copy"))
    assert np.array_equal(answers(copied), answers(model))


def test_only_states_that_depend_on_weights_are_kept(saved: Callable[[str], Path]):
    """A state that follows from events is rebuilt; any other one is kept after training."""
    for name in ("tgn", "dsrd"):
        model = dsrd.open(saved(name))
        assert (model.fitted.state_after_training() is None) == (name == "dsrd")
        assert model_class(name)
