"""What the page asks: the feed, the most surprising events, nodes and the model."""

from __future__ import annotations

import http.client
import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dsrd.live.about import Typical, half_lives, why
from dsrd.live.feed import FILES, READERS
from dsrd.live.hour import MostSurprising
from dsrd.live.watch import Measured
from live.background_server import Served, served


@pytest.fixture(scope="module")
def server(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("feed") / "data", run) as running:
        running.observe((1, 2), (3, 4), (1, 2), (90, 91))
        yield running


@contextmanager
def feed(server: Served, query: str = "", **headers: str) -> Iterator[http.client.HTTPResponse]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    connection.request("GET", f"/v1/feed{query}", headers=headers)
    yield connection.getresponse()
    connection.close()


def messages(answer: http.client.HTTPResponse) -> Iterator[tuple[str, str, Any]]:
    """(event, id, data) of each message."""
    message: dict[str, str] = {}
    while line := answer.readline().decode():
        if line == "\n":
            if "data" in message:
                yield message.get("event", ""), message.get("id", ""), json.loads(message["data"])
            message = {}
            continue
        field, _, value = line.rstrip("\n").partition(": ")
        message[field] = value


def wait_for(answer: http.client.HTTPResponse, kind: str) -> tuple[str, Any]:
    return next((number, data) for event, number, data in messages(answer) if event == kind)


def test_a_new_reader_gets_the_latest_events_and_the_state(server: Served):
    with feed(server) as answer:
        assert answer.getheader("Content-Type", "").startswith("text/event-stream")
        number, told = wait_for(answer, "events")
        seqs = [event["seq"] for event in told["events"]]
        assert seqs == list(range(1, int(number) + 1))
        assert told["first"]
        new = told["events"][3]
        assert (new["source"], new["target"], new["last_met"]) == ("90", "91", None)
        assert new["surprise"] == pytest.approx(new["source_bits"] + new["partner_bits"], abs=0.002)
        _, state = wait_for(answer, "state")
    assert state["seq"] == server.engine.state().seq
    assert state["ready"]
    assert not state["drift"]["drifted"]
    assert sum(count for _, count in state["rates"]) <= state["seq"]


def test_an_event_is_told_to_every_reader_soon(server: Served):
    with feed(server) as first, feed(server) as second:
        for reader in (first, second):
            wait_for(reader, "state")
        seq = server.observe((5, 6))
        for reader in (first, second):
            number, told = wait_for(reader, "events")
            assert int(number) == seq
            assert [event["seq"] for event in told["events"]] == [seq]


def test_a_reader_that_comes_back_gets_what_it_missed(server: Served):
    last = server.observe((1, 3))
    server.observe((2, 3))
    with feed(server, **{"Last-Event-ID": str(last)}) as answer:
        _, told = wait_for(answer, "events")
        assert [event["seq"] for event in told["events"]] == [last + 1]
        assert not told["first"]
    with feed(server, f"?after={10**9}") as answer:  # of a log that is gone
        assert wait_for(answer, "events")[1]["first"]


def test_readers_are_bounded(server: Served):
    opened = []
    try:
        for _ in range(READERS + 1):
            connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
            connection.request("GET", "/v1/feed")
            opened.append(connection)
        statuses = [connection.getresponse() for connection in opened]
    finally:
        for connection in opened:
            connection.close()
    refused = [answer for answer in statuses if answer.status == 429]
    assert refused
    assert refused[0].getheader("Retry-After")


def test_the_most_surprising_of_the_hour(server: Served):
    status, told = server.ask("GET", "/v1/recent?k=3")
    assert status == 200
    bits = [event["surprise"] for event in told["events"]]
    assert bits == sorted(bits, reverse=True)
    assert len(bits) == 3
    assert server.ask("GET", "/v1/recent?k=0")[0] == 422


def test_about_a_node(server: Served):
    status, told = server.ask("GET", "/v1/node/1?k=5")
    assert status == 200
    asked = server.engine.partners("1", 5)
    assert [each["target"] for each in told["partners"]] == asked.target
    assert [each["partner"] for each in told["partners"]] == asked.answer.partner.tolist()
    assert told["history"][-1]["outgoing"]
    assert told["history"] == sorted(told["history"], key=lambda event: event["time"])
    nearest = told["nearest"]["nodes"]
    assert len(nearest) == 5
    assert "1" not in [each["name"] for each in nearest]
    cosines = [each["cosine"] for each in nearest]
    assert cosines == sorted(cosines, reverse=True)
    vectors = server.engine.live.timeline.present.embed(np.array([1, int(nearest[0]["name"])])).astype(float)
    expected = vectors[0] @ vectors[1] / math.prod(np.linalg.norm(vectors, axis=1))
    assert cosines[0] == pytest.approx(expected, abs=0.01)  # a moment later


def test_a_node_that_nobody_knows(server: Served):
    status, told = server.ask("GET", "/v1/node/no/such%20name")
    assert status == 404
    assert "no node is called 'no/such name'" in told["error"]
    assert server.ask("GET", "/v1/nodes?q=9")[1]["names"] == ["9"]


def test_about_the_model(server: Served):
    _, told = server.ask("GET", "/v1/model")
    assert told["parameters"] == server.engine.live.timeline.present.model.num_parameters
    assert told["card"]["paper"]
    assert {"events"} == {each["unit"] for each in told["half_lives"]}
    assert all(each["value"] > 0 for each in told["half_lives"])


def test_half_lives_of_every_shape_are_found():
    learned = {"a": {"half_life_in_seconds": 2}, "half_life_in_events": [1, 2], "other": 3, "b": {"c": [1]}}
    found = {each["part"]: (each["unit"], each["value"]) for each in half_lives(learned)}
    assert found == {"a": ("seconds", 2.0), ", layer 1": ("events", 1.0), ", layer 2": ("events", 2.0)}


def event(at: float, bits: float, source_bits: float = 0.0) -> Measured:
    return Measured(1, "a", "b", 0.0, at, source_bits, bits, 50.0, 0.0)


@pytest.mark.parametrize(
    ("source", "partner", "expected"),
    [(3, 3, ""), (9, 3, "source"), (3, 9, "partner"), (8, 9, "both"), (math.nan, 9, "partner"), (0, 0, "")],
)
def test_which_factor_is_unusual(source: float, partner: float, expected: str):
    assert why(event(0, partner, source), Typical(3, 3)) == expected


def test_the_hour_forgets_and_keeps_the_most_surprising():
    draw, hour = np.random.default_rng(1), MostSurprising[Measured](minutes=60, kept=10)
    events = [event(10.0 * number, bits) for number, bits in enumerate(draw.exponential(size=1_000))]
    for each in events:
        hour.add(each)
    since = events[-1].at - 3_000
    expected = sorted((each for each in events if each.at >= since), key=lambda each: -each.surprise)[:8]
    assert hour.best(8, since) == expected
    assert len(hour.best(10**6, 0)) <= 60 * 10


def test_the_page_may_load_nothing_but_itself(server: Served):
    for name in FILES:
        path = "/" if name == "index.html" else f"/page/{name}"
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
        connection.request("GET", path)
        answer = connection.getresponse()
        text = answer.read().decode()
        assert answer.status == 200
        policy = answer.getheader("Content-Security-Policy", "")
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "http://" not in text.replace("http://www.w3.org/2000/svg", "")
        assert "https://" not in text
        assert "innerHTML" not in text, "names of nodes are text, never HTML"
        connection.close()
