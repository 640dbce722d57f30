"""`dsrd classify`."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dsrd.cli import options, show
from dsrd.files import require_writable

if TYPE_CHECKING:
    from dsrd.bench.records import Record
    from dsrd.config import RunConfig
    from dsrd.evaluate.evaluator import Task
    from dsrd.models import TemporalModel

EXAMPLES = options.examples("dsrd classify runs/first", "dsrd classify runs/first --seed 1 --json")
NO_FILE = "none"
FEW_KNOWN = 50.0  # percent of sources with a past below which the figures need a warning


def classify(
    folder: options.RunPath,
    seed: Annotated[
        int | None, typer.Option("--seed", metavar="N", help="Of the head.", show_default="as trained")
    ] = None,
    json: options.Json = False,
    results: options.Results = "",
    data_dir: options.DataDir = None,
    threads: options.Threads = 0,
) -> None:
    """Classify the sources of events by a trained run.

    The run's model stays as it is; a small network learns from its embeddings to tell the labels of the stream
    apart. The label of an event belongs to its source at that time. Figures are over all test events, with the
    interval that holds 95 % of 1,000 bootstrap draws.
    """
    from dsrd.bench import records
    from dsrd.bench import run as runner
    from dsrd.errors import DsrdError
    from dsrd.train.classify import NodeTask
    from dsrd.train.fit import RunFolder, load_model

    options.use_threads(threads)
    trained = RunFolder(folder)
    run = trained.config()
    if seed is not None and seed < 0:
        raise DsrdError(f"--seed {seed}: give 0 or more")
    file = None if results == NO_FILE else Path(results) if results else folder.parent / "results.jsonl"
    if file is not None:
        require_writable(file)
    with show.bar() as progress:
        opened, task = runner.prepare(run, data_dir, progress)
        show.note(*opened.dataset.notes)
        nodes = NodeTask.of(opened.dataset)  # labels that cannot be used are found before the work
        model = load_model(trained, run, task)
        record = _measured(run, task, nodes, model, run.seed if seed is None else seed, progress)
    known = record["results"]["test"]["with_past"]
    if known < FEW_KNOWN:
        show.note(f"only {known:.1f} % of the test sources had any event before: the others cannot be told apart")
    if file is not None:
        records.append(file, record)
    if json:
        show.as_json(record)
    else:
        _table(record)


def _measured(
    run: RunConfig, task: Task, nodes: Any, model: TemporalModel, seed: int, progress: show.Report
) -> Record:
    from dsrd.bench import records
    from dsrd.data.dataset import digest_of_tensors
    from dsrd.evaluate.classification import measure
    from dsrd.evaluate.protocol import protocol
    from dsrd.train.classify import HeadConfig, embeddings, fit_head

    config = HeadConfig()
    rules, size = protocol(run.protocol), run.evaluate.batch_size
    began = time.perf_counter()
    x = embeddings(model, nodes, task.full_past, rules, size, progress)
    embedded = time.perf_counter()
    fitted = fit_head(x, nodes, config, seed, progress)
    timing = {
        "embed_seconds": round(embedded - began, 3),
        "head_seconds": round(time.perf_counter() - embedded, 3),
        "epochs": fitted.epochs,
        "best_epoch": fitted.best_epoch,
    }
    found = {
        part: measure(nodes.target[nodes.labelled(part)].numpy(), fitted.scores[part], nodes.names, seed=seed)
        for part in ("test", "val")
    }
    for part, figures in found.items():
        figures["with_past"] = round(100 * nodes.with_past(part, task.full_past), 4)
    more = {"seed": seed, "backbone_seed": run.seed, "head": "node", "classes": nodes.names, "dim": x.shape[1]}
    record = {**records.make(run, task, model, found, {}, timing, **more), "task": "node"}
    record["config"] = {**record["config"], "head": asdict(config)}
    del record["digests"]["negatives"]  # none were drawn
    record["digests"] |= {"split": nodes.digest, "weights": digest_of_tensors(*model.state_dict().values())}
    return record


def _table(record: Record) -> None:
    rows: list[list[Any]] = []
    for part, found in record["results"].items():
        rows.append([part, "mean" if "classes" in found else record["classes"][1], *_cells(found)])
        for name, one in found.get("classes", {}).items():
            rows.append([part, name, one["auc"], None, one["auprc"], None, one["auprc_factor"], one["positives"]])
    title = f"{record['dataset']}: {record['model']}, labels of sources, {record['protocol']}, in percent"
    show.table(title, ["part", "class", "AUC", "95 %", "AUPRC", "95 %", "x chance", "positives"], rows)


def _cells(found: dict[str, Any]) -> list[Any]:
    cells: list[Any] = []
    for name in ("auc", "auprc"):
        cells += [found[name], f"{found[f'{name}_low']:.2f} - {found[f'{name}_high']:.2f}"]
    return [*cells, found["auprc_factor"], found.get("positives")]
