"""`dsrd data list | describe | audit | convert | fetch | sample | synth`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dsrd.cli import options, show
from dsrd.config import DataConfig, overridden
from dsrd.errors import DsrdError
from dsrd.reporter import Reporter, download_bar

if TYPE_CHECKING:
    from dsrd.data.dataset import Dataset

app = typer.Typer(
    help="Look at streams, check, convert and get them.",
    epilog=options.examples("dsrd data list", "dsrd data describe calls.csv --time when"),
    no_args_is_help=True,
    rich_markup_mode=None,
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="A data set's name, a path, or synth:events=5000.")]
Out = Annotated[Path, typer.Argument(metavar="OUT", help="A .csv or .parquet file, or a folder.")]


@app.command("list", epilog=options.examples("dsrd data list"))
def list_(json: options.Json = False, data_dir: options.DataDir = None) -> None:
    """List the benchmark data sets and which of them are here."""
    from dsrd.data import catalog
    from dsrd.data.read import data_folders

    folders = data_folders(data_dir)
    rows: list[dict[str, Any]] = []
    for spec in catalog.SPECS.values():
        here = next((folder / spec.name for folder in folders if (folder / spec.name).is_dir()), None)
        rows.append({**asdict(spec), "here": None if here is None else str(here)})
    if json:
        show.as_json({"datasets": rows})
        return
    columns = ["name", "domain", "nodes", "events", "edge_dim", "timestamps", "clock"]
    titles = ["name", "domain", "nodes", "events", "features", "times", "clock", "here"]
    cells = [[*(row[column] for column in columns), row["here"] is not None] for row in rows]
    show.table("benchmark data sets", titles, cells)
    show.note(
        f"here: in {' or '.join(map(str, folders))}",
        "get one with `dsrd data fetch NAME`, or use synth (drawn on the spot) or a file of your own",
    )


@app.command(
    epilog=options.examples(
        "dsrd data describe uci", "dsrd data describe calls.csv --source caller --target callee --time when"
    )
)
@options.reads_data
def describe(
    name: Name,
    json: options.Json = False,
    data_dir: options.DataDir = None,
    *,
    data: DataConfig,
) -> None:
    """Count what a stream holds; check a benchmark's copy."""
    from dsrd.data import catalog
    from dsrd.data.describe import describe as described

    with Reporter() as progress:
        dataset = _read(name, data, data_dir, progress)
        progress.step("counting")
        found = described(dataset)
    spec = catalog.get(dataset.name)
    differences = catalog.check(dataset, spec) if spec else []
    if json:
        show.as_json({**found, "differences": differences})
        return
    show.figures(dataset.name, {key: value for key, value in found.items() if key not in ("name", "notes")})
    show.note(*dataset.notes)
    if spec:
        show.note(*(differences or [f"agrees with the published {spec.title}"]))


@app.command(epilog=options.examples("dsrd data audit uci", "dsrd data audit calls.csv --order fast --json"))
@options.reads_data
def audit(
    name: Name,
    json: options.Json = False,
    data_dir: options.DataDir = None,
    order: Annotated[
        str | None,
        typer.Option(
            "--order",
            metavar="NAME",
            help="Draw as py37, py38 or fast.",
            show_default="by data",
        ),
    ] = None,
    *,
    data: DataConfig,
) -> None:
    """Say what a score on a stream can mean.

    For each kind of negatives: the share that is random for want of others, the share that is true after all,
    and the ceiling, the score of an oracle that knows every true edge. Then leaks through time and the order of
    rows, repetition, and new nodes.
    """
    from dsrd.evaluate.audit import audit as audited

    with Reporter() as progress:
        dataset = _read(name, data, data_dir, progress)
        try:
            chosen: Any = order or ("py37" if dataset.catalogued else "fast")
            found = audited(dataset.name, dataset.events, order=chosen)
        except DsrdError as error:
            raise DsrdError(f"{name}: {error}") from error
    if json:
        show.as_json(found)
    else:
        _show_audit(found)


def _show_audit(found: Mapping[str, Any]) -> None:
    rows = []
    for setting, kinds in found["negatives"].items():
        for kind, given in kinds.items():
            figures = defaultdict(lambda: None, given or {})
            shares = [figures[column] for column in ("filled_up", "true_at_that_time", "equal_to_positive")]
            percent = [None if share is None else f"{100 * share:.2f}" for share in shares]
            rows.append([setting, kind, *percent, figures["ceiling_ap"], figures["ceiling_auc"]])
    titles = ["setting", "negatives", "% random", "% true", "% positive", "ceiling AP", "ceiling AUC"]
    show.table(f"{found['dataset']}: negatives of the published test", titles, rows)
    others = ("seen_timestamp_share", "grouping", "repetition", "new_nodes", "split")
    show.figures(f"{found['dataset']}: time, order, repetition", {key: found[key] for key in others})
    show.note("random: any pair, for want of earlier ones; true: at that time; positive: the event itself")
    show.note("ceiling: the score of an oracle that knows every true edge")


