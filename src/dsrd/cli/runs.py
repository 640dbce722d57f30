"""`dsrd train` and `dsrd evaluate`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dsrd.cli import options, output
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
    "dsrd train --dataset synth --workers 2 --set train.batch_size=1000",
)
EVALUATE_EXAMPLES = options.examples(
    "dsrd evaluate runs/first --protocol strict --negatives random",
    "dsrd evaluate runs/first --events tomorrow.csv",
    "dsrd evaluate --model MODEL --dataset uci --json",
)

Out = Annotated[
    Path | None,
    typer.Option("--out", "-o", metavar="RUN", help="Folder to write the run to.", show_default="runs/..."),
]
Final = Annotated[bool, typer.Option("--final", help="Afterwards train again on all events, for production.")]
Workers = Annotated[
    int | None,
    typer.Option(
        "--workers", metavar="N", help="Processes that share every batch (train.workers).", show_default="1"
    ),
]
Device = Annotated[
    str | None,
    typer.Option("--device", metavar="NAME", help="cpu, or a GPU: cuda, cuda:1 (untested).", show_default="cpu"),
]
Ray = Annotated[
    str | None,
    typer.Option(
        "--ray",
        metavar="ADDRESS",
        help="Train with workers of this Ray cluster (HOST:PORT, auto), or local.",
        show_default=False,
    ),
]
NoHistory = Annotated[bool, typer.Option("--no-history", help="Do not store the events in the run folder.")]
Run = Annotated[
    Path | None,
    typer.Argument(metavar="RUN", help="Folder of a trained or saved run.", show_default=False),
]
Untrained = Annotated[
    str | None,
    typer.Option(
        "--model",
        "-m",
        metavar="MODEL",
        help="Measure this model, which needs no training, instead of a run.",
        show_default=False,
    ),
]
OtherData = Annotated[
    str | None,
    typer.Option(
        "--dataset", "-d", metavar="DATA", help="The data, as for `dsrd train`.", show_default="the run's"
    ),
]
OtherProtocol = Annotated[
    str | None,
    typer.Option(
        "--protocol", metavar="NAME", help="dyglib (as published) or strict (no leaks).", show_default="the run's"
    ),
]
Later = Annotated[
    Path | None,
    typer.Option(
        "--events",
        metavar="FILE",
        help="Measure on the new events in FILE, not on the test events.",
        show_default=False,
    ),
]
Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Change a setting: evaluate.order=fast, ... (repeatable).",
        show_default=False,
    ),
]
Negatives = Annotated[
    str | None,
    typer.Option(
        "--negatives", metavar="KINDS", help="Kinds of negatives: random,historical,inductive", show_default="all"
    ),
]
BatchSize = Annotated[
    int | None, typer.Option("--batch-size", metavar="N", help="Events scored at once.", show_default="200")
]
Candidates = Annotated[
    int | None,
    typer.Option(
        "--candidates",
        metavar="N",
        help="Also rank each target among N negatives (MRR, Hits@k).",
        show_default="0",
    ),
]
Questions = Annotated[
    bool,
    typer.Option("--questions", help="Also ask what the published columns do not: partner, pairs, awake, first."),
]
Reading = Annotated[
    str | None,
    typer.Option(
        "--reading",
        metavar="NAME",
        help="Main results: plain, or law (against the law of the negatives).",
        show_default="the run's",
    ),
]
Order = Annotated[
    str | None,
    typer.Option(
        "--order",
        metavar="NAME",
        help="How negatives are drawn: py37 (as published), py38 or fast.",
        show_default="the run's",
    ),
]
Head = Annotated[
    str | None,
    typer.Option("--head", metavar="NAME", help="Measure only this head of the model.", show_default="all"),
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
    workers: Workers = None,
    ray: Ray = None,
    device: Device = None,
    no_history: NoHistory = False,
    set_: options.Settings = None,
    json: options.Json = False,
    results: options.Results = "",
    data_dir: options.DataDir = None,
    threads: options.Threads = 0,
    *,
    data: DataConfig,
) -> None:
    """Train a model and measure it on the test events.

    The events are split by time. The weights of the epoch with the best validation score are measured on the test
    events, next to simple rules that learn nothing. The run folder contains everything that is needed to use the
    model elsewhere, also the events.

    The same command again continues an interrupted run and ends with the same weights. A complete run is trained
    further with a higher train.epochs, train.patience or train.minutes, or with --final.

    With --workers N, under `torchrun -m dsrd train ...` or with --ray, several processes share every batch.
    """
    from dsrd.data.read import load_with
    from dsrd.processes import ALONE, launched

    options.use_threads(threads)
    settings = options.key_values(set_)
    _add(settings, "train.device", "--device", device)
    _add(settings, "train.workers", "--workers", _num_workers(workers, ray, settings))
    this = (None if ray else launched()) or ALONE
    estimator = _estimator(model, settings, preset=preset, protocol=protocol, seed=seed)
    columns = {key.removeprefix("data."): value for key, value in settings.items() if key.startswith("data.")}
    with Reporter(show=this.is_first) as report:
        report.step(f"reading {Path(dataset).name}")
        stream = load_with(dataset, overridden(data, columns, prefix="data."), data_dir=data_dir)
        run = estimator.run_for(stream, final=final or None)
        folder = out or RUNS / _name(run)
        file = _results_file(results if this.is_first else NO_FILE, folder.parent)
        report.note(*_resume_note(folder, run))
        how: dict[str, Any] = {"folder": folder, "final": final or None, "history": not no_history, "ray": ray}
        estimator.fit(stream, progress=report, **how)
        if not this.is_first:
            return  # the first process measures and prints
        evaluated = estimator.evaluate(progress=report)
        if no_history:
            from dsrd.estimator.fitted import NO_HISTORY

            report.note(f"{folder}: {NO_HISTORY}")
    _finish(evaluated, file, json)
    timing = evaluated.record["timing"]
    output.note(f"run: {folder} (best epoch: {timing['best_epoch']} of {timing['epochs']})")


def _num_workers(workers: int | None, ray: str | None, settings: dict[str, str]) -> int | None:
    """What --workers says; without it as many as a launcher has started, or as the Ray cluster has processors."""
    from dsrd.processes import launched

    if workers is not None and workers < 1:
        raise DsrdError(f"--workers {workers}: give 1 or more")
    if workers is not None or "train.workers" in settings:
        return workers
    if ray is not None:
        from dsrd.train.launch import all_processors

        return all_processors(ray)
    started = launched()
    return started.count if started is not None and started.count > 1 else None


def _add(settings: dict[str, str], key: str, option: str, value: Any) -> None:
    """Add a setting that has an option of its own."""
    if value is not None:
        if key in settings:
            raise DsrdError(f"{option} and --set {key}: both are given; keep one")
        settings[key] = str(value)


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
    reading: Reading = None,
    questions: Questions = False,
    set_: Overrides = None,
    json: options.Json = False,
    results: options.Results = "",
    data_dir: options.DataDir = None,
    threads: options.Threads = 0,
    *,
    data: DataConfig,
) -> None:
    """Measure a trained run, or a model that needs no training.

    Measures on the test events of the data, or a run on --events that follow all events it knows. Under the
    protocol strict a score uses only events before its own time.
    """
    options.use_threads(threads)
    settings: dict[str, Any] = {
        "evaluate.negatives": negatives,
        "evaluate.batch_size": batch_size,
        "evaluate.candidates": candidates,
        "evaluate.order": order,
        "evaluate.reading": reading,
        "evaluate.questions": questions or None,
    }
    settings = {key: value for key, value in settings.items() if value is not None} | options.key_values(set_)
    file = _results_file(results, RUNS if folder is None else folder.parent)
    with Reporter() as report:
        if folder is None:
            evaluated = _untrained(model, dataset, events, protocol, head, data, data_dir, settings, report)
        else:
            from dsrd.estimator.link_predictor import open_run

            _check_stored(folder, model, data)
            opened = open_run(folder, dataset, data_dir=data_dir)
            changes = options.estimator_settings(settings, opened.run.model)
            evaluated = opened.evaluate(events, protocol=protocol, head=head, progress=report, **changes)
    _finish(evaluated, file, json)


def _estimator(model: str | None, settings: dict[str, str], **arguments: Any) -> LinkPredictor:
    from dsrd.estimator.link_predictor import LinkPredictor
    from dsrd.models import DEFAULT

    keywords = options.estimator_settings(settings, model or DEFAULT)
    arguments |= {key: keywords.pop(key) for key in ("preset", "seed") if key in keywords}
    keywords = {key: value for key, value in keywords.items() if not key.startswith("data__")}
    return LinkPredictor(model or DEFAULT, **arguments, **keywords)


def _untrained(
    model: str | None,
    dataset: str | None,
    events: Path | None,
    protocol: str | None,
    head: str | None,
    data: DataConfig,
    data_dir: Path | None,
    settings: dict[str, Any],
    report: Reporter,
) -> Results:
    from dsrd.data.read import load_with
    from dsrd.models import model_class

    if model is None or dataset is None:
        raise DsrdError("evaluate needs a run folder, or --model and --dataset; see `dsrd evaluate --help`")
    if events is not None:
        raise DsrdError("--events is only for a run folder; give one, or leave --events out")
    if not model_class(model).card.rule:
        raise DsrdError(
            f"{model} has weights to learn; run `dsrd train --model {model} --dataset {dataset}` first"
        )
    estimator = _estimator(model, settings, protocol=protocol)
    report.step(f"reading {Path(dataset).name}")
    stream = load_with(dataset, data, data_dir=data_dir)
    return estimator.fit(stream, progress=report).evaluate(head=head, progress=report)


def _check_stored(folder: Path, model: str | None, data: DataConfig) -> None:
    """Refuse options that contradict a trained run."""
    from dsrd.train.run_folder import RunFolder

    stored = RunFolder(folder).config()
    if model not in (None, stored.model):
        raise DsrdError(f"{folder}: holds a {stored.model}, not a {model}; leave --model out")
    if data not in (DataConfig(), stored.data):
        raise DsrdError(f"{folder}: the run stores how its data are read; leave the column options out")


def _name(run: RunConfig) -> str:
    """The name of a run folder: readable, and different for different runs."""
    data = re.sub(r"[^A-Za-z0-9_]+", "-", run.dataset).strip("-")
    return f"{data}-{run.model}-{run.seed}-{run.digest[:6]}"


def _resume_note(folder: Path, run: RunConfig) -> list[str]:
    from dsrd.train.run_folder import RunFolder

    run_folder = RunFolder(folder)
    if run_folder.last.exists() and (not run_folder.record.exists() or run_folder.extended_by(run)):
        return [f"{folder}: continues after epoch {run_folder.progress().epoch}"]
    return []


def _results_file(option: str, folder: Path) -> Path | None:
    """The file that gets the record; checked before the work, not after it."""
    if option == NO_FILE:
        return None
    file = Path(option) if option else folder / "results.jsonl"
    require_writable(file)
    return file


def _finish(results: Results, file: Path | None, json: bool) -> None:
    from dsrd.experiments import records

    if file is not None:
        records.append(file, results.record)
    if json:
        output.as_json(results.record)
        return
    output.results(results.title, results.rows)
    for remark in results.remarks:
        output.line(remark)
    if results.questions is not None:
        table = results.questions.table()
        output.line("")
        output.table(results.questions.title, table.columns, [list(row.values()) for row in table])
