"""`Stream`: events from a source through an engine into a sink.

A batch is logged together with the position of its source, in one transaction, and then written to the sink. After
a kill the source is read on from that position, so that no event is missing or counted twice; events that are in
the log and not in the sink are measured again, in the state before them, and written first.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from dsrd.errors import DsrdError
from dsrd.live.engine import Engine
from dsrd.live.incoming import EventError
from dsrd.live.intake import LateEventError
from dsrd.live.present import Present
from dsrd.live.streams.bookmarks import Bookmarks
from dsrd.live.streams.decoding import Decoded, Decoder
from dsrd.live.streams.lines import LineWriter
from dsrd.live.streams.missed import missed
from dsrd.live.streams.raw import Source
from dsrd.live.streams.sinks import Sink
from dsrd.live.watch import Measured

NOTED = 0.5  # seconds between notes about how far a sink goes; each waits for the disk


@dataclass
class Totals:
    """What passed since the start."""

    events: int = 0
    """In the log now, and not before."""
    duplicates: int = 0
    late: int = 0
    skipped: int = 0
    """Bad lines that were left out."""
    written: int = 0
    again: int = 0
    """Written for events that were logged before the start."""


class Stream:
    """One source, one engine, one sink."""

    def __init__(
        self, engine: Engine, source: Source, sink: Sink, decoder: Decoder, lines: LineWriter, bookmarks: Bookmarks
    ) -> None:
        self._engine, self._source, self._sink = engine, source, sink
        self._decoder, self._lines, self._bookmarks = decoder, lines, bookmarks
        self.totals = Totals()
        self._written, self._noted, self._noted_at = 0, 0, time.monotonic()

    def run(self, stop: threading.Event, sink_name: str) -> Totals:
        """Go on until the source ends or `stop` is set, which finishes the batch."""
        self._source.start(self._engine.position)
        self._sink_name = sink_name
        if self._sink.wanted:
            self._write_missed()
        with ThreadPoolExecutor(1, "dsrd-source") as ahead:  # a batch is read while another one is observed
            batches = self._decoded()
            upcoming = ahead.submit(next, batches, None)
            while True:
                decoded = upcoming.result()
                if decoded is None or stop.is_set():
                    break
                upcoming = ahead.submit(next, batches, None)
                if isinstance(decoded, Decoded):
                    self._pass_on(decoded)
                self._note(least_age=NOTED)
        self._note()
        return self.totals

    def _decoded(self) -> Iterator[Decoded | bool]:
        """Batches; False when there was none for a moment."""
        for raw in self._source.batches():
            if raw is None:
                yield False
                continue
            self._decoder.header, self._decoder.delimiter = self._source.header, self._source.delimiter
            yield self._decoder.decode(raw)

    def _pass_on(self, decoded: Decoded) -> None:
        """Observe a batch, then write it. Where a line is refused, those before it are observed first."""
        while len(decoded.rows):
            try:
                observed = self._engine.observe(decoded.events, measure=self._sink.wanted)
            except EventError as error:
                decoded = self._decoder.without(decoded, error, may_skip=not isinstance(error, LateEventError))
                continue
            self.totals.events += observed.accepted
            self.totals.duplicates += observed.duplicates
            self.totals.late += observed.late
            if self._sink.wanted:
                self._lines.expect(decoded, observed.rows)
                self._write(observed.measured, self._engine.live.timeline.present)
            break
        self.totals.skipped += decoded.skipped
        if decoded.fault is not None:
            raise decoded.fault

    def _write(self, measured: list[Measured] | tuple[Measured, ...], present: Present) -> None:
        if not measured:
            return
        lines = self._lines.lines(measured, present)
        if lines.seqs:
            self._sink.write(lines.seqs, lines.texts)
            self.totals.written += len(lines.seqs)
        self._written = measured[-1].seq

    def _note(self, least_age: float = 0.0) -> None:
        """Note how far the sink goes, for those that cannot be asked."""
        now = time.monotonic()
        if self._written > self._noted and now - self._noted_at >= least_age:
            self._sink.sync()
            self._bookmarks.write("sink", self._sink_name, {"seq": self._written})
            self._noted, self._noted_at = self._written, now

    def _write_missed(self) -> None:
        """Events that the log has and the sink has not."""
        newest = self._engine.live.timeline.applied
        noted = self._bookmarks.read("sink", self._sink_name)
        held = self._sink.last()
        if held is not None and held > newest:
            raise DsrdError(
                f"{self._sink_name}: goes up to event {held:,}, the log only to {newest:,}: it belongs to another "
                "data folder; choose another place"
            )
        if noted is None and held is None:  # a new sink: it gets what comes from now on
            self._written = newest
            self._bookmarks.write("sink", self._sink_name, {"seq": newest})
            return
        written = max(0 if noted is None else int(noted["seq"]), held or 0)
        if written < newest:
            engine = self._engine
            for measured, timeline in missed(engine.folder, engine.live.base, written):
                self._write(measured, timeline.present)
                self.totals.again += len(measured)
