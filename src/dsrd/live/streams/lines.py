"""Output lines: each event as it came, with its number and what the model made of it."""

from __future__ import annotations

import heapq
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dsrd.live.log import Floats
from dsrd.live.present import SECONDS_PER_DAY, Present
from dsrd.live.streams.decoding import Decoded, Decoder
from dsrd.live.streams.recent import Recent
from dsrd.live.watch import Measured

ADDED = ("seq", "surprise", "source_bits", "partner_bits", "partner", "rate")
EXACT = 50  # the rate of the stream is read at every so many events, and brought forward in between
SPAN = 1_000  # events in the time constant of that rate


@dataclass(frozen=True)
class Lines:
    """Lines and the numbers of their events."""

    seqs: list[int]
    texts: list[str]


class LineWriter:
    """Puts events as they came beside what was measured of them.

    The model sees events in order of time. An engine that reorders them shows it some of an earlier batch first.
    """

    def __init__(self, decoder: Decoder, alert: float | None, recent: Recent) -> None:
        """With `alert`, lines are written only of events that are more surprising than that percentile."""
        self._decoder, self._alert, self._recent = decoder, alert, recent
        self._waiting: list[tuple[float, int, Decoded, int]] = []
        self._count = 0

    def expect(self, decoded: Decoded, rows: Sequence[int]) -> None:
        """Events that were accepted, in the order of the log."""
        for row in rows:
            self._count += 1
            heapq.heappush(self._waiting, (float(decoded.events.time[row]), self._count, decoded, row))

    def lines(self, measured: Sequence[Measured], present: Present) -> Lines:
        """Lines about events that the model has seen."""
        lines = Lines([], [])
        rates = stream_rates(present, np.array([event.time for event in measured]))
        for event, rate in zip(measured, rates.tolist(), strict=True):
            came = self._came(event)
            written = self._alert is None or self._recent.is_above(self._alert, event.surprise)
            if self._alert is not None:
                self._recent.add(event.surprise)
            if written:
                lines.seqs.append(event.seq)
                lines.texts.append(_line(self._record(event, came, present), event, rate))
        return lines

    def _came(self, event: Measured) -> tuple[Decoded, int] | None:
        """Where an event came from; None if that was before the last start."""
        if not self._waiting:
            return None
        time, _, decoded, row = self._waiting[0]
        if (time, decoded.events.source[row], decoded.events.target[row]) != (
            event.time,
            event.source,
            event.target,
        ):
            return None
        heapq.heappop(self._waiting)
        return decoded, row

    def _record(self, event: Measured, came: tuple[Decoded, int] | None, present: Present) -> dict[str, Any]:
        if came is None:
            time = present.written_time(event.time) if present.dates else event.time
            return {"source": event.source, "target": event.target, "time": time}
        decoded, row = came
        return self._decoder.record(decoded.raw.lines[decoded.rows[row]])


def _line(record: dict[str, Any], event: Measured, stream_rate: float) -> str:
    knows_sources = not math.isnan(event.source_bits)
    added = {
        "seq": event.seq,
        "surprise": _short(event.surprise),
        "source_bits": _short(event.source_bits) if knows_sources else None,
        "partner_bits": _short(event.partner_bits),
        "partner": _short(2.0**-event.partner_bits),
        "rate": _short(2.0**-event.surprise * stream_rate) if knows_sources else None,
    }
    return json.dumps(record | {name if name not in record else f"dsrd_{name}": added[name] for name in added})


def _short(value: float) -> float:
    """Six digits: more are noise."""
    return float(f"{value:.6g}")


def stream_rates(present: Present, time: Floats) -> Floats:
    """Events of the whole stream per day, or per unit of a numeric time, just before each of these times.  # [E]

    `Present.stream_rate` adds up thousands of weights for every time. Here that is done at every 50th; in between
    the sum decays, and grows by the events that came since.
    """
    rates, times = np.zeros(len(time)), present.times
    unit = SECONDS_PER_DAY if present.dates else 1.0
    start = 0
    while start < len(time):
        block = time[start : start + EXACT]
        before = int(np.searchsorted(times, block[0]))
        span = float(times[before - 1] - times[max(before - SPAN, 0)]) if before else 0.0
        block = block[: max(int(np.searchsorted(block, block[0] + span / 10, side="right")), 1)]
        first = present.stream_rate(block[:1])
        if span > 0:
            age = block[:, None] - block[None, :]
            since = np.where(age > 0, np.exp(-np.maximum(age, 0) / span), 0).sum(axis=1) / span
            rates[start : start + len(block)] = first * np.exp(-(block - block[0]) / span) + unit * since
        else:
            rates[start : start + len(block)] = first
        start += len(block)
    return rates
