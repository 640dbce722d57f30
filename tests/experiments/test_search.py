"""Searches: validation only, pruned, and going on after a kill."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from dsrd.errors import DsrdError
from dsrd.experiments import load_plan, search, sweep
from dsrd.experiments.folder import SweepFolder
from support.sweeps import LEARNED, PLAN, run_here

optuna = pytest.importorskip("optuna", reason="Optuna is not installed (extra `search`)")

SPACE = {"train.lr": {"low": 1e-4, "high": 1e-2, "log": True}, "model.dim": {"choices": [4, 8]}}
SEARCH = {**PLAN, "search": {"trials": 4, "models": [LEARNED], "space": SPACE}}


def trials(folder: str) -> list[Any]:
    from dsrd.experiments.searching import _storage

    storage = _storage(Path(folder) / "search.journal")
    (study,) = storage.get_all_studies()
    return storage.get_all_trials(study._study_id)


def test_a_search_ends_in_a_plan_that_can_be_run(monkeypatch: pytest.MonkeyPatch):
    started = run_here(monkeypatch)
    done = search(SEARCH, folder="out", progress=False)
    (best,) = done.best
    assert set(best.settings) == set(SPACE)
    assert best.trials == {"complete": 4, "pruned": 0, "failed": 0}
    assert best.value == max(trial.value for trial in trials("out"))
    assert 4 >= len(set(started)) >= 2
    assert search(SEARCH, folder="out", progress=False).best[0].value == best.value
    assert len(started) == 4, "a search that is done tries nothing more"

    plan = load_plan(done.plan_file)
    assert plan.runs[0].digest == best.planned.digest
    assert [run.run.seed for run in plan.runs] == [0, 1]
    assert plan.runs[0].run.train.lr == best.settings["train.lr"]
    assert len(sweep(plan, folder="best", progress=False).records) == 2


def test_more_trials_are_added(monkeypatch: pytest.MonkeyPatch):
    started = run_here(monkeypatch)
    search(SEARCH, folder="out", progress=False)
    more = {**SEARCH, "search": {**SEARCH["search"], "trials": 6}}  # type: ignore[dict-item]
    assert search(more, folder="out", progress=False).best[0].trials["complete"] == 6
    assert len(started) == 6


def test_no_test_figure_is_ever_made(monkeypatch: pytest.MonkeyPatch):
    """Whatever scores test events raises; and a search writes no record."""
    from dsrd.evaluate import scoring
    from dsrd.train import trainer

    asked: list[str] = []
    real = trainer.draw

    def draw(pass_: Any, *arguments: Any, **more: Any) -> Any:
        asked.append(pass_.part)
        return real(pass_, *arguments, **more)

    def forbidden(*_: Any, **__: Any) -> Any:
        raise AssertionError("a search has measured a model")

    monkeypatch.setattr(trainer, "draw", draw)
    monkeypatch.setattr(scoring, "evaluate", forbidden)
    monkeypatch.setattr("dsrd.train.record.evaluate", forbidden)
    monkeypatch.setattr("dsrd.estimator.fitted.evaluation_record", forbidden)
    run_here(monkeypatch)
    done = search(SEARCH, folder="out", progress=False)
    assert not done.failed
    assert set(asked) == {"val"}
    assert not list(Path("out").rglob("record.json"))
    assert not Path("out/records.jsonl").exists()


class Scripted:
    """A place whose runs do not train: their logs say what the test wants, one epoch for each look."""

    has_room = True

    def __init__(self, folder: SweepFolder, values: list[list[float]]) -> None:
        self.folder, self.values = folder, values
        self.running: dict[str, list[float]] = {}
        self.stopped: list[int] = []
        self.number: dict[str, int] = {}

    def start(self, key: str) -> None:
        self.number[key] = len(self.number)
        self.running[key] = list(self.values[self.number[key]])
        self.folder.run(key).path.mkdir(parents=True)

    def ended(self) -> dict[str, str | None]:
        over: dict[str, str | None] = {}
        for key, left in list(self.running.items()):
            history = self.folder.history(key)
            if not left:
                del self.running[key]
                over[key] = None
                continue
            history.append({"epoch": len(history) + 1, "val_ap": left[0], "val_auc": left.pop(0)})
            log = self.folder.run(key).path / "log.jsonl"
            log.write_text("".join(json.dumps(line) + "\n" for line in history))
        return over

    def stop(self, key: str) -> None:
        self.stopped.append(self.number[key])
        del self.running[key]

    def close(self) -> None: ...


def test_poor_trials_are_ended_early(monkeypatch: pytest.MonkeyPatch):
    good, poor = [60.0, 70.0, 80.0, 80.0, 80.0], [50.0, 50.0, 50.0, 50.0, 50.0]
    places: list[Scripted] = []

    @contextmanager
    def opened(folder: SweepFolder, *_: Any) -> Iterator[Scripted]:
        places.append(Scripted(folder, [good, good, good, good, poor, [*good, 90.0], poor]))
        yield places[-1]

    monkeypatch.setattr("dsrd.experiments.searching.opened", opened)
    monkeypatch.setattr("dsrd.experiments.searching.PAUSE", 0.001)
    space = {"train.lr": {"low": 1e-4, "high": 1e-2}}
    plan = {**SEARCH, "search": {"trials": 7, "models": [LEARNED], "space": space}}
    (best,) = search(plan, folder="out", progress=False).best
    assert places[0].stopped == [4, 6]
    assert best.value == 90.0
    assert best.trials == {"complete": 5, "pruned": 2, "failed": 0}


def test_a_search_that_is_killed_goes_on(monkeypatch: pytest.MonkeyPatch):
    """The trial at work is asked again with the same values; half a line and a lock in the journal do no harm."""
    started = run_here(monkeypatch)
    real = SweepFolder.write_spec

    def interrupted(self: SweepFolder, planned: Any, **more: Any) -> None:
        real(self, planned, **more)
        if len(started) == 2:
            started.append(planned.key)
            raise KeyboardInterrupt

    monkeypatch.setattr(SweepFolder, "write_spec", interrupted)
    with pytest.raises(KeyboardInterrupt):
        search(SEARCH, folder="out", progress=False)
    cut_off = started[-1]
    with Path("out/search.journal").open("a") as file:
        file.write('{"op_code": 5, "wor')
    Path("out/search.journal.lock").write_text("")
    done = search(SEARCH, folder="out", progress=False)
    assert started[3] == cut_off, "the same run, which continues"
    assert done.best[0].trials["complete"] == 4
    assert len(started) == 5


def test_a_trial_that_fails_does_not_stop_the_search(monkeypatch: pytest.MonkeyPatch):
    run_here(monkeypatch)
    space = {"train.device": {"choices": ["cpu", "cuda:7"]}}
    plan = {**SEARCH, "search": {"trials": 6, "models": [LEARNED], "space": space}}
    done = search(plan, folder="out", progress=False)
    assert all("cuda:7" in reason for reason in done.failed.values())
    counts = done.best[0].trials
    assert counts["complete"] + counts["failed"] == 6
    assert counts["failed"] >= 1
    assert dict(done.best[0].settings) == {"train.device": "cpu"}


def test_what_a_search_needs(monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(DsrdError, match=r"has no table \[search\]"):
        search(PLAN, folder="out", progress=False)
    monkeypatch.setattr("dsrd.experiments.searching.find_spec", lambda name: None)
    with pytest.raises(DsrdError, match=r"Optuna is not installed; run `pip install dsrd\[search\]`"):
        search(SEARCH, folder="out", progress=False)
