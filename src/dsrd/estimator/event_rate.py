"""How many events per unit of time a whole stream has just before a time."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

LATEST = 1_000  # events whose time span is the time constant
NEGLIGIBLE = 20.0  # time constants before the newest event; older events weigh 2e-9 of it, or less


def event_rate(event_time: Floats, at: Floats) -> Floats:
    """The decayed rate of events before each time, in events per unit of time.  # [E] ascending, [Q] -> [Q]

    Each event before t counts exp(-(t - t_i) / tau) / tau, where tau is the time that the latest 1,000 events
    before t took. The sum is divided by 1 - exp(-elapsed / tau), the share of all weights that the stream is long
    enough for. So the rate of a steady stream is right from the start, and that of a silent one falls.

    >>> steady = np.arange(0.0, 500.0, 0.5)  # two events in every unit of time
    >>> event_rate(steady, np.array([0.0, 50.0, 500.0])).round(1).tolist()
    [0.0, 2.0, 2.0]
    """
    moment, where = np.unique(at, return_inverse=True)
    count = np.searchsorted(event_time, moment)  # events strictly before
    rate = np.zeros(len(moment))
    for row in np.flatnonzero(count):
        rate[row] = _rate_before(event_time[: count[row]], float(moment[row]))
    return rate[where.reshape(at.shape)]


def _rate_before(earlier: Floats, moment: float) -> float:
    elapsed = moment - float(earlier[0])
    tau = _time_constant(earlier)
    if not tau:
        return len(earlier) / elapsed
    newest = float(earlier[-1])
    age = newest - earlier[np.searchsorted(earlier, newest - NEGLIGIBLE * tau) :]
    total = float(np.exp(-age / tau).sum()) * np.exp(-(moment - newest) / tau)
    return float(total / tau / -np.expm1(-elapsed / tau))


def _time_constant(earlier: Floats) -> float:
    """The time that the latest events took; 0 if all events have the same time."""
    newest = earlier[-1]
    oldest = earlier[max(0, len(earlier) - LATEST)]
    if oldest == newest:  # a large snapshot: reach back to the one before it
        oldest = earlier[max(0, np.searchsorted(earlier, newest) - 1)]
    return float(newest - oldest)
