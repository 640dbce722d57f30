"""Presets: settings and a recipe under one name."""

from __future__ import annotations

import pytest

from dsrd.config import RunConfig, TrainConfig
from dsrd.errors import DsrdError
from dsrd.models import configured, model_class, names, settings

DECLARED = [(name, preset) for name in names() for preset in model_class(name).card.presets]


@pytest.mark.parametrize(("name", "preset"), DECLARED)
def test_a_preset_sets_model_and_recipe_and_can_be_overridden(name: str, preset: str) -> None:
    declared = model_class(name).card.presets[preset]
    config = settings(name, "uci", preset, {})
    assert all(getattr(config, key) == value for key, value in declared.model.items())
    run = configured(RunConfig(dataset="uci", model=name), {"preset": preset})
    assert run.preset == preset
    assert run.train == TrainConfig(**declared.recipe)  # nothing of the model's own recipe
    assert configured(RunConfig(dataset="uci", model=name, preset=preset), {}) == run
    overridden = configured(run, {"train.epochs": "3", "model.dropout": "0.5"})
    assert (overridden.train.epochs, settings(name, "uci", preset, overridden.model_args).dropout) == (3, 0.5)


def test_some_model_declares_a_preset() -> None:
    assert DECLARED


@pytest.mark.parametrize("name", ["edgebank", DECLARED[0][0]])
def test_an_unknown_preset_is_refused_with_the_nearest_name(name: str) -> None:
    for refuse in (
        lambda: settings(name, "uci", "publishd", {}),
        lambda: configured(RunConfig(dataset="uci", model=name), {"preset": "publishd"}),
    ):
        with pytest.raises(DsrdError, match="unknown preset 'publishd'; did you mean 'published'"):
            refuse()
