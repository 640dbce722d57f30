"""The models, found by name: a file or package in this folder that defines a `TemporalModel` is a model.

Folders named in the environment variable DSRD_MODELS (separated like PATH) are searched as well.
"""

from __future__ import annotations

import inspect
import os
import pkgutil
from collections.abc import Mapping
from dataclasses import fields, replace
from functools import cache
from importlib import import_module
from typing import Any

from dsrd.config import COMMON_PRESETS, PARTS, RunConfig, overridden
from dsrd.errors import DsrdError, unknown
from dsrd.models.base import GraphSpec, NodeEncoder, TemporalModel
from dsrd.models.card import ModelCard, Preset, read_published
from dsrd.ranges import checked
from dsrd.state import Snapshot, State

__all__ = [
    "GraphSpec",
    "ModelCard",
    "NodeEncoder",
    "Preset",
    "Snapshot",
    "State",
    "TemporalModel",
    "create",
    "model_class",
    "names",
    "published",
    "rules",
]

OWN_FOLDERS = [folder for folder in os.environ.get("DSRD_MODELS", "").split(os.pathsep) if folder]
__path__.extend(OWN_FOLDERS)
_NOT_MODELS = ("base", "card", "state_size")
DEFAULT = "dsrd"
"""The model trained when none is named."""
DEMO = ("edgebank", "dsrd")
"""What `dsrd demo` shows: one model that learns nothing, one that does."""


def names() -> list[str]:
    """The names of all models.

    >>> "edgebank" in names()
    True
    """
    for folder in OWN_FOLDERS:
        if not os.path.isdir(folder):
            raise DsrdError(f"DSRD_MODELS: {folder}: no such folder; correct it, or unset the variable")
    return sorted(module.name for module in pkgutil.iter_modules(__path__) if module.name not in _NOT_MODELS)


def rules() -> list[str]:
    """The models that learn nothing, with which tables compare the others.

    >>> "edgebank" in rules()
    True
    """
    return [name for name in names() if model_class(name).card.rule]


def published(name: str) -> Mapping[str, Mapping[str, Any]]:
    """The settings of a model's published rows, by data set.

    >>> published("tgn")["enron"]
    {'dropout': 0.0}
    """
    return _published().get(name, {})


@cache
def _published() -> dict[str, dict[str, dict[str, Any]]]:
    return read_published(__path__)


def model_class(name: str) -> type[TemporalModel]:
    """The class behind a name."""
    if name not in names():
        raise unknown("model", name, names())
    module = import_module(f"{__name__}.{name}")
    for value in vars(module).values():
        if inspect.isclass(value) and issubclass(value, TemporalModel) and value.__module__ == module.__name__:
            if not hasattr(value, "card"):
                raise DsrdError(f"{module.__file__}: {value.__name__} has no card; add card = ModelCard(...)")
            return value
    raise DsrdError(f"{module.__file__}: defines no TemporalModel; a file in models/ is one model")


def settings(name: str, dataset: str, preset: str, given: Mapping[str, Any]) -> Any:
    """The model's Config: its defaults, then the preset's settings for the data set, then the given ones."""
    declared = _declared(name, preset)
    chosen = {} if declared is None else declared.model
    if preset == "published":
        chosen = published(name).get(dataset, {})
    return _config(name, {**chosen, **given})


def _config(name: str, given: Mapping[str, Any]) -> Any:
    """The model's Config with some settings replaced, every number checked."""
    return checked(overridden(model_class(name).Config(), given, prefix="model."), "model.")


def _declared(name: str, preset: str) -> Preset | None:
    """The preset of that name in the model's card; none for a preset that every model has."""
    presets = model_class(name).card.presets
    if preset not in (*COMMON_PRESETS, *presets):
        raise unknown("preset", preset, (*COMMON_PRESETS, *presets))
    return presets.get(preset)


def configured(run: RunConfig, given: Mapping[str, Any]) -> RunConfig:
    """A run with the recipe of its model or preset, and over that the settings given as `part.name`.

    Text is read as the type of its setting.

    >>> run = configured(RunConfig(dataset="uci", model="edgebank"), {"model.window": "0.2", "train.epochs": 3})
    >>> run.model_args, run.train.epochs
    ({'window': 0.2}, 3)
    """
    declared = _declared(run.model, str(given.get("preset", run.preset)))
    recipe = model_class(run.model).card.recipe if declared is None else declared.recipe
    run = run.with_overrides({**{f"train.{key}": value for key, value in recipe.items()}, **given})
    return replace(run, model_args=typed(run.model, run.model_args))


def full_names(model: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as `part.name`. A name that several parts have must say which: `train__batch_size`.

    >>> full_names("edgebank", {"epochs": 3, "window": 0.2, "evaluate__batch_size": 100})
    {'train.epochs': 3, 'model.window': 0.2, 'evaluate.batch_size': 100}
    """
    configs = {"train": PARTS["train"], "evaluate": PARTS["evaluate"], "model": model_class(model).Config}
    keys = [f"{part}.{setting.name}" for part, config in configs.items() for setting in fields(config)]
    full: dict[str, Any] = {}
    for name, value in given.items():
        key = name.replace("__", ".", 1)
        matches = [key] if key in keys else [known for known in keys if known.partition(".")[2] == key]
        if not matches:
            raise unknown("setting", key, keys)
        if len(matches) > 1:
            spelt = " or ".join(known.replace(".", "__") for known in matches)
            raise DsrdError(f"setting '{name}': there are several of that name; write {spelt}")
        if matches[0] in full:
            raise DsrdError(f"setting '{name}': given twice; keep one")
        full[matches[0]] = value
    return full


def typed(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Settings read as the types the model wants: `{"dim": "16"}` and `{"dim": 16}` are the same run."""
    config = _config(name, given)
    return {key: getattr(config, key) for key in given}


def create(name: str, graph: GraphSpec, config: Any = None) -> TemporalModel:
    """Build a model for a graph of these sizes.

    >>> create("edgebank", GraphSpec()).num_parameters
    0
    """
    cls = model_class(name)
    return cls(checked(cls.Config() if config is None else config, "model."), graph)
