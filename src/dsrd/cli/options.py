"""Options that several commands share."""

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
from dsrd.files import require_writable

MOST_THREADS = 1024

RunPath = Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a trained or saved run.")]
SameData = Annotated[
    str | None,
    typer.Option(
        "--dataset",
        "-d",
        metavar="DATA",
        help="The data of the run, if its folder has no events.",
        show_default=False,
    ),
]
Head = Annotated[
    str | None,
    typer.Option(
        "--head",
        metavar="NAME",
        help="Which head of the model answers; see `dsrd inspect`.",
        show_default="its first",
    ),
]
OutFile = Annotated[
    Path | None,
    typer.Option("--out", "-o", metavar="FILE", help="CSV file to write.", show_default="standard output"),
]
DatasetName = Annotated[
    str,
    typer.Option(
        "--dataset",
        "-d",
        metavar="DATA",
        help="A file, a benchmark (uci, tgb:wiki, ...), or synth:events=5000.",
        show_default=False,
    ),
]
ModelName = Annotated[
    str | None,
    typer.Option(
        "--model", "-m", metavar="MODEL", help="A name from `dsrd models`.", show_default="the one marked there"
    ),
]
Protocol = Annotated[
    str | None,
    typer.Option(
        "--protocol",
        metavar="NAME",
        help="dyglib (as published) or strict (no leaks).",
        show_default="dyglib for benchmarks, else strict",
    ),
]
Preset = Annotated[
    str, typer.Option("--preset", metavar="NAME", help="Settings: published, default, or a preset of the model.")
]
Seed = Annotated[int, typer.Option("--seed", metavar="N", help="Seed of weights, dropout and negatives.")]
DataDir = Annotated[
    Path | None,
    typer.Option("--data-dir", metavar="DIR", help="Folder with benchmark data sets.", show_default="$DSRD_DATA"),
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON, on the last line.")]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Change a setting: train.epochs=5, model.dropout=0.2 (repeatable).",
        show_default=False,
    ),
]
Threads = Annotated[int, typer.Option("--threads", metavar="N", help="Number of CPU threads; 0: torch decides.")]
Results = Annotated[
    str,
    typer.Option(
        "--results",
        metavar="FILE",
        help="JSONL file to append the results to, or none.",
        show_default="results.jsonl next to RUN",
    ),
]
Source = Annotated[
    str | None,
    typer.Option("--source", metavar="COLUMN", help="Column with the node that acts.", show_default="source"),
]
Target = Annotated[
    str | None,
    typer.Option("--target", metavar="COLUMN", help="Column with the node it acts on.", show_default="target"),
]
Time = Annotated[
    str | None,
    typer.Option(
        "--time", metavar="COLUMN", help="Column with the time: numbers or ISO dates.", show_default="time"
    ),
]
Features = Annotated[
    list[str] | None,
    typer.Option(
        "--features",
        metavar="COLUMN",
        help="Column with an edge feature, or a pattern such as 'f_*' (repeatable).",
        show_default=False,
    ),
]
TimeFormat = Annotated[
    str | None,
    typer.Option(
        "--time-format", metavar="FORMAT", help="Format of the dates, such as %d/%m/%Y %H:%M", show_default="ISO"
    ),
]
Label = Annotated[
    str | None,
    typer.Option("--label", metavar="COLUMN", help="Column with a label of each event.", show_default=False),
]
Format = Annotated[
    str | None,
    typer.Option(
        "--format", metavar="NAME", help="File format: csv, parquet, dyglib or dyglib-raw.", show_default="auto"
    ),
]
Bipartite = Annotated[
    bool | None,
    typer.Option(
        "--bipartite/--one-mode", help="Sources and targets are two kinds of nodes, or one.", show_default="auto"
    ),
]


KeepSpaces = Annotated[
    bool | None,
    typer.Option(
        "--keep-spaces/--strip-spaces",
        help="Keep the spaces around names, or remove them.",
        show_default="removed",
    ),
]


def examples(*commands: str) -> str:
    """Example commands, printed at the end of a command's help."""
    return "\b\nExamples:\n" + "\n".join(f"  {command}" for command in commands)


_DATA_OPTIONS: dict[str, Any] = {
    "source": Source,
    "target": Target,
    "time": Time,
    "time_format": TimeFormat,
    "features": Features,
    "label": Label,
    "format": Format,
    "bipartite": Bipartite,
    "keep_spaces": KeepSpaces,
}


def reads_data(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that describe columns to a command that has a parameter `data: DataConfig`."""
    signature = inspect.signature(command, eval_str=True)
    kept = [parameter for parameter in signature.parameters.values() if parameter.name != "data"]
    keyword = inspect.Parameter.KEYWORD_ONLY
    added = [
        inspect.Parameter(name, keyword, default=None, annotation=option) for name, option in _DATA_OPTIONS.items()
    ]

    @wraps(command)
    def wrapped(**arguments: Any) -> None:
        columns = {name: arguments.pop(name) for name in _DATA_OPTIONS}
        chosen = {name: value for name, value in columns.items() if value is not None}
        command(**arguments, data=overridden(DataConfig(), chosen))

    wrapped.__signature__ = signature.replace(parameters=[*kept, *added])  # type: ignore[attr-defined]
    wrapped.__annotations__ = {parameter.name: parameter.annotation for parameter in (*kept, *added)}
    return wrapped


def key_values(words: list[str] | None) -> dict[str, str]:
    """The words `key=value` of --set as a mapping."""
    pairs: dict[str, str] = {}
    for word in words or ():
        key, equals, value = word.partition("=")
        if not equals or not key.strip():
            raise DsrdError(f"--set {word}: expected key=value, for example --set train.epochs=5")
        if key.strip() in pairs:
            raise DsrdError(f"--set {key.strip()}: given twice; keep one")
        pairs[key.strip()] = value.strip()
    return pairs


def estimator_settings(settings: dict[str, Any], model: str) -> dict[str, Any]:
    """Settings `part.name` as keyword arguments `part__name` of the estimator; unknown ones are refused."""
    from dsrd.models import model_class

    of_model = (f"model.{entry.name}" for entry in fields(model_class(model).Config))
    known = [*RunConfig(dataset="", model=model).keys(), *of_model]
    for key in settings:
        if key not in known:
            raise unknown("setting", key, known)
    return {key.replace(".", "__", 1): value for key, value in settings.items()}


def require_output(out: Path, run: Path) -> None:
    """Raise an error if a result cannot be written there, or would replace a file of the run it is about."""
    from dsrd.train.run_folder import RunFolder

    require_writable(out)
    if RunFolder(run).owns(out):
        raise DsrdError(f"{out}: is a file of the run itself; give another name")


def use_threads(count: int) -> None:
    import torch

    if not 0 <= count <= MOST_THREADS:
        raise DsrdError(f"--threads {count}: give 1 to {MOST_THREADS}, or 0 to let torch decide")
    if count:
        torch.set_num_threads(count)
