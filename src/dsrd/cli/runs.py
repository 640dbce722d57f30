"""`dsrd train` and `dsrd evaluate`."""

from __future__ import annotations

import re
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


def train(
    dataset: options.DatasetName,
    model: options.ModelName = None,
    seed: options.Seed = 0,
    protocol: options.Protocol = "dyglib",
    preset: options.Preset = "published",
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="RUN", help="Folder of the run.", show_default="runs/..."),
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
    """Train a model, then measure it on the test events.

    The weights that do best on the validation events are kept and measured on the test events that follow them.
    The folder of the run holds its configuration, the log of epochs, the weights and the record of the results.
    A run that was interrupted goes on, to the same weights, when the same command is given again.
    """
    from dsrd.bench import run as runner
    from dsrd.models import DEFAULT
    from dsrd.train.fit import RunFolder

    options.use_threads(threads)
    data = options.data_config(source, target, time, features, label, format, bipartite)
    run = RunConfig(
        dataset=dataset, model=model or DEFAULT, preset=preset, seed=seed, protocol=protocol, data=data
    )
    run = options.with_settings(run, options.settings(set_))
    folder = RunFolder(out or RUNS / _name(run))
    file = _results_file(results, folder.path.parent)
    with show.bar() as progress:
        opened, task = runner.prepare(run, data_dir, progress)
        show.note(*opened.dataset.notes, *_how_far(folder))
        record = runner.train(run, folder, opened, task, progress)
    _finish(record, file, json)
    timing = record["timing"]
    show.note(f"best of {timing['epochs']} epochs: {timing['best_epoch']}; run: {folder.path}")


def evaluate(
    folder: Annotated[
        Path | None, typer.Argument(metavar="[RUN]", help="Folder written by `dsrd train`.", show_default=False)
    ] = None,
    model: Annotated[
        str | None,
        typer.Option("--model", "-m", metavar="MODEL", help="No RUN: one that learns nothing.", show_default=False),
    ] = None,
    dataset: Annotated[
        str | None,
        typer.Option("--dataset", "-d", metavar="DATA", help="As for train.", show_default="as trained"),
    ] = None,
    protocol: Annotated[
        str | None,
        typer.Option("--protocol", metavar="NAME", help="dyglib or strict.", show_default="as trained, or dyglib"),
    ] = None,
    negatives: Annotated[
        str | None,
        typer.Option(
            "--negatives", metavar="KINDS", help="random,historical,inductive.", show_default="as trained, or all"
        ),
    ] = None,
    batch_size: Annotated[
        int | None,
        typer.Option("--batch-size", metavar="N", help="Events at once.", show_default="as trained, or 200"),
    ] = None,
    candidates: Annotated[
        int | None,
        typer.Option("--candidates", metavar="N", help="Rank against N targets: MRR, Hits.", show_default="0"),
    ] = None,
    order: Annotated[
        str | None,
        typer.Option("--order", metavar="NAME", help="Draw as py37, py38 or fast.", show_default="py37"),
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
    """Measure a trained run, or a model that learns nothing.

    Both are measured on the test events. --protocol strict lets no score see anything of its own time or later.
    """
    options.use_threads(threads)
    overrides = {
        "evaluate.negatives": negatives,
        "evaluate.batch_size": batch_size,
        "evaluate.candidates": candidates,
        "evaluate.order": order,
    }
    given = {key: value for key, value in overrides.items() if value is not None}
    data = options.data_config(source, target, time, features, label, format, bipartite)
    asked = _Asked(model, dataset, protocol, data, {**given, **options.settings(set_)})
    record, file = _evaluated(folder, asked, results, data_dir)
    _finish(record, file, json)
