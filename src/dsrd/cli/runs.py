"""`dsrd train` and `dsrd evaluate`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dsrd.cli import options, show
from dsrd.config import DataConfig, RunConfig, overridden
from dsrd.errors import DsrdError
from dsrd.files import require_writable
from dsrd.reporter import Reporter

if TYPE_CHECKING:
    from dsrd.estimator.link_predictor import LinkPredictor
    from dsrd.estimator.results import Results

RUNS = Path("runs")
NO_FILE = "none"
TRAIN_EXAMPLES = options.examples(
    "dsrd train --dataset synth --set train.epochs=5 --out runs/first",
    "dsrd train --dataset calls.csv --source caller --target callee --time when",
)
EVALUATE_EXAMPLES = options.examples(
    "dsrd evaluate runs/first --protocol strict --negatives random",
    "dsrd evaluate runs/first --events tomorrow.csv",
    "dsrd evaluate --model MODEL --dataset uci --json",
)

Out = Annotated[
    Path | None, typer.Option("--out", "-o", metavar="RUN", help="Folder of the run.", show_default="runs/...")
]
Final = Annotated[bool, typer.Option("--final", help="Then train on all events, for use.")]
NoHistory = Annotated[bool, typer.Option("--no-history", help="Do not keep the events.")]
Run = Annotated[
    Path | None,
    typer.Argument(metavar="RUN", help="Folder of a trained or saved run.", show_default=False),
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
    typer.Option("--protocol", metavar="NAME", help="dyglib or strict.", show_default="as trained"),
]
Later = Annotated[
    Path | None,
    typer.Option("--events", metavar="FILE", help="Measure on these, which follow.", show_default=False),
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
    typer.Option(
        "--order",
        metavar="NAME",
        help="Draw as py37, py38 or fast.",
        show_default="by data",
    ),
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
    protocol: options.Protocol = None,
    preset: options.Preset = "published",
    out: Out = None,
    final: Final = False,
    no_history: NoHistory = False,
    set_: options.Settings = None,
    json: options.Json = False,
    results: options.Results = "",
    data_dir: options.DataDir = None,
    threads: options.Threads = 0,
    *,
    data: DataConfig,
) -> None:
    """Train a model, then measure it on the test events.

    The weights that do best on the validation events are kept and measured on the test events that follow them,
    beside rules that learn nothing. The folder of the run holds all it takes to use it anywhere, the events
    included. A run that was interrupted goes on, to the same weights, when the same command is given again; with
    more train.epochs, train.patience or train.minutes, or with --final, a complete one trains on.
    """
    from dsrd.data.read import load_with

    options.use_threads(threads)
    given = options.settings(set_)
    estimator = _estimator(model, given, preset=preset, protocol=protocol, seed=seed)
    reading = {key.removeprefix("data."): value for key, value in given.items() if key.startswith("data.")}
    with Reporter() as report:
        report.step(f"reading {Path(dataset).name}")
        stream = load_with(dataset, overridden(data, reading, prefix="data."), data_dir=data_dir)
        run = estimator.run_for(stream, final=final or None)
        folder = out or RUNS / _name(run)
        file = _results_file(results, folder.parent)
        report.note(*_how_far(folder, run))
        estimator.fit(stream, folder=folder, final=final or None, history=not no_history, progress=report)
        found = estimator.evaluate(progress=report)
        if no_history:
            from dsrd.estimator.fitted import NO_HISTORY

            report.note(f"{folder}: {NO_HISTORY}")
    _finish(found, file, json)
    timing = found.record["timing"]
    show.note(f"run: {folder} (best epoch: {timing['best_epoch']} of {timing['epochs']})")


@options.reads_data
def evaluate(
    folder: Run = None,
    model: Untrained = None,
    dataset: OtherData = None,
    events: Later = None,
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

    Both are measured on the test events of their stream, or a run on --events that follow all it knows. Under the
    protocol strict no score knows anything of its time or later.
    """
    options.use_threads(threads)
    given: dict[str, Any] = {
        "evaluate.negatives": negatives,
        "evaluate.batch_size": batch_size,
        "evaluate.candidates": candidates,
        "evaluate.order": order,
    }
    given = {key: value for key, value in given.items() if value is not None} | options.settings(set_)
    file = _results_file(results, RUNS if folder is None else folder.parent)
    with Reporter() as report:
        if folder is None:
            found = _untrained(model, dataset, events, protocol, head, data, data_dir, given, report)
        else:
            from dsrd.estimator.link_predictor import open_run

            _check_stored(folder, model, data)
            opened = open_run(folder, dataset, data_dir=data_dir)
            found = opened.evaluate(
                events, protocol=protocol, head=head, progress=report, **options.keywords(given, opened.run.model)
            )
    _finish(found, file, json)


