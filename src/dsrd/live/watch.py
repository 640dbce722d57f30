"""`Watch`: how surprising the latest events were, and whether the stream has drifted from what was learned."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dsrd.live.hour import MostSurprising
from dsrd.live.rates import PerSecond

Floats = NDArray[np.float64]

KEPT = 20_000  # measured events
COMPARED = 1_000  # latest measured events, for percentiles and drift
LEAST = 200  # measured events before drift is judged
STANDARD_ERRORS = 4.0
LEAST_RISE = 0.5  # bits; smaller differences are no reason to train again


@dataclass(frozen=True)
class Measured:
    """An event and how surprising it was when it came."""

    seq: int
    source: str
    target: str
    time: float
    at: float  # by the clock of this machine
    source_bits: float  # nan: the model does not know when sources act
    partner_bits: float
    percentile: float  # of the events measured before it
    last_met: float  # -inf: never

    @property
    def surprise(self) -> float:
        return self.partner_bits + (0.0 if math.isnan(self.source_bits) else self.source_bits)


@dataclass(frozen=True)
class Drift:
    """Log loss of the latest events against that of the events at the end of training, in bits per event."""

    then: float
    now: float
    standard_error: float
    events: int

    @property
    def drifted(self) -> bool:
        """Whether the loss has risen by more than chance explains and by enough to matter."""
        rise = self.now - self.then
        return self.events >= LEAST and rise > LEAST_RISE and rise > STANDARD_ERRORS * self.standard_error


class Watch:
    """Keeps the latest measured events."""

    def __init__(self, trained_bits: Floats) -> None:
        """`trained_bits`: of the latest events of the run, as its model expected them."""
        self._then = trained_bits
        self.rates = PerSecond()
        """All events, measured or not."""
        self._hour = MostSurprising[Measured]()
        self._events: deque[Measured] = deque(maxlen=KEPT)
        self._bits: deque[float] = deque(trained_bits.tolist(), maxlen=COMPARED)
        self._new = 0  # measured since the start, up to COMPARED

    def judge_by(self, trained_bits: Floats) -> None:
        """Compare with these from now on: the weights are new."""
        self._then, self._new = trained_bits, 0
        self._bits = deque(trained_bits.tolist(), maxlen=COMPARED)

    def _latest_bits(self) -> Floats:
        bits = self._bits  # another thread may put a new deque there
        return np.fromiter(bits, np.float64, len(bits))

    def percentile(self, bits: float) -> float:
        """The share of the latest events that were less surprising, in percent; ties count half."""
        known = self._latest_bits()
        if not len(known):
            return 50.0
        return float(50 * ((known < bits).mean() + (known <= bits).mean()))

    def percentiles(self, bits: Floats) -> Floats:
        """`percentile` of several events that come together."""
        known = np.sort(self._latest_bits())
        if not len(known):
            return np.full(len(bits), 50.0)
        below, upto = (np.searchsorted(known, bits, side=side) for side in ("left", "right"))
        return np.asarray(50 * (below + upto) / len(known))

    def add(self, events: Iterable[Measured]) -> None:
        for event in events:
            self._events.append(event)
            self._hour.add(event)
            self._bits.append(event.surprise)
            self._new = min(self._new + 1, COMPARED)

    def latest(self, after: int = 0, most: int = 200) -> list[Measured]:
        """Measured events after a sequence number, oldest first, at most the latest `most`."""
        found: list[Measured] = []
        for event in reversed(tuple(self._events)):
            if event.seq <= after or len(found) == most:
                break
            found.append(event)
        return found[::-1]

    def most_surprising(self, seconds: float, most: int) -> list[Measured]:
        """Of the events that came within the last seconds, at most an hour, by this machine's clock."""
        return self._hour.best(most, time.time() - seconds)

    def quantiles(self, shares: Iterable[float]) -> dict[float, float]:
        """Quantiles of the surprise of the latest events, in bits."""
        bits = self._latest_bits()
        return {share: float(np.quantile(bits, share)) if len(bits) else math.nan for share in shares}

    def drift(self) -> Drift:
        bits = self._latest_bits()
        now = bits[max(len(bits) - self._new, 0) :]
        error = math.sqrt(sum(float(bits.var(ddof=1)) / len(bits) for bits in (self._then, now) if len(bits) > 1))
        then, lately = (float(bits.mean()) if len(bits) else math.nan for bits in (self._then, now))
        return Drift(then, lately, error, len(now))


class Budget:
    """A share of the time: work may start while there is some of it left, and is charged for afterwards.

    >>> budget = Budget(0.0)
    >>> budget.left
    False
    """

    MOST = 1.0  # seconds that may be saved up

    def __init__(self, share: float) -> None:
        self._share, self._saved, self._then = share, self.MOST if share else 0.0, time.monotonic()

    @property
    def left(self) -> bool:
        now = time.monotonic()
        self._saved = min(self._saved + self._share * (now - self._then), self.MOST)
        self._then = now
        return self._saved > 0

    def charge(self, seconds: float) -> None:
        self._saved -= seconds
