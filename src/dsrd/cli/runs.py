"""`dsrd train` and `dsrd evaluate`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dsrd.cli import options, show
from dsrd.config import DataConfig, RunConfig
from dsrd.errors import DsrdError
from dsrd.files import require_writable

if TYPE_CHECKING:
    from dsrd.bench.records import Record
    from dsrd.train.fit import RunFolder

RUNS = Path("runs")
NO_FILE = "none"
TRAIN_EXAMPLES = options.examples(
    "dsrd train --dataset synth --set train.epochs=5 --out runs/first",
    "dsrd train --dataset calls.csv --source caller --target callee --time when",
)
EVALUATE_EXAMPLES = options.examples(
    "dsrd evaluate runs/first --protocol strict --negatives random",
    "dsrd evaluate --model MODEL --dataset uci --json",
)

Out = Annotated[
    Path | None, typer.Option("--out", "-o", metavar="RUN", help="Folder of the run.", show_default="runs/...")
]
Run = Annotated[
    Path | None, typer.Argument(metavar="RUN", help="Folder written by `dsrd train`.", show_default=False)
]
Untrained = Annotated[
    str | None,
    typer.Option(
        "--model", "-m", metavar="MODEL", help="Instead: a model that learns nothing.", show_default=False
    ),
]
OtherData = Annotated[
    str | None, typer.Option("--dataset", "-d", metavar="DATA", help="As for train.", show_default="as trained")
]
OtherProtocol = Annotated[
    str | None,
    typer.Option("--protocol", metavar="NAME", help="dyglib or strict.", show_default="as trained, dyglib"),
]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="evaluate.order=fast, ... (repeatable).", show_default=False),
]
Negatives = Annotated[
    str | None,
    typer.Option("--negatives", metavar="KINDS", help="random,historical,inductive", show_default="all"),
]
BatchSize = Annotated[
    int | None, typer.Option("--batch-size", metavar="N", help="Events scored at once.", show_default="200")
]
Candidates = Annotated[
    int | None, typer.Option("--candidates", metavar="N", help="Rank among N targets: MRR.", show_default="0")
]
Order = Annotated[
    str | None,
    typer.Option("--order", metavar="NAME", help="Draw as py37, py38 or fast.", show_default="py37"),
]

Head = Annotated[
    str | None,
    typer.Option("--head", metavar="NAME", help="Ask this question only.", show_default="all"),
]


@options.reads_data
def train(
    dataset: options.DatasetName,
    model: options.ModelName = None,
    seed: options.Seed = 0,
    protocol: options.Protocol = "dyglib",
    preset: options.Preset = "published",
    out: Out = None,
    set_: options.Settings = None,
    json: options.Json = False,
    results: options.Results = "",
    data_dir: options.DataDir = None,
    threads: options.Threads = 0,
    *,
    data: DataConfig,
) -> None:
    """Train a model, then measure it on the test events.

    The weights that do best on the validation events are kept and measured on the test events that follow them.
    The folder of the run holds its configuration, the log of epochs, the weights and the record of the results.
    A run that was interrupted goes on, to the same weights, when the same command is given again; with more
    train.epochs, train.patience or train.minutes a complete one trains on.
    """
    from dsrd.bench import run as runner
    from dsrd.models import DEFAULT
    from dsrd.train.fit import RunFolder

    options.use_threads(threads)
    run = RunConfig(
        dataset=dataset, model=model or DEFAULT, preset=preset, seed=seed, protocol=protocol, data=data
    )
    run = options.with_settings(run, options.settings(set_))
    folder = RunFolder(out or RUNS / _name(run))
    file = _results_file(results, folder.path.parent)
    with show.bar() as progress:
        opened, task = runner.prepare(run, data_dir, progress)
        show.note(*opened.dataset.notes, *_how_far(folder, run))
        record = runner.train(run, folder, opened, task, progress)
    _finish(record, file, json)
    show.note(f"run: {folder.path} (best epoch: {record['timing']['best_epoch']} of {record['timing']['epochs']})")


@options.reads_data
def evaluate(
    folder: Run = None,
    model: Untrained = None,
    dataset: OtherData = None,
    protocol: OtherProtocol = None,
    negatives: Negatives = None,
    batch_size: BatchSize = None,
    candidates: Candidates = None,
    order: Order = None,
    head: Head = None,
    set_: Overrides = None,
    json: options.Json = False,
    results: options.Results = "",
    data_dir: options.DataDir = None,
    threads: options.Threads = 0,
    *,
    data: DataConfig,
) -> None:
    """Measure a trained run, or a model that learns nothing.

    Both are measured on the test events. Under the protocol strict no score knows anything of its time or later.
    """
    from dsrd.bench import run as runner
    from dsrd.train.fit import RunFolder

    options.use_threads(threads)
    given: dict[str, Any] = {
        "evaluate.negatives": negatives,
        "evaluate.batch_size": batch_size,
        "evaluate.candidates": candidates,
        "evaluate.order": order,
        "evaluate.head": head,
    }
    given = {key: value for key, value in given.items() if value is not None} | options.settings(set_)
    trained = None if folder is None else RunFolder(folder)
    if trained is None:
        run = _untrained_run(model, dataset, protocol, data, given)
    else:
        run = _stored_run(trained, model, dataset, protocol, data, given)
    file = _results_file(results, RUNS if folder is None else folder.parent)
    with show.bar() as progress:
        opened, task = runner.prepare(run, data_dir, progress)
        show.note(*opened.dataset.notes)
        if trained is None:
            record = runner.evaluate_untrained(run, opened, task, progress)
        else:
            record = runner.evaluate_folder(trained, run, opened, task, progress)
    _finish(record, file, json)


def _untrained_run(
    model: str | None, dataset: str | None, protocol: str | None, data: DataConfig, given: dict[str, Any]
) -> RunConfig:
    if model is None or dataset is None:
        raise DsrdError("evaluate needs a run folder, or --model and --dataset; see `dsrd evaluate --help`")
    run = RunConfig(dataset=dataset, model=model, protocol=protocol or "dyglib", data=data)
    return options.with_settings(run, given)


def _stored_run(
    folder: RunFolder,
    model: str | None,
    dataset: str | None,
    protocol: str | None,
    data: DataConfig,
    given: Mapping[str, Any],
) -> RunConfig:
    """The run as it was trained, measured as asked for."""
    stored = folder.config()
    if model not in (None, stored.model):
        raise DsrdError(f"{folder.path}: holds a {stored.model}, not a {model}; leave --model out")
    if data not in (DataConfig(), stored.data):
        raise DsrdError(f"{folder.path}: remembers how its data are read; leave the options on columns out")
    for key in given:
        if not key.startswith("evaluate."):
            raise DsrdError(f"--set {key}: a trained run keeps its settings; only evaluate.* can change here")
    run = replace(stored, dataset=dataset or stored.dataset, protocol=protocol or stored.protocol)
    return run.with_overrides(given)


def _name(run: RunConfig) -> str:
    """Of a run folder: readable, and another one for every other run."""
    data = re.sub(r"[^A-Za-z0-9_]+", "-", Path(run.dataset).stem).strip("-")
    return f"{data}-{run.model}-{run.seed}-{run.digest[:6]}"


def _how_far(folder: RunFolder, run: RunConfig) -> list[str]:
    if folder.record.exists() and not folder.trains_on(run):
        return [f"{folder.path}: this run is complete; its results as they were recorded:"]
    if folder.last.exists():
        return [f"{folder.path}: goes on after epoch {folder.progressed().epoch}"]
    return []


def _results_file(given: str, folder: Path) -> Path | None:
    """Where the record goes; that it can be written there is made sure of before the work."""
    if given == NO_FILE:
        return None
    file = Path(given) if given else folder / "results.jsonl"
    require_writable(file)
    return file


def _finish(record: Record, file: Path | None, json: bool) -> None:
    from dsrd.bench import records

    if file is not None:
        records.append(file, record)
    if json:
        show.as_json(record)
        return
    rows = show.rows_of(record)
    if "ceiling" in record:
        rows["best possible"] = record["ceiling"]
    show.results(f"{record['dataset']}: test, {record['protocol']}, AP / AUC in percent, mean over batches", rows)