def _estimator(model: str | None, given: dict[str, str], **named: Any) -> LinkPredictor:
    from dsrd.estimator.link_predictor import LinkPredictor
    from dsrd.models import DEFAULT

    settings = options.keywords(given, model or DEFAULT)
    named |= {key: settings.pop(key) for key in ("preset", "seed") if key in settings}
    own = {key: value for key, value in settings.items() if not key.startswith("data__")}
    return LinkPredictor(model or DEFAULT, **named, **own)


def _untrained(
    model: str | None,
    dataset: str | None,
    events: Path | None,
    protocol: str | None,
    head: str | None,
    data: DataConfig,
    data_dir: Path | None,
    given: dict[str, Any],
    report: Reporter,
) -> Results:
    from dsrd.data.read import load_with
    from dsrd.models import model_class

    if model is None or dataset is None:
        raise DsrdError("evaluate needs a run folder, or --model and --dataset; see `dsrd evaluate --help`")
    if events is not None:
        raise DsrdError("--events goes with a run folder; give one, or leave --events out")
    if not model_class(model).rule:
        raise DsrdError(
            f"{model} has weights to learn; run `dsrd train --model {model} --dataset {dataset}` first"
        )
    estimator = _estimator(model, given, protocol=protocol)
    report.step(f"reading {Path(dataset).name}")
    stream = load_with(dataset, data, data_dir=data_dir)
    return estimator.fit(stream, progress=report).evaluate(head=head, progress=report)


def _check_stored(folder: Path, model: str | None, data: DataConfig) -> None:
    """Options that a trained run does not take."""
    from dsrd.train.run_folder import RunFolder

    stored = RunFolder(folder).config()
    if model not in (None, stored.model):
        raise DsrdError(f"{folder}: holds a {stored.model}, not a {model}; leave --model out")
    if data not in (DataConfig(), stored.data):
        raise DsrdError(f"{folder}: remembers how its data are read; leave the options on columns out")


def _name(run: RunConfig) -> str:
    """Of a run folder: readable, and another one for every other run."""
    data = re.sub(r"[^A-Za-z0-9_]+", "-", run.dataset).strip("-")
    return f"{data}-{run.model}-{run.seed}-{run.digest[:6]}"


def _how_far(folder: Path, run: RunConfig) -> list[str]:
    from dsrd.train.run_folder import RunFolder

    there = RunFolder(folder)
    if there.last.exists() and (not there.record.exists() or there.extended_by(run)):
        return [f"{folder}: goes on after epoch {there.progress().epoch}"]
    return []


def _results_file(given: str, folder: Path) -> Path | None:
    """Where the record goes; that it can be written there is made sure of before the work."""
    if given == NO_FILE:
        return None
    file = Path(given) if given else folder / "results.jsonl"
    require_writable(file)
    return file


def _finish(found: Results, file: Path | None, json: bool) -> None:
    from dsrd.experiments import records

    if file is not None:
        records.append(file, found.record)
    if json:
        show.as_json(found.record)
        return
    show.results(found.title, found.rows)
    for remark in found.remarks:
        show.line(remark)
