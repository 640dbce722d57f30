"""The two displays of progress: a bar in a terminal, lines in a log. The clock is set by hand."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from rich.console import Console

from dsrd.reporter import LINE_EVERY, Reporter, current, download_bar, reporting, stage, step

FIRST = {"loss": 0.41234, "val_ap": 91.204, "val_auc": 92.315}


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def log() -> tuple[Reporter, Clock, Callable[[], list[str]]]:
    """A reporter that writes to a file, its clock, and the lines it has written."""
    out, clock = io.StringIO(), Clock()
    return Reporter(console=Console(file=out), clock=clock), clock, lambda: out.getvalue().splitlines()


def terminal(width: int) -> tuple[Reporter, Clock, Callable[[], str]]:
    """A reporter in a terminal, its clock, and what was written to it, without colours and cursor movements."""
    out, clock = io.StringIO(), Clock()
    console = Console(file=out, force_terminal=True, width=width)
    return Reporter(console=console, clock=clock), clock, lambda: re.sub(r"\x1b\[[\d;?]*\w", "", out.getvalue())


def test_short_work_prints_nothing():
    report, clock, lines = log()
    with report:
        for done in range(100):
            report.step("train", done, 100)
            clock.now += (LINE_EVERY - 0.1) / 100
        report.epoch(1, FIRST)
    assert lines() == []


def test_long_work_prints_a_line_every_five_seconds():
    report, clock, lines = log()
    with report:
        for second in range(21):
            report.step("epoch 1/2 train", 1000 * second, 30_000)
            clock.now += 1
    assert lines() == [
        "0:05  epoch 1/2 train 5,000/30,000",
        "0:10  epoch 1/2 train 10,000/30,000",
        "0:15  epoch 1/2 train 15,000/30,000",
        "0:20  epoch 1/2 train 20,000/30,000",
    ]


def test_lines_show_the_metrics_of_the_last_epoch():
    report, clock, lines = log()
    with report:
        report.step("epoch 1/2 train", 20, 20)
        clock.now += 6
        report.epoch(1, FIRST)
        report.step("epoch 2/2 train", 10, 20)
        clock.now += 6
        report.step("reading calls.csv", 0, 0)
        clock.now += 1
        report.epoch(2, {**FIRST, "val_ap": 90.0})
    shown = "loss 0.4123, val AP 91.20, val AUC 92.31, best epoch 1"
    assert lines() == [
        f"0:06  epoch 1/2 train 20/20  (epoch 1: {shown})",
        f"0:12  reading calls.csv  (epoch 1: {shown})",
        "0:13  done  (epoch 2: loss 0.4123, val AP 90.00, val AUC 92.31, best epoch 1)",
    ]


def test_lines_have_neither_carriage_returns_nor_escape_codes(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    err, clock = io.StringIO(), Clock()
    monkeypatch.setattr("sys.stderr", err)
    with Reporter(clock=clock) as report:
        clock.now += 60
        report.step("[bold]train", 1, 3)
        report.note("[red] is no colour")
    assert err.getvalue() == "1:00  [bold]train 1/3\n[red] is no colour\n"


def test_after_an_error_there_is_no_last_line():
    report, clock, lines = log()

    def work() -> None:
        with report:
            clock.now += 6
            report.step("train", 1, 2)
            report.epoch(1, FIRST)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        work()
    assert lines() == ["0:06  train 1/2"]


def test_amounts_of_a_download_are_sizes():
    out, clock = io.StringIO(), Clock()
    with Reporter(console=Console(file=out), clock=clock, unit="bytes") as report:
        clock.now += 5
        report.step("calls.csv", 1_500_000, 3_000_000)
    assert out.getvalue() == "0:05  calls.csv 1.5 MB/3.0 MB\n"


def test_a_bar_appears_after_a_second():
    report, clock, shown = terminal(200)
    with report:
        report.step("train", 1, 10)
    assert "train" not in shown()
    with report:
        report.step("train", 1, 10)
        clock.now += 2
    assert "train" in shown()
    assert "1/10" in shown()


@pytest.mark.parametrize("width", [80, 200])
def test_a_bar_shows_the_metrics_of_the_last_epoch(width: int):
    report, clock, shown = terminal(width)
    with report:
        clock.now += 2
        report.step("epoch 2/5 train", 3000, 10_000)
        report.epoch(1, FIRST)
        report.epoch(2, {**FIRST, "val_ap": 95.0})
    last = [line for line in shown().splitlines() if "epoch 2: " in line][-1]
    assert last.endswith("epoch 2: loss 0.4123, val AP 95.00, val AUC 92.31, best epoch 2")
    assert ("3,000/10,000" in last) == (width == 200)
    assert "3,000/10,000" in shown()


def test_notes_are_printed_above_the_bar():
    report, clock, shown = terminal(80)
    with report:
        clock.now += 2
        report.step("train", 3, 10)
        report.note("run: [1] goes on", "a second line")
    assert "run: [1] goes on\n" in shown()
    assert "a second line\n" in shown()


def test_a_new_name_starts_a_new_bar():
    report, clock, shown = terminal(200)
    with report:
        report.step("reading", 0, 0)
        report.step("train", 7, 10)
        clock.now += 2
    assert "reading" not in shown()
    assert "7/10" in shown()


@pytest.mark.parametrize(
    ("metrics", "text"),
    [
        ({}, ""),
        ({"loss": 0.5}, "epoch 4: loss 0.5000"),
        ({"val_ap": 50.0, "best_epoch": 3}, "epoch 4: val AP 50.00, best epoch 3"),
        ({"loss": float("nan")}, "epoch 4: loss nan"),
    ],
)
def test_only_existing_metrics_are_shown(metrics: dict[str, float], text: str):
    report, _, _ = log()
    report.epoch(4, metrics)
    assert report.metrics == text


def test_a_second_training_has_its_own_best_epoch():
    report, _, _ = log()
    report.epoch(1, {"val_ap": 90.0})
    report.epoch(2, {"val_ap": 80.0})
    assert report.metrics.endswith("best epoch 1")
    report.epoch(1, {"val_ap": 70.0})
    report.epoch(2, {"val_ap": 75.0})
    assert report.metrics.endswith("best epoch 2")


def test_a_hidden_reporter_prints_nothing(capsys: pytest.CaptureFixture[str]):
    clock = Clock()
    with Reporter(show=False, clock=clock) as report:
        clock.now += 60
        report.step("train", 1, 2)
        report.epoch(1, FIRST)
        report.note("nothing")
    step("train", 1, 2)  # outside of any reporter
    current().epoch(1, FIRST)
    assert (report.metrics, current().metrics, capsys.readouterr()) == ("", "", ("", ""))


def test_short_commands_print_nothing_outside_a_terminal(capsys: pytest.CaptureFixture[str]):
    with Reporter() as report:
        report.step("train", 1, 2)
    with download_bar("http://example.org/calls.csv") as advance:
        advance(1, None)
    assert capsys.readouterr() == ("", "")


class Steps(Reporter):
    """Keeps the names of all steps."""

    def __init__(self) -> None:
        super().__init__(show=False)
        self.names: list[str] = []

    def step(self, name: str, done: int = 0, total: int = 0) -> None:
        self.names.append(name)


def test_steps_go_to_the_innermost_reporter():
    with Steps() as outer:
        step("first")
        with Steps() as inner:
            step("second")
        step("third")
    step("fourth")
    assert (outer.names, inner.names) == (["first", "third"], ["second"])


def test_stages_come_before_the_names_of_steps():
    with Steps() as report, stage("epoch 1/2"):
        step("train")
        with stage("inner"):
            step("val")
        step("train")
    assert report.names == ["epoch 1/2 train", "epoch 1/2 inner val", "epoch 1/2 train"]


def test_work_that_fails_leaves_no_reporter_behind():
    report = Steps()

    def work() -> None:
        with report, stage("epoch 1/2"):
            raise RuntimeError

    with pytest.raises(RuntimeError):
        work()
    step("after")
    with report:
        step("again")
    assert report.names == ["again"]


def test_a_reporter_may_be_passed_or_replaced():
    report = Steps()
    with reporting(report) as same:
        step("shown")
        with reporting(False):
            step("hidden")
    assert same is report
    assert report.names == ["shown"]


def test_every_thread_has_its_own_reporter():
    reports = [Steps() for _ in range(4)]
    together = Barrier(4)

    def work(number: int) -> None:
        with reports[number], stage(str(number)):
            for _ in range(50):
                together.wait(timeout=10)
                step("work")

    with Steps() as outside, ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert [report.names for report in reports] == [[f"{number} work"] * 50 for number in range(4)]
    assert outside.names == []
