"""`dsrd stream`: events from a source through a run into a sink."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from dsrd.cli import options
from dsrd.errors import DsrdError

if TYPE_CHECKING:
    from dsrd.live.streams.stream import Totals

EXAMPLES = options.examples(
    "dsrd stream runs/first --data live --from calls.jsonl --to surprises.jsonl --follow",
    "tail -f calls.jsonl | dsrd stream runs/first --data live --from - --to - --alert 99.9",
    "dsrd stream runs/first --data live --from kafka://127.0.0.1:9092/calls --to none",
)

Run = Annotated[
    Path | None,
    typer.Argument(
        metavar="[RUN]", help="Folder of a trained run; not needed once DIR has been started with one."
    ),
]
Data = Annotated[
    Path,
    typer.Option("--data", metavar="DIR", help="Folder of the log and the snapshots.", show_default=False),
]
From = Annotated[
    str,
    typer.Option(
        "--from",
        metavar="SOURCE",
        help="-, FILE.csv, FILE.jsonl, kafka://HOST:PORT/TOPIC or redis://HOST:PORT/STREAM.",
        show_default=False,
    ),
]
To = Annotated[
    str,
    typer.Option("--to", metavar="SINK", help="none, -, FILE.jsonl, kafka://... or redis://...; the same forms."),
]
Follow = Annotated[
    bool | None,
    typer.Option(
        "--follow/--once",
        help="Wait for more at the end of the source, or stop there.",
        show_default="once for files, else follow",
    ),
]
Alert = Annotated[
    float | None,
    typer.Option(
        "--alert",
        metavar="PERCENTILE",
        help="Write only events more surprising than that percentile of recent ones, such as 99.9.",
        show_default=False,
    ),
]
SkipBad = Annotated[bool, typer.Option("--skip-bad", help="Leave out lines that are no events, and count them.")]
Late = Annotated[
    str, typer.Option("--late", metavar="WHAT", help="Events older than the newest: refuse, drop or reorder.")
]
Window = Annotated[
    float,
    typer.Option(
        "--window", metavar="TIME", help="With reorder: how long an event waits for older ones, in units of time."
    ),
]
Ahead = Annotated[
    float,
    typer.Option("--ahead", metavar="SECONDS", help="Dates further ahead of this machine's clock are refused."),
]
IdField = Annotated[
    str | None,
    typer.Option(
        "--id",
        metavar="FIELD",
        help="Field with the id of an event; events with an id seen before are not counted again.",
        show_default=False,
    ),
]
Batch = Annotated[int, typer.Option("--batch", metavar="N", help="Events observed at a time, at most.")]
Kafka = Annotated[
    list[str] | None,
    typer.Option(
        "--kafka",
        metavar="KEY=VALUE",
        help="A setting of librdkafka, such as security.protocol=ssl (repeatable).",
        show_default=False,
    ),
]


def stream(
    data: Data,
    source: From,
    run: Run = None,
    sink: To = "none",
    follow: Follow = None,
    alert: Alert = None,
    skip_bad: SkipBad = False,
    late: Late = "refuse",
    window: Window = 0.0,
    ahead: Ahead = 86_400.0,
    id_field: IdField = None,
    batch: Batch = 10_000,
    kafka: Kafka = None,
    json: options.Json = False,
    threads: options.Threads = 0,
) -> None:
    """Observe events as they pass, and measure their surprise.

    Every event is logged in DIR together with the position of the source: after a kill, the same command goes on
    where it was, and no event is missing or counted twice. An output line is the event as it came, with `seq` (its
    number), `surprise`, `source_bits` and `partner_bits` in bits, `partner` (the probability that this source
    chooses this target) and `rate` (expected events of this pair per day, or per unit of a numeric time). A file
    and a Redis stream get each line once; elsewhere a kill may repeat the last lines, with the same `seq`. Ctrl-C
    and SIGTERM finish the batch, take a snapshot and stop.
    """
    _check(alert, batch)
    options.use_threads(threads)
    from dsrd.live.engine import Engine
    from dsrd.live.settings import LiveSettings
    from dsrd.live.streams.address import Address
    from dsrd.live.streams.bookmarks import Bookmarks
    from dsrd.live.streams.decoding import Decoder
    from dsrd.live.streams.lines import LineWriter
    from dsrd.live.streams.open_ends import name_of, open_sink, open_source
    from dsrd.live.streams.recent import Recent
    from dsrd.live.streams.stream import Stream

    origin, goal = Address.of(source), Address.of(sink)
    settings = LiveSettings(late=late, window=window, ahead=ahead)  # type: ignore[arg-type]
    bookmarks, kafka_settings = Bookmarks(data / "streams"), options.key_values(kafka)
    with ExitStack() as closing:
        opened = open_source(origin, bookmarks, follow=follow, batch=batch, kafka=kafka_settings)
        closing.callback(opened.close)
        written = open_sink(goal, kafka=kafka_settings)
        closing.callback(written.close)
        stop = closing.enter_context(_stopped_by_signals())
        engine = closing.enter_context(Engine(data, run, settings))
        fitted = engine.live.fitted
        decoder = Decoder(engine.reader, fitted.online.stream.dataset(), id_field=id_field, skip_bad=skip_bad)
        lines = LineWriter(decoder, alert, Recent(fitted.recent_surprises("").tolist()))
        passing = Stream(engine, opened, written, decoder, lines, bookmarks)
        aside = sys.stderr if goal.kind == "standard" else sys.stdout
        try:
            passing.run(stop, name_of(goal))
        finally:
            _report(passing.totals, engine.state().seq, json, aside)


def _check(alert: float | None, batch: int) -> None:
    if alert is not None and not 0 <= alert < 100:
        raise DsrdError(f"--alert {alert}: give a percentile, 0 or more and below 100, such as 99.9")
    if batch < 1:
        raise DsrdError(f"--batch {batch}: give 1 or more")


@contextmanager
def _stopped_by_signals() -> Iterator[threading.Event]:
    """Set by Ctrl-C and SIGTERM; a second Ctrl-C interrupts."""
    stop = threading.Event()

    def on_signal(number: int, frame: Any) -> None:
        if stop.is_set() and number == signal.SIGINT:
            raise KeyboardInterrupt
        stop.set()

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _report(totals: Totals, seq: int, json: bool, to: TextIO) -> None:
    """What passed."""
    if json:
        from dsrd.files import json_text

        print(json_text({"seq": seq, **vars(totals)}), file=to)
        return
    counts = {
        "were known already": totals.duplicates,
        "late, left out": totals.late,
        "bad lines left out": totals.skipped,
        "written": totals.written,
        "of them from before this start": totals.again,
    }
    parts = [f"{totals.events:,} events", *(f"{count:,} {what}" for what, count in counts.items() if count)]
    print("; ".join(parts), file=to)
