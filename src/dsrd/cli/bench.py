"""`dsrd bench speed`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dsrd.cli import options, output
from dsrd.errors import DsrdError
from dsrd.reporter import Reporter

EXAMPLES = options.examples("dsrd bench speed --dataset synth:events=5000 --repeats 3")

app = typer.Typer(epilog=EXAMPLES, no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def _group() -> None:
    """Measure the speed of models."""


@app.command(epilog=EXAMPLES)
def speed(
    dataset: options.DatasetName,
    model: options.ModelName = None,
    protocol: options.Protocol = None,
    preset: options.Preset = "published",
    batches: Annotated[
        int, typer.Option("--batches", metavar="N", help="Time only N batches, spread over the stream; 0: all.")
    ] = 0,
    repeats: Annotated[
        int, typer.Option("--repeats", metavar="N", help="Number of timed epochs; the median is reported.")
    ] = 1,
    set_: options.Settings = None,
    json: options.Json = False,
    data_dir: options.DataDir = None,
    threads: options.Threads = 1,
) -> None:
    """Time a training epoch and the scoring of 1,000 pairs.

    Results include the memory used and the load of the machine. One thread is used unless --threads is given.
    """
    from dsrd.data.read import load_with
    from dsrd.estimator.link_predictor import LinkPredictor
    from dsrd.evaluate.task import Task
    from dsrd.experiments.speed import speed as measure_speed
    from dsrd.models import DEFAULT

    options.use_threads(threads)
    for option, value, least in (("--batches", batches, 0), ("--repeats", repeats, 1)):
        if value < least:
            raise DsrdError(f"{option} {value}: give {least} or more")
    settings = options.estimator_settings(options.key_values(set_), model or DEFAULT)
    estimator = LinkPredictor(model or DEFAULT, preset=preset, protocol=protocol, **settings)
    with Reporter() as progress:
        progress.step(f"reading {Path(dataset).name}")
        stream = load_with(dataset, data_dir=data_dir)
        run = estimator.run_for(stream)
        record = measure_speed(run, Task.of(stream), batches=batches, repeats=repeats)
    if json:
        output.as_json(record)
        return
    timing, machine = record["timing"], record["machine"]
    threads_used = f"{machine['threads']} thread{'s' if machine['threads'] > 1 else ''}"
    output.table(
        f"{run.model} on {record['dataset']}, {threads_used}, machine load {machine['load']}",
        ["seconds per epoch", "events per second", "seconds per 1,000 pairs", "peak MB"],
        [
            [
                timing["seconds_per_epoch"],
                timing["events_per_second"],
                f"{timing['seconds_per_1000_pairs']:.4f}",
                record["peak_rss_mb"],
            ]
        ],
    )
