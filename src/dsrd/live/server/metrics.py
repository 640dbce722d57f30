"""What `/metrics` says, in the text form of Prometheus."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.types import Scope

from dsrd.live.intake import DUPLICATE, LATE, REFUSED
from dsrd.live.replica import Replica
from dsrd.live.server.service import Live, Service

BOUNDS = (0.0005, 0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.02, 0.03, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
QUANTILES = (0.5, 0.9, 0.99, 0.999)
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
COUNTED = {
    LATE: ("dsrd_events_late", "Events dropped because they were older than the newest."),
    DUPLICATE: ("dsrd_events_duplicate", "Events whose id or position was seen before."),
    REFUSED: ("dsrd_events_refused", "Events of requests that were refused as a whole."),
}


class Requests:
    """Counts and times requests, and reads the engine when somebody asks for the metrics."""

    def __init__(self, service: Service) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self._registry = CollectorRegistry()
        self._registry.register(_EngineFigures(service))
        self._count = Counter(
            "dsrd_requests", "Requests by endpoint and status.", ("path", "status"), registry=self._registry
        )
        self._seconds = Histogram(
            "dsrd_request_seconds", "Time to answer.", ("path",), buckets=BOUNDS, registry=self._registry
        )
        self._known: dict[tuple[str, int], tuple[Any, Any]] = {}

    def count(self, scope: Scope, status: int, seconds: float) -> None:
        """Count a request that has been answered."""
        route = scope.get("route")
        path = "other" if route is None else route.path
        if (path, status) not in self._known:
            self._known[path, status] = self._count.labels(path, str(status)), self._seconds.labels(path)
        counter, histogram = self._known[path, status]
        counter.inc()
        if path != "/v1/feed":  # lasts as long as somebody looks at the page
            histogram.observe(seconds)

    def text(self) -> bytes:
        """All metrics."""
        return generate_latest(self._registry)


class _EngineFigures(Collector):
    """Figures of the engine at the moment of asking."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def collect(self) -> Iterator[Metric]:
        yield _gauge("dsrd_ready", "1 if questions are answered.", float(self._service.ready))
        if self._service.ready:
            yield from _figures(self._service.engine)


def _figures(engine: Live) -> Iterator[Metric]:
    state, counts = engine.state(), engine.counts
    yield _counter("dsrd_log_events", "Events in the log.", state.seq)
    for kind, (name, text) in COUNTED.items():
        yield _counter(name, text, counts.get(kind, 0))
    yield _gauge("dsrd_events_seen", "Events the model has seen, those of the run included.", state.events)
    yield _gauge("dsrd_nodes", "Nodes of the stream.", state.nodes)
    behind = engine.behind if isinstance(engine, Replica) else 0
    yield _gauge("dsrd_lag_events", "Events in the log that the model has not seen.", state.waiting + behind)
    with engine.reading():
        present = engine.live.timeline.present
        nbytes, dates = present.nbytes(), present.dates
    yield _gauge("dsrd_state_bytes", "Memory of the model's state.", nbytes)
    if dates and math.isfinite(state.time):
        yield _gauge("dsrd_lag_seconds", "Age of the newest event.", max(time.time() - state.time, 0.0))
    waiting = GaugeMetricFamily("dsrd_waiting", "Requests that wait.", labels=["for"])
    for name, number in zip(("log", "scores"), engine.num_waiting, strict=True):
        waiting.add_metric([name], number)
    yield waiting
    yield _gauge("dsrd_snapshot_events", "Events in the newest snapshot.", engine.live.last_snapshot)
    yield _gauge("dsrd_failed", "1 if no more events can be taken.", float(engine.failure is not None))
    surprise = GaugeMetricFamily(
        "dsrd_surprise_bits", "Quantiles of the surprise of the latest events.", labels=["quantile"]
    )
    for share, bits in engine.watch.quantiles(QUANTILES).items():
        surprise.add_metric([str(share)], bits)
    yield surprise
    drift = engine.watch.drift()
    loss = GaugeMetricFamily("dsrd_log_loss_bits", "Log loss per event, at training and lately.", labels=["when"])
    loss.add_metric(["training"], drift.then)
    loss.add_metric(["now"], drift.now)
    yield loss
    yield _gauge("dsrd_drifted", "1 if the log loss has risen by more than chance.", float(drift.drifted))


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value)


def _counter(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(name, text, value)
