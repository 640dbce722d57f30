"""Both forms of progress: a bar in a terminal, plain lines in a log; time is set by hand."""

from __future__ import annotations

import io
import re
from collections.abc import Callable

import pytest
from rich.console import Console

from dsrd.reporter import LINE_EVERY, Reporter, download_bar, silent

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


def test_short_work_leaves_no_line():
    report, clock, lines = log()
    with report:
        for done in range(100):
            report("train", done, 100)
            clock.now += (LINE_EVERY - 0.1) / 100
        report.epoch(1, FIRST)
    assert lines() == []


def test_long_work_has_a_line_every_five_seconds():
    report, clock, lines = log()
    with report:
        for second in range(21):
            report("epoch 1/2 train", 1000 * second, 30_000)
            clock.now += 1
    assert lines() == [
        "0:05  epoch 1/2 train 5,000/30,000",
        "0:10  epoch 1/2 train 10,000/30,000",
        "0:15  epoch 1/2 train 15,000/30,000",
        "0:20  epoch 1/2 train 20,000/30,000",
    ]


def test_lines_show_the_figures_of_the_last_epoch():
    report, clock, lines = log()
    with report:
        report("epoch 1/2 train", 20, 20)
        clock.now += 6
        report.epoch(1, FIRST)
        report("epoch 2/2 train", 10, 20)
        clock.now += 6
        report("reading calls.csv", 0, 0)
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
        report("[bold]train", 1, 3)
        report.note("[red] is no colour")
    assert err.getvalue() == "1:00  [bold]train 1/3\n[red] is no colour\n"


def test_after_an_error_there_is_no_last_line():
    report, clock, lines = log()

    def work() -> None:
        with report:
            clock.now += 6
            report("train", 1, 2)
            report.epoch(1, FIRST)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        work()
    assert lines() == ["0:06  train 1/2"]


def test_amounts_of_a_download_are_sizes():
    out, clock = io.StringIO(), Clock()
    with Reporter(console=Console(file=out), clock=clock, unit="bytes") as report:
        clock.now += 5
        report("calls.csv", 1_500_000, 3_000_000)
    assert out.getvalue() == "0:05  calls.csv 1.5 MB/3.0 MB\n"


def test_a_bar_appears_after_a_second():
    report, clock, shown = terminal(200)
    with report:
        report("train", 1, 10)
    assert "train" not in shown()
    with report:
        report("train", 1, 10)
        clock.now += 2
    assert "train" in shown()
    assert "1/10" in shown()


@pytest.mark.parametrize("width", [80, 200])
def test_a_bar_has_the_figures_of_the_last_epoch_beside_or_below(width: int):
    report, clock, shown = terminal(width)
    with report:
        clock.now += 2
        report("epoch 2/5 train", 3000, 10_000)
        report.epoch(1, FIRST)
        report.epoch(2, {**FIRST, "val_ap": 95.0})
    last = [line for line in shown().splitlines() if "epoch 2: " in line][-1]
    assert last.endswith("epoch 2: loss 0.4123, val AP 95.00, val AUC 92.31, best epoch 2")
    assert ("3,000/10,000" in last) == (width == 200)
    assert "3,000/10,000" in shown()


def test_notes_stand_above_the_bar():
    report, clock, shown = terminal(80)
    with report:
        clock.now += 2
        report("train", 3, 10)
        report.note("run: [1] goes on", "a second line")
    assert "run: [1] goes on\n" in shown()
    assert "a second line\n" in shown()


def test_a_new_name_starts_a_new_bar():
    report, clock, shown = terminal(200)
    with report:
        report("reading", 0, 0)
        report("train", 7, 10)
        clock.now += 2
    assert "reading" not in shown()
    assert "7/10" in shown()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, ""),
        ({"loss": 0.5}, "epoch 4: loss 0.5000"),
        ({"val_ap": 50.0, "best_epoch": 3}, "epoch 4: val AP 50.00, best epoch 3"),
        ({"loss": float("nan")}, "epoch 4: loss nan"),
    ],
)
def test_figures_are_those_that_there_are(given: dict[str, float], said: str):
    report, _, _ = log()
    report.epoch(4, given)
    assert report.figures == said


def test_a_second_training_has_its_own_best_epoch():
    report, _, _ = log()
    report.epoch(1, {"val_ap": 90.0})
    report.epoch(2, {"val_ap": 80.0})
    assert report.figures.endswith("best epoch 1")
    report.epoch(1, {"val_ap": 70.0})
    report.epoch(2, {"val_ap": 75.0})
    assert report.figures.endswith("best epoch 2")


def test_silence(capsys: pytest.CaptureFixture[str]):
    clock = Clock()
    with Reporter(show=False, clock=clock) as report:
        clock.now += 60
        report("train", 1, 2)
        report.epoch(1, FIRST)
        report.note("nothing")
    silent("train", 1, 2)
    silent.epoch(1, FIRST)
    assert (silent.figures, capsys.readouterr()) == ("", ("", ""))


def test_the_bars_of_the_commands_are_quiet_outside_a_terminal(capsys: pytest.CaptureFixture[str]):
    with Reporter() as report:
        report("train", 1, 2)
    with download_bar("http://example.org/calls.csv") as there:
        there(1, None)
    assert capsys.readouterr() == ("", "")
