"""`dsrd classify`."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from dsrd.cli import options, show
from dsrd.cli.predict import give
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
FEW_KNOWN = 50.0  # percent of nodes with a past below which the figures need a warning

Apply = Annotated[
    Path | None,
    typer.Option("--apply", metavar="FILE", help="Classify the sources of these events.", show_default=False),
]
EndToEnd = Annotated[bool, typer.Option("--end-to-end", help="Train the model along with the head.")]
FromScratch = Annotated[bool, typer.Option("--from-scratch", help="End to end, from new weights.")]
Ask = Annotated[
    str | None,
    typer.Option("--ask", metavar="WHAT", help="events, nodes or ends.", show_default="as labelled"),
]
Visible = Annotated[
    str | None,
    typer.Option("--visible", metavar="WHAT", help="before or same-time.", show_default="by ask"),
]
Labels = Annotated[
    Path | None,
    typer.Option("--labels", metavar="FILE", help="Classes of nodes: node,label.", show_default="of the data"),
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="head.epochs=5, ... (repeatable).", show_default=False),
]
HeadSeed = Annotated[
    int | None, typer.Option("--seed", metavar="N", help="Of the head, of dropout.", show_default="as trained")
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
    """Classify nodes by a trained run.

    The run's model stays as it is; a small network, its head, learns from the model's embeddings to tell the
    labels of the stream apart. With --end-to-end the model learns along, from the run's weights. The head is saved
    with the run; with --apply it classifies the source of each event in a file, events that follow the run's.

    The label of an event belongs to its source at that time, and an answer may use what came before. Nodes with
    classes of their own are asked about once, when they first appear, and the events of that time are visible;
    with --ask ends, at both ends of every event.
    Figures are over all test questions, with the interval that holds 95 % of 1,000 bootstrap draws.
    """
    options.use_threads(threads)
    training: Training = "from scratch" if from_scratch else "end to end" if end_to_end else "frozen"
    if apply is not None:
        given: dict[str, Any] = {
            "--end-to-end": end_to_end,
            "--from-scratch": from_scratch,
            "--ask": ask,
            "--visible": visible,
        }
        given |= {"--labels": labels, "--seed": seed, "--set": set_, "--results": results or None}
        _check_alone(given)
        _apply(folder, apply, out, dataset, data_dir, json)
        return
    if out is not None:
        raise DsrdError("--out goes with --apply; leave it out")
    _check(ask, visible, seed)
    asked = {"asks": ask, "visible": visible, "labels": labels, "seed": seed, "data_dir": data_dir}
    file = None if results == NO_FILE else Path(results) if results else folder.parent / "results.jsonl"
    record = _train(folder, dataset, training, {**asked, **_settings(set_)}, file)
    if json:
        show.as_json(record)
    else:
        _table(record)


def _check_alone(given: dict[str, Any]) -> None:
    for option, value in given.items():
        if value is not None and value is not False:
            raise DsrdError(
                f"{option} is for training a head, and --apply uses the saved one; leave one of them out"
            )


def _check(ask: str | None, visible: str | None, seed: int | None) -> None:
    from dsrd.classify.task import Asks, Visible

    for option, word, known in (("--ask", ask, Asks), ("--visible", visible, Visible)):
        if word is not None and word not in get_args(known):
            raise unknown(f"value of {option}", word, get_args(known))
    if seed is not None and seed < 0:
        raise DsrdError(f"--seed {seed}: give 0 or more")


def _settings(given: list[str] | None) -> dict[str, str]:
    from dsrd.classify.head import HeadConfig

    found = options.settings(given)
    known = [f"head.{entry.name}" for entry in fields(HeadConfig)]
    for key in found:
        if key not in known:
            raise unknown("setting", key, known)
    return {key.removeprefix("head."): value for key, value in found.items()}


def _train(
    folder: Path, dataset: str | None, training: Training, given: dict[str, Any], file: Path | None
) -> Record:
    from dsrd.classify import NodeClassifier
    from dsrd.classify.labels import label_file
    from dsrd.classify.saved_head import FILE
    from dsrd.estimator.link_predictor import open_run
    from dsrd.experiments import records
    from dsrd.train.run_folder import RunFolder

    RunFolder(folder).config()  # what is no run is said to be none, and nothing is looked for in it
    for each in (folder / FILE, *([] if file is None else [file])):
        require_writable(each)
    with Reporter() as report:
        model = open_run(folder, dataset, data_dir=given["data_dir"])
        if dataset is not None and given["asks"] != "events":
            given["labels"] = given["labels"] or label_file(dataset, given["data_dir"])
        classifier = NodeClassifier.fit(model, training, progress=report, **given)
        classifier.save()
        record = classifier.record
        assert record is not None
        known = record["results"]["test"]["with_past"]
        if known < FEW_KNOWN:
            report.note(
                f"only {known:.1f} % of the test nodes had any event before: the others cannot be told apart"
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
        require_writable(out)
    with Reporter() as report:
        classifier = NodeClassifier.open(open_run(folder, dataset, data_dir=data_dir))
        found = classifier.predict(events, progress=report)
    give(found, "predictions", out, json)


def _table(record: Record) -> None:
    rows: list[list[Any]] = []
    for part, found in record["results"].items():
        rows.append([part, "mean" if "classes" in found else record["classes"][1], *_cells(found)])
        rows += [[part, name, *_cells(one)] for name, one in found.get("classes", {}).items()]
    how = f"labels of {record['asks']}, {record['training']}, visible: {record['visible']}, {record['protocol']}"
    title = f"{record['dataset']}: {record['model']}, {how}, in percent"
    show.table(title, ["part", "class", "AUC", "95 %", "AUPRC", "95 %", "x chance", "positives"], rows)


def _cells(found: dict[str, Any]) -> list[Any]:
    cells: list[Any] = []
    for name in ("auc", "auprc"):
        cells += [found[name], f"{found[f'{name}_low']:.2f} - {found[f'{name}_high']:.2f}"]
    return [*cells, found["auprc_factor"], found.get("positives")]
