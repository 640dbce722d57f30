"""`dsrd models`."""

from __future__ import annotations

from dataclasses import asdict
from textwrap import fill
from typing import TYPE_CHECKING, Any

from dsrd.cli import options, show

if TYPE_CHECKING:  # importing a model takes a second that `--help` should not
    from dsrd.models import Preset

EXAMPLES = options.examples("dsrd models", "dsrd models --json")


def models(json: options.Json = False) -> None:
    """List the models, what they read and their settings."""
    from dsrd.models import DEFAULT, names

    rows = [{**_row(name), "default": name == DEFAULT} for name in names()]
    if json:
        show.as_json({"models": rows})
        return
    columns = ["name", "paper", "parameters", "state_bytes_per_node"]
    titles = ["name", "paper", "parameters", "bytes per node"]
    show.table("models", titles, [[row[column] for column in columns] for row in rows])
    for row in rows:
        chosen = ", trained when none is named" if row["default"] else ""
        keys = " ".join(f"model.{key}={value}" for key, value in row["settings"].items())
        show.line(fill(f"{row['name']}{chosen}: {row['summary']}", 79, subsequent_indent="  "))
        lines = [("reads", row["reads"]), ("settings", keys)]
        for preset, each in row["presets"].items():
            keys = " ".join(f"{key}={value}" for key, value in each["settings"].items())
            lines.append(("preset", f"{preset}: {each['about']}; {keys}; {each['parameters']:,} parameters"))
        for label, text in lines:
            show.line(fill(f"{label:8} {text}", 79, initial_indent="  ", subsequent_indent=" " * 11))


def _row(name: str) -> dict[str, Any]:
    from dsrd.models import model_class

    cls = model_class(name)
    presets = {
        preset: {"about": each.about, "settings": _keys(each), **_sizes(name, preset)}
        for preset, each in cls.presets.items()
    }
    return {
        "name": name,
        "paper": cls.paper,
        "reads": cls.reads,
        "summary": (cls.__doc__ or "").strip().splitlines()[0],
        **_sizes(name, "default"),
        "settings": asdict(cls.Config()),
        "published": sorted(cls.published),
        "presets": presets,
    }


def _sizes(name: str, preset: str) -> dict[str, Any]:
    from dsrd.models import GraphSpec, create, settings

    config = settings(name, "", preset, {})
    small, large = (create(name, GraphSpec(num_nodes=rows), config) for rows in (1, 1025))
    return {
        "state": list(small.state.fields),
        "state_bytes_per_node": (large.state.nbytes() - small.state.nbytes()) // 1024,
        "parameters": small.num_parameters,
    }


def _keys(preset: Preset) -> dict[str, Any]:
    """What a preset sets, as one would write it after `--set`."""
    model = {f"model.{key}": value for key, value in preset.model.items()}
    return model | {f"train.{key}": value for key, value in preset.recipe.items()}
