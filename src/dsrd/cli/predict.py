"""`dsrd predict`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dsrd.cli import options, output
from dsrd.errors import DsrdError
from dsrd.files import require_writable, write_text
from dsrd.reporter import Reporter

if TYPE_CHECKING:
    from dsrd.estimator.tables import Table

EXAMPLES = options.examples(
    "dsrd predict runs/first --pairs pairs.csv --out scores.csv",
    "dsrd predict runs/first --node Ann --node Bob --top 5 --time 2024-05-19",
)
TOP = 10

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
        list[str] | None,
        typer.Option(
            "--node", metavar="NAME", help="Instead: whom will it meet? (repeatable)", show_default=False
        ),
    ] = None,
    top: Annotated[
        int | None, typer.Option("--top", metavar="K", help="Partners of each node.", show_default=str(TOP))
    ] = None,
    time: At = None,
    head: options.Head = None,
    strict_names: Annotated[bool, typer.Option("--strict-names", help="Refuse names never seen.")] = False,
    out: options.OutFile = None,
    dataset: options.SameData = None,
    json: options.Json = False,
    data_dir: options.DataDir = None,
    threads: options.Threads = 0,
) -> None:
    """Score pairs, or find nodes' likeliest partners.

    Each pair is scored at its time, from everything the run knows before that time; without a time column and
    without --time, at the moment after the last event. The columns of the file are called as in the stream; they
    come back with `probability` (that the source turns to this target rather than to a random one) and `known`
    (both names have been seen before). With --node, all who were a target by then are scored and the likeliest
    are given.
    """
    from dsrd.estimator.link_predictor import open_run

    options.use_threads(threads)
    _check(pairs, node, top)
    if out is not None:
        require_writable(out)
    with Reporter() as report:
        model = open_run(folder, dataset, data_dir=data_dir)
        if pairs is not None:
            found = model.predict(pairs, time, head=head, strict_names=strict_names, progress=report)
        else:
            k = TOP if top is None else top
            found = model.partners(node, k, time, head=head, strict_names=strict_names, progress=report)
    give(found, "predictions", out, json)


def _check(pairs: Path | None, node: list[str] | None, top: int | None) -> None:
    if (pairs is None) == (not node):
        raise DsrdError("predict needs either --pairs or --node, and not both; see `dsrd predict --help`")
    if pairs is not None and top is not None:
        raise DsrdError("--top goes with --node; leave it out")
    if top is not None and top < 1:
        raise DsrdError(f"--top {top}: give 1 or more")


def give(found: Table, what: str, out: Path | None, json: bool) -> None:
    """Write a table as CSV, or print it; with --json as one object."""
    if out is not None:
        write_text(out, found.to_csv())
    if json:
        answer: dict[str, Any] = {"rows": len(found)}
        output.as_json(answer | ({what: list(found)} if out is None else {"out": str(out)}))
    elif out is None:
        print(found.to_csv(), end="")
    else:
        output.note(f"{out}: {len(found):,} rows")
