"""`dsrd surprise` and `dsrd update`: events that are new to a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dsrd.cli import options, output
from dsrd.cli.predict import write_table
from dsrd.errors import unknown
from dsrd.reporter import Reporter

SURPRISE_EXAMPLES = options.examples("dsrd surprise runs/first tomorrow.csv --out surprise.csv")
UPDATE_EXAMPLES = options.examples(
    "dsrd update runs/first tomorrow.csv", "dsrd update runs/first calls-so-far.csv --late drop"
)

Events = Annotated[
    Path, typer.Argument(metavar="FILE", help="CSV or Parquet file with the columns of the training data.")
]
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
    """Measure how unexpected new events are.

    The output adds `surprise` in bits (10 bits: a chance of 1 in 1,024 that an event is this pair), its two parts
    `source_bits` (this source acts) and `partner_bits` (it chooses this target), `percentile` among recent events,
    and `known` (both nodes have occurred before). A model that does not know when sources act gives the second
    part as `surprise`. The run does not change.
    """
    from dsrd.estimator.link_predictor import open_run

    options.use_threads(threads)
    if out is not None:
        options.require_output(out, folder)
    with Reporter() as report:
        table = open_run(folder, dataset, data_dir=data_dir).surprise(events, head=head, progress=report)
    write_table(table, "events", out, json)


def update(
    folder: options.RunPath,
    events: Events,
    late: Annotated[
        str,
        typer.Option(
            "--late", metavar="WHAT", help="Events older than the newest known one: refuse, drop or now."
        ),
    ] = "refuse",
    json: options.Json = False,
    threads: options.Threads = 0,
) -> None:
    """Add new events to a run.

    The model observes the events and its weights stay as they are; `predict`, `surprise` and `embed` then use the
    new state. The file may begin with all events that the run knows: these rows are skipped. Events older than the
    newest known one are refused, dropped (--late drop) or moved to its time (--late now).
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
        output.as_json({"run": str(folder), "new_events": new, "new_nodes": new_nodes, **totals})
        return
    until = stream.dataset().written_time(stream.last_time)
    output.line(
        f"{folder}: {new:,} new events, {new_nodes:,} new nodes; {stream.num_events:,} events up to {until}"
    )
