"""What a record is called in tables: its model with unusual settings, or a note on the version that made it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, fields
from functools import cache
from typing import Any

from dsrd.config import PARTS, RunConfig, model_label
from dsrd.data import catalog
from dsrd.errors import DsrdError
from dsrd.models import configured, model_class, settings

EARLIER = "earlier version"


def record_label(record: Mapping[str, Any]) -> str:
    """The model's name with its unusual settings, or with a note that an earlier version made the record."""
    config = record["config"]
    view = ", published view" if config["evaluate"].get("known") == "trained" else ""
    name, usual = model_label(record["model"], record["preset"]), usual_settings(record)
    if usual is None:
        return name + view
    if is_earlier(record):
        return f"{name}, {EARLIER}{view}"
    changed = (f", {key}={typed(value)}" for key, value in config["model_args"].items() if value != usual[key])
    return name + "".join(changed) + view


def usual_settings(record: Mapping[str, Any]) -> dict[str, Any] | None:
    """The settings the model has today, as a record keeps them; None for a model or preset unknown here.

    Some models size themselves by the stream.
    """
    found = _usual(record["model"], record["dataset"], record["preset"])
    return None if found is None else dict(json.loads(found))


@cache
def _usual(model: str, dataset: str, preset: str) -> str | None:
    try:
        today: Any = settings(model, dataset, preset, {})
    except DsrdError:
        return None
    if hasattr(today, "sized"):
        spec = catalog.get(dataset)
        today = today.sized(round(0.7 * spec.events) if spec else 0)  # of which about 70 % are for training
    return json.dumps(asdict(today))


def is_earlier(record: Mapping[str, Any]) -> bool:
    """Whether it has settings of the model that are gone, or lacks one that the model's recipe gives today."""
    config, usual = record["config"], usual_settings(record)
    if usual is None:
        return False
    card = model_class(record["model"]).card
    recipe = card.presets[record["preset"]].recipe if record["preset"] in card.presets else card.recipe
    return not set(config["model_args"]) <= set(usual) or not set(recipe) <= set(config["train"])


def command(record: Mapping[str, Any]) -> str:
    """The command that repeats a record; empty if the present version cannot (its settings are in the record)."""
    usual = usual_settings(record)
    if usual is None or is_earlier(record):
        return ""
    words = [f"--dataset {record['dataset']}", f"--model {record['model']}", f"--protocol {record['protocol']}"]
    named = RunConfig(dataset=record["dataset"], model=record["model"], preset=record["preset"])
    today = json.loads(json.dumps(configured(named, {}).to_dict()))
    changed = {
        f"model.{key}": value for key, value in record["config"]["model_args"].items() if value != usual[key]
    }
    for part, kind in PARTS.items():
        stored = record["config"].get(part, {})
        known = [each.name for each in fields(kind) if each.name in stored]
        changed |= {f"{part}.{key}": stored[key] for key in known if stored[key] != today[part][key]}
    settings_given = [f"--set {key}={typed(value)}" for key, value in changed.items() if key != "data.bipartite"]
    if model_class(record["model"]).card.rule:
        return " ".join(["dsrd evaluate", *words, *settings_given])
    preset = [] if record["preset"] == "published" else [f"--preset {record['preset']}"]
    return " ".join(["dsrd train", *words, *preset, f"--seed {record['seed']}", *settings_given])


def typed(value: Any) -> str:
    """A value as one would type it.

    >>> typed((0.1, 1)), typed(None), typed(True)
    ('0.1,1', 'none', 'true')
    """
    if isinstance(value, tuple | list):
        return ",".join(map(typed, value))
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)
