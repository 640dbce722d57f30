"""`dsrd demo`: a first look on a synthetic stream, or step by step on a call log in a CSV file."""

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
COLUMNS = "--source caller --target callee --time date"
STEPS = (
    ("a call log: who called whom and when", ""),
    (
        "train a model on the first calls and measure it on the last, next to rules that learn nothing",
        f"train --dataset calls.csv {COLUMNS} --set train.epochs=10 --out calls.run --results none",
    ),
    ("whom will ann call next?", "predict calls.run --node ann --top 5"),
    ("how likely are these calls? (other columns of the file are kept)", "predict calls.run --pairs ask.csv"),
    ("which of tomorrow's calls are unexpected?", "surprise calls.run tomorrow.csv --out surprise.csv"),
    ("add tomorrow's calls to the run", "update calls.run tomorrow.csv"),
    ("whom will ann call now?", "predict calls.run --node ann --top 5"),
)


def demo(
    events: Annotated[int, typer.Option("--events", metavar="N", help="Number of events in the stream.")] = 10_000,
    epochs: Annotated[int, typer.Option("--epochs", metavar="N", help="Training epochs.")] = 5,
    own_data: Annotated[
        bool, typer.Option("--own-data", help="Use a call log in a CSV file instead, step by step.")
    ] = False,
    folder: Annotated[
        Path | None,
        typer.Option(
            "--folder", metavar="DIR", help="Folder for the files of --own-data.", show_default="a new one"
        ),
    ] = None,
    json: options.Json = False,
    threads: options.Threads = 0,
) -> None:
    """Train and measure two models on a synthetic stream.

    A first look that needs no data and takes less than a minute. A stream is drawn; a rule that learns nothing and
    a model that learns are trained on its beginning and measured on its end. A table compares both with the best
    possible score. With --own-data, a call log in a CSV file goes through train, predict, surprise and update.
    """
    options.use_threads(threads)
    if own_data:
        if json:
            raise DsrdError("--json cannot be used with --own-data; leave one of them out")
        _run_steps(folder)
        return
    from dsrd.data.read import load
    from dsrd.estimator.link_predictor import LinkPredictor
    from dsrd.estimator.results import model_rows
    from dsrd.models import DEMO

    stream = load(f"synth:events={events}")
    rows: dict[str, Any] = {}
    results: dict[str, Any] = {}
    best: dict[str, Any] = {}
    with Reporter() as report:
        for name in DEMO:
            model = LinkPredictor(name, protocol="dyglib", order="py37", epochs=epochs, lr=1e-3)
            record = model.fit(stream, progress=report).evaluate(progress=report).record
            rows, best = rows | model_rows(record), record["ceiling"]
            results[name] = record["results"]
    if json:
        output.as_json({"dataset": stream.name, "results": results, "ceiling": best})
        return
    title = f"{events:,} synthetic events, test, AP / AUC in percent (protocol dyglib)"
    output.results(title, {**rows, "best possible": best})
    output.note(
        "columns: the kind of negative pairs that true pairs are compared with",
        "inductive rows: events of nodes unseen in training",
        "best possible: the score if the probability of every event were known",
        "next: dsrd demo --own-data, or",
        "      dsrd train --dataset YOUR.csv --source COLUMN --target COLUMN --time COLUMN",
    )


def _run_steps(folder: Path | None) -> None:
    """Print and run the commands that a user would type; their files stay in the folder."""
    import os

    from dsrd.cli.main import app
    from dsrd.data.sample import write_sample

    demo_folder = Path(tempfile.mkdtemp(prefix="dsrd-demo-")) if folder is None else folder
    demo_folder.mkdir(parents=True, exist_ok=True)
    working_folder = Path.cwd()
    os.chdir(demo_folder)
    try:
        write_sample(Path())
        for number, (title, command) in enumerate(STEPS):
            output.line(f"\n# {number + 1}. {title}")
            if not command:
                output.line("\n".join(Path("calls.csv").read_text(encoding="utf-8").splitlines()[:4]) + "\n...")
                continue
            output.line(f"$ dsrd {command}")
            app(shlex.split(command), prog_name="dsrd", standalone_mode=False)
            if "surprise.csv" in command:
                _print_most_surprising(Path("surprise.csv"))
    finally:
        os.chdir(working_folder)
    output.line(f"\nThe files are in {demo_folder}. The same commands work with your own file.")


def _print_most_surprising(file: Path, count: int = 5) -> None:
    import csv

    rows = list(csv.DictReader(file.read_text(encoding="utf-8").splitlines()))
    rows.sort(key=lambda row: -float(row["surprise"]))
    output.table(f"the {count} most unexpected", list(rows[0]), [list(row.values()) for row in rows[:count]])
