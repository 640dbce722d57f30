"""`dsrd models`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from dsrd.cli import options, show
from dsrd.models import GraphSpec, create, model_class, names


def models(json: options.Json = False) -> None:
    """List the models: where they come from, what they read, what state they keep, their settings."""
    rows = [_row(name) for name in names()]
    if json:
        show.as_json({"models": rows})
        return
    show.table(
        "models",
        ["name", "paper", "reads", "state bytes/node", "parameters"],
        [
            [row["name"], row["paper"], row["reads"], row["state_bytes_per_node"], row["parameters"]]
            for row in rows
        ],
    )
    for row in rows:
        keys = ", ".join(f"{key}={value}" for key, value in row["settings"].items())
        show.output.print(f"{row['name']}: --set model.KEY=VALUE with {keys}", highlight=False)


def _row(name: str) -> dict[str, Any]:
    cls = model_class(name)
    small, large = (create(name, GraphSpec(num_nodes=rows)) for rows in (1, 1025))
    return {
        "name": name,
        "paper": cls.paper,
        "reads": cls.reads,
        "summary": (cls.__doc__ or "").strip().splitlines()[0],
        "state": list(small.state.fields),
        "state_bytes_per_node": (large.state.nbytes() - small.state.nbytes()) // 1024,
        "parameters": small.num_parameters,
        "settings": asdict(small.config),
        "published": sorted(cls.published),
    }
