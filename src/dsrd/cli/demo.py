"""`dsrd demo`: the whole way once, on a stream drawn on the spot."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from dsrd.cli import options, show
from dsrd.config import RunConfig

EXAMPLES = options.examples("dsrd demo", "dsrd demo --events 5000 --epochs 2")


def demo(
    events: Annotated[int, typer.Option("--events", metavar="N", help="Length of the stream.")] = 10_000,
    epochs: Annotated[int, typer.Option("--epochs", metavar="N", help="Passes over the training events.")] = 5,
    json: options.Json = False,
    threads: options.Threads = 0,
) -> None:
    """Train and measure on a synthetic stream: a first look.

    A stream is drawn on the spot, a model that learns nothing and one that does are trained on its beginning and
    asked about its end, and a table shows how well they do, beside the best score that is possible.
    """
    from dsrd.bench import run as runner
    from dsrd.models import DEMO, configured

    options.use_threads(threads)
    dataset = f"synth:events={events}"
    settings = {"train.epochs": epochs, "train.lr": 1e-3}
    rows: dict[str, Any] = {}
    found: dict[str, Any] = {}
    best: dict[str, Any] = {}
    with show.bar() as progress:
        for model in DEMO:
            run = configured(RunConfig(dataset=dataset, model=model), settings)
            source, task = runner.prepare(run, progress=progress)
            record = runner.train(run, None, source, task, _labelled(model, progress))
            rows, best = rows | show.rows_of(record), record["ceiling"]
            found[model] = record["results"]
    if json:
        show.as_json({"dataset": dataset, "results": found, "ceiling": best})
        return
    title = f"{events:,} synthetic events, test, AP / AUC in percent (protocol dyglib)"
    show.results(title, {**rows, "best possible": best})
    show.note(
        "columns: which wrong pairs the true ones are to be told from",
        "inductive rows: events of nodes that training never saw",
        "best possible: a scorer that knows the probability of every event",
        "next: dsrd train --dataset YOUR.csv --source COLUMN --target COLUMN --time COLUMN",
    )


def _labelled(model: str, progress: show.Report) -> show.Report:
    return lambda what, done, total: progress(f"{model}, {what}", done, total)
