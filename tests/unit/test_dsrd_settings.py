"""DSRD: settings that depend on the stream, the learning rate of its decays, what its checkpoints keep."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from dsrd.config import RunConfig, TrainConfig
from dsrd.data.read import load
from dsrd.errors import DsrdError
from dsrd.evaluate.task import Task
from dsrd.models import GraphSpec, TemporalModel, create, model_class
from dsrd.models.dsrd import DSRD, DSRDConfig
from dsrd.models.dsrd import settings as dsrd_settings
from dsrd.train.loop import adam
from dsrd.train.run_folder import RunFolder
from dsrd.train.trainer import Trainer

SMALL = DSRDConfig(**model_class("dsrd").card.small)


@pytest.fixture(scope="module")
def task() -> Task:
    return Task.of(load("synth:events=600"))


def width_of(model: TemporalModel) -> int:
    return int(model.config.dim)


@pytest.mark.parametrize(("events", "dim"), [(0, 32), (1_000, 32), (150_000, 32), (150_001, 64), (10**7, 64)])
def test_the_width_is_that_of_the_training_stream(events: int, dim: int) -> None:
    spec = GraphSpec(num_nodes=3, num_events=events)
    assert width_of(create("dsrd", spec, DSRDConfig())) == dim
    assert width_of(create("dsrd", spec, DSRDConfig(dim=12))) == 12


@pytest.mark.parametrize("longest", [100, 10_000])
def test_the_width_counts_training_events_and_is_kept_in_the_run(
    longest: int, task: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dsrd_settings, "LONG_STREAM", longest)
    run = RunConfig(dataset="synth:events=600", model="dsrd").with_overrides(
        {"train.epochs": 1, "model.neighbors": 3, "model.code_dim": 16}
    )
    folder = RunFolder(tmp_path / "run")
    with folder.claimed(run):
        trainer = Trainer(run, task, folder)
        trainer.train()
    assert width_of(trainer.model) == (64 if longest == 100 else 32)
    assert trainer.model.graph.num_events == len(task.split.train)
    assert width_of(folder.load_model(run)) == width_of(trainer.model)


@pytest.mark.parametrize("name", ["scales", "count_scales"])
@pytest.mark.parametrize(
    ("values", "remedy"),
    [
        ((), "one number above 0 or more"),
        ((0.1, -1.0), "one number above 0 or more"),
        ((1.0, 0.1), "each number once, in ascending order"),
        ((0.1, 0.1), "each number once, in ascending order"),
    ],
)
def test_scales_ascend(name: str, values: tuple[float, ...], remedy: str) -> None:
    with pytest.raises(DsrdError, match=rf"model\.{name}=.*: give {remedy}"):
        create("dsrd", GraphSpec(num_nodes=3), replace(SMALL, **{name: values}))
    create("dsrd", GraphSpec(num_nodes=3), replace(SMALL, **{name: (0.1, 1.0)}))


@pytest.mark.parametrize("state", ["walks", "dense"])
def test_learned_decays_have_a_learning_rate_of_their_own(state: str) -> None:
    model = create("dsrd", GraphSpec(num_nodes=3), replace(SMALL, state=state))
    names = {id(weight): name for name, weight in model.named_parameters()}
    optimizer = adam(model, TrainConfig(lr=1e-3, decay_lr=0.05, weight_decay=0.01))
    assert optimizer is not None
    others, decays = optimizer.param_groups
    assert (others["lr"], others["weight_decay"]) == (1e-3, 0.01)
    assert (decays["lr"], decays["weight_decay"]) == (0.05, 0.0)
    assert sorted(names[id(p)] for group in (others, decays) for p in group["params"]) == sorted(names.values())
    kinds = {names[id(p)].rpartition(".")[2] for p in decays["params"]}
    layer = {"raw_lambda", "raw_alpha", "raw_gamma", "raw_delta"}
    assert kinds == (layer | {"raw_place", "raw_kinds", "raw_uniform"} if state == "walks" else layer)
    assert not any("raw_" in names[id(p)] for p in others["params"])


def test_without_that_rate_all_weights_are_one_group() -> None:
    for name, decay_lr in (("dsrd", 0.0), ("graphmixer", 0.05)):  # graphmixer has no learned decays
        model = create(name, GraphSpec(num_nodes=3), model_class(name).Config(**model_class(name).card.small))
        optimizer = adam(model, TrainConfig(decay_lr=decay_lr))
        assert optimizer is not None
        assert len(optimizer.param_groups) == 1


def test_numbers_of_sources_and_targets_are_kept_in_a_checkpoint(task: Task, tmp_path: Path) -> None:
    run = RunConfig(dataset="synth:events=600", model="dsrd", model_args=dict(model_class("dsrd").card.small))
    run, folder = run.with_overrides({"train.epochs": 1}), RunFolder(tmp_path / "run")
    with folder.claimed(run):
        Trainer(run, task, folder).train()
    loaded = folder.load_model(run)
    assert isinstance(loaded, DSRD)
    sources, targets = (len(set(ends.tolist())) for ends in (task.split.train.src, task.split.train.dst))
    assert (loaded.num_sources, loaded.num_targets) == (sources, targets)
    assert sources != targets
    assert torch.equal(loaded.body.num_targets, torch.tensor(float(targets)))  # of the first guess
