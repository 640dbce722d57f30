"""Calibration: pure functions on hand-made arrays, and scorers whose probabilities are known."""

from __future__ import annotations

import doctest
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from dsrd.config import EvaluateConfig
from dsrd.evaluate import calibration as module
from dsrd.evaluate.calibration import (
    calibration,
    calibration_curve,
    expected_calibration_error,
    measure_factor,
)
from dsrd.evaluate.task import Task
from dsrd.events import Events, Query
from dsrd.history.past import Past
from dsrd.models import GraphSpec, ModelCard, TemporalModel, create, model_class
from dsrd.protocol import DYGLIB, STRICT, Protocol
from dsrd.synthetic.drawing import synth
from dsrd.synthetic.memory import memory_stream
from dsrd.synthetic.oracle import true_probability
from dsrd.synthetic.settings import MemoryConfig, SynthConfig

LAW = MemoryConfig(events=3000, sources=6, targets=20, taus=(40.0,), skew=1.0)
EVALUATE = EvaluateConfig(order="fast")


@dataclass(frozen=True, kw_only=True)
class OracleConfig:
    offset: float = 0.0  # added to every score: probabilities stay, the normaliser moves
    sharpness: float = 1.0  # factor of every score: above 1 the model is too sure of itself


class Oracle(TemporalModel):
    """Scores by the true law of a synthetic stream, and lists what it observes."""

    Config = OracleConfig
    card = ModelCard(paper="none", reads="the law", cost="none")
    heads = ("partner", "pair")

    def __init__(self, task: Task, config: OracleConfig = OracleConfig()) -> None:
        super().__init__(config, GraphSpec())
        self.task = task
        train = task.split.train
        self.num_targets, self.num_sources = len(train.dst.unique()), len(train.src.unique())
        self.state.declare("nothing", lambda rows: torch.zeros(rows))  # not stateless: nothing may lag
        self.observed: list[int] = []

    @property
    def state_from_events(self) -> bool:
        return True

    def _truth(self, query: Query) -> Any:
        row = np.searchsorted(self.task.split.full.time.numpy(), query.time.numpy())
        return true_probability(
            self.task.dataset.law, self.task.split.full, row, query.src.numpy(), query.dst.numpy()
        )

    def _log_ratio(self, chance: np.ndarray, candidates: int) -> Tensor:
        ratio = torch.log(torch.from_numpy(chance * candidates) + 1e-12)
        return self.config.sharpness * ratio + self.config.offset

    def score(self, query: Query, past: Past, head: str = "") -> Tensor:
        assert head == "partner"
        return self._log_ratio(self._truth(query).partner, self.num_targets)

    def activity(self, query: Query, past: Past) -> Tensor:
        assert not query.dst.any(), "the target gives the source away"
        return self._log_ratio(self._truth(query).source, self.num_sources)

    def observe(self, events: Events, past: Past) -> None:
        self.observed += events.id.tolist()


def task_of(law: MemoryConfig | SynthConfig) -> Task:
    """A task in which no node is withheld."""
    data = memory_stream(law) if isinstance(law, MemoryConfig) else synth(law)
    row = np.arange(law.events) / law.events
    return Task.of_parts(data, {"train": row < 0.7, "val": (row >= 0.7) & (row < 0.85), "test": row >= 0.85})


@pytest.fixture(scope="module")
def task() -> Task:
    return task_of(LAW)


# --- Arrays ------------------------------------------------------------------------------------------------------


def test_a_curve_has_bins_of_equal_counts():
    probability = np.linspace(0, 1, 100)
    curve = calibration_curve(probability, probability > 0.495)
    assert [each["count"] for each in curve] == [10] * 10
    assert [each["observed"] for each in curve] == [0.0] * 5 + [1.0] * 5
    assert curve[0]["expected"] == pytest.approx(probability[:10].mean())
    assert expected_calibration_error(curve) == pytest.approx(0.25, abs=0.01)


def test_equal_probabilities_share_a_bin():
    happened = np.arange(30) < 10
    curve = calibration_curve(np.full(30, 1 / 3), happened)
    assert [each["count"] for each in curve] == [30]
    assert expected_calibration_error(curve) == pytest.approx(0)
    curve = calibration_curve(np.repeat([0.1, 0.9], [27, 3]), happened)
    assert [each["count"] for each in curve] == [27, 3]


def test_the_error_is_weighted_by_counts():
    curve = [
        {"count": 9, "expected": 0.1, "observed": 0.1},
        {"count": 1, "expected": 0.9, "observed": 0.4},
    ]
    assert expected_calibration_error(curve) == pytest.approx(0.05)


