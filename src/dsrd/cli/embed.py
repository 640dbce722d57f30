"""`dsrd embed`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from dsrd.cli import options, show
from dsrd.cli.predict import At, moment, warn_early
from dsrd.files import require_writable

EXAMPLES = options.examples(
    "dsrd embed runs/first --out nodes.parquet",
    "dsrd embed runs/first --out nodes.npy --time 2024-05-19",
)


def embed(
    folder: options.RunPath,
    out: Annotated[
        Path,
        typer.Option("--out", "-o", metavar="FILE", help="To write: .parquet or .npy.", show_default=False),
    ],
    time: At = None,
    dataset: options.SameData = None,
    json: options.Json = False,
    data_dir: options.DataDir = None,
    threads: options.Threads = 0,
) -> None:
    """Write one vector per node, as of a time.

    Each vector is made from what came before that time. A .parquet file has a column node, with the names of the
    stream, and e0, e1, ...; a .npy file has a row per node id, row 0 being nobody.
    """
    from dsrd.bench import embed as embedding
    from dsrd.bench import run as runner
    from dsrd.train.fit import RunFolder, load_model

    options.use_threads(threads)
    stored = RunFolder(folder).config()
    embedding.check_target(out)
    require_writable(out)
    at = moment(time)
    with show.bar() as progress:
        opened, task = runner.prepare(replace(stored, dataset=dataset or stored.dataset), data_dir, progress)
        model = load_model(RunFolder(folder), stored, task)
        if at is not None:
            warn_early(model, task, at)
        vectors = embedding.embed(model, task, at, stored.evaluate.batch_size, progress)
        progress(f"writing {out.name}", 0, 0)
        embedding.write(out, vectors, opened.dataset)
    nodes, width = len(vectors) - 1, vectors.shape[1]
    if json:
        show.as_json({"nodes": nodes, "dim": width, "out": str(out)})
    else:
        show.note(f"{out}: {nodes:,} nodes, {width} numbers each")
