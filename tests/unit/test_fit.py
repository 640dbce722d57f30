"""Training: early stopping, checkpoints, and runs that are cut short."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from dsrd.config import RunConfig
from dsrd.data.read import load
from dsrd.errors import DsrdError
from dsrd.estimator import fitted
from dsrd.estimator.link_predictor import open_run
from dsrd.evaluate.task import Task
from dsrd.events import Events
from dsrd.files import write_json
from dsrd.history.past import Past
from dsrd.negatives.sampling import TrainingNegatives
from dsrd.reporter import Reporter
from dsrd.train import checkpoint
from dsrd.train.record import Record
from dsrd.train.run_folder import RunFolder
from dsrd.train.stopping import TrainingProgress
from dsrd.train.trainer import Trainer

SMALL = {"model.dim": 8, "model.time_dim": 4, "model.neighbors": 3, "model.dropout": 0.2, "train.lr": 1e-3}


def make_run(model: str = "tgn", **settings: object) -> RunConfig:
    base = RunConfig(dataset="synth:events=600", model=model)
    return base.with_overrides(
        {**SMALL, "train.epochs": 3, **{k.replace("_", ".", 1): v for k, v in settings.items()}}
    )


@pytest.fixture(scope="module")
def task() -> Task:
    return Task.of(load("synth:events=600"))


def train(run: RunConfig, folder: RunFolder, task: Task) -> Record:
    """Train in a folder to the end, or continue there; evaluate once."""
    with folder.claimed(run):
        if folder.record.exists():
            return folder.stored_record()
        record = fitted.train(run, task, folder).evaluate(run)
        write_json(folder.record, record)
        folder.write_history(task.dataset)
        return record


def test_an_epoch_is_better_if_both_metrics_are() -> None:
    progress = TrainingProgress()
    metrics = [(80, 80), (81, 79), (80, 80), (82, 81), (81, 90), (99, 80)]
    better = [progress.finish_epoch(ap=ap, auc=auc) for ap, auc in metrics]
    assert better == [True, False, True, True, False, False]  # a tie counts, one metric alone does not
    assert (progress.epoch, progress.best_epoch, progress.best_ap, progress.waited) == (6, 4, 82, 2)
    assert [progress.should_stop(epochs=100, patience=patience) for patience in (2, 3)] == [True, False]
    assert [progress.should_stop(epochs=epochs, patience=9) for epochs in (6, 7)] == [True, False]


def test_an_epoch_may_be_judged_by_the_mean_of_both_metrics() -> None:
    progress = TrainingProgress()
    metrics = [(80, 80), (82, 79), (70, 90), (82, 79), (81, 79)]
    better = [progress.finish_epoch(ap=ap, auc=auc, keep="mean") for ap, auc in metrics]
    assert better == [True, True, False, True, False]
    assert (progress.best_ap, progress.best_auc, progress.waited) == (82, 79, 1)


def test_an_epoch_may_be_judged_by_auc_alone() -> None:
    progress = TrainingProgress()
    assert [progress.finish_epoch(auc=auc) for auc in (0.5, 0.4, 0.5, 0.49)] == [True, False, True, False]
    assert (progress.best_epoch, progress.waited) == (3, 1)


class KilledError(Exception):
    pass


class KilledAfter(Reporter):
    """A reporter that raises an error after a number of steps, as if the process were killed."""

    def __init__(self, steps: int) -> None:
        super().__init__(show=False)
        self.left = steps

    def step(self, name: str, done: int = 0, total: int = 0) -> None:
        self.left -= 1
        if self.left < 0:
            raise KilledError(name)


OWN = {  # an average of weights, and learned decays with a learning rate of their own
    "tgn": {},
    "graphmixer": {"train_average": 0.9},
    "dsrd": {"train_average": 0.9, "train_decay_lr": 0.05},
}


@pytest.mark.parametrize("model", OWN)
@pytest.mark.parametrize("steps", [1, 4, 9, 20])
def test_a_killed_run_ends_in_the_same_weights(model: str, steps: int, task: Task, tmp_path: Path) -> None:
    run = make_run(model, train_batch_size=50, **OWN[model])
    whole, cut = RunFolder(tmp_path / "whole"), RunFolder(tmp_path / "cut")
    first = train(run, whole, task)
    with pytest.raises(KilledError), KilledAfter(steps):
        train(run, cut, task)
    torch.manual_seed(12345)  # another process has another random state
    second = train(run, cut, task)
    assert first["results"] == second["results"]
    for file in ("best.safetensors", "last.safetensors"):
        ours, _ = checkpoint.load(whole.path / file)
        other, _ = checkpoint.load(cut.path / file)
        assert ours.keys() == other.keys()
        for group, tensors in ours.items():
            assert all(torch.equal(value, other[group][name]) for name, value in tensors.items()), (file, group)


def test_a_finished_run_is_not_trained_again(task: Task, tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    record = train(make_run(), folder, task)
    written = folder.best.read_bytes(), folder.last.read_bytes()
    again = train(make_run(), folder, task)
    assert again["results"] == record["results"]
    assert (folder.best.read_bytes(), folder.last.read_bytes()) == written
    assert json.loads(folder.record.read_text())["results"] == record["results"]
    assert len((folder.path / "log.jsonl").read_text().splitlines()) == 3


@pytest.mark.parametrize(
    "short", [{"train_epochs": 1}, {"train_minutes": 1e-9}, {"train_patience": 1, "train_lr": 1.0}]
)
def test_a_run_with_raised_limits_equals_one_that_had_them_from_the_start(
    short: dict[str, object], task: Task, tmp_path: Path
) -> None:
    long = {**short, "train_epochs": 5, "train_minutes": 0.0, "train_patience": 20}
    whole, grown = RunFolder(tmp_path / "whole"), RunFolder(tmp_path / "grown")
    at_once = train(make_run(**long), whole, task)
    first = train(make_run(**short), grown, task)
    then = train(make_run(**long), grown, task)
    assert first["timing"]["epochs"] < then["timing"]["epochs"] == at_once["timing"]["epochs"] == 5
    assert then["results"] == at_once["results"]
    assert then["config"] == at_once["config"]
    assert json.loads(grown.record.read_text())["results"] == then["results"]
    ours, other = (checkpoint.load(folder.last)[0]["weights"] for folder in (whole, grown))
    assert all(torch.equal(value, other[name]) for name, value in ours.items())
    with pytest.raises(DsrdError, match=r"another train\.epochs \(5, not 4\); choose another folder"):
        train(make_run(**{**long, "train_epochs": 4}), grown, task)  # training cannot be undone


def test_evaluating_a_folder_repeats_the_record(task: Task, tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    record = train(make_run(), folder, task)
    model = open_run(folder.path)
    folder.record.unlink()
    assert open_run(folder.path).evaluate(progress=False).record["results"] == record["results"]
    strict = model.evaluate(protocol="strict", progress=False).record
    assert strict["protocol"] == "strict"
    assert strict["trained"] == {"protocol": "dyglib", "config": record["digests"]["config"]}
    assert strict["results"] != record["results"]


def test_minutes_end_a_run_and_patience_too(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Trainer(make_run(train_minutes=1e-9, train_epochs=50), task).train().epoch == 1
    trainer = Trainer(make_run(train_patience=2, train_epochs=50), task)
    aps = iter([60.0, 61.0, 61.0, 59.0, 60.0, 62.0])
    monkeypatch.setattr(trainer, "_validate", lambda: {"ap": next(aps), "auc": 50.0})
    assert (trainer.train().epoch, trainer.progress.best_epoch) == (5, 3)  # a tie counts; 62 comes too late


def test_foreign_folders_and_checkpoints_are_refused(task: Task, tmp_path: Path) -> None:
    tgn, other = RunFolder(tmp_path / "tgn"), RunFolder(tmp_path / "graphmixer")
    train(make_run("tgn", train_epochs=1), tgn, task)
    train(make_run("graphmixer", train_epochs=1), other, task)
    with pytest.raises(DsrdError, match=r"another train\.lr \(0\.001, not 0\.01\); choose another folder"):
        train(make_run("tgn", train_epochs=1, train_lr=0.01), tgn, task)
    with pytest.raises(DsrdError, match="was trained on other data"):
        Trainer(tgn.config(), Task.of(load("synth:events=700")), tgn).train()
    other.best.write_bytes(tgn.best.read_bytes())
    with pytest.raises(DsrdError, match="holds a tgn, not a graphmixer"):
        other.load_model(other.config())
    tgn.best.write_bytes(tgn.best.read_bytes()[:1000])
    with pytest.raises(DsrdError, match="not a dsrd checkpoint, or a damaged one"):
        tgn.load_model(tgn.config())


def test_a_model_is_rebuilt_with_its_graph_spec(task: Task, tmp_path: Path) -> None:
    """Under `strict` a state observes whole timestamps; a checkpoint older than that rule does not."""
    folders = {name: RunFolder(tmp_path / name) for name in ("dyglib", "strict")}
    for name, folder in folders.items():
        train(replace(make_run(train_epochs=1), protocol=name), folder, task)
        assert folder.load_model(folder.config()).graph.whole_moments == (name == "strict")
    best, strict = folders["strict"].best, folders["strict"].config()
    groups, note = checkpoint.load(best)
    del note["graph"]["whole_moments"]
    checkpoint.save(best, groups, note)
    assert not folders["strict"].load_model(folders["strict"].config()).graph.whole_moments
    assert Trainer(strict, task, folders["strict"]).model.graph.whole_moments
    folders["strict"].last.write_bytes(best.read_bytes())
    assert not Trainer(strict, task, folders["strict"]).model.graph.whole_moments
    note["graph"]["size"] = 1
    checkpoint.save(best, groups, note)
    with pytest.raises(DsrdError, match="lacks something or does not fit"):
        folders["strict"].load_model(folders["strict"].config())


def test_neighbours_are_sampled_again_for_every_batch(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also within one timestamp: a fixed sample would be a mark to recognise a node by."""
    node, time = torch.ones(1, dtype=torch.long), torch.full((1,), torch.inf, dtype=torch.float64)

    def draws(seed: int) -> list[tuple[int, ...]]:
        trainer, seen = Trainer(replace(make_run(train_batch_size=50, train_epochs=2), seed=seed), task), []
        loss = trainer.model.loss

        def watched(batch: Events, negatives: TrainingNegatives, past: Past) -> torch.Tensor:
            seen.append(tuple(past.uniform(node, time, 8).event[0].tolist()))
            return loss(batch, negatives, past)

        monkeypatch.setattr(trainer.model, "loss", watched)
        trainer.train()
        return seen

    first = draws(0)
    assert len(set(first)) == len(first) > 10  # two epochs of several batches
    assert draws(0) == first
    assert not set(draws(1)) & set(first)
