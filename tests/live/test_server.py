"""The server's answers: bodies, limits, who may ask, and that nonsense never looks like a fault of the server."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="needs dsrd[serve]")

from starlette.testclient import TestClient

from dsrd.errors import MachineError
from dsrd.live import Engine, LiveSettings, Replica
from dsrd.live.log import LogFailedError
from dsrd.live.server.app import create_app
from dsrd.live.server.guard import Limits
from dsrd.live.server.service import Service
from live.rows import QUIET, START, rows

LIMITS = Limits(body=20_000, batch=100, partners=50, queue=2)
TOKEN = "a-token-of-good-length"


def client_of(service: Service, token: str | None = None, **headers: str) -> TestClient:
    return TestClient(create_app(service, LIMITS, token), base_url="http://127.0.0.1", headers=headers)


def ready(service: Service) -> Service:
    service.start()
    service._thread.join()
    assert service.error is None, service.error
    return service


@pytest.fixture(scope="module")
def service(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    data = tmp_path_factory.mktemp("served")
    service = ready(Service(lambda progress: Engine(data, run, LiveSettings(late="drop"), progress)))
    yield service
    service.close()


@pytest.fixture(scope="module")
def client(service: Service) -> TestClient:
    return client_of(service)


@pytest.fixture(scope="module")
def dated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """A server of a stream with names, dates and features."""
    import dsrd

    folder = tmp_path_factory.mktemp("dated")
    lines = ["caller,called,at,minutes"]
    for row in range(300):
        at = f"2024-05-{1 + row // 24:02d}T{row % 24:02d}:00:00Z"
        lines.append(f"ann{row % 7},bob{row % 5},{at},{row % 9}")
    (folder / "calls.csv").write_text("\n".join(lines))
    stream = dsrd.load(folder / "calls.csv", source="caller", target="called", time="at", features=["minutes"])
    dsrd.LinkPredictor(epochs=1, dim=8).fit(stream, folder=folder / "run", progress=False)
    service = ready(Service(lambda progress: Engine(folder / "data", folder / "run", QUIET, progress)))
    yield client_of(service)
    service.close()


# --- Bodies


def test_observe_score_partners_surprise_and_state_have_these_bodies(client: TestClient):
    done = client.post("/v1/observe", json={"events": rows(3)})
    assert (done.status_code, done.json()) == (200, {"seq": 3, "accepted": 3, "duplicates": 0})
    scored = client.post(
        "/v1/score", json={"pairs": [{"source": 3, "target": "7"}, {"source": "3", "target": "zoe"}]}
    )
    assert scored.json()["seq"] == 3
    first, second = scored.json()["scores"]
    assert list(first) == ["source", "target", "partner", "rate", "surprise", "known"]
    assert (first["source"], first["target"], first["known"], second["known"]) == ("3", "7", True, False)
    assert 0 < first["partner"] <= 1
    assert first["rate"] > 0
    partners = client.post("/v1/partners", json={"node": 3, "k": 2}).json()
    assert (partners["seq"], len(partners["scores"])) == (3, 2)
    assert partners["scores"][0]["partner"] >= partners["scores"][1]["partner"]
    surprise = client.post("/v1/surprise", json={"events": rows(1, 10)}).json()
    row = surprise["surprises"][0]
    assert row["surprise"] == pytest.approx(row["source_bits"] + row["partner_bits"])
    assert 0 <= row["percentile"] <= 100
    state = client.get("/v1/state").json()
    assert list(state) == ["seq", "events", "nodes", "time", "digest"]
    assert (state["seq"], state["events"]) == (3, 603)
    assert client.post("/v1/snapshot").json() == {"seq": 3}
    assert client.post("/v1/compact").json() == {"seq": 3}
    assert client.post("/v1/compact?vacuum=true").json() == {"seq": 3}
    assert client.post("/v1/compact?vacuum=perhaps").status_code == 422


def test_dropped_events_are_told(client: TestClient):
    done = client.post("/v1/observe", json={"events": [{"source": 1, "target": 2, "time": 1}]}).json()
    assert (done["accepted"], done["late"]) == (0, 1)


def test_times_are_dates_where_the_stream_has_dates(dated: TestClient):
    event = {"source": "zoe", "target": "bob1", "time": "2024-06-01T02:00:00+02:00", "features": {"minutes": 3}}
    assert dated.post("/v1/observe", json={"events": [event]}).json()["accepted"] == 1
    assert dated.get("/v1/state").json()["time"] == "2024-06-01T00:00:00Z"
    as_number = {"source": "zoe", "target": "bob1", "time": 1717200060, "features": [3]}
    assert dated.post("/v1/observe", json={"events": [as_number]}).json()["accepted"] == 1
    assert dated.get("/v1/state").json()["time"] == "2024-06-01T00:01:00Z"
    pair = {"pairs": [{"source": "zoe", "target": "bob1"}], "time": "2024-06-02"}
    assert dated.post("/v1/score", json=pair).json()["scores"][0]["known"]
    early = dated.post("/v1/score", json=pair | {"time": "2024-05-01"})
    assert early.status_code == 422
    assert "time 2024-05-01T00:00:00Z is before the newest event (2024-06-01T00:01:00Z)" in early.json()["error"]
    late = dated.post("/v1/observe", json={"events": [as_number | {"time": "2024-05-31"}]}).json()["error"]
    assert "time 2024-05-31T00:00:00Z is older than the newest event (2024-06-01T00:01:00Z)" in late
    far = dated.post("/v1/observe", json={"events": [as_number | {"time": "2999-01-01"}]})
    assert (far.status_code, "ahead of this machine's clock" in far.json()["error"]) == (422, True)
    never = dated.post("/v1/observe", json={"events": [as_number | {"time": 1e13}]})
    assert (never.status_code, "is more than 86400 seconds ahead" in never.json()["error"]) == (422, True)
    target = dated.post("/v1/partners", json={"node": "bob1"})
    assert target.status_code in (200, 422)


# --- Nonsense

ONE = {"source": 1, "target": 2, "time": START + 5_000}
DEEP = b'{"events":' + b"[" * 5_000 + b"]" * 5_000 + b"}"
NONSENSE: list[tuple[str, Any, str]] = [
    ("observe", b"", "is not JSON"),
    ("observe", b"{", "is not JSON"),
    ("observe", b'{"events": [\xff\xfe]}', "is not JSON"),
    ("observe", DEEP, "is not JSON"),
    ("observe", b'{"events":[{"source":1,"target":2,"time":NaN}]}', "is not JSON"),
    ("observe", b'{"events":[{"source":1,"target":2,"time":1e999}]}', "event 1: time is inf|is not JSON"),
    ("observe", b'{"events":[{"source":1,"target":2,"time":' + b"9" * 400 + b"}]}", "time|is not JSON"),
    ("observe", b'{"events":[{"source":"\\ud800","target":2,"time":40000000}]}', "is not JSON|node"),
    ("observe", [], "the body is no JSON object"),
    ("observe", {}, "'events' is missing or no list"),
    ("observe", {"events": {}}, "'events' is missing or no list"),
    ("observe", {"events": [1]}, "event 1: is no JSON object"),
    ("observe", {"events": [{}]}, "event 1: has no source"),
    ("observe", {"events": [ONE], "evnets": 1}, "field 'evnets' is unknown"),
    ("observe", {"events": [ONE | {"time": {}}]}, "event 1: time is {}"),
    ("observe", {"events": [ONE | {"time": True}]}, "event 1: time is True"),
    ("observe", {"events": [ONE | {"time": "soon"}]}, "event 1: time is 'soon'"),
    ("observe", {"events": [ONE | {"time": 1e300}]}, "event 1: time is 1e.300; give a number from 0 to"),
    ("observe", {"events": [ONE | {"id": ""}]}, "event 1: has an id of 0 characters"),
    ("observe", {"events": [ONE | {"source": {"a": 1}}]}, "event 1: node"),
    ("observe", {"events": [ONE | {"source": 10**18}]}, "event 1|node 1000000000000000000"),
    ("observe", {"events": [ONE | {"features": "xyz"}]}, "event 1: features"),
    ("observe", {"events": [ONE | {"features": [1, 2]}]}, "event 1: has 2 features"),
    ("observe", {"events": [ONE | {"id": []}]}, "event 1: id"),
    ("observe", {"events": [ONE] * 101}, "'events' has 101 entries; send at most 100"),
    ("score", {"pairs": []}, "no pairs"),
    ("score", {"pairs": [{"source": 1}]}, "pair 1: has 'source'; give source and target"),
    ("score", {"pairs": [{"source": 1, "target": None}]}, "pair 1: node None"),
    ("score", {"pairs": [{"source": 1, "target": 2}], "time": 5}, "time 5 is before the newest event"),
    ("score", {"pairs": [{"source": 1, "target": 2}], "time": -5}, "question: time is -5"),
    ("score", {"pairs": [{"source": 1, "target": 2}], "time": []}, "question: time is"),
    ("score", {"pairs": [{"source": 1, "target": 2}], "time": 1e300}, "question: time is 1e.300"),
    ("partners", {}, "'node' is missing"),
    ("partners", {"node": 1, "k": 0}, "k=0"),
    ("partners", {"node": 1, "k": "many"}, "k='many'"),
    ("partners", {"node": 1, "k": 51}, "at most 50 partners"),
    ("partners", {"node": [1]}, r"partners: node \[1\]"),
    ("surprise", {"events": []}, "no events"),
    ("surprise", {"events": [ONE | {"time": 3}]}, "time 3 is before the newest event"),
]


@pytest.mark.parametrize(("verb", "body", "fault"), NONSENSE)
def test_nonsense_is_refused_in_one_line(client: TestClient, verb: str, body: Any, fault: str):
    before = client.get("/v1/state").json()
    content = body if isinstance(body, bytes) else json.dumps(body)
    answer = client.post(f"/v1/{verb}", content=content)
    assert answer.status_code == 422
    error = answer.json()["error"]
    assert list(answer.json()) == ["error"]
    assert "\n" not in error
    assert len(error) < 300
    assert pytest.importorskip("re").search(fault, error), error
    assert client.get("/v1/state").json() == before


def test_unknown_paths_and_verbs_are_json_too(client: TestClient):
    unknown, verb = client.get("/v2/score"), client.get("/v1/score")
    assert (unknown.status_code, verb.status_code, verb.headers["allow"]) == (404, 405, "POST")
    assert unknown.json() == {"error": "there is no /v2/score; /openapi.json lists what there is"}
    assert verb.json() == {"error": "GET is not allowed here; use POST"}


# --- Limits


def test_large_bodies_are_refused_also_without_a_length(client: TestClient):
    large = b" " * 30_000
    assert client.post("/v1/observe", content=large).status_code == 413
    chunked = client.post("/v1/observe", content=(large[start : start + 100] for start in range(0, 30_000, 100)))
    assert chunked.status_code == 413
    assert "larger than" in chunked.json()["error"]


def test_a_body_that_does_not_come_gives_its_place_up(service: Service):
    """One slow client per place of the queue would keep all others out."""
    sent: list[Any] = []

    async def ask() -> None:
        async def receive() -> Any:
            await asyncio.sleep(60)

        async def send(message: Any) -> None:
            sent.append(message)

        scope = {"type": "http", "method": "POST", "path": "/v1/observe", "headers": [], "query_string": b""}
        await create_app(service, Limits(body_seconds=0.05), None)(scope, receive, send)

    asyncio.run(ask())
    assert sent[0]["status"] == 408
    assert b"did not come within 0.05 seconds; send the request again" in sent[1]["body"]


def test_too_many_requests_are_told_when_to_come_back(client: TestClient, service: Service):
    held, answers = threading.Event(), []
    engine = service.writer
    waiting = engine._writer.do(held.wait)  # nothing is written until the event is set
    ask = lambda: answers.append(client.post("/v1/observe", json={"events": rows(1, 900)}).status_code)  # noqa: E731
    threads = [threading.Thread(target=ask) for _ in range(2)]
    try:
        for thread in threads:
            thread.start()
        while engine.num_waiting[0] < 2:
            assert not answers
        refused = client.post("/v1/observe", json={"events": rows(1, 900)})
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
        assert client.get("/healthz").status_code == 200
    finally:
        held.set()
    for thread in threads:
        thread.join()
    assert waiting.result()
    assert answers == [200, 200]


# --- Who may ask


def test_a_token_is_asked_for(service: Service):
    with_token = client_of(service, TOKEN)
    for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": f"Basic {TOKEN}"}):
        answer = with_token.get("/v1/state", headers=headers)
        assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
        assert with_token.get("/metrics", headers=headers).status_code == 401
        assert with_token.get("/healthz", headers=headers).status_code == 200
        assert with_token.get("/readyz", headers=headers).status_code == 200
    authorized = {"Authorization": f"Bearer {TOKEN}", "Host": "example.org"}
    assert with_token.get("/v1/state", headers=authorized).status_code == 200


def test_without_a_token_other_sites_may_not_ask(client: TestClient):
    for headers in ({"Host": "example.org"}, {"Origin": "http://example.org"}, {"Origin": "null"}):
        assert client.get("/v1/state", headers=headers).status_code == 403
    for headers in ({"Host": "localhost:8000"}, {"Host": "[::1]:8000"}, {"Origin": "http://127.0.0.1:8000"}):
        assert client.get("/v1/state", headers=headers).status_code == 200


# --- Health


def test_it_answers_while_it_catches_up(run: Path, tmp_path: Path):
    held = threading.Event()

    def slow(progress: Any) -> Engine:
        progress(3, 7)
        held.wait()
        return Engine(tmp_path, run, QUIET)

    service = Service(slow)
    client = client_of(service)
    service.start()
    try:
        while service.progress == (0, 0):
            pass
        assert client.get("/healthz").json() == {"status": "ok"}
        not_ready = client.get("/readyz")
        assert (not_ready.status_code, not_ready.headers["retry-after"]) == (503, "1")
        assert not_ready.json() == {"error": "catching up with the log: 3 of 7 events"}
        for answer in (
            client.get("/v1/state"),
            client.post("/v1/observe", json={"events": rows(1)}),
            client.post("/v1/score", json={"pairs": [{"source": 1, "target": 2}]}),
            client.post("/v1/partners", json={"node": 1}),
        ):
            assert answer.status_code == 503
        assert "dsrd_ready 0.0" in client.get("/metrics").text
    finally:
        held.set()
    service._thread.join()
    assert client.get("/readyz").json() == {"status": "ready"}
    service.close()
    assert client.get("/readyz").status_code == 503


def test_a_failed_disk_is_no_fault_of_the_request(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    service = ready(Service(lambda progress: Engine(tmp_path, run, QUIET)))
    client = client_of(service)
    faults = [MachineError("log.sqlite: the disk is full; free some space"), LogFailedError("log.sqlite: broken")]
    for fault in faults:

        def failing(*_: Any, fault: Exception = fault) -> None:
            raise fault

        monkeypatch.setattr(service.writer._log, "append", failing)
        answer = client.post("/v1/observe", json={"events": rows(1)})
        assert (answer.status_code, answer.json()) == (503, {"error": str(fault)})
        assert client.get("/readyz").status_code == (200 if fault is faults[0] else 503)
    assert client.get("/v1/state").json()["seq"] == 0
    service.close()


def test_a_replica_answers_and_takes_no_events(run: Path, tmp_path: Path):
    with Engine(tmp_path, run, QUIET) as engine:
        engine.observe(rows(5))
        service = ready(Service(lambda progress: Replica(tmp_path, progress)))
        client = client_of(service)
        assert client.get("/v1/state").json()["digest"] == engine.state().digest
        refused = client.post("/v1/observe", json={"events": rows(1, 5)})
        assert (refused.status_code, "send events to the one it follows" in refused.json()["error"]) == (403, True)
        assert client.post("/v1/snapshot").status_code == 403
        service.close()


def test_metrics_are_there(client: TestClient):
    client.post("/v1/score", json={"pairs": [{"source": 3, "target": 7}]})
    text = client.get("/metrics").text
    for line in (
        'dsrd_requests_total{path="/v1/score",status="200"}',
        'dsrd_request_seconds_bucket{le="0.002",path="/v1/score"}',
        "dsrd_log_events_total ",
        "dsrd_events_late_total 1.0",
        "dsrd_events_refused_total ",
        "dsrd_lag_events 0.0",
        "dsrd_nodes ",
        "dsrd_state_bytes ",
        'dsrd_surprise_bits{quantile="0.99"}',
    ):
        assert line in text, line


def test_the_document_has_examples_that_work(client: TestClient):
    document = client.get("/openapi.json").json()
    for verb in ("observe", "score", "partners", "surprise"):
        about = document["paths"][f"/v1/{verb}"]["post"]
        body = about["requestBody"]["content"]["application/json"]
        assert set(body["example"]) <= set(body["schema"]["properties"])
        assert {"200", "413", "422", "429", "503"} <= set(about["responses"])
        assert about["responses"]["200"]["content"]["application/json"]["example"]["seq"] == 17
