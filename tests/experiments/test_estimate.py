"""How long runs will take, and the live table."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from dsrd.experiments import load_plan
from dsrd.experiments.board import Board
from dsrd.experiments.estimate import BASE_MB, Costs
from dsrd.experiments.folder import SweepFolder
from support.sweeps import LEARNED, PLAN

ROOT = Path(__file__).parent.parent.parent


def record(**more: Any) -> dict[str, Any]:
    """A run of uci: 59,835 events, 10 epochs of 100 s, an evaluation of 30 s for three kinds of negatives."""
    timing = {"seconds_per_epoch": 80.0, "events_per_second": 523.6, "epochs": 10, "train_seconds": 1000.0}
    return {
        "dataset": "uci",
        "model": LEARNED,
        "preset": "published",
        "peak_rss_mb": 1000.0,
        "timing": {**timing, "evaluate_seconds": 30.0},
        "config": {"train": {"minutes": 0.0}, "evaluate": {"negatives": ["random", "historical", "inductive"]}},
        "digests": {"config": "none"},
        **more,
    }


def planned(dataset: str, **settings: Any) -> Any:
    plan = {"datasets": [dataset], "models": [{"name": LEARNED, "settings": settings}]}
    return load_plan(plan).runs[0]


def test_the_same_run_takes_as_long_as_last_time():
    run = planned("uci")
    estimate = Costs([record(digests={"config": run.digest})]).of(run)
    assert estimate is not None
    assert (estimate.seconds, estimate.memory_mb, estimate.how) == (1030.0, 1000.0, "last time")


def test_the_same_data_with_other_settings():
    estimate = Costs([record()]).of(planned("uci", **{"train.epochs": 5, "evaluate.negatives": ["random"]}))
    assert estimate is not None
    assert estimate.how == "same data"
    assert estimate.seconds == pytest.approx(500 + 10)
    assert estimate.memory_mb == pytest.approx(1000)


def test_other_data_by_the_cost_of_an_event():
    estimate = Costs([record()]).of(planned("wikipedia"))
    assert estimate is not None
    assert estimate.how == "per event"
    assert estimate.seconds == pytest.approx(1030 * 157_474 / 59_835)
    features = 157_474 * 172 * 8 / (1 << 20)
    assert estimate.memory_mb > 1000 + features


def test_a_limit_of_time_is_kept():
    estimate = Costs([record()]).of(planned("wikipedia", **{"train.minutes": 10}))
    assert estimate is not None
    epoch = 100 * 157_474 / 59_835
    assert estimate.seconds == pytest.approx(600 + epoch + 30 * 157_474 / 59_835)


def test_epochs_of_a_training_that_the_clock_ended_say_nothing():
    cut = record(config={"train": {"minutes": 10.0}, "evaluate": record()["config"]["evaluate"]})
    whole = record(model="tgn")
    whole["timing"] = {**whole["timing"], "epochs": 40}
    alone, beside = Costs([cut]).of(planned("uci")), Costs([cut, whole]).of(planned("uci"))
    assert alone is not None
    assert beside is not None
    assert alone.seconds == pytest.approx(100 * 100 + 30), "all epochs that the run may take"
    assert beside.seconds == pytest.approx(40 * 100 + 30), "as many as other models took"


def test_nothing_is_known_about_a_model_without_records():
    assert Costs([]).of(planned("uci")) is None
    assert Costs([{"task": "node"}, {"timing": {}}]).of(planned("uci")) is None


@pytest.mark.parametrize("file", ["dsrd", "baselines", "edgebank"])
def test_committed_records_give_estimates(file: str):
    found = [json.loads(line) for line in (ROOT / "results" / f"{file}.jsonl").read_text().splitlines()]
    costs = Costs(found)
    assert len(costs.by_digest) > len(found) / 2
    assert all(cost.memory_mb >= 0 for each in costs.by_model.values() for cost in each)
    assert min(each["peak_rss_mb"] for each in found) > BASE_MB


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def board(terminal: bool) -> tuple[Board, Clock, io.StringIO, list[str]]:
    runs = {run.key: run for run in load_plan(PLAN).runs}
    out, clock = io.StringIO(), Clock()
    console = Console(file=out, width=120, force_terminal=terminal, force_interactive=terminal)
    expected = dict.fromkeys(runs, 100.0)
    return Board(SweepFolder(Path("out")), runs, expected, console=console, clock=clock), clock, out, list(runs)


def test_the_table_of_a_terminal():
    shown, clock, out, (rule, first, second) = board(terminal=True)
    with shown:
        shown.done_before(rule)
        shown.started(first)
        log = Path("out/runs") / first / "log.jsonl"
        log.parent.mkdir(parents=True)
        log.write_text('{"epoch": 1, "val_ap": 71.234, "val_auc": 70.1}\n')
        clock.now = 40
        shown.refresh()
        assert "1 of 3 runs done, 1 running, 1 waiting; about 2:40 left" in out.getvalue()
        assert "epoch 1/2, AP 71.23, AUC 70.10" in out.getvalue()
        shown.ended(first, "the disk is full")
        shown.started(second)
        shown.refresh()
    last = out.getvalue().rpartition("1 of 3 runs done")[2]
    assert "1 running, 1 failed; about 1:40 left" in last
    assert "the disk is full" in last
    assert "preparing" in last


def test_the_lines_of_a_log():
    shown, clock, out, (rule, first, _) = board(terminal=False)
    with shown:
        shown.started(rule)
        clock.now = 7
        shown.ended(rule, None)
        shown.started(first)
        shown.ended(first, "no luck")
        shown.refresh()
        clock.now = 60
        shown.refresh()
    assert out.getvalue().splitlines() == [
        "done: edgebank on synth:events=800,seed=1, strict, seed 0 (0:07)",
        f"failed: {LEARNED} on synth:events=800,seed=1, strict, seed 0: no luck",
        "1 of 3 runs done, 1 failed, 1 waiting; about 1:40 left",
    ]


def test_time_left_is_unknown_until_something_is_known():
    runs = {run.key: run for run in load_plan(PLAN).runs}
    shown = Board(SweepFolder(Path("out")), runs, {}, show=False)
    assert shown.time_left() is None
    assert "left" not in shown.summary
