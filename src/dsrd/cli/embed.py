"""`dsrd embed`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dsrd.cli import options, output
from dsrd.cli.predict import At
from dsrd.reporter import Reporter

EXAMPLES = options.examples(
    "dsrd embed runs/first --out nodes.parquet",
    "dsrd embed runs/first --out nodes.npy --time 2024-05-19",
)


def embed(
    folder: options.RunPath,
    out: Annotated[
        Path,
        typer.Option("--out", "-o", metavar="FILE", help="File to write: .parquet or .npy.", show_default=False),
    ],
    time: At = None,
    dataset: options.SameData = None,
    json: options.Json = False,
    data_dir: options.DataDir = None,
    threads: options.Threads = 0,
) -> None:
    """Write the embedding of every node at a time.

    Embeddings are computed from the events before that time. A .parquet file has the columns node (the name), e0,
    e1, ...; a .npy file has one row per node id, and row 0 is padding.
    """
    from dsrd.cli.vector_files import check_target, write
    from dsrd.estimator.link_predictor import open_run

    options.use_threads(threads)
    check_target(out)
    options.require_output(out, folder)
    with Reporter() as report:
        model = open_run(folder, dataset, data_dir=data_dir)
        vectors = model.embed(at=time, progress=report)
        report.step(f"writing {out.name}")
        write(out, vectors, model.nodes)
    if json:
        output.as_json({"nodes": len(vectors), "dim": vectors.shape[1], "out": str(out)})
    else:
        output.note(f"{out}: {len(vectors):,} nodes, {vectors.shape[1]} numbers each")
