"""`dsrd stream` from and to Kafka (the broker inside confluent-kafka) and Redis (a real server), with kills."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from live.streaming import (
    Twin,
    assert_lines_are_those_of,
    assert_nothing_is_lost,
    events,
    kill_when,
    num_logged,
    stop,
    stream,
    twin_of,
    wait_for,
)
from support.program import done, dsrd

COUNT = 300


@pytest.fixture(scope="module")
def records() -> list[dict[str, Any]]:
    return events(COUNT)


@pytest.fixture(scope="module")
def twin(run: Path, records: list[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory) -> Twin:
    return twin_of(run, tmp_path_factory.mktemp("twin") / "data", records)


# --- Kafka -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def broker() -> Iterator[tuple[str, Any]]:
    """The address of a broker, and its producer; other processes reach it through 127.0.0.1."""
    kafka = pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")
    producer = kafka.Producer({"test.mock.num.brokers": 1})
    servers = producer.list_topics(timeout=10).brokers.values()
    yield ",".join(f"{server.host}:{server.port}" for server in servers), producer
    producer.flush(10)


def send(producer: Any, topic: str, records: Sequence[dict[str, Any]]) -> None:
    for record in records:
        producer.produce(topic, json.dumps(record).encode(), partition=0)
    assert producer.flush(30) == 0


def messages(address: str, topic: str, count: int) -> list[dict[str, Any]]:
    """The messages of all partitions, at least `count`, by number of event."""
    import confluent_kafka as kafka

    consumer = kafka.Consumer({"bootstrap.servers": address, "group.id": "test", "auto.offset.reset": "earliest"})
    partitions = consumer.list_topics(topic, timeout=10).topics[topic].partitions
    consumer.assign([kafka.TopicPartition(topic, each, 0) for each in partitions])
    found: list[dict[str, Any]] = []
    until = time.monotonic() + 20
    while len({each["seq"] for each in found}) < count and time.monotonic() < until:
        found += [json.loads(each.value()) for each in consumer.consume(1000, 0.5) if each.error() is None]
    consumer.close()
    return sorted(found, key=lambda each: int(each["seq"]))


def test_a_kill_between_kafka_topics_loses_nothing(
    tmp_path: Path, run: Path, broker: tuple[str, Any], records: list[dict[str, Any]], twin: Twin
):
    address, producer = broker
    data = tmp_path / "data"
    send(producer, "calls", records)
    send(producer, "surprises", [])
    words = (run, "--data", data, "--batch", 5)
    words += ("--from", f"kafka://{address}/calls", "--to", f"kafka://{address}/surprises")
    producer.list_topics("surprises", timeout=10)  # creates the topic
    first = stream(*words)
    kill_when(first, lambda: num_logged(data) >= 20)
    assert num_logged(data) < COUNT
    second = stream(*words)
    wait_for(second, lambda: num_logged(data) == COUNT)
    assert "written" in stop(second)
    assert_nothing_is_lost(data, twin, COUNT)
    found = messages(address, "surprises", COUNT)
    distinct = list({each["seq"]: each for each in found}.values())  # a kill may repeat the last ones
    assert_lines_are_those_of(distinct, twin, records)
    by_seq = {each["seq"]: each for each in distinct}
    assert all(str(each["source"]) == str(by_seq[each["seq"]]["source"]) for each in found)


def test_a_topic_is_read_once_and_lost_messages_are_noticed(
    tmp_path: Path, run: Path, broker: tuple[str, Any], records: list[dict[str, Any]]
):
    address, producer = broker
    send(producer, "once", records[:30])
    words = ("stream", run, "--data", tmp_path / "data", "--once", "--json")
    said = done(*words, "--from", f"kafka://{address}/once").json
    assert (said["seq"], said["events"]) == (30, 30)
    said = done(*words, "--from", f"kafka://{address}/once").json
    assert (said["seq"], said["events"], said["duplicates"]) == (30, 0, 0)
    send(producer, "once", [{"source": 1, "target": 2}])
    outcome = dsrd(*words, "--from", f"kafka://{address}/once")
    assert f"kafka://{address}/once: partition 0, message 30: has no time" in outcome.error


# --- Redis -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A connection to a server of its own, which keeps nothing."""
    package = pytest.importorskip("redis", reason="redis (the Python package) is not installed")
    program = shutil.which("redis-server")
    if program is None:
        pytest.skip("redis-server is not installed")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    folder = tmp_path_factory.mktemp("redis")
    words = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", str(folder)]
    server = subprocess.Popen([program, *words], stdout=subprocess.DEVNULL)
    connection = package.Redis("127.0.0.1", port)
    for _ in range(500):
        try:
            connection.ping()
            break
        except package.exceptions.ConnectionError:
            time.sleep(0.02)
    yield connection
    server.terminate()
    server.wait(10)


