"""Requests that schemathesis makes from the OpenAPI description of a server."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from soaking.load import Told
from soaking.process import TOKEN, Answered

SKIPPED = ("/v1/feed", "/v1/snapshot", "/v1/compact")  # one has no end, the others write a file each time


def fuzz(port: int, told: Told, cases: int, seed: int) -> int:
    """Send about so many requests, half of them against the description; the number sent."""
    import schemathesis

    headers = {"Authorization": f"Bearer {TOKEN}"}
    schema = schemathesis.openapi.from_url(f"http://127.0.0.1:{port}/openapi.json", headers=headers)
    operations = [result.ok() for result in schema.get_all_operations()]
    operations = [each for each in operations if each.path not in SKIPPED]
    modes = list(schemathesis.GenerationMode)
    each_gets, sent = max(1, cases // (len(operations) * len(modes)) + 1), 0
    for number, operation in enumerate(operations):
        for mode in modes:
            if sent >= cases:
                return sent
            sent += _send(operation, mode, each_gets, seed + number, told, headers)
    return sent


def _send(operation: Any, mode: Any, count: int, seed: int, told: Told, headers: dict[str, str]) -> int:
    import hypothesis

    sent = 0

    def send(case: Any) -> None:
        nonlocal sent
        sent += 1
        try:
            answer = case.call(headers=headers, timeout=60)
        except OSError:  # the server is down, or the request cannot be written
            return
        try:
            body = answer.json()
        except ValueError:
            body = answer.text
        told.saw("schemathesis", answer.status_code, Answered(answer.status_code, body).body)

    settings = hypothesis.settings(
        max_examples=count,
        deadline=None,
        database=None,
        phases=[hypothesis.Phase.generate],
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    strategy = operation.as_strategy(generation_mode=mode)
    with suppress(hypothesis.errors.Unsatisfiable):  # nothing contradicts the description of some requests
        hypothesis.seed(seed)(settings(hypothesis.given(strategy)(send)))()
    return sent
