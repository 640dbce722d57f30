"""`dsrd calibration`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from dsrd.cli import options, output
from dsrd.cli.runs import OtherProtocol
from dsrd.errors import DsrdError
from dsrd.files import write_json
from dsrd.reporter import Reporter

EXAMPLES = options.examples(
    "dsrd calibration runs/first", "dsrd calibration runs/first --sample 1000 --out calibration.json"
)
LOSSES = {
    "log_loss": "log loss",
    "log_loss_self_normalised": "self-normalised",
    "log_loss_uniform": "uniform",
    "log_loss_true_law": "true law",
    "excess": "excess",
    "log_normaliser": "log normaliser",
    "misplaced": "misplaced",
}


def calibration(
    folder: options.RunPath,
    sample: Annotated[
        int, typer.Option("--sample", metavar="N", help="Number of test events to ask about.")
    ] = 200,
    protocol: OtherProtocol = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="FILE", help="JSON file to write the record to.", show_default=False),
    ] = None,
    dataset: options.SameData = None,
    json: options.Json = False,
    data_dir: options.DataDir = None,
    threads: options.Threads = 0,
) -> None:
    """Compare the probabilities of a run with what happened.

    Every target of training is scored for each of N test events, evenly spaced, and every source as well if the
    model knows how active sources are. Prints the log loss in nats per event, and expected against observed
    frequency in ten bins.
    """
    from dsrd.estimator.link_predictor import open_run

    options.use_threads(threads)
    if sample < 1:
        raise DsrdError(f"--sample {sample}: give 1 or more")
    if out is not None:
        options.require_output(out, folder)
    with Reporter():
        fitted = open_run(folder, dataset, data_dir=data_dir).fitted
        record = fitted.calibration(replace(fitted.run, protocol=protocol or fitted.run.protocol), sample)
    if out is not None:
        write_json(out, record)
    if json:
        output.as_json(record)
    else:
        _print(record)


def _print(record: dict[str, Any]) -> None:
    measured = record["calibration"]
    title = f"{record['model']} on {record['dataset']}, {record['protocol']}"
    if "skipped" in measured:
        output.line(f"{title}: skipped, {measured['skipped']}")
        return
    factors = {name: measured[name] for name in ("partner", "activity") if name in measured}
    rows = [[name, factor.get("events"), factor.get("candidates")] for name, factor in factors.items()]
    for row, factor in zip(rows, factors.values(), strict=True):
        row += [f"{factor[key]:.3f}" if key in factor else None for key in LOSSES]
    output.table(f"{title}: nats per event", ["factor", "events", "candidates", *LOSSES.values()], rows)
    for name, factor in factors.items():
        bins = [
            [number, f"{each['expected']:.3g}", f"{each['observed']:.3g}", each["count"]]
            for number, each in enumerate(factor.get("curve", []), start=1)
        ]
        output.table(f"{name}: frequency", ["bin", "expected", "observed", "count"], bins)
