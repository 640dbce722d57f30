"""`dsrd bench speed`."""

from __future__ import annotations

from typing import Annotated

import typer

from dsrd.bench import run as runner
from dsrd.bench.speed import speed as measured
from dsrd.cli import options, show
from dsrd.config import RunConfig

app = typer.Typer(help="Measure.", no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def _group() -> None:
    """Measure how fast models are."""


@app.command()
def speed(
    dataset: options.DatasetName,
    model: Annotated[str, typer.Option("--model", "-m", help="A name from `dsrd models`.")],
    protocol: Annotated[str, typer.Option("--protocol", help="dyglib or strict.")] = "dyglib",
    batches: Annotated[int, typer.Option("--batches", min=0, help="Time only so many batches; 0: all.")] = 0,
    repeats: Annotated[int, typer.Option("--repeats", min=1, help="Epochs timed; the median counts.")] = 1,
    set_: options.Settings = None,
    json: options.Json = False,
    data_dir: options.DataDir = None,
    threads: options.Threads = 1,
) -> None:
    """Time a training epoch and 1,000 evaluated pairs of a model, on one thread unless told otherwise."""
    options.use_threads(threads)
    run = RunConfig(dataset=dataset, model=model, protocol=protocol).with_overrides(options.settings(set_))
    _, task = runner.prepare(run, data_dir)
    with show.bar() as progress:
        found = measured(run, task, batches=batches, repeats=repeats, progress=progress)
    if json:
        show.as_json(found)
        return
    timing = found["timing"]
    show.table(
        f"{model} on {found['dataset']}, {found['machine']['threads']} thread(s), load {found['machine']['load']}",
        ["seconds per epoch", "events per second", "seconds per 1,000 pairs", "peak MB"],
        [
            [
                timing["seconds_per_epoch"],
                timing["events_per_second"],
                f"{timing['seconds_per_1000_pairs']:.4f}",
                found["peak_rss_mb"],
            ]
        ],
    )
