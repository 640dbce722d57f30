"""`dsrd serve`: a run over HTTP."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from dsrd.cli import options
from dsrd.errors import DsrdError, MachineError

EXAMPLES = options.examples(
    "dsrd serve runs/first --port 8000 --data live",
    "dsrd serve --data live --late reorder --window 60",
    "dsrd serve --data live --read-only --port 8001",
    "dsrd serve runs/first --data live --host 0.0.0.0 --token-file token.txt",
)

Run = Annotated[
    Path | None,
    typer.Argument(
        metavar="[RUN]", help="Folder of a trained run; not needed once DIR has been started with one."
    ),
]
Data = Annotated[
    Path | None,
    typer.Option("--data", metavar="DIR", help="Folder of the log and the snapshots.", show_default="RUN-live"),
]
Port = Annotated[int, typer.Option("--port", "-p", metavar="P", min=0, max=65535, help="0: any free one.")]
Host = Annotated[str, typer.Option("--host", metavar="NAME", help="Where to listen; others need a token.")]
TokenFile = Annotated[
    Path | None,
    typer.Option(
        "--token-file", metavar="FILE", help="A file with the bearer token to ask for.", show_default="$DSRD_TOKEN"
    ),
]
ReadOnly = Annotated[
    bool, typer.Option("--read-only", help="Only answer, and follow the log another server writes.")
]
Late = Annotated[
    str, typer.Option("--late", metavar="WHAT", help="Events older than the newest: refuse, drop or reorder.")
]
Window = Annotated[
    float,
    typer.Option("--window", metavar="TIME", help="With reorder: how long an event waits for older ones."),
]
Ahead = Annotated[
    float,
    typer.Option("--ahead", metavar="SECONDS", help="Dates further ahead of this machine's clock are refused."),
]
SnapshotEvents = Annotated[
    int, typer.Option("--snapshot-events", metavar="N", help="A snapshot after N events at the latest; 0: never.")
]
SnapshotMinutes = Annotated[
    float, typer.Option("--snapshot-minutes", metavar="M", help="... and after M minutes with new events.")
]
KeepSnapshots = Annotated[int, typer.Option("--keep-snapshots", metavar="N", help="Older ones are removed.")]
KeepIds = Annotated[
    float, typer.Option("--keep-ids", metavar="DAYS", help="How long event ids are known; 0: forever.")
]
Measure = Annotated[
    float,
    typer.Option("--measure", metavar="SHARE", help="Share of its time for the surprise of observed events."),
]
MaxBody = Annotated[float, typer.Option("--max-body", metavar="MIB", help="Largest request.")]
MaxBatch = Annotated[int, typer.Option("--max-batch", metavar="N", help="Most events or pairs in a request.")]
MaxQueue = Annotated[int, typer.Option("--max-queue", metavar="N", help="Most requests at a time.")]
Threads = Annotated[int, typer.Option("--threads", metavar="N", min=1, help="Threads of the model.")]


def serve(
    run: Run = None,
    data: Data = None,
    port: Port = 8000,
    host: Host = "127.0.0.1",
    token_file: TokenFile = None,
    read_only: ReadOnly = False,
    late: Late = "refuse",
    window: Window = 0.0,
    ahead: Ahead = 86_400.0,
    snapshot_events: SnapshotEvents = 100_000,
    snapshot_minutes: SnapshotMinutes = 10.0,
    keep_snapshots: KeepSnapshots = 3,
    keep_ids: KeepIds = 30.0,
    measure: Measure = 0.25,
    max_body: MaxBody = 16.0,
    max_batch: MaxBatch = 10_000,
    max_queue: MaxQueue = 512,
    threads: Threads = 1,
) -> None:
    """Serve a run over HTTP: a durable log, answers, and a page.

    The server observes events, keeps them in a log, and answers from all of them. Events are on disk when they are
    acknowledged. After a kill the same command goes on where it was. SIGTERM or Ctrl-C finishes what is running
    and takes a snapshot.
    """
    import torch

    from dsrd.live.settings import LiveSettings

    try:
        from dsrd.live.server import guard, serving
    except ModuleNotFoundError as error:
        raise MachineError(f"`dsrd serve` needs {error.name}; install dsrd[serve]") from None
    settings = LiveSettings(
        late=late,  # type: ignore[arg-type]  # checked there
        window=window,
        ahead=ahead,
        snapshot_events=snapshot_events,
        snapshot_minutes=snapshot_minutes,
        keep_snapshots=keep_snapshots,
        keep_ids=keep_ids,
        watch=measure,
    )
    for name, value in (("--max-body", max_body), ("--max-batch", max_batch), ("--max-queue", max_queue)):
        if not value > 0:
            raise DsrdError(f"{name} is {value}; give a number above 0")
    torch.set_num_threads(threads)
    what = serving.Serving(
        data=_folder(run, data),
        run=None if read_only else run,
        host=host,
        port=port,
        token=serving.read_token(token_file),
        read_only=read_only,
        settings=settings,
        limits=guard.Limits(body=int(max_body * (1 << 20)), batch=max_batch, queue=max_queue),
    )
    serving.serve(what, lambda line: print(line, file=sys.stderr, flush=True))


def _folder(run: Path | None, data: Path | None) -> Path:
    if data is not None:
        return data
    if run is None:
        raise DsrdError("give the folder of a run, or with --data the folder of a server that was stopped")
    return run.with_name(f"{run.name}-live")
