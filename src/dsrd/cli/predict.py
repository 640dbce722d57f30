"""`dsrd predict`."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from dsrd.cli import options, show
from dsrd.files import require_writable, write_text

EXAMPLES = options.examples("dsrd predict runs/first --pairs pairs.csv --out scores.csv")
COLUMNS = ("source", "target", "time", "score")


def predict(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="Folder written by `dsrd train`.")],
    pairs: Annotated[
        Path, typer.Option("--pairs", metavar="FILE", help="CSV or Parquet: one pair a row.", show_default=False)
    ],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="FILE", help="CSV to write.", show_default="standard output"),
    ] = None,
    dataset: Annotated[
        str | None,
        typer.Option("--dataset", "-d", metavar="DATA", help="The stream.", show_default="as trained"),
    ] = None,
    json: options.Json = False,
    data_dir: options.DataDir = None,
    threads: options.Threads = 0,
) -> None:
    """Score pairs: how likely is each to meet at its time?

    Each pair is scored at its time, from everything the stream holds before that time. The columns of the file are
    called as in the stream (source, target, time unless told otherwise in training). Without a time column all
    pairs are scored at the moment after the last event.
    """
    from dsrd.bench import run as runner
    from dsrd.bench.predict import predict as predicted
    from dsrd.data.pairs import read_pairs
    from dsrd.train.fit import RunFolder, load_model

    options.use_threads(threads)
    stored = RunFolder(folder).config()
    run = replace(stored, dataset=dataset or stored.dataset)
    if out is not None:
        require_writable(out)
    with show.bar() as progress:
        opened, task = runner.prepare(run, data_dir, progress)
        query, written = read_pairs(pairs, stored.data, opened.dataset)
        model = load_model(RunFolder(folder), stored, task)
        early = int((query.time <= task.split.train.time[-1]).sum())
        if early and not model.stateless:
            show.note(f"{early:,} pairs lie in the time of training: the state has seen what came after them")
        scores = predicted(model, task, query, stored.evaluate.batch_size, progress)
    rows = [(*pair, round(score, 6)) for pair, score in zip(written, scores.tolist(), strict=True)]
    _give(rows, out, json)


def _give(rows: list[tuple[Any, ...]], out: Path | None, json: bool) -> None:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([COLUMNS, *rows])
    if out is not None:
        write_text(out, text.getvalue())
    if json and out is not None:
        show.as_json({"pairs": len(rows), "out": str(out)})
    elif json:
        predictions = [dict(zip(COLUMNS, row, strict=True)) for row in rows]
        show.as_json({"pairs": len(rows), "predictions": predictions})
    elif out is None:
        print(text.getvalue(), end="")
    else:
        show.note(f"{out}: {len(rows):,} pairs scored")
