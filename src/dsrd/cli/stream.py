"""`dsrd surprise` and `dsrd update`: events that follow those a run knows."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dsrd.cli import options, show
from dsrd.cli.predict import give
from dsrd.errors import unknown
from dsrd.files import require_writable
from dsrd.reporter import Reporter

SURPRISE_EXAMPLES = options.examples("dsrd surprise runs/first tomorrow.csv --out surprise.csv")
UPDATE_EXAMPLES = options.examples(
    "dsrd update runs/first tomorrow.csv", "dsrd update runs/first calls-so-far.csv --late drop"
)

Events = Annotated[Path, typer.Argument(metavar="FILE", help="CSV or Parquet, columns as in the stream.")]
LATE = ("refuse", "drop", "now")


def surprise(
    folder: options.RunPath,
    events: Events,
    head: options.Head = None,
    out: options.OutFile = None,
    dataset: options.SameData = None,
    json: options.Json = False,
    data_dir: options.DataDir = None,
    threads: options.Threads = 0,
) -> None:
    """Say how unexpected each of the events to come is.

    The rows come back with `surprise` in bits (10 bits: one chance in 1,024 that the source would turn to this
    target), `percentile` among recent events, and `known` (both names have been seen). The run stays as it is.
    """
    from dsrd.estimator.link_predictor import open_run

    options.use_threads(threads)
    if out is not None:
        require_writable(out)
    with Reporter() as report:
        found = open_run(folder, dataset, data_dir=data_dir).surprise(events, head=head, progress=report)
    give(found, "events", out, json)


def update(
    folder: options.RunPath,
    events: Events,
    late: Annotated[
        str,
        typer.Option("--late", metavar="WHAT", help="Of events too old: refuse, drop, now."),
    ] = "refuse",
    json: options.Json = False,
    threads: options.Threads = 0,
) -> None:
    """Take in events that follow those a run knows.

    A file that begins with all that is known and goes on is accepted. The weights stay; `predict`, `surprise` and
    `embed` then answer from the state after the new events. Events older than the newest one known are refused,
    left out (--late drop) or taken as happening now (--late now).
    """
    from dsrd.estimator.link_predictor import open_run

    options.use_threads(threads)
    if late not in LATE:
        raise unknown("value of --late", late, LATE)
    with Reporter() as report:
        model = open_run(folder)
        stream = model.fitted.online.stream
        events_before, nodes_before = stream.num_events, stream.num_nodes
        model.observe(events, late=late, progress=report)  # type: ignore[arg-type]
        report.step("writing")
        model.save()
    new, new_nodes = stream.num_events - events_before, stream.num_nodes - nodes_before
    if json:
        totals = {"events": stream.num_events, "nodes": stream.num_nodes - 1}
        show.as_json({"run": str(folder), "new_events": new, "new_nodes": new_nodes, **totals})
        return
    until = stream.dataset().written_time(stream.last_time)
    show.line(f"{folder}: {new:,} new events, {new_nodes:,} new nodes; {stream.num_events:,} events up to {until}")
