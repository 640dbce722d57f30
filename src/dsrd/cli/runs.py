"""`dsrd train` and `dsrd evaluate`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from dsrd.bench import records
from dsrd.bench import run as runner
from dsrd.bench.records import Record
from dsrd.cli import options, show
from dsrd.config import RunConfig
from dsrd.errors import DsrdError
from dsrd.models import DEFAULT
from dsrd.train.fit import RunFolder

RUNS = Path("runs")


def train(
    dataset: options.DatasetName,
    model: Annotated[str, typer.Option("--model", "-m", help="A name from `dsrd models`.")] = DEFAULT,
    seed: Annotated[
        int, typer.Option("--seed", help="Seed of initialisation, dropout and training negatives.")
    ] = 0,
    protocol: Annotated[
        str, typer.Option("--protocol", help="dyglib (as published) or strict (honest).")
    ] = "dyglib",
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Run folder; a killed run goes on.", show_default="runs/...")
    ] = None,
    set_: options.Settings = None,
    json: options.Json = False,
    results: options.Results = "",
    data_dir: options.DataDir = None,
    threads: options.Threads = 0,
    source: options.Source = None,
    target: options.Target = None,
    time: options.Time = None,
    features: options.Features = None,
    label: options.Label = None,
    format: options.Format = None,
    bipartite: options.Bipartite = None,
) -> None:
    """Train a model on a stream, keep the weights that validate best, and measure them on the test events.

    The run folder holds the configuration, the log of epochs, the weights (safetensors) and the record.
    The same command on the same folder goes on where a killed run stopped, to the same weights.
    """
    options.use_threads(threads)
    data = options.data_config(source, target, time, features, label, format, bipartite)
    run = RunConfig(dataset=dataset, model=model, seed=seed, protocol=protocol, data=data)
    run = run.with_overrides(options.settings(set_))
    folder = RunFolder(out or RUNS / f"{Path(dataset).stem}-{model}-{run.seed}-{run.digest[:6]}")
    opened, task = runner.prepare(run, data_dir)
    show.note(*opened.dataset.notes)
    with show.bar() as progress:
        record = runner.train(run, folder, opened, task, progress)
    _finish(record, results, folder.path.parent, json)
    show.note(f"run: {folder.path}")


def evaluate(
    folder: Annotated[Path | None, typer.Argument(metavar="[RUN]", help="Folder written by `dsrd train`.")] = None,
    model: Annotated[
        str | None,
        typer.Option("--model", "-m", help="Instead of RUN: a model with nothing to learn.", show_default=False),
    ] = None,
    dataset: Annotated[
        str | None,
        typer.Option("--dataset", "-d", help="With --model: what to measure it on.", show_default=False),
    ] = None,
    protocol: Annotated[
        str | None, typer.Option("--protocol", help="dyglib or strict.", show_default="as trained, dyglib")
    ] = None,
    negatives: Annotated[
        str | None,
        typer.Option("--negatives", help="random,historical,inductive or some of them.", show_default="all three"),
    ] = None,
    batch_size: Annotated[
        int | None, typer.Option("--batch-size", min=1, help="Events scored at once.", show_default="200")
    ] = None,
    candidates: Annotated[
        int | None,
        typer.Option("--candidates", min=0, help="Rank the true target among N wrong ones: MRR, Hits@k."),
    ] = None,
    order: Annotated[
        str | None,
        typer.Option("--order", help="Candidates' order: py37, py38 or fast.", show_default="py37, as published"),
    ] = None,
    set_: options.Settings = None,
    json: options.Json = False,
    results: options.Results = "",
    data_dir: options.DataDir = None,
    threads: options.Threads = 0,
    source: options.Source = None,
    target: options.Target = None,
    time: options.Time = None,
    features: options.Features = None,
    label: options.Label = None,
    format: options.Format = None,
    bipartite: options.Bipartite = None,
) -> None:
    """Measure a trained run, or a model with nothing to learn, on the test events."""
    options.use_threads(threads)
    overrides = {
        "evaluate.negatives": negatives,
        "evaluate.batch_size": batch_size,
        "evaluate.candidates": candidates,
        "evaluate.order": order,
    }
    given = {key: value for key, value in overrides.items() if value is not None} | options.settings(set_)
    if folder is None:
        if model is None or dataset is None:
            raise DsrdError("evaluate needs a run folder, or --model and --dataset; see `dsrd evaluate --help`")
        data = options.data_config(source, target, time, features, label, format, bipartite)
        run = RunConfig(dataset=dataset, model=model, protocol=protocol or "dyglib", data=data).with_overrides(
            given
        )
        opened, task = runner.prepare(run, data_dir)
        show.note(*opened.dataset.notes)
        with show.bar() as progress:
            record = runner.evaluate_untrained(run, opened, task, progress)
        _finish(record, results, RUNS, json)
        return
    run = _stored_run(RunFolder(folder), model, dataset, protocol, given)
    opened, task = runner.prepare(run, data_dir)
    with show.bar() as progress:
        record = runner.evaluate_folder(RunFolder(folder), run, opened, task, progress)
    _finish(record, results, folder.parent, json)


def _stored_run(
    folder: RunFolder, model: str | None, dataset: str | None, protocol: str | None, given: Mapping[str, object]
) -> RunConfig:
    stored = folder.config()
    if model not in (None, stored.model):
        raise DsrdError(f"{folder.path}: holds a {stored.model}, not a {model}; leave --model out")
    for key in given:
        if not key.startswith("evaluate."):
            raise DsrdError(f"--set {key}: a trained run keeps its settings; only evaluate.* can change here")
    run = replace(stored, dataset=dataset or stored.dataset, protocol=protocol or stored.protocol)
    return run.with_overrides(given)


def _finish(record: Record, results: str, beside: Path, json: bool) -> None:
    if results != "none":
        records.append(Path(results) if results else beside / "results.jsonl", record)
    if json:
        show.as_json(record)
        return
    rows = {record["model"]: record["results"]}
    if "ceiling" in record:
        rows["best possible"] = record["ceiling"]
    show.results(f"{record['dataset']}: test, {record['protocol']}, AP / AUC in percent, mean over batches", rows)
