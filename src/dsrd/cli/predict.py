"""`dsrd predict`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dsrd.cli import options, output
from dsrd.errors import DsrdError
from dsrd.files import write_text
from dsrd.reporter import Reporter

if TYPE_CHECKING:
    from dsrd.estimator.tables import Table

EXAMPLES = options.examples(
    "dsrd predict runs/first --pairs pairs.csv --out scores.csv",
    "dsrd predict runs/first --pairs many.parquet --ray local --out scores.parquet",
    "dsrd predict runs/first --node Ann --node Bob --top 5 --time 2024-05-19",
)
TOP = 10

Pairs = Annotated[
    Path | None,
    typer.Option("--pairs", metavar="FILE", help="CSV or Parquet file with one pair per row.", show_default=False),
]
Nodes = Annotated[
    list[str] | None,
    typer.Option(
        "--node",
        metavar="NAME",
        help="Rank the partners of this node instead (repeatable).",
        show_default=False,
    ),
]
Top = Annotated[
    int | None,
    typer.Option("--top", metavar="K", help="Number of partners of each node.", show_default=str(TOP)),
]
At = Annotated[
    str | None,
    typer.Option(
        "--time", metavar="T", help="A time in the data's unit, or a date.", show_default="after the last event"
    ),
]
StrictNames = Annotated[bool, typer.Option("--strict-names", help="Refuse names that the run does not know.")]
Out = Annotated[
    Path | None,
    typer.Option(
        "--out", "-o", metavar="FILE", help="CSV or Parquet file to write.", show_default="standard output"
    ),
]
Ray = Annotated[
    str | None,
    typer.Option(
        "--ray",
        metavar="ADDRESS",
        help="Score --pairs, a Parquet file, on this Ray cluster (HOST:PORT, auto), or local.",
        show_default=False,
    ),
]

Exact = Annotated[bool, typer.Option("--exact", help="With --node: score every target, however many there are.")]


def predict(
    folder: options.RunPath,
    pairs: Pairs = None,
    node: Nodes = None,
    top: Top = None,
    time: At = None,
    head: options.Head = None,
    exact: Exact = False,
    strict_names: StrictNames = False,
    out: Out = None,
    ray: Ray = None,
    dataset: options.SameData = None,
    json: options.Json = False,
    data_dir: options.DataDir = None,
    threads: options.Threads = 0,
) -> None:
    """Score pairs of nodes, or rank the likeliest partners.

    With --pairs, each row of the file is scored at its time, from all events before that time. Rows without a time
    are scored at --time, or just after the last event. Columns have the same names as in the training data. The
    output adds `probability` (that the pair is an event rather than one with a random target), `partner` (that the
    source, if it acts, chooses this target), `rate` (expected events of the pair per day if times are dates,
    otherwise per unit of time), `surprise` (bits of the pair if an event happens) and `known` (both nodes have
    occurred before). Only models that know when sources act give a `rate`.

    A file of any length is scored in bounded memory with --out, and on all processors with --ray; --out may then
    also be a folder.

    With --node, the best of all nodes that have been a target before are listed with the same columns. If there
    are thousands, a cheap first score picks those that the model then ranks; --exact ranks them all.
    """
    from dsrd.estimator.link_predictor import open_run

    options.use_threads(threads)
    _check(pairs, node, top, exact)
    if ray is not None and (pairs is None or out is None):
        raise DsrdError("--ray scores a file: give --pairs and --out too")
    if out is not None and (pairs is None or not out.is_dir()):
        options.require_output(out, folder)
    with Reporter() as report:
        model = open_run(folder, dataset, data_dir=data_dir)
        if pairs is not None and out is not None:
            how: dict[str, Any] = {"head": head, "strict_names": strict_names, "ray": ray, "progress": report}
            rows = model.predict_file(pairs, out, time, **how)
        elif pairs is not None:
            table = model.predict(pairs, time, head=head, strict_names=strict_names, progress=report)
        else:
            k = TOP if top is None else top
            asked: dict[str, Any] = {"head": head, "exact": exact, "strict_names": strict_names}
            table = model.partners(node, k, time, **asked, progress=report)
    if pairs is None or out is None:
        write_table(table, "predictions", out, json)
    elif json:
        output.as_json({"rows": rows, "out": str(out)})
    else:
        output.note(f"{out}: {rows:,} rows")


def _check(pairs: Path | None, node: list[str] | None, top: int | None, exact: bool) -> None:
    if (pairs is None) == (not node):
        raise DsrdError("give either --pairs or --node; see `dsrd predict --help`")
    if pairs is not None and top is not None:
        raise DsrdError("--top is only for --node; leave it out")
    if pairs is not None and exact:
        raise DsrdError("--exact is only for --node; leave it out")
    if top is not None and top < 1:
        raise DsrdError(f"--top {top}: give 1 or more")


def write_table(table: Table, key: str, out: Path | None, json: bool) -> None:
    """Write a table to a CSV file, or print it: as CSV, or as a JSON object with the rows under `key`."""
    if out is not None:
        write_text(out, table.to_csv())
    if json:
        summary: dict[str, Any] = {"rows": len(table)}
        output.as_json(summary | ({key: list(table)} if out is None else {"out": str(out)}))
    elif out is None:
        print(table.to_csv(), end="")
    else:
        output.note(f"{out}: {len(table):,} rows")