def address_of(redis: Any) -> str:
    return f"redis://127.0.0.1:{redis.connection_pool.connection_kwargs['port']}"


def test_a_kill_between_redis_streams_loses_and_repeats_nothing(
    tmp_path: Path, run: Path, redis: Any, records: list[dict[str, Any]], twin: Twin
):
    data = tmp_path / "data"
    for record in records:
        redis.xadd("calls", record)
    words = (run, "--data", data, "--batch", 5)
    words += ("--from", f"{address_of(redis)}/calls", "--to", f"{address_of(redis)}/surprises")
    first = stream(*words)
    kill_when(first, lambda: redis.xlen("surprises") >= 20)
    assert num_logged(data) < COUNT
    second = stream(*words)
    wait_for(second, lambda: redis.xlen("surprises") >= COUNT)
    assert "written" in stop(second)
    assert_nothing_is_lost(data, twin, COUNT)
    found = [json.loads(fields[b"event"]) for _, fields in redis.xrange("surprises")]
    lines = [line | {"time": float(line["time"])} for line in found]  # fields of an entry are text
    assert_lines_are_those_of(lines, twin, records)


def test_trimmed_entries_are_noticed(tmp_path: Path, run: Path, redis: Any, records: list[dict[str, Any]]):
    for record in records[:6]:
        redis.xadd("some", {"event": json.dumps(record)})
    source = f"{address_of(redis)}/some"
    words = ("stream", run, "--data", tmp_path / "data", "--once")
    said = done(*words, "--from", source, "--json").json
    assert (said["seq"], said["events"]) == (6, 6)
    for record in records[6:10]:
        redis.xadd("some", record)
    redis.xtrim("some", maxlen=4, approximate=False)
    assert done(*words, "--from", source, "--json").json["seq"] == 10
    for record in records[10:14]:
        redis.xadd("some", record)
    redis.xtrim("some", maxlen=2, approximate=False)
    assert "2 of the entries that followed were removed: entries are lost" in dsrd(*words, "--from", source).error


def test_a_bad_entry_may_be_deleted(tmp_path: Path, run: Path, redis: Any, records: list[dict[str, Any]]):
    bad, *_ = [redis.xadd("mended", record) for record in ({"source": 1}, *records[:3])]
    source = f"{address_of(redis)}/mended"
    words = ("stream", run, "--data", tmp_path / "data", "--once", "--from", source)
    redis.xadd("mended", records[3])
    assert f"entry {bad.decode()}: has no target" in dsrd(*words).error
    redis.xdel("mended", bad)
    assert done(*words, "--json").json["seq"] == 4
    ids = [redis.xadd("mended", record) for record in records[4:7]]
    redis.xdel("mended", ids[0])
    redis.xtrim("mended", maxlen=2, approximate=False)
    assert "entries are lost" in dsrd(*words).error


def test_streams_of_others_are_noticed(tmp_path: Path, run: Path, redis: Any):
    words = ("stream", run, "--data", tmp_path / "data", "--once")
    redis.xadd("taken", {"a": "b"})
    outcome = dsrd(*words, "--from", f"{address_of(redis)}/more", "--to", f"{address_of(redis)}/taken")
    assert "holds entries of others" in outcome.error
    redis.set("text", "no stream")
    assert "is this the stream you mean?" in dsrd(*words, "--from", f"{address_of(redis)}/text").error


def test_a_server_that_does_not_answer_is_named(tmp_path: Path, run: Path):
    pytest.importorskip("redis", reason="redis (the Python package) is not installed")
    outcome = dsrd("stream", run, "--data", tmp_path / "data", "--from", "redis://127.0.0.1:1/calls")
    assert outcome.code == 1
    assert outcome.error.startswith("error: redis://127.0.0.1:1/calls: the server does not answer")
