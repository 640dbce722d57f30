"""`dsrd data list | describe | audit | convert | fetch | sample | synth`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dsrd.cli import options, output
from dsrd.config import DataConfig, overridden
from dsrd.errors import DsrdError
from dsrd.reporter import Reporter, download_bar

if TYPE_CHECKING:
    from dsrd.data.dataset import Dataset

app = typer.Typer(
    help="Inspect, check, convert and download data.",
    epilog=options.examples("dsrd data list", "dsrd data describe calls.csv --time when"),
    no_args_is_help=True,
    rich_markup_mode=None,
)

Name = Annotated[
    str, typer.Argument(metavar="NAME", help="A file, a benchmark (uci, tgb:wiki, ...), or synth:events=5000.")
]
Out = Annotated[Path, typer.Argument(metavar="OUT", help="A .csv or .parquet file, or a folder.")]


@app.command("list", epilog=options.examples("dsrd data list"))
def list_(json: options.Json = False, data_dir: options.DataDir = None) -> None:
    """List the benchmark data sets and which are on this machine."""
    from dsrd.data import catalog
    from dsrd.data.read import data_folders

    folders = data_folders(data_dir)
    rows: list[dict[str, Any]] = []
    for spec in catalog.SPECS.values():
        local = next((folder / spec.name for folder in folders if (folder / spec.name).is_dir()), None)
        rows.append({**asdict(spec), "here": None if local is None else str(local)})
    if json:
        output.as_json({"datasets": rows})
        return
    columns = ["name", "domain", "nodes", "events", "edge_dim", "timestamps", "clock"]
    titles = ["name", "domain", "nodes", "events", "features", "times", "clock", "here"]
    cells = [[*(row[column] for column in columns), row["here"] is not None] for row in rows]
    output.table("benchmark data sets", titles, cells)
    output.note(
        f"here: found in {' or '.join(map(str, folders))}",
        "download one with `dsrd data fetch NAME`, or use a synthetic stream (synth) or your own file",
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
    """Count what a stream contains; check a benchmark copy."""
    from dsrd.data import catalog
    from dsrd.data.describe import describe as summarize

    with Reporter() as progress:
        dataset = _read(name, data, data_dir, progress)
        progress.step("counting")
        summary = summarize(dataset)
    spec = catalog.get(dataset.name)
    differences = catalog.check(dataset, spec) if spec else []
    if json:
        output.as_json({**summary, "differences": differences})
        return
    output.figures(dataset.name, {key: value for key, value in summary.items() if key not in ("name", "notes")})
    output.note(*dataset.notes)
    if spec:
        output.note(*(differences or [f"same counts as the published {spec.title}"]))


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
            help="How negatives are drawn: py37 (as published), py38 or fast.",
            show_default="py37 for benchmarks, else fast",
        ),
    ] = None,
    *,
    data: DataConfig,
) -> None:
    """Show what limits the scores on a stream.

    For each kind of negatives: the share that had to be drawn at random, the share that are true events after all,
    and the ceiling: the score of an oracle that knows every true edge. Then the scores of two rules that learn
    nothing, and the share of events that their negatives give away. Then information leaks through time and row
    order, repetition, and new nodes.
    """
    from dsrd.evaluate.audit import audit as run_audit

    with Reporter() as progress:
        dataset = _read(name, data, data_dir, progress)
        try:
            chosen: Any = order or ("py37" if dataset.catalogued else "fast")
            report = run_audit(dataset.name, dataset.events, order=chosen)
        except DsrdError as error:
            raise DsrdError(f"{name}: {error}") from error
    if json:
        output.as_json(report)
    else:
        _print_audit(report)


def _print_audit(report: Mapping[str, Any]) -> None:
    rows = []
    for setting, kinds in report["negatives"].items():
        for kind, measured in kinds.items():
            figures = defaultdict(lambda: None, measured or {})
            shares = [figures[column] for column in ("filled_up", "true_at_that_time", "equal_to_positive")]
            percent = [None if share is None else f"{100 * share:.2f}" for share in shares]
            rows.append([setting, kind, *percent, figures["ceiling_ap"], figures["ceiling_auc"]])
    titles = ["setting", "negatives", "% random", "% true", "% positive", "ceiling AP", "ceiling AUC"]
    output.table(f"{report['dataset']}: negatives of the published test", titles, rows)
    _print_unlearned(report)
    others = ("seen_timestamp_share", "grouping", "repetition", "new_nodes", "split")
    output.figures(f"{report['dataset']}: time, order, repetition", {key: report[key] for key in others})
    output.note(
        "% random: drawn from all pairs, because too few fit",
        "% true: events of that time after all; % positive: the event itself",
        "ceiling: the score of an oracle that knows every true edge",
        "% given away: events of pairs that these negatives cannot be",
        "last active: ranks of the source's last event as a source and of the target's last event, summed",
        "strangers first: pairs that never met, then the others; each by last active",
    )


def _print_unlearned(report: Mapping[str, Any]) -> None:
    rows = []
    for kind, figures in report["unlearned"].items():
        rules = [
            f"{figures[f'{rule}_ap']:.2f} / {figures[f'{rule}_auc']:.2f}"
            for rule in ("last_active", "strangers_first")
        ]
        rows.append([kind, f"{100 * figures['given_away']:.2f}", *rules])
    title = f"{report['dataset']}: rules that learn nothing, transductive test, AP / AUC"
    output.table(title, ["negatives", "% given away", "last active", "strangers first"], rows)


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

    The suffix of OUT decides: .csv, .parquet, or no suffix for a folder in the benchmark layout.
    """
    from dsrd.data.convert import check_target, write

    check_target(out)
    with Reporter() as progress:
        dataset = _read(name, data, data_dir, progress)
        progress.step(f"writing {out.name}")
        notes = (*dataset.notes, *write(dataset, out))
    _print_written(out, len(dataset.events), notes, json)


