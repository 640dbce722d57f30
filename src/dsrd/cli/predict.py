"""`dsrd predict`."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dsrd.cli import options, show
from dsrd.errors import DsrdError
from dsrd.files import require_writable, write_text

if TYPE_CHECKING:
    from dsrd.config import RunConfig
    from dsrd.data.dataset import Dataset
    from dsrd.evaluate.evaluator import Task
    from dsrd.models import TemporalModel
    from dsrd.train.fit import RunFolder

EXAMPLES = options.examples(
    "dsrd predict runs/first --pairs pairs.csv --out scores.csv",
    "dsrd predict runs/first --node Ann --top 5 --time 2024-05-19",
)
COLUMNS = ("source", "target", "time", "score")
TOP = 10
SEEN = "the weights have learned from what came after"

Row = tuple[str, str, str, float]
At = Annotated[
    str | None,
    typer.Option("--time", metavar="T", help="A number or a date.", show_default="after the last event"),
]


def predict(
    folder: options.RunPath,
    pairs: Annotated[
        Path | None,
        typer.Option("--pairs", metavar="FILE", help="CSV or Parquet: one pair a row.", show_default=False),
    ] = None,
    node: Annotated[
        str | None,
        typer.Option("--node", metavar="NAME", help="Instead: whom will this node meet?", show_default=False),
    ] = None,
    top: Annotated[
        int | None, typer.Option("--top", metavar="K", help="Partners of the node.", show_default=str(TOP))
    ] = None,
    time: At = None,
    head: Annotated[
        str, typer.Option("--head", metavar="NAME", help="The question.", show_default="the model's first")
    ] = "",
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="FILE", help="CSV to write.", show_default="standard output"),
    ] = None,
    dataset: options.SameData = None,
    json: options.Json = False,
    data_dir: options.DataDir = None,
    threads: options.Threads = 0,
) -> None:
    """Score pairs, or find a node's likeliest partners.

    Each pair is scored at its time, from everything the stream holds before that time. The columns of the file are
    called as in the stream (source, target, time unless told otherwise in training). Without a time column all
    pairs are scored at the moment after the last event. With --node, all who were a target by then are
    scored and the likeliest are given, likeliest first.
    """
    from dsrd.bench import run as runner
    from dsrd.train.fit import RunFolder

    options.use_threads(threads)
    _check(pairs, node, top, time)
    at, trained = moment(time), RunFolder(folder)
    stored = trained.config()
    if out is not None:
        require_writable(out)
    with show.bar() as progress:
        _, task = runner.prepare(replace(stored, dataset=dataset or stored.dataset), data_dir, progress)
        run = _Trained(trained, stored, task, head, progress)
        if pairs is not None:
            rows = _scored(run, pairs)
        else:
            rows = _partners(run, str(node), time, at, TOP if top is None else top)
    _give(rows, out, json)


def _check(pairs: Path | None, node: str | None, top: int | None, time: str | None) -> None:
    if (pairs is None) == (node is None):
        raise DsrdError("predict needs either --pairs or --node, and not both; see `dsrd predict --help`")
    if pairs is not None and (top, time) != (None, None):
        raise DsrdError(
            "--top and --time go with --node; pairs have a time column, or the time after the last event"
        )
    if top is not None and top < 1:
        raise DsrdError(f"--top {top}: give 1 or more")


def moment(text: str | None) -> float | None:
    """A time as one types it, read as the times of a stream are."""
    import pyarrow as pa

    from dsrd.data import parse, values

    if text is None:
        return None
    try:
        return float(values.times(pa.chunked_array([[text]]), "time", parse.Origin("--time"))[0])
    except DsrdError:
        raise DsrdError(f"--time {text}: give a number, 0 or later, or a date ({values.ISO})") from None


def node_id(name: str, dataset: Dataset) -> int:
    """The node that acts under this name."""
    if dataset.names is not None:
        return dataset.names.id(name)
    last = dataset.num_nodes - 1
    if not name.isdecimal() or not 1 <= int(name) <= last:
        raise DsrdError(f"unknown node '{name}'; the nodes of this stream are numbered from 1 to {last}")
    if dataset.bipartite and not bool((dataset.events.src == int(name)).any()):
        raise DsrdError(f"node '{name}' is only ever a target; ask about a source of this bipartite stream")
    return int(name)


def warn_early(model: TemporalModel, task: Task, time: float) -> None:
    """For a question about such a time the state starts over, but weights cannot forget."""
    if time <= float(task.split.train.time[-1]) and model.num_parameters:
        show.note(f"time {time:g} lies in the time of training: {SEEN}")


@dataclass(frozen=True)
class _Trained:
    """A run to ask; its model is loaded once the question has been understood."""

    folder: RunFolder
    stored: RunConfig
    task: Task
    head: str
    progress: show.Report

    def model(self) -> TemporalModel:
        from dsrd.train.fit import load_model

        model = load_model(self.folder, self.stored, self.task)
        model.ask(self.head)
        return model


def _scored(run: _Trained, pairs: Path) -> list[Row]:
    from dsrd.bench.predict import predict as predicted
    from dsrd.data.pairs import read_pairs

    query, written = read_pairs(pairs, run.stored.data, run.task.dataset)
    model = run.model()
    early = int((query.time <= run.task.split.train.time[-1]).sum())
    if early and model.num_parameters:
        show.note(f"{early:,} pairs lie in the time of training: {SEEN}")
    scores = predicted(model, run.task, query, run.stored.evaluate.batch_size, run.progress)
    return [(*pair, round(score, 6)) for pair, score in zip(written, scores.tolist(), strict=True)]


def _partners(run: _Trained, name: str, written: str | None, at: float | None, top: int) -> list[Row]:
    from dsrd.bench.predict import after_last, top_partners

    data = run.task.dataset
    node = node_id(name, data)
    time = after_last(run.task) if at is None else at
    model = run.model()
    warn_early(model, run.task, time)
    size = run.stored.evaluate.batch_size
    ids, scores = top_partners(model, run.task, node, time, top, size, run.progress)
    called = [str(each) if data.names is None else data.names[each] for each in ids.tolist()]
    pairs = zip(called, scores.tolist(), strict=True)
    return [(name, target, written or repr(time), round(score, 6)) for target, score in pairs]


def _give(rows: list[Row], out: Path | None, json: bool) -> None:
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
