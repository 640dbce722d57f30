"""`dsrd classify`."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from dsrd.cli import options, output
from dsrd.cli.predict import write_table
from dsrd.errors import DsrdError, unknown
from dsrd.files import require_writable
from dsrd.reporter import Reporter

if TYPE_CHECKING:
    from dsrd.classify.saved_head import Training
    from dsrd.train.record import Record

EXAMPLES = options.examples(
    "dsrd classify runs/first",
    "dsrd classify runs/first --apply tomorrow.csv --out classes.csv",
    "dsrd classify runs/first --end-to-end --set head.epochs=5 --json",
)
NO_FILE = "none"
FEW_KNOWN = 50.0  # warn if fewer percent of the test nodes have any earlier event

Apply = Annotated[
    Path | None,
    typer.Option(
        "--apply",
        metavar="FILE",
        help="Classify the sources of the events in FILE with the saved head.",
        show_default=False,
    ),
]
EndToEnd = Annotated[bool, typer.Option("--end-to-end", help="Train the model together with the head.")]
FromScratch = Annotated[bool, typer.Option("--from-scratch", help="Like --end-to-end, but from new weights.")]
Ask = Annotated[
    str | None,
    typer.Option(
        "--ask",
        metavar="WHAT",
        help="What to classify: events, nodes, or ends (both nodes of each event).",
        show_default="by the labels",
    ),
]
Visible = Annotated[
    str | None,
    typer.Option(
        "--visible",
        metavar="WHAT",
        help="What a prediction may use: before, target (also of the event), or same-time (also these events).",
        show_default="by --ask",
    ),
]
Labels = Annotated[
    Path | None,
    typer.Option(
        "--labels",
        metavar="FILE",
        help="CSV file with the class of each node: columns node,label.",
        show_default="labels of the data",
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Change a setting of the head: head.epochs=5, ... (repeatable).",
        show_default=False,
    ),
]
HeadSeed = Annotated[
    int | None,
    typer.Option(
        "--seed", metavar="N", help="Seed of the head's weights and of dropout.", show_default="the run's"
    ),
]


def classify(
    folder: options.RunPath,
    end_to_end: EndToEnd = False,
    from_scratch: FromScratch = False,
    ask: Ask = None,
    visible: Visible = None,
    labels: Labels = None,
    seed: HeadSeed = None,
    set_: Settings = None,
    apply: Apply = None,
    out: options.OutFile = None,
    dataset: options.SameData = None,
    json: options.Json = False,
    results: options.Results = "",
    data_dir: options.DataDir = None,
    threads: options.Threads = 0,
) -> None:
    """Classify nodes or events with the model of a run.

    A small network, the head, learns to predict labels from the embeddings of the run's model, which does not
    change. With --end-to-end a copy of the model is trained too. The head is saved in the run folder. With --apply
    the saved head classifies the source of each event in a file of new events.

    The label of an event is the label of its source at that time, predicted from earlier events. If nodes have one
    class each, every node is classified once, when it first appears, and events of the same time may be used;
    --ask ends classifies both nodes of every event.
    Results cover all test cases, with 95 % intervals from 1,000 bootstrap samples.
    """
    options.use_threads(threads)
    training: Training = "from scratch" if from_scratch else "end to end" if end_to_end else "frozen"
    if apply is not None:
        training_options: dict[str, Any] = {
            "--end-to-end": end_to_end,
            "--from-scratch": from_scratch,
            "--ask": ask,
            "--visible": visible,
        }
        training_options |= {"--labels": labels, "--seed": seed, "--set": set_, "--results": results or None}
        _refuse_with_apply(training_options)
        _apply(folder, apply, out, dataset, data_dir, json)
        return
    if out is not None:
        raise DsrdError("--out is only for --apply; leave it out")
    _check(ask, visible, seed)
    task = {"asks": ask, "visible": visible, "labels": labels, "seed": seed, "data_dir": data_dir}
    file = None if results == NO_FILE else Path(results) if results else folder.parent / "results.jsonl"
    record = _train(folder, dataset, training, {**task, **_head_settings(set_)}, file)
    if json:
        output.as_json(record)
    else:
        _table(record)


def _refuse_with_apply(training_options: dict[str, Any]) -> None:
    for option, value in training_options.items():
        if value is not None and value is not False:
            raise DsrdError(f"{option} is for training a head, and --apply uses the saved one; leave one out")


def _check(ask: str | None, visible: str | None, seed: int | None) -> None:
    from dsrd.classify.task import Asks, Visible

    for option, word, known in (("--ask", ask, Asks), ("--visible", visible, Visible)):
        if word is not None and word not in get_args(known):
            raise unknown(f"value of {option}", word, get_args(known))
    if seed is not None and seed < 0:
        raise DsrdError(f"--seed {seed}: give 0 or more")


def _head_settings(words: list[str] | None) -> dict[str, str]:
    from dsrd.classify.head import HeadConfig

    settings = options.key_values(words)
    known = [f"head.{entry.name}" for entry in fields(HeadConfig)]
    for key in settings:
        if key not in known:
            raise unknown("setting", key, known)
    return {key.removeprefix("head."): value for key, value in settings.items()}


def _train(
    folder: Path, dataset: str | None, training: Training, settings: dict[str, Any], file: Path | None
) -> Record:
    from dsrd.classify import NodeClassifier
    from dsrd.classify.labels import label_file
    from dsrd.classify.saved_head import FILE
    from dsrd.estimator.link_predictor import open_run
    from dsrd.experiments import records
    from dsrd.train.run_folder import RunFolder

    RunFolder(folder).config()  # an error if the folder is not a run
    for written in (folder / FILE, *([] if file is None else [file])):
        require_writable(written)
    with Reporter() as report:
        model = open_run(folder, dataset, data_dir=settings["data_dir"])
        if dataset is not None and settings["asks"] != "events":
            settings["labels"] = settings["labels"] or label_file(dataset, settings["data_dir"])
        classifier = NodeClassifier.fit(model, training, progress=report, **settings)
        classifier.save()
        record = classifier.record
        assert record is not None
        known = record["results"]["test"]["with_past"]
        if known < FEW_KNOWN:
            report.note(
                f"only {known:.1f} % of the test nodes have earlier events: the others all look alike to the model"
            )
    if file is not None:
        records.append(file, record)
    return record


def _apply(
    folder: Path, events: Path, out: Path | None, dataset: str | None, data_dir: Path | None, json: bool
) -> None:
    from dsrd.classify import NodeClassifier
    from dsrd.estimator.link_predictor import open_run

    if out is not None:
        options.require_output(out, folder)
    with Reporter() as report:
        classifier = NodeClassifier.open(open_run(folder, dataset, data_dir=data_dir))
        predictions = classifier.predict(events, progress=report)
    write_table(predictions, "predictions", out, json)


def _table(record: Record) -> None:
    rows: list[list[Any]] = []
    for part, metrics in record["results"].items():
        rows.append([part, "mean" if "classes" in metrics else record["classes"][1], *_cells(metrics)])
        rows += [[part, name, *_cells(one)] for name, one in metrics.get("classes", {}).items()]
    settings = (
        f"labels of {record['asks']}, {record['training']}, visible: {record['visible']}, {record['protocol']}"
    )
    title = f"{record['dataset']}: {record['model']}, {settings}, in percent"
    output.table(title, ["part", "class", "AUC", "95 %", "AUPRC", "95 %", "x chance", "positives"], rows)


def _cells(metrics: dict[str, Any]) -> list[Any]:
    cells: list[Any] = []
    for name in ("auc", "auprc"):
        cells += [metrics[name], f"{metrics[f'{name}_low']:.2f} - {metrics[f'{name}_high']:.2f}"]
    return [*cells, metrics["auprc_factor"], metrics.get("positives")]
