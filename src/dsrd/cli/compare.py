"""`dsrd compare`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from dsrd.cli import options, output
from dsrd.config import model_label
from dsrd.errors import DsrdError

EXAMPLES = options.examples("dsrd compare runs/first runs/second", "dsrd compare runs/* --json")


def compare(
    folders: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Folders of two or more complete runs.")],
    json: options.Json = False,
) -> None:
    """Compare complete runs: results, settings, cost.

    Only settings that differ are shown. A note warns if the runs were measured on different events or negatives,
    or by different protocols: such results cannot be compared.
    """
    if len(folders) < 2:
        raise DsrdError("compare needs two or more runs; give their folders")
    records = {str(folder): _record(folder) for folder in folders}
    if len(records) < len(folders):
        raise DsrdError("the same run is given twice; give each run once")
    differing = _differing({name: _settings(record) for name, record in records.items()})
    if json:
        output.as_json({"runs": {name: _compared(records[name], differing[name]) for name in records}})
        return
    rows: dict[str, Any] = {}
    for name, record in records.items():
        rows |= _rows(name, record)
    output.results("test, AP / AUC in percent, mean over batches", rows)
    names = dict.fromkeys(key for each in differing.values() for key in each)
    if names:
        lines = [[name, *(differing[name].get(key) for key in names)] for name in records]
        output.table("settings that differ", ["run", *names], lines)
    output.table(
        "cost",
        [
            "run",
            "best epoch",
            "epochs",
            "seconds per epoch",
            "train seconds",
            "evaluate seconds",
            "peak MB",
            "weights",
        ],
        [[name, *_cost(record).values()] for name, record in records.items()],
    )
    output.note(*_warnings(records))


def _record(folder: Path) -> dict[str, Any]:
    from dsrd.train.run_folder import RunFolder

    run_folder = RunFolder(folder)
    run_folder.config()  # an error if the folder is not a run
    record = run_folder.stored_record()
    if record is None:
        raise DsrdError(f"{folder}: this run is not complete; finish its training, or evaluate it")
    return record


def _rows(name: str, record: dict[str, Any]) -> dict[str, Any]:
    from dsrd.estimator.results import model_rows

    return {f"{name}: {row}": metrics for row, metrics in model_rows(record).items()}


def _settings(record: Mapping[str, Any]) -> dict[str, Any]:
    """All settings of a run as `part.name`."""
    flat: dict[str, Any] = {}
    for key, value in record["config"].items():
        if isinstance(value, Mapping):
            flat |= {f"{key.removesuffix('_args')}.{name}": each for name, each in value.items()}
        else:
            flat[key] = value
    return flat


def _differing(settings: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """For each run the settings that are not equal in all runs; a run may lack some of them."""
    keys = dict.fromkeys(key for each in settings.values() for key in each)
    shown = [key for key in keys if len({str(each.get(key)) for each in settings.values()}) > 1]
    return {name: {key: _cell(each[key]) for key in shown if key in each} for name, each in settings.items()}


def _cell(value: Any) -> Any:
    return ",".join(map(str, value)) if isinstance(value, list) else value


def _cost(record: Mapping[str, Any]) -> dict[str, Any]:
    timing = record["timing"]
    keys = ("best_epoch", "epochs", "seconds_per_epoch", "train_seconds", "evaluate_seconds")
    times = {key: timing.get(key) for key in keys}
    return {**times, "peak_rss_mb": record.get("peak_rss_mb"), "parameters": record.get("parameters")}


def _compared(record: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "model": model_label(record["model"], record["preset"]),
        "dataset": record["dataset"],
        "settings": settings,
        "results": record["results"],
        "heads": record.get("heads", {}),
        **_cost(record),
    }


def _warnings(records: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Reasons why the results cannot be compared."""
    warnings = []
    for difference, key in (("events", "data"), ("splits", "split"), ("negatives", "negatives")):
        if len({record["digests"].get(key) for record in records.values()}) > 1:
            warnings.append(f"the runs were measured on different {difference}: their results cannot be compared")
            break
    if len({record["protocol"] for record in records.values()}) > 1:
        warnings.append("the runs were measured by different protocols: their results cannot be compared")
    return warnings
