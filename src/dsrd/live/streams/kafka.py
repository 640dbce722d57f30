"""Kafka topics as sources and sinks, by confluent-kafka (extra `kafka`)."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from dsrd.errors import DsrdError, MachineError
from dsrd.live.streams.address import Address
from dsrd.live.streams.raw import POLL, Raw

PATIENCE = 10.0  # seconds for an answer of the broker


def client() -> Any:
    """The package, or an error that says how to get it."""
    try:
        import confluent_kafka
    except ImportError:
        raise DsrdError("Kafka needs a further package; install it with `pip install 'dsrd[kafka]'`") from None
    return confluent_kafka


class KafkaSource:
    """All partitions of a topic; the position of each is the offset of the next message.

    Order holds within a partition only. Messages of several partitions that come together are put in order of time
    by nobody: let the engine reorder late events, or give the topic one partition.
    """

    format = "json"
    header: list[str] = []  # noqa: RUF012 - always empty
    delimiter = ","

    def __init__(self, address: Address, settings: Mapping[str, str], *, follow: bool, batch: int) -> None:
        self._address, self._follow, self._batch = address, follow, batch
        self._kafka = client()
        self._faults: list[str] = []
        own = {
            "bootstrap.servers": address.server,
            "group.id": "dsrd",  # required, and not used: positions are in the log
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "error_cb": lambda error: self._faults.append(str(error)),
        }
        self._consumer = self._kafka.Consumer({**settings, **own}, logger=_SILENT)
        self._at_end: set[int] = set()

    def start(self, position: Callable[[str], int | None]) -> None:
        partitions = _partitions(self._consumer, self._address, self._kafka, self._faults)
        places = []
        for partition in partitions:
            place = self._kafka.TopicPartition(self._address.name, partition)
            first, end = self._consumer.get_watermark_offsets(place, timeout=PATIENCE)
            known = position(self._name(partition))
            if known is not None and not first <= known <= end:
                raise DsrdError(
                    f"{self._address}: partition {partition} has the messages {first} to {end - 1}, and was read "
                    f"up to {known - 1} before: messages are lost, or this is another topic of that name; read it "
                    "with a new data folder"
                )
            place.offset = first if known is None else known
            places.append(place)
        self._num_partitions = len(places)
        self._consumer.assign(places)

    def close(self) -> None:
        self._consumer.close()

    def batches(self) -> Iterator[Raw | None]:
        while True:
            messages = self._consumer.consume(self._batch, POLL)
            by_partition: dict[int, list[Any]] = defaultdict(list)
            for message in messages:
                error = message.error()
                if error is None:
                    self._at_end.discard(message.partition())
                    by_partition[message.partition()].append(message)
                elif error.code() == self._kafka.KafkaError._PARTITION_EOF:
                    self._at_end.add(message.partition())
                elif error.retriable() or error.code() == self._kafka.KafkaError._TRANSPORT:
                    continue
                else:
                    raise DsrdError(f"{self._address}: {error.str()}; look at the broker and the topic")
            for partition, own in sorted(by_partition.items()):
                yield self._raw(partition, own)
            if not by_partition:
                if not self._follow and len(self._at_end) == self._num_partitions:
                    return
                yield None

    def _raw(self, partition: int, messages: Sequence[Any]) -> Raw:
        offsets = [message.offset() for message in messages]
        block = b"".join((message.value() or b"null").replace(b"\n", b" ") + b"\n" for message in messages)
        place = f"{self._address}: partition {partition}"
        return Raw(
            block,
            lambda row: f"{place}, message {offsets[row]}",
            self._name(partition),
            [offset + 1 for offset in offsets],
        )

    def _name(self, partition: int) -> str:
        return f"{self._address}/{partition}"


class KafkaSink:
    """Writes a message per line, with the source of the event as key. A kill may repeat the latest ones."""

    wanted = True

    def __init__(self, address: Address, settings: Mapping[str, str]) -> None:
        self._address, kafka = address, client()
        self._faults: list[str] = []
        own = {
            "bootstrap.servers": address.server,
            "enable.idempotence": True,
            "linger.ms": 5,
            "error_cb": lambda error: self._faults.append(str(error)),
        }
        self._producer = kafka.Producer({**settings, **own}, logger=_SILENT)

    def last(self) -> int | None:
        """Not known: the messages of several partitions are in no order."""
        _partitions(self._producer, self._address, client(), self._faults)
        return None

    def write(self, seqs: Sequence[int], lines: Sequence[str]) -> None:
        failed: list[str] = []

        def delivered(error: Any, _: Any) -> None:
            if error is not None:
                failed.append(error.str())

        for line in lines:
            self._produce(line.encode(), delivered)
        left = self._producer.flush(3 * PATIENCE)
        if failed or left:
            reason = failed[0] if failed else f"{left} messages were not confirmed in {3 * PATIENCE:g} seconds"
            raise MachineError(f"{self._address}: {reason}; look at the broker, and start again: nothing is lost")

    def _produce(self, value: bytes, delivered: Callable[[Any, Any], None]) -> None:
        key = str(json.loads(value).get("source", "")).encode()
        while True:
            try:
                self._producer.produce(self._address.name, value, key=key, on_delivery=delivered)
                return
            except BufferError:  # the queue is full: wait until some are delivered
                self._producer.poll(POLL)

    def sync(self) -> None:
        """Nothing: the server has confirmed what was written."""

    def close(self) -> None:
        self._producer.flush(PATIENCE)


def _partitions(connection: Any, address: Address, kafka: Any, faults: Sequence[str]) -> list[int]:
    """The partitions of a topic; an error if there is no such topic or broker."""
    try:
        topic = connection.list_topics(address.name, timeout=PATIENCE).topics[address.name]
    except kafka.KafkaException as error:
        reason = faults[-1] if faults else error.args[0].str()
        raise MachineError(f"{address}: the broker does not answer ({reason}); check its address") from None
    if topic.error is not None or not topic.partitions:
        raise DsrdError(f"{address}: there is no such topic; create it, or correct its name")
    return sorted(topic.partitions)


class _Silent:
    """The client reports errors by its callback; its log is not for users."""

    def log(self, *_: Any) -> None: ...


_SILENT = _Silent()
