"""Settings of models: ranges, rules about several settings, published settings, and the card."""

from __future__ import annotations

import dataclasses
import math
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from dsrd import load
from dsrd.errors import DsrdError
from dsrd.history.past import Past
from dsrd.models import GraphSpec, ModelCard, create, model_class, names, published, settings
from dsrd.models.card import PUBLISHED, read_published
from dsrd.negatives.sampling import TrainingNegatives
from dsrd.ranges import AboveZero, Chance, Positive, Share, checked


@dataclass(frozen=True, kw_only=True)
class Config:
    layers: Positive = 1
    rate: AboveZero = 0.5
    window: Share = 0.5
    dropout: Chance = 0.5
    dim: int = 4
    pace: float = 1.0
    name: str = "any"
    scales: tuple[float, ...] = (-1.0,)

    def check(self) -> None:
        if self.dim == 13:
            raise DsrdError("dim=13: give another")


@pytest.mark.parametrize(
    ("name", "value", "remedy"),
    [
        ("layers", 0, "give 1 or more"),
        ("rate", 0.0, "give a number above 0"),
        ("rate", math.inf, "give a number above 0"),
        ("window", 1.5, "give 0 to 1"),
        ("window", -0.5, "give 0 to 1"),
        ("dropout", 1.0, "give 0 to below 1"),
        ("dropout", math.nan, "give 0 to below 1"),
        ("dim", -1, "give 0 or more"),
        ("pace", math.inf, "give 0 or more"),
    ],
)
def test_a_number_outside_its_range_is_refused(name: str, value: float, remedy: str) -> None:
    with pytest.raises(DsrdError) as refusal:
        checked(Config(**{name: value}), "model.")
    assert str(refusal.value) == f"model.{name}={value}: {remedy}"


@pytest.mark.parametrize("changes", [{}, {"window": 0.0}, {"window": 1.0}, {"dropout": 0.0}, {"dim": 0}])
def test_the_ends_of_a_range_are_allowed(changes: dict[str, float]) -> None:
    config = Config(**changes)
    assert checked(config, "model.") is config


def test_a_rule_about_several_settings_is_checked() -> None:
    with pytest.raises(DsrdError, match="dim=13: give another"):
        checked(Config(dim=13), "model.")


@pytest.mark.parametrize("name", names())
def test_every_way_to_a_model_checks_its_settings(name: str) -> None:
    cls = model_class(name)
    numbers = [field.name for field in dataclasses.fields(cls.Config) if isinstance(field.default, float)]
    for number in numbers:
        with pytest.raises(DsrdError, match=rf"model\.{number}=-1\.0: give "):
            settings(name, "uci", "default", {number: -1.0})
        with pytest.raises(DsrdError, match=rf"model\.{number}=-1\.0: give "):
            create(name, GraphSpec(), dataclasses.replace(cls.Config(), **{number: -1.0}))


@pytest.mark.parametrize(("name", "own"), [("dygformer", {"heads": 3}), ("tcl", {"heads": 3, "dim": 172})])
def test_heads_that_do_not_divide_the_width_are_refused(name: str, own: dict[str, int]) -> None:
    with pytest.raises(DsrdError, match=r"model\.heads=3: does not divide the width"):
        create(name, GraphSpec(), settings(name, "", "default", own))


@pytest.mark.parametrize("name", names())
def test_a_setting_of_zero_works_or_is_refused(name: str) -> None:
    cls, stream = model_class(name), load("synth:events=200,seed=3")
    past = Past(stream.events)
    for field in dataclasses.fields(cls.Config):
        if isinstance(field.default, bool) or not isinstance(field.default, int | float):
            continue
        config = dataclasses.replace(cls.Config(), **{**cls.card.small, field.name: type(field.default)(0)})
        try:
            model = create(name, GraphSpec(num_nodes=stream.num_nodes), config)
        except DsrdError:
            continue
        model.calibrate(stream.events[:100])
        model.observe(stream.events[:100], past)
        assert model.loss(stream.events[100:120], TrainingNegatives(stream.events, 0), past).isfinite(), field.name


@pytest.mark.parametrize("name", names())
def test_published_settings_fit_the_model(name: str) -> None:
    for dataset, given in published(name).items():
        config = settings(name, dataset, "published", {})
        assert {key: getattr(config, key) for key in given} == dict(given)


def test_published_settings_belong_to_models() -> None:
    table = read_published([Path(sys.modules["dsrd.models"].__file__ or "").parent])
    assert set(table) <= set(names())
    assert len(table) > 10


def test_published_settings_of_a_folder_of_models_are_read(tmp_path: Path) -> None:
    (tmp_path / PUBLISHED).write_text("[mine]\nuci = { dim = 3 }\n")
    assert read_published([tmp_path / "nowhere", tmp_path]) == {"mine": {"uci": {"dim": 3}}}
    (tmp_path / PUBLISHED).write_text("[mine\n")
    with pytest.raises(DsrdError, match=r"published\.toml: .*; correct the file"):
        read_published([tmp_path])


@pytest.mark.parametrize("name", names())
def test_every_model_has_a_card_of_its_own(name: str) -> None:
    card = vars(model_class(name))["card"]
    assert isinstance(card, ModelCard)
    assert set(card.small) <= {field.name for field in dataclasses.fields(model_class(name).Config)}
    with pytest.raises(dataclasses.FrozenInstanceError):
        card.rule = not card.rule
