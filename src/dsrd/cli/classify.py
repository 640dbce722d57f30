"""`dsrd classify`."""

from __future__ import annotations

import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dsrd.cli import options, show
from dsrd.config import overridden
from dsrd.errors import DsrdError, unknown
from dsrd.files import require_writable
from dsrd.reporter import Progress, Reporter

if TYPE_CHECKING:
    from torch import Tensor

    from dsrd.bench.records import Record
    from dsrd.config import RunConfig
    from dsrd.data.dataset import Dataset
    from dsrd.evaluate.evaluator import Task
    from dsrd.evaluate.questions import NodeTask
    from dsrd.models import TemporalModel
    from dsrd.train.classify import Fitted, HeadConfig

EXAMPLES = options.examples(
    "dsrd classify runs/first",
    "dsrd classify runs/first --end-to-end --set head.epochs=5 --json",
)
NO_FILE = "none"
FEW_KNOWN = 50.0  # percent of nodes with a past below which the figures need a warning
JOINT_EPOCHS, JOINT_PATIENCE = 20, 5  # an epoch of a whole model takes minutes, not moments

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
    json: options.Json = False,
    results: options.Results = "",
    data_dir: options.DataDir = None,
    threads: options.Threads = 0,
) -> None:
    """Classify nodes by a trained run.

    The run's model stays as it is; a small network learns from its embeddings to tell the labels of the stream
    apart. With --end-to-end the model learns along, from the run's weights.

    The label of an event belongs to its source at that time, and an answer may use what came before. Nodes with
    classes of their own are asked about once, when they first appear, and the events of that time are visible;
    with --ask ends, at both ends of every event.
    Figures are over all test questions, with the interval that holds 95 % of 1,000 bootstrap draws.
    """
    from dsrd.bench import records
    from dsrd.bench import run as runner
    from dsrd.evaluate.questions import NodeTask
    from dsrd.train.fit import RunFolder, build, load_model

    options.use_threads(threads)
    trained = RunFolder(folder)
    run = trained.config()
    if seed is not None and seed < 0:
        raise DsrdError(f"--seed {seed}: give 0 or more")
    seed = run.seed if seed is None else seed
    mode = "from scratch" if from_scratch else "end to end" if end_to_end else "frozen"
    config = _head(run, mode, options.settings(set_))
    file = None if results == NO_FILE else Path(results) if results else folder.parent / "results.jsonl"
    if file is not None:
        require_writable(file)
    with Reporter() as progress:
        opened, task = runner.prepare(run, data_dir, progress)
        show.note(*opened.dataset.notes)
        classes = _classes(run, opened.dataset, ask, labels, data_dir)
        nodes = NodeTask.of(opened.dataset, ask, visible, classes)  # bad labels are found before the work
        if from_scratch:
            run = replace(run, seed=seed)
        model = build(run, task) if from_scratch else load_model(trained, run, task)
        record = _measured(run, task, nodes, model, mode, config, seed, progress)
    known = record["results"]["test"]["with_past"]
    if known < FEW_KNOWN:
        show.note(f"only {known:.1f} % of the test nodes had any event before: the others cannot be told apart")
    if file is not None:
        records.append(file, record)
    if json:
        show.as_json(record)
    else:
        _table(record)


def _head(run: RunConfig, mode: str, given: dict[str, str]) -> HeadConfig:
    """The published head; a model that learns along does so at the rate it was trained with."""
    from dsrd.train.classify import HeadConfig

    config = HeadConfig()
    if mode != "frozen":
        config = replace(config, lr=run.train.lr, epochs=JOINT_EPOCHS, patience=JOINT_PATIENCE)
    known = [f"head.{name}" for name in asdict(config)]
    for key in given:
        if key not in known:
            raise unknown("setting", key, known)
    return overridden(config, {key.removeprefix("head."): value for key, value in given.items()}, prefix="head.")


def _classes(
    run: RunConfig, dataset: Dataset, ask: str | None, file: Path | None, data_dir: Path | None
) -> Tensor | None:
    """Classes of nodes from the file given, or from the one that lies with the data; none for labels of events."""
    from dsrd.data.labels import beside, read_node_labels

    if ask == "events":
        if file is not None:
            raise DsrdError(f"--labels {file}: holds classes of nodes; leave out --ask events, or --labels")
        return None
    file = file or beside(run.dataset, data_dir)
    return None if file is None else read_node_labels(file, dataset)


def _measured(
    run: RunConfig,
    task: Task,
    nodes: NodeTask,
    model: TemporalModel,
    mode: str,
    config: HeadConfig,
    seed: int,
    progress: Progress,
) -> Record:
    from dsrd.bench import records
    from dsrd.data.dataset import digest_of_tensors
    from dsrd.evaluate.classification import measure
    from dsrd.evaluate.questions import PARTS

    fitted, timing = _fitted(run, task, nodes, model, mode, config, seed, progress)
    found = {
        part: measure(nodes.targets(part), fitted.scores[part], nodes.names, seed=seed) for part in ("test", "val")
    }
    for part, figures in found.items():
        figures["with_past"] = round(100 * nodes.with_past(part, task.full_past), 4)
    more = {
        "seed": seed,
        "backbone_seed": run.seed,
        "head": "node",
        "training": mode,
        "asks": nodes.asks,
        "visible": nodes.visible,
        "classes": nodes.names,
        "labels": {part: nodes.counts(part) for part in PARTS},
        "val_auc": [round(100 * auc, 4) for auc in fitted.val_auc],
        "dim": fitted.dim,
    }
    record = {**records.make(run, task, model, found, {}, timing, **more), "task": "node"}
    record["config"] = {**record["config"], "head": asdict(config)}
    del record["digests"]["negatives"]  # none were drawn
    record["digests"] |= {"split": nodes.digest, "weights": digest_of_tensors(*model.state_dict().values())}
    return record


def _fitted(
    run: RunConfig,
    task: Task,
    nodes: NodeTask,
    model: TemporalModel,
    mode: str,
    config: HeadConfig,
    seed: int,
    progress: Progress,
) -> tuple[Fitted, dict[str, Any]]:
    """The head, and how long its parts took."""
    from dsrd.evaluate.protocol import protocol
    from dsrd.train.classify import Walk, embeddings, fit_end_to_end, fit_head

    past, rules = task.full_past.to(model.device), protocol(run.protocol)
    began = time.perf_counter()
    if mode == "frozen":
        x = embeddings(Walk(model, nodes, past, rules, run.evaluate.batch_size), progress)
        embedded = time.perf_counter()
        fitted = fit_head(x, nodes, config, seed, progress)
        timing = {"embed_seconds": round(embedded - began, 3)}
    else:
        embedded, timing = began, {}
        fitted = fit_end_to_end(Walk(model, nodes, past, rules, config.batch_size), config, seed, progress)
    seconds = {"head_seconds": round(time.perf_counter() - embedded, 3)}
    return fitted, {**timing, **seconds, "epochs": fitted.epochs, "best_epoch": fitted.best_epoch}


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