@app.command(
    epilog=options.examples("dsrd data fetch uci", "dsrd data fetch https://example.org/calls.csv --to data")
)
def fetch(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A name from `dsrd data list`, or a URL.")],
    to: Annotated[
        Path | None,
        typer.Option("--to", metavar="DIR", help="Folder to download to.", show_default="the data folder"),
    ] = None,
    sha256: Annotated[
        str | None,
        typer.Option("--sha256", metavar="HEX", help="Checksum that the file must have.", show_default=False),
    ] = None,
    json: options.Json = False,
    data_dir: options.DataDir = None,
) -> None:
    """Download a benchmark data set, or any file.

    The same command again continues an interrupted download.
    """
    from dsrd.data import catalog
    from dsrd.data.fetch import fetch as download
    from dsrd.data.read import data_folders

    source = name if "://" in name else catalog.find(name)
    with download_bar(name) as progress:
        path = download(source, to or data_folders(data_dir)[0], sha256=sha256, progress=progress)
    if json:
        output.as_json({"path": str(path)})
    else:
        output.line(str(path))


@app.command(epilog=options.examples("dsrd data sample", "dsrd data sample try-out"))
def sample(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="Folder to write to.", show_default="the current folder")
    ] = Path(),
    json: options.Json = False,
) -> None:
    """Write a small call log for a first try.

    calls.csv holds the calls of eighty days, tomorrow.csv those of the next day, and ask.csv a few pairs to score.
    """
    from dsrd.data.sample import write_sample

    paths = [str(path) for path in write_sample(folder)]
    if json:
        output.as_json({"paths": paths})
    else:
        output.line("\n".join(paths))


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
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="A setting: events=20000, nodes=500, ... (repeatable).",
            show_default=False,
        ),
    ] = None,
    json: options.Json = False,
) -> None:
    """Draw a synthetic stream and write it to a file.

    It has pairs that meet regularly or in bursts, triadic closure, a daily rhythm and new nodes. The same seed
    gives the same stream.
    """
    from dsrd.data.convert import check_target, write
    from dsrd.synthetic.drawing import synth as draw
    from dsrd.synthetic.settings import SynthConfig

    law = overridden(SynthConfig(), options.key_values(set_))
    check_target(out)
    with Reporter() as progress:
        progress.step(f"drawing {law.events:,} events")
        dataset = draw(law)
        progress.step(f"writing {out.name}")
        notes = write(dataset, out)
    settings = " ".join(f"{field.name}={getattr(law, field.name)}" for field in fields(law))
    _print_written(out, len(dataset.events), (*notes, f"drawn with {settings}"), json)


def _read(name: str, config: DataConfig, data_dir: Path | None, progress: Reporter) -> Dataset:
    from dsrd.data.read import load_with

    progress.step(f"reading {Path(name).name}")
    return load_with(name, config, data_dir=data_dir)


def _print_written(out: Path, events: int, notes: tuple[str, ...], json: bool) -> None:
    if json:
        output.as_json({"path": str(out), "events": events, "notes": list(notes)})
    else:
        output.line(f"{out}: {events:,} events")
        output.note(*notes)
