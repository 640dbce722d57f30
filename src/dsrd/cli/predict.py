"""`dsrd predict`."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Annotated, Any

import typer

from dsrd.bench import run as runner
from dsrd.bench.predict import predict as predicted
from dsrd.cli import options, show
from dsrd.data.pairs import read_pairs
from dsrd.files import write_text
from dsrd.train.fit import RunFolder, load_model


def predict(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="Folder written by `dsrd train`.")],
    pairs: Annotated[
        Path, typer.Option("--pairs", help="CSV or Parquet with the stream's source, target, time columns.")
    ],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="CSV file to write.", show_default="standard output")
    ] = None,
    json: options.Json = False,
    data_dir: options.DataDir = None,
    threads: options.Threads = 0,
) -> None:
    """Score pairs: how likely is each to interact at its time, given everything before it?

    A file without a time column asks about the moment after the last event of the stream.
    """
    options.use_threads(threads)
    stored = RunFolder(folder).config()
    opened, task = runner.prepare(stored, data_dir)
    query, names = read_pairs(pairs, stored.data, opened.dataset)
    model = load_model(RunFolder(folder), stored, task)
    with show.bar() as progress:
        scores = predicted(model, task, query, stored.evaluate.batch_size, progress)
    rows = [
        {"source": source, "target": target, "time": time, "score": round(score, 6)}
        for (source, target), time, score in zip(names, query.time.tolist(), scores.tolist(), strict=True)
    ]
    if out is not None:
        write_text(out, _as_csv(rows))
    if json:
        show.as_json({"pairs": len(rows), "out": str(out)} if out else {"pairs": len(rows), "predictions": rows})
    elif out is None:
        print(_as_csv(rows), end="")
    else:
        show.note(f"{out}: {len(rows):,} pairs scored")


def _as_csv(rows: list[dict[str, Any]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=["source", "target", "time", "score"], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
