"""`dsrd models`."""

from __future__ import annotations

from dataclasses import asdict
from textwrap import fill
from typing import Any

from dsrd.cli import options, show

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
        for label, text in (("reads   ", row["reads"]), ("settings", keys)):
            show.line(fill(f"{label} {text}", 79, initial_indent="  ", subsequent_indent=" " * 11))


def _row(name: str) -> dict[str, Any]:
    from dsrd.models import GraphSpec, create, model_class

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
