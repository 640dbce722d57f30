"""The HTTP interface of a server, in this process: bodies, addresses and headers that no client should send."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from random import Random
from typing import Any

import dsrd
from fuzz.mutate import applied, edits_of
from fuzz.targets import REFUSED, VALID, DifferentError, Target
from fuzz.targets.readers import calls
from fuzz.targets.runs import estimator

AFTER = "2024-06-01T00:00:00Z"
EVENT = {"source": "ann", "target": "bob", "time": AFTER, "cost": 1.5}
BODIES: dict[str, list[Any]] = {
    "/v1/observe": [{"events": [EVENT, {**EVENT, "source": "new", "id": "7"}]}, {"events": []}],
    "/v1/score": [{"pairs": [{"source": "ann", "target": "bob"}]}, {"pairs": [], "time": AFTER}],
    "/v1/partners": [{"node": "ann"}, {"node": "bob", "k": 3, "time": AFTER}],
    "/v1/surprise": [{"events": [EVENT]}],
    "/v1/snapshot": [{}],
}
ADDRESSES = (
    *("/v1/state", "/v1/recent", "/v1/recent?seconds=60&k=3", "/v1/nodes?q=an&k=2", "/v1/node/ann", "/v1/model"),
    *("/", "/page/page.js", "/metrics", "/healthz", "/readyz", "/openapi.json", "/v1/node/..%2f..%2fetc", "/v2"),
)
VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1.5, 10**9, 2**63, 2**64, 1e300, 1e-300, -0.0, "", " ", "ann", " ann ", "nobody"),
    *("\u0000", "\u202e", "x" * 5000, "1e999", "nan", "2024-02-30", "0001-01-01", "9999-12-31T23:59:60Z", AFTER),
    *([], {}, [[]], [None], ["ann", "bob"], {"source": {}}, {"a": {"b": [{}]}}, [EVENT] * 3),
)
HEADERS = (
    *(("content-type", "text/plain"), ("content-encoding", "gzip"), ("host", "evil.example"), ("host", "[::1")),
    *(("origin", "http://evil.example"), ("content-length", "abc"), ("content-length", "99999999999999999999")),
    *(("authorization", "Bearer \u00e9"), ("last-event-id", "9" * 30), ("accept", "\x7f"), ("range", "bytes=5-")),
)


class Server(Target):
    """Requests to an engine that is opened once by every process; a refused request changes nothing."""

    area, share, traced = "server", 2, ""

    def prepare(self, folder: Path) -> None:
        self.folder, self.process = folder, 0
        (folder / "calls.csv").write_text(calls())
        stream = dsrd.load(folder / "calls.csv", features=["cost"], cache=False)
        estimator("dsrd").fit(stream, folder=folder / "run", progress=False)

    def draw(self, chance: Random, corpus: list[Any]) -> Any:
        if chance.random() < 0.2:
            address = chance.choice(ADDRESSES)
            edits = edits_of(address.encode(), chance) if chance.random() < 0.7 else []
            changed = applied(address.encode(), edits).decode("latin-1")
            return {"method": chance.choice(("GET", "GET", "HEAD", "POST", "PUT")), "address": changed}
        address = chance.choice(list(BODIES))
        body = chance.choice(BODIES[address])
        for _ in range(chance.choice((0, 1, 1, 2))):
            body = replaced(body, chance)
        text = json.dumps(body)
        case = {"method": "POST", "address": address, "body": text}
        if chance.random() < 0.3:
            case["edits"] = edits_of(text.encode(), chance)
        if chance.random() < 0.1:
            case["headers"] = [chance.choice(HEADERS)]
        return case

    def attempt(self, case: Any, folder: Path) -> str:
        client = self._client()
        before = client.get("/v1/state").json()
        content = applied(case.get("body", "").encode(), case.get("edits", []))
        headers = {name: value.encode("latin-1") for name, value in case.get("headers", [])}
        try:
            request = client.build_request(case["method"], address_of(case), content=content, headers=headers)
        except Exception:  # the client refuses to send it
            return REFUSED
        answer = client.send(request)
        if answer.status_code >= 500 or "Traceback" in answer.text:
            raise DifferentError(f"{answer.status_code}: {answer.text[:300]}")
        after = client.get("/v1/state").json()
        if answer.status_code < 400:
            return VALID
        if after != before:
            raise DifferentError(f"refused with {answer.status_code}, and yet the state is another: {after}")
        if case["method"] != "HEAD":
            error = answer.json()["error"]
            if not error.strip() or "\n" in error:
                raise DifferentError(f"an error of several lines, or of none: {error!r}")
        return REFUSED

    def _client(self) -> Any:
        """A client of an engine of this process: its threads do not survive a fork."""
        if self.process != os.getpid():
            from starlette.testclient import TestClient

            from dsrd.live import Engine, LiveSettings
            from dsrd.live.server.app import create_app
            from dsrd.live.server.guard import Limits
            from dsrd.live.server.service import Service

            data = self.folder / f"data-{os.getpid()}"
            shutil.rmtree(data, ignore_errors=True)
            quiet = LiveSettings(watch=0.0, snapshot_events=0, snapshot_minutes=0)
            service = Service(lambda progress: Engine(data, self.folder / "run", quiet, progress))
            service.start()
            assert service._thread is not None
            service._thread.join()
            app = create_app(service, Limits(body=20_000, batch=100, partners=50), None)
            self.client = TestClient(app, base_url="http://127.0.0.1")
            self.process = os.getpid()
        return self.client


def address_of(case: Any) -> str:
    """Where a request goes; the feed never ends, so that it is left out."""
    address = case["address"]
    if not address.startswith("/"):
        address = f"/{address}"
    return "/v1/state" if "feed" in address else address


def replaced(body: Any, chance: Random) -> Any:
    """A JSON value with one part replaced, removed, doubled or named otherwise."""
    if isinstance(body, dict) and body and chance.random() < 0.85:
        name = chance.choice(list(body))
        kind = chance.randrange(6)
        if kind == 0:
            return {other: value for other, value in body.items() if other != name}
        if kind == 1:
            return {**body, chance.choice(("time", "id", "x", "", "source ", "k")): chance.choice(VALUES)}
        return {**body, name: replaced(body[name], chance)}
    if isinstance(body, list) and body and chance.random() < 0.85:
        place = chance.randrange(len(body))
        if chance.randrange(6) == 0:
            return [*body, *body * chance.choice((1, 60))]
        return [*body[:place], replaced(body[place], chance), *body[place + 1 :]]
    return chance.choice(VALUES)
