"""DSRD on small streams of a known law: it learns how long their memory lasts, and nothing where there is none."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch

import dsrd
from dsrd.data.dataset import Dataset
from dsrd.estimator.link_predictor import LinkPredictor
from dsrd.evaluate.calibration import calibration
from dsrd.evaluate.evidence import LEAST, standard_errors
from dsrd.evaluate.task import Task
from dsrd.history.past import Past
from dsrd.models import TemporalModel
from dsrd.synthetic.memory import memory_stream
from dsrd.synthetic.settings import MemoryConfig
from dsrd.train.trainer import Trainer

SMALL = {"model.dim": 8, "model.heads": 2, "model.neighbors": 4, "model.code_dim": 16}


def trained_on_memory(tau: float) -> Trainer:
    """A small model of a stream whose memory fades by exp(-age / tau)."""
    stream = memory_stream(MemoryConfig(events=6_000, sources=10, targets=200, taus=(tau,)))
    row = np.arange(len(stream.events)) / len(stream.events)
    parts = {"train": row < 0.7, "val": (row >= 0.7) & (row < 0.75), "test": row >= 0.75}
    run = LinkPredictor("dsrd", protocol="strict", seed=0).run_for(stream)
    few = {"train.epochs": 4, "train.decay_lr": 0.1, "model.layers": 1}  # large steps, because they are few
    trainer = Trainer(run.with_overrides({**SMALL, **few}), Task.of_parts(stream, parts))
    trainer.train()
    return trainer


def learned_half_life(model: TemporalModel) -> float:
    """The half-life of what sources repeat."""
    memory = model.learned()["memory"]
    assert memory["repeat"]["share"] > max(memory[name]["share"] for name in ("reply", "follow"))
    return float(memory["repeat"]["half_life_in_events"])


def test_the_learned_memory_lasts_as_long_as_the_streams() -> None:
    short, long = (learned_half_life(trained_on_memory(tau).model) for tau in (20, 2_000))
    for learned, tau in ((short, 20), (long, 2_000)):
        assert 1 / 3 < learned / (tau * math.log(2)) < 3
    assert long / short > 10


def test_the_log_loss_is_near_that_of_the_true_law() -> None:
    """And probabilities are calibrated: what is expected in the likeliest tenth happens, within a third."""
    trainer = trained_on_memory(200)
    run, trained = trainer.run, trainer.model.state.snapshot()
    measured = calibration(trainer.model, trainer.task, run.protocol_rules, run.evaluate, trained, sample=400)
    partner, activity = measured["partner"], measured["activity"]
    assert partner["log_loss"] < partner["log_loss_uniform"] - 1
    assert -3 * partner["excess_se"] < partner["excess"] < 0.15  # nats per event
    assert abs(activity["excess"]) < 0.01
    top = partner["curve"][-1]
    assert top["expected"] == pytest.approx(top["observed"], rel=1 / 3)
    assert partner["misplaced"] < 0.2


def fitted(stream: Dataset, folder: Path | None = None, **settings: object) -> LinkPredictor:
    small = {"dim": 8, "heads": 2, "neighbors": 4, "code_dim": 16, **settings}
    return LinkPredictor("dsrd", seed=0, **small).fit(stream, folder=folder, progress=False)


@pytest.mark.parametrize("seed", range(3))
def test_where_nothing_can_be_known_every_column_is_at_chance(seed: int) -> None:
    """Uniformly random events: validation supports neither factor, so both are set aside."""
    stream = memory_stream(MemoryConfig(events=4_000, sources=50, targets=50, novelty=1.0, seed=seed))
    model = fitted(stream, epochs=3)
    record = model.evaluate(progress=False, questions=True).record
    columns = 0
    for results in (record["results"], record["heads"]["pair"]["results"]):
        for kinds in results.values():
            for metrics in kinds.values():
                assert [metrics["ap"], metrics["auc"]] == pytest.approx([50, 50], abs=2)
                columns += 1
    assert columns == 2 * 2 * 3
    assert {record["questions"][name]["auc"] for name in ("partner", "pairs", "awake", "first")} == {50.0}
    assert record["unsupported"] == ["partner", "activity"]
    answers = model.predict([(1, 60), (7, 99)])
    assert list(answers["partner"]) == pytest.approx([1 / model.module.num_targets] * 2)


def test_what_can_be_known_is_not_set_aside(tmp_path: Path) -> None:
    """A stream with a memory, whose sources act at random: only who acts next cannot be known."""
    stream = memory_stream(MemoryConfig(events=4_000, sources=50, targets=50, taus=(100,)))
    model = fitted(stream, tmp_path / "run", epochs=1, final=True)
    record = model.evaluate(progress=False).record
    assert record["unsupported"] == ["activity"]
    opened = dsrd.open(tmp_path / "run")
    past = Past(stream.events)
    for each in (model, opened):  # the weights after validation, and those trained on all events
        module = each.module
        with torch.no_grad():
            assert module.activity(stream.events[-50:].query(), past).abs().max() == 0
            assert module.score(stream.events[-50:].query(), past).abs().max() > 0.1


def test_standard_errors_of_a_gain() -> None:
    assert math.isinf(standard_errors(np.full(3, 0.5)))
    assert standard_errors(np.array([1.0])) == 0
    noise = np.random.default_rng(0).standard_normal(10_000)
    assert abs(standard_errors(noise)) < LEAST < standard_errors(noise + 0.1)
