"""`dsrd demo`: the whole way once, on a stream drawn on the spot."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from dsrd.bench import run as runner
from dsrd.cli import options, show
from dsrd.config import RunConfig
from dsrd.models import DEMO


def demo(
    events: Annotated[int, typer.Option("--events", min=1000, help="Length of the stream.")] = 10_000,
    epochs: Annotated[int, typer.Option("--epochs", min=1, help="Epochs of training.")] = 5,
    json: options.Json = False,
    threads: options.Threads = 0,
) -> None:
    """Draw a synthetic stream, train on it, evaluate, and print a table with the best possible score beside."""
    options.use_threads(threads)
    settings = {"train.epochs": epochs, "train.lr": 1e-3}
    rows: dict[str, Any] = {}
    best: dict[str, Any] = {}
    with show.bar() as progress:
        for model in DEMO:
            run = RunConfig(dataset=f"synth:events={events}", model=model).with_overrides(settings)
            source, task = runner.prepare(run)
            record = runner.train(run, None, source, task, progress)
            rows[model], best = record["results"], record["ceiling"]
    if json:
        show.as_json({"dataset": f"synth:events={events}", "results": rows, "ceiling": best})
        return
    title = f"{events:,} synthetic events, test, AP / AUC in percent (protocol dyglib)"
    show.results(title, {**rows, "best possible": best})
    show.note(
        "best possible: a scorer that knows the probability of every event.",
        "next: `dsrd data list`, `dsrd train --dataset YOUR.csv --source ... --target ... --time ...`",
    )
