"""The decayed event rate of a stream, against the same in plain loops."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dsrd.estimator.event_rate import LATEST, event_rate


def slow_rate(event_time: list[float], at: float) -> float:
    """The definition: every earlier event counts, with a time constant from the latest ones."""
    earlier = [time for time in event_time if time < at]
    if not earlier:
        return 0.0
    tau = earlier[-1] - earlier[-LATEST:][0]
    if not tau:  # the latest events have one time: reach back to the time before it
        others = [time for time in earlier if time < earlier[-1]]
        tau = earlier[-1] - others[-1] if others else 0.0
    if not tau:
        return len(earlier) / (at - earlier[0])
    total = sum(math.exp(-(at - time) / tau) / tau for time in earlier)
    return total / (1 - math.exp(-(at - earlier[0]) / tau))


def streams() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {
        "steady": np.arange(0.0, 3000.0),
        "random": np.sort(rng.uniform(1e9, 1e9 + 1e6, 2500)),
        "bursts": np.sort(np.concatenate([rng.normal(center, 3.0, 700) for center in (10, 500, 9000)])) + 100,
        "ever faster": np.log1p(np.arange(5000.0)) * 1e4,
        "snapshots": np.repeat(np.arange(6.0), 1500),
        "one moment": np.full(40, 7.0),
        "two events": np.array([3.0, 13.0]),
        "one event": np.array([3.0]),
    }


@pytest.mark.parametrize("name", streams())
def test_equal_to_the_slow_form(name: str):
    time = streams()[name]
    span = time[-1] - time[0] + 1.0
    at = np.concatenate(
        [time[:: max(1, len(time) // 7)], time[-1] + span * np.array([1e-9, 0.01, 0.5, 3.0]), time[:1]]
    )
    expected = [slow_rate(time.tolist(), moment) for moment in at.tolist()]
    assert event_rate(time, at) == pytest.approx(expected, rel=1e-6)


def test_only_earlier_events_count():
    time = streams()["random"]
    moment = time[[1200]]
    assert event_rate(time, moment)[0] == event_rate(time[:1200], moment)[0]


def test_a_steady_stream_has_its_rate_early_and_late():
    time = np.sort(np.random.default_rng(1).uniform(0, 5000, 20_000))
    assert event_rate(time, np.array([300.0, 2000.0, 5000.0])) == pytest.approx(4.0, rel=0.1)


def test_a_change_is_followed_and_a_silence_lowers_the_rate():
    time = np.concatenate([np.arange(0.0, 2000.0), np.arange(2000.0, 3000.0, 0.1)])
    slow, fast, silent = event_rate(time, np.array([2000.0, 3000.0, 3500.0]))
    assert (slow, fast) == (pytest.approx(1, rel=0.02), pytest.approx(10, rel=0.02))
    assert silent == pytest.approx(fast * math.exp(-500 / 99.9), rel=1e-3)


def test_before_the_first_event_and_without_events():
    assert event_rate(np.array([5.0, 6.0]), np.array([5.0, 1.0])).tolist() == [0.0, 0.0]
    assert event_rate(np.array([]), np.array([1.0])).tolist() == [0.0]
