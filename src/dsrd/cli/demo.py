"""`dsrd demo`: the whole way once, on a stream drawn on the spot; with --own-data as with a file of one's own."""

from __future__ import annotations

import shlex
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer

from dsrd.cli import options, output
from dsrd.errors import DsrdError
from dsrd.reporter import Reporter

EXAMPLES = options.examples("dsrd demo", "dsrd demo --own-data", "dsrd demo --events 5000 --epochs 2")
OWN = "--source caller --target callee --time date"
WALK = (
    ("a call log: who called whom, when", ""),
    (
        "train a model on its beginning; is it better than rules that learn nothing?",
        f"train --dataset calls.csv {OWN} --set train.epochs=10 --out calls.run --results none",
    ),
    ("whom will ann call next?", "predict calls.run --node ann --top 5"),
    ("how likely are these calls? (columns of one's own stay)", "predict calls.run --pairs ask.csv"),
    ("which of tomorrow's calls are unexpected?", "surprise calls.run tomorrow.csv --out surprise.csv"),
    ("tomorrow has come: take it in", "update calls.run tomorrow.csv"),
    ("whom will ann call now?", "predict calls.run --node ann --top 5"),
)


def demo(
    events: Annotated[int, typer.Option("--events", metavar="N", help="Length of the stream.")] = 10_000,
    epochs: Annotated[int, typer.Option("--epochs", metavar="N", help="Passes over the training events.")] = 5,
    own_data: Annotated[bool, typer.Option("--own-data", help="Instead: a call log, step by step.")] = False,
    folder: Annotated[
        Path | None,
        typer.Option("--folder", metavar="DIR", help="Where --own-data works.", show_default="a new one"),
    ] = None,
    json: options.Json = False,
    threads: options.Threads = 0,
) -> None:
    """Train and measure on a synthetic stream: a first look.

    A stream is drawn on the spot, a model that learns nothing and one that does are trained on its beginning and
    asked about its end, and a table shows how well they do, beside the best score that is possible. With
    --own-data, a call log in a CSV file is taken through train, predict, surprise and update instead.
    """
    options.use_threads(threads)
    if own_data:
        if json:
            raise DsrdError("--json does not go with --own-data; leave one of them out")
        _own_data(folder)
        return
    from dsrd.data.read import load
    from dsrd.estimator.link_predictor import LinkPredictor
    from dsrd.estimator.results import model_rows
    from dsrd.models import DEMO

    stream = load(f"synth:events={events}")
    rows: dict[str, Any] = {}
    found: dict[str, Any] = {}
    best: dict[str, Any] = {}
    with Reporter() as report:
        for name in DEMO:
            model = LinkPredictor(name, protocol="dyglib", order="py37", epochs=epochs, lr=1e-3)
            record = model.fit(stream, progress=report).evaluate(progress=report).record
            rows, best = rows | model_rows(record), record["ceiling"]
            found[name] = record["results"]
    if json:
        output.as_json({"dataset": stream.name, "results": found, "ceiling": best})
        return
    title = f"{events:,} synthetic events, test, AP / AUC in percent (protocol dyglib)"
    output.results(title, {**rows, "best possible": best})
    output.note(
        "columns: which wrong pairs the true ones are to be told from",
        "inductive rows: events of nodes that training never saw",
        "best possible: a scorer that knows the probability of every event",
        "next: dsrd demo --own-data, or",
        "      dsrd train --dataset YOUR.csv --source COLUMN --target COLUMN --time COLUMN",
    )


def _own_data(folder: Path | None) -> None:
    """Show and run the commands that one would type; files stay in the folder to be looked at."""
    import os

    from dsrd.cli.main import app
    from dsrd.data.sample import write_sample

    there = Path(tempfile.mkdtemp(prefix="dsrd-demo-")) if folder is None else folder
    there.mkdir(parents=True, exist_ok=True)
    before = Path.cwd()
    os.chdir(there)
    try:
        write_sample(Path())
        for number, (why, command) in enumerate(WALK):
            output.line(f"\n# {number + 1}. {why}")
            if not command:
                output.line("\n".join(Path("calls.csv").read_text(encoding="utf-8").splitlines()[:4]) + "\n...")
                continue
            output.line(f"$ dsrd {command}")
            app(shlex.split(command), prog_name="dsrd", standalone_mode=False)
            if "surprise.csv" in command:
                _most_surprising(Path("surprise.csv"))
    finally:
        os.chdir(before)
    output.line(f"\nThe files are in {there}; with a file of your own, the same commands.")


def _most_surprising(file: Path, count: int = 5) -> None:
    import csv

    rows = list(csv.DictReader(file.read_text(encoding="utf-8").splitlines()))
    rows.sort(key=lambda row: -float(row["surprise"]))
    output.table(f"the {count} most unexpected", list(rows[0]), [list(row.values()) for row in rows[:count]])
