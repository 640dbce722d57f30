"""Options that several commands share, worded once."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import fields
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer

from dsrd.config import DataConfig, RunConfig, overridden
from dsrd.errors import DsrdError, unknown

RunPath = Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a trained or saved run.")]
SameData = Annotated[
    str | None,
    typer.Option(
        "--dataset", "-d", metavar="DATA", help="The stream, for a run without its events.", show_default=False
    ),
]
Head = Annotated[
    str | None,
    typer.Option("--head", metavar="NAME", help="Which question.", show_default="the model's first"),
]
OutFile = Annotated[
    Path | None,
    typer.Option("--out", "-o", metavar="FILE", help="CSV to write.", show_default="standard output"),
]
DatasetName = Annotated[
    str,
    typer.Option(
        "--dataset", "-d", metavar="DATA", help="Name, path, or synth:events=5000,...", show_default=False
    ),
]
ModelName = Annotated[
    str | None,
    typer.Option("--model", "-m", metavar="MODEL", help="From `dsrd models`.", show_default="marked there"),
]
Protocol = Annotated[
    str | None,
    typer.Option("--protocol", metavar="NAME", help="dyglib or strict.", show_default="by data set"),
]
Preset = Annotated[str, typer.Option("--preset", metavar="NAME", help="published, default, its own.")]
Seed = Annotated[int, typer.Option("--seed", metavar="N", help="Of weights, dropout, negatives.")]
DataDir = Annotated[
    Path | None,
    typer.Option("--data-dir", metavar="DIR", help="Data sets by name.", show_default="$DSRD_DATA"),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object, on the last line.")]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="train.epochs=5, model.dropout=0.2 (repeatable).", show_default=False
    ),
]
Threads = Annotated[int, typer.Option("--threads", metavar="N", help="CPU threads; 0: torch decides.")]
Results = Annotated[
    str,
    typer.Option("--results", metavar="FILE", help="Gets the record, or none.", show_default="beside RUN"),
]
Source = Annotated[
    str | None, typer.Option("--source", metavar="COLUMN", help="Who acted.", show_default="source")
]
Target = Annotated[
    str | None, typer.Option("--target", metavar="COLUMN", help="Whom it concerned.", show_default="target")
]
Time = Annotated[
    str | None, typer.Option("--time", metavar="COLUMN", help="When: numbers, ISO dates.", show_default="time")
]
Features = Annotated[
    list[str] | None,
    typer.Option(
        "--features", metavar="COLUMN", help="Features: a name or 'f_*' (repeatable).", show_default=False
    ),
]
TimeFormat = Annotated[
    str | None,
    typer.Option("--time-format", metavar="FORMAT", help="Of dates: %d/%m/%Y %H:%M", show_default="ISO"),
]
Label = Annotated[
    str | None, typer.Option("--label", metavar="COLUMN", help="Labels of the events.", show_default=False)
]
Format = Annotated[
    str | None,
    typer.Option("--format", metavar="NAME", help="csv parquet dyglib dyglib-raw", show_default="auto"),
]
Bipartite = Annotated[
    bool | None,
    typer.Option("--bipartite/--one-mode", help="Two kinds of nodes, or one.", show_default="auto"),
]


def examples(*commands: str) -> str:
    """The end of a command's help: what to type."""
    return "\b\nExamples:\n" + "\n".join(f"  {command}" for command in commands)


_READING: dict[str, Any] = {
    "source": Source,
    "target": Target,
    "time": Time,
    "time_format": TimeFormat,
    "features": Features,
    "label": Label,
    "format": Format,
    "bipartite": Bipartite,
}


def reads_data(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command that takes `data: DataConfig` the options that describe a file of one's own, at its end."""
    own = inspect.signature(command, eval_str=True)
    kept = [parameter for parameter in own.parameters.values() if parameter.name != "data"]
    keyword = inspect.Parameter.KEYWORD_ONLY
    added = [inspect.Parameter(name, keyword, default=None, annotation=kind) for name, kind in _READING.items()]

    @wraps(command)
    def wrapped(**given: Any) -> None:
        reading = {name: given.pop(name) for name in _READING}
        chosen = {name: value for name, value in reading.items() if value is not None}
        command(**given, data=overridden(DataConfig(), chosen))

    wrapped.__signature__ = own.replace(parameters=[*kept, *added])  # type: ignore[attr-defined]
    wrapped.__annotations__ = {each.name: each.annotation for each in (*kept, *added)}
    return wrapped


def settings(given: list[str] | None) -> dict[str, str]:
    """`key=value` words as a mapping."""
    found: dict[str, str] = {}
    for word in given or ():
        key, equals, value = word.partition("=")
        if not equals or not key.strip():
            raise DsrdError(f"--set {word}: expected key=value, for example --set train.epochs=5")
        if key.strip() in found:
            raise DsrdError(f"--set {key.strip()}: given twice; keep one")
        found[key.strip()] = value.strip()
    return found


def keywords(given: dict[str, Any], model: str) -> dict[str, Any]:
    """Settings `part.name` as the estimator takes them; a key that nothing has is an error."""
    from dsrd.models import model_class

    own = (f"model.{entry.name}" for entry in fields(model_class(model).Config))
    known = [*RunConfig(dataset="", model=model).keys(), *own]
    for key in given:
        if key not in known:
            raise unknown("setting", key, known)
    return {key.replace(".", "__", 1): value for key, value in given.items()}


def use_threads(count: int) -> None:
    import torch

    if count < 0:
        raise DsrdError(f"--threads {count}: give 1 or more, or 0 to let torch decide")
    if count:
        torch.set_num_threads(count)
