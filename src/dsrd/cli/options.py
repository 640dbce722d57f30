"""Options that several commands share, worded once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import torch
import typer

from dsrd.config import DataConfig, overridden
from dsrd.errors import DsrdError

DatasetName = Annotated[
    str,
    typer.Option(
        "--dataset",
        "-d",
        help="A name from `dsrd data list`, a path to a CSV or Parquet file, or synth[:events=5000,...].",
    ),
]
DataDir = Annotated[
    Path | None,
    typer.Option("--data-dir", help="Folder of data sets by name; also $DSRD_DATA.", show_default=False),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on the last line of standard output.")]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help="Override a setting: train.epochs=5, model.dropout=0.2, ... (repeatable).",
        show_default=False,
    ),
]
Threads = Annotated[int, typer.Option("--threads", min=0, help="CPU threads to use; 0: as many as torch takes.")]
Results = Annotated[
    str,
    typer.Option(
        "--results",
        help="File that gets one JSON line per run; 'none' for no file.",
        show_default="beside the run",
    ),
]
Source = Annotated[str | None, typer.Option("--source", help="Column of who acted.", show_default="source")]
Target = Annotated[
    str | None, typer.Option("--target", help="Column of whom it concerned.", show_default="target")
]
Time = Annotated[
    str | None, typer.Option("--time", help="Column of when: numbers or ISO dates.", show_default="time")
]
Features = Annotated[
    list[str] | None,
    typer.Option(
        "--features", help="Feature columns, by name or pattern such as 'f_*' (repeatable).", show_default=False
    ),
]
Label = Annotated[str | None, typer.Option("--label", help="Column of labels.", show_default=False)]
Format = Annotated[
    str | None, typer.Option("--format", help="csv, parquet, dyglib or dyglib-raw.", show_default="found out")
]
Bipartite = Annotated[
    bool | None,
    typer.Option(
        "--bipartite/--one-mode", help="Sources and targets are two kinds of nodes.", show_default="found out"
    ),
]


def data_config(
    source: str | None,
    target: str | None,
    time: str | None,
    features: list[str] | None,
    label: str | None,
    format: str | None,
    bipartite: bool | None,
) -> DataConfig:
    """The reading options that were given, over the defaults."""
    given = {
        "source": source,
        "target": target,
        "time": time,
        "features": tuple(features) if features else None,
        "label": label,
        "format": format,
        "bipartite": bipartite,
    }
    return overridden(DataConfig(), {name: value for name, value in given.items() if value is not None})


def settings(given: list[str] | None) -> dict[str, str]:
    """`key=value` words as a mapping."""
    found: dict[str, str] = {}
    for word in given or ():
        key, equals, value = word.partition("=")
        if not equals or not key:
            raise DsrdError(f"--set {word}: expected key=value, for example --set train.epochs=5")
        found[key.strip()] = value.strip()
    return found


def use_threads(count: int) -> None:
    if count:
        torch.set_num_threads(count)