def test_a_constant_added_to_all_scores_moves_the_normaliser_only():
    scores = np.log([[0.5, 1.5, 1.0], [2.0, 0.5, 0.5]])
    plain, moved = (measure_factor(scores + offset, np.array([1, 0])) for offset in (0.0, 0.7))
    assert plain["log_loss"] == pytest.approx(-np.log([1.5 / 3, 2 / 3]).mean(), abs=1e-4)
    assert plain["log_normaliser"] == pytest.approx(0, abs=1e-6)
    assert plain["log_loss_self_normalised"] == plain["log_loss"]
    assert moved["log_loss"] == plain["log_loss"]
    assert moved["log_normaliser"] == pytest.approx(0.7)
    assert moved["log_loss_self_normalised"] == pytest.approx(plain["log_loss"] - 0.7, abs=1e-4)


def test_the_true_law_is_compared_among_the_same_candidates():
    """Candidates may miss some of the law's probability: what is left is normalised again."""
    truth = np.array([[0.1, 0.3], [0.2, 0.2]])
    measured = measure_factor(np.zeros((2, 2)), np.array([1, 0]), truth)
    assert measured["log_loss_true_law"] == pytest.approx(-(np.log(0.75) + np.log(0.5)) / 2, abs=1e-4)
    assert measured["excess"] == pytest.approx((np.log(0.75) - np.log(0.5)) / 2, abs=1e-4)


# --- Models ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", [STRICT, DYGLIB], ids=lambda protocol: protocol.name)
def test_a_scorer_that_knows_the_law_has_its_entropy_and_is_calibrated(task: Task, protocol: Protocol):
    model = Oracle(task)
    measured = calibration(model, task, protocol, EVALUATE, sample=450)
    test = task.split.test
    truth = true_probability(LAW, task.split.full, test.id.numpy() - 1)
    assert measured["sample"] == measured["partner"]["events"] == len(test) == 450
    for name, chance in (("partner", truth.partner), ("activity", truth.source)):
        factor = measured[name]
        assert factor["log_loss"] == pytest.approx(-np.log(chance).mean(), abs=1e-4)
        assert factor["excess"] == pytest.approx(0, abs=1e-6)
        assert factor["log_normaliser"] == pytest.approx(0, abs=1e-6)
        assert factor["log_loss"] < factor["log_loss_uniform"] - 0.1
        assert factor["misplaced"] < 0.2
    assert model.observed == task.split.full.id.tolist()  # each event once, in order


def test_too_sure_a_model_has_excess_and_is_not_calibrated(task: Task):
    right, sure = (
        calibration(Oracle(task, OracleConfig(sharpness=sharpness)), task, STRICT, EVALUATE, sample=450)["partner"]
        for sharpness in (1.0, 3.0)
    )
    assert sure["excess"] > 0.2
    assert sure["misplaced"] > 2 * right["misplaced"]
    assert sure["curve"][-1]["expected"] > sure["curve"][-1]["observed"]


def test_answers_that_are_no_candidates_are_left_out():
    """In this stream new nodes keep arriving; the law is compared among the nodes of training."""
    task = task_of(SynthConfig(events=2000, bipartite=True, nodes=300))
    measured = calibration(Oracle(task), task, STRICT, EVALUATE, sample=150)
    known = np.isin(task.split.test.dst.numpy(), task.split.train.dst.numpy())
    assert 0 < known.mean() < 1
    assert measured["partner"]["events"] < measured["sample"] == 150
    assert measured["partner"]["excess"] == pytest.approx(0, abs=1e-4)
    assert measured["activity"]["excess"] == pytest.approx(0, abs=1e-4)


def test_a_model_with_one_head_has_a_partner_factor_only(task: Task):
    torch.manual_seed(0)
    config = model_class("graphmixer").Config(dim=8)
    model = create("graphmixer", GraphSpec(num_nodes=task.dataset.num_nodes), config)
    measured = calibration(model, task, STRICT, EVALUATE, sample=20)
    assert "activity" not in measured
    assert measured["partner"]["events"] == measured["sample"] == 20
    assert measured["partner"]["excess"] > 0


def test_rules_are_skipped_with_a_reason(task: Task):
    rule = create("edgebank", GraphSpec(num_nodes=task.dataset.num_nodes))
    assert "not log ratios" in calibration(rule, task, STRICT, EVALUATE)["skipped"]


def test_examples():
    assert doctest.testmod(module).failed == 0