@app.command(
    epilog=options.examples("dsrd data convert uci uci.parquet", "dsrd data convert calls.csv calls --time when")
)
@options.reads_data
def convert(
    name: Name,
    out: Out,
    json: options.Json = False,
    data_dir: options.DataDir = None,
    *,
    data: DataConfig,
) -> None:
    """Write a stream in another format.

    The end of OUT decides: .csv, .parquet, or none of them for a folder in the layout of the benchmarks.
    """
    from dsrd.data.convert import check_target, write

    check_target(out)
    with Reporter() as progress:
        dataset = _read(name, data, data_dir, progress)
        progress.step(f"writing {out.name}")
        notes = (*dataset.notes, *write(dataset, out))
    _written(out, len(dataset.events), notes, json)


@app.command(
    epilog=options.examples("dsrd data fetch uci", "dsrd data fetch https://example.org/calls.csv --to data")
)
def fetch(
    name: Annotated[str, typer.Argument(metavar="NAME", help="From `dsrd data list`, or the address of a file.")],
    to: Annotated[
        Path | None,
        typer.Option("--to", metavar="DIR", help="Folder to put it in.", show_default="first data folder"),
    ] = None,
    sha256: Annotated[
        str | None, typer.Option("--sha256", metavar="HEX", help="Checksum to insist on.", show_default=False)
    ] = None,
    json: options.Json = False,
    data_dir: options.DataDir = None,
) -> None:
    """Download a benchmark data set, or any file.

    An interrupted download goes on where it stopped when the same command is given again.
    """
    from dsrd.data import catalog
    from dsrd.data.fetch import fetch as fetched
    from dsrd.data.read import data_folders

    what = name if "://" in name else catalog.find(name)
    with download_bar(name) as progress:
        place = fetched(what, to or data_folders(data_dir)[0], sha256=sha256, progress=progress)
    if json:
        show.as_json({"path": str(place)})
    else:
        show.line(str(place))


@app.command(epilog=options.examples("dsrd data sample", "dsrd data sample try-out"))
def sample(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="Where to write.", show_default="the current folder")
    ] = Path(),
    json: options.Json = False,
) -> None:
    """Write a small call log to try things on.

    calls.csv has the calls of eighty days, tomorrow.csv those of the day after, ask.csv a few questions.
    """
    from dsrd.data.sample import write_sample

    written = [str(path) for path in write_sample(folder)]
    if json:
        show.as_json({"paths": written})
    else:
        show.line("\n".join(written))


@app.command(
    epilog=options.examples(
        "dsrd data synth stream.csv --set events=100000 --set seed=1",
        "dsrd data synth shop --set bipartite=true --set snapshots=50 --set edge_dim=4",
    )
)
def synth(
    out: Out,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="events=20000, nodes=500, ...", show_default=False),
    ] = None,
    json: options.Json = False,
) -> None:
    """Draw a synthetic stream and write it.

    Gradual and bursty pairs, triadic closure, a daily rhythm, newcomers; the same seed draws the same stream.
    """
    from dsrd.data.convert import check_target, write
    from dsrd.synthetic.drawing import SynthConfig
    from dsrd.synthetic.drawing import synth as drawn

    law = overridden(SynthConfig(), options.settings(set_))
    check_target(out)
    with Reporter() as progress:
        progress.step(f"drawing {law.events:,} events")
        dataset = drawn(law)
        progress.step(f"writing {out.name}")
        notes = write(dataset, out)
    settings = " ".join(f"{field.name}={getattr(law, field.name)}" for field in fields(law))
    _written(out, len(dataset.events), (*notes, f"drawn with {settings}"), json)


def _read(name: str, config: DataConfig, data_dir: Path | None, progress: Reporter) -> Dataset:
    from dsrd.data.read import load_with

    progress.step(f"reading {Path(name).name}")
    return load_with(name, config, data_dir=data_dir)


def _written(out: Path, events: int, notes: tuple[str, ...], json: bool) -> None:
    if json:
        show.as_json({"path": str(out), "events": events, "notes": list(notes)})
    else:
        show.line(f"{out}: {events:,} events")
        show.note(*notes)
