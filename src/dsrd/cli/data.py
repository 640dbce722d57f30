"""`dsrd data list | describe | audit | convert | fetch | synth`."""

from __future__ import annotations

from dataclasses import asdict, fields
from pathlib import Path
from typing import Annotated, Any

import typer

from dsrd.cli import options, show
from dsrd.config import overridden
from dsrd.data import catalog
from dsrd.data.convert import write
from dsrd.data.describe import describe as described
from dsrd.data.fetch import fetch as fetched
from dsrd.data.read import data_folders
from dsrd.data.source import open_dataset
from dsrd.data.synthetic import SynthConfig
from dsrd.data.synthetic import synth as drawn
from dsrd.evaluate.audit import audit as audited

app = typer.Typer(
    help="Look at streams, check them, convert them, get them.", no_args_is_help=True, rich_markup_mode=None
)
Name = Annotated[str, typer.Argument(metavar="NAME", help="A catalogue name, a path, or synth[:key=value,...].")]


@app.command("list")
def list_(json: options.Json = False, data_dir: options.DataDir = None) -> None:
    """List the benchmark data sets: what they are, how large, and whether a copy is here."""
    folders = data_folders(data_dir)
    rows = []
    for spec in catalog.SPECS.values():
        here = next((folder / spec.name for folder in folders if (folder / spec.name).is_dir()), None)
        rows.append({**asdict(spec), "here": None if here is None else str(here)})
    if json:
        show.as_json({"datasets": rows})
        return
    columns = ["name", "title", "domain", "nodes", "events", "edge_dim", "timestamps", "clock", "here"]
    cells = [[{**row, "here": "yes" if row["here"] else "no"}[column] for column in columns] for row in rows]
    show.table("benchmark data sets", columns, cells)
    show.note("also: synth (drawn on the spot), or the path of your own CSV or Parquet file")


@app.command()
def describe(
    name: Name,
    json: options.Json = False,
    data_dir: options.DataDir = None,
    source: options.Source = None,
    target: options.Target = None,
    time: options.Time = None,
    features: options.Features = None,
    label: options.Label = None,
    format: options.Format = None,
    bipartite: options.Bipartite = None,
) -> None:
    """Count what a stream holds, and compare a benchmark's copy with the published figures."""
    config = options.data_config(source, target, time, features, label, format, bipartite)
    dataset = open_dataset(name, config, data_dir).dataset
    found = described(dataset)
    spec = catalog.get(dataset.name)
    differences = catalog.check(dataset, spec) if spec else []
    if json:
        show.as_json({"name": dataset.name, **found, "notes": list(dataset.notes), "differences": differences})
        return
    show.table(dataset.name, ["", "value"], _flat(found))
    show.note(*dataset.notes)
    if spec:
        show.note(*(differences or [f"agrees with the published {spec.title}"]))


@app.command()
def audit(
    name: Name,
    json: options.Json = False,
    data_dir: options.DataDir = None,
    order: Annotated[
        str, typer.Option("--order", help="Of negatives: py37 (as published), py38 or fast.")
    ] = "py37",
    source: options.Source = None,
    target: options.Target = None,
    time: options.Time = None,
    features: options.Features = None,
    label: options.Label = None,
    format: options.Format = None,
    bipartite: options.Bipartite = None,
) -> None:
    """Say what a score on this stream can mean: true negatives, ceilings, leaks through time and order."""
    config = options.data_config(source, target, time, features, label, format, bipartite)
    dataset = open_dataset(name, config, data_dir).dataset
    found = audited(dataset.name, dataset.events, order=order)  # type: ignore[arg-type]
    if json:
        show.as_json(found)
    else:
        show.table(f"audit of {dataset.name}", ["", "value"], _flat(found))


@app.command()
def convert(
    name: Name,
    out: Annotated[Path, typer.Argument(help="A .csv or .parquet file, or a folder for the benchmark layout.")],
    json: options.Json = False,
    data_dir: options.DataDir = None,
    source: options.Source = None,
    target: options.Target = None,
    time: options.Time = None,
    features: options.Features = None,
    label: options.Label = None,
    format: options.Format = None,
    bipartite: options.Bipartite = None,
) -> None:
    """Write a stream in another format."""
    config = options.data_config(source, target, time, features, label, format, bipartite)
    dataset = open_dataset(name, config, data_dir).dataset
    notes = (*dataset.notes, *write(dataset, out))
    _written(out, len(dataset.events), notes, json)


@app.command()
def fetch(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A catalogue name, or the address of a file.")],
    to: Annotated[
        Path | None, typer.Option("--to", help="Folder to put it in.", show_default="the first data folder")
    ] = None,
    sha256: Annotated[
        str | None, typer.Option("--sha256", help="Checksum to insist on.", show_default=False)
    ] = None,
    json: options.Json = False,
    data_dir: options.DataDir = None,
) -> None:
    """Download a benchmark data set; an interrupted download goes on where it stopped."""
    what = name if "://" in name else catalog.find(name)
    with show.download_bar(name) as progress:
        place = fetched(what, to or data_folders(data_dir)[0], sha256=sha256, progress=progress)
    if json:
        show.as_json({"path": str(place)})
    else:
        show.output.print(str(place), highlight=False, soft_wrap=True)


@app.command()
def synth(
    out: Annotated[Path, typer.Argument(help="A .csv or .parquet file, or a folder for the benchmark layout.")],
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set", help="events=100000, nodes=, bipartite=true, snapshots=, days=, seed=, ... (repeatable)."
        ),
    ] = None,
    json: options.Json = False,
) -> None:
    """Draw a synthetic stream (gradual and bursty pairs, closure, daily rhythm, newcomers) and write it."""
    law = overridden(SynthConfig(), options.settings(set_))
    dataset = drawn(law)
    notes = write(dataset, out)
    settings = " ".join(f"{field.name}={getattr(law, field.name)}" for field in fields(law))
    _written(out, len(dataset.events), (*notes, f"drawn with {settings}"), json)


def _written(out: Path, events: int, notes: tuple[str, ...], json: bool) -> None:
    if json:
        show.as_json({"path": str(out), "events": events, "notes": list(notes)})
    else:
        show.output.print(f"{out}: {events:,} events", highlight=False, soft_wrap=True)
        show.note(*notes)


def _flat(values: dict[str, Any], prefix: str = "") -> list[list[Any]]:
    """Nested figures as rows of a table."""
    rows: list[list[Any]] = []
    for key, value in values.items():
        if isinstance(value, dict):
            rows += _flat(value, f"{prefix}{key} ")
        elif isinstance(value, float):
            rows.append([prefix + key, f"{value:,.4g}" if abs(value) < 1e5 else f"{value:,.0f}"])
        else:
            rows.append([prefix + key, ", ".join(map(str, value)) if isinstance(value, list | tuple) else value])
    return rows
