"""The models, found by name: a file or package in this folder that defines a `TemporalModel` is a model.

Folders named in the environment variable DSRD_MODELS (separated like PATH) are searched as well.
"""

from __future__ import annotations

import inspect
import os
import pkgutil
from collections.abc import Mapping
from dataclasses import fields, replace
from importlib import import_module
from typing import Any

from dsrd.config import COMMON_PRESETS, PARTS, RunConfig, overridden
from dsrd.errors import DsrdError, unknown
from dsrd.models.base import GraphSpec, NodeEncoder, Preset, TemporalModel
from dsrd.state import Snapshot, State

__all__ = [
    "GraphSpec",
    "NodeEncoder",
    "Preset",
    "Snapshot",
    "State",
    "TemporalModel",
    "create",
    "model_class",
    "names",
    "rules",
]

__path__.extend(filter(None, os.environ.get("DSRD_MODELS", "").split(os.pathsep)))
_PARTS = ("base",)
DEFAULT = "dsrd"
"""The model trained when none is named."""
DEMO = ("edgebank", "dsrd")
"""What `dsrd demo` shows: one model that learns nothing, one that does."""


def names() -> list[str]:
    """Every model there is.

    >>> "edgebank" in names()
    True
    """
    return sorted(module.name for module in pkgutil.iter_modules(__path__) if module.name not in _PARTS)


def rules() -> list[str]:
    """The models that learn nothing, to be shown beside those that do.

    >>> "edgebank" in rules()
    True
    """
    return [name for name in names() if model_class(name).rule]


def model_class(name: str) -> type[TemporalModel]:
    """The class behind a name."""
    if name not in names():
        raise unknown("model", name, names())
    module = import_module(f"{__name__}.{name}")
    for value in vars(module).values():
        if inspect.isclass(value) and issubclass(value, TemporalModel) and value.__module__ == module.__name__:
            return value
    raise DsrdError(f"{module.__file__}: defines no TemporalModel; a file in models/ is one model")


def settings(name: str, dataset: str, preset: str, given: Mapping[str, Any]) -> Any:
    """The model's Config: its defaults, then the preset's settings for the data set, then what was given."""
    cls, own = model_class(name), _declared(name, preset)
    chosen = {} if own is None else own.model
    if preset == "published":
        chosen = cls.published.get(dataset, {})
    return overridden(cls.Config(), {**chosen, **given}, prefix="model.")


def _declared(name: str, preset: str) -> Preset | None:
    """What the model declares under that name; none if it is one that every model has."""
    presets = model_class(name).presets
    if preset not in (*COMMON_PRESETS, *presets):
        raise unknown("preset", preset, (*COMMON_PRESETS, *presets))
    return presets.get(preset)


def configured(run: RunConfig, given: Mapping[str, Any]) -> RunConfig:
    """A run as the model likes to be trained, with settings `part.name` over that; the model's own are typed.

    >>> run = configured(RunConfig(dataset="uci", model="edgebank"), {"model.window": "0.2", "train.epochs": 3})
    >>> run.model_args, run.train.epochs
    ({'window': 0.2}, 3)
    """
    cls, own = model_class(run.model), _declared(run.model, str(given.get("preset", run.preset)))
    recipe = {f"train.{key}": value for key, value in (cls.recipe if own is None else own.recipe).items()}
    run = run.with_overrides({**recipe, **given})
    return replace(run, model_args=typed(run.model, run.model_args))


def full_names(model: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as `part.name`: `epochs` is found by itself, `train__batch_size` says which of two is meant.

    >>> full_names("edgebank", {"epochs": 3, "window": 0.2, "evaluate__batch_size": 100})
    {'train.epochs': 3, 'model.window': 0.2, 'evaluate.batch_size': 100}
    """
    keys = [
        key for part in ("train", "evaluate") for key in (f"{part}.{each.name}" for each in fields(PARTS[part]))
    ]
    keys += [f"model.{each.name}" for each in fields(model_class(model).Config)]
    found: dict[str, Any] = {}
    for name, value in given.items():
        key = name.replace("__", ".", 1)
        meant = [key] if key in keys else [known for known in keys if known.partition(".")[2] == key]
        if not meant:
            raise unknown("setting", key, keys)
        if len(meant) > 1:
            spelt = " or ".join(known.replace(".", "__") for known in meant)
            raise DsrdError(f"setting '{name}': there are several of that name; write {spelt}")
        if meant[0] in found:
            raise DsrdError(f"setting '{name}': given twice; keep one")
        found[meant[0]] = value
    return found


def typed(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Settings read as the types the model wants: `{"dim": "16"}` and `{"dim": 16}` are the same run."""
    config = overridden(model_class(name).Config(), given, prefix="model.")
    return {key: getattr(config, key) for key in given}


def create(name: str, graph: GraphSpec, config: Any = None) -> TemporalModel:
    """Build a model for a graph of these sizes.

    >>> create("edgebank", GraphSpec()).num_parameters
    0
    """
    cls = model_class(name)
    return cls(cls.Config() if config is None else config, graph)
