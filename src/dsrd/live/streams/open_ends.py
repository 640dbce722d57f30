"""Sources and sinks by address."""

from __future__ import annotations

from collections.abc import Mapping

from dsrd.errors import DsrdError
from dsrd.live.streams.address import Address
from dsrd.live.streams.bookmarks import Bookmarks
from dsrd.live.streams.files import FileSource
from dsrd.live.streams.raw import Source
from dsrd.live.streams.sinks import FileSink, NoSink, Sink, StandardOutput
from dsrd.live.streams.standard_input import StandardInput

BATCH = 10_000  # events


def open_source(
    address: Address,
    bookmarks: Bookmarks,
    *,
    follow: bool | None = None,
    batch: int = BATCH,
    kafka: Mapping[str, str] | None = None,
) -> Source:
    """A source that is not started yet. Unless told, a file is read once, a topic is followed."""
    if address.kind == "none":
        raise DsrdError("there is no source called none; give a file, -, a topic or a stream")
    if address.kind == "standard":
        if follow is not None:
            raise DsrdError("standard input is read until it ends; it cannot be followed, or read once")
        return StandardInput(batch)
    if address.kind == "kafka":
        from dsrd.live.streams.kafka import KafkaSource

        return KafkaSource(address, kafka or {}, follow=follow is not False, batch=batch)
    if address.kind == "redis":
        from dsrd.live.streams.redis_streams import RedisSource

        return RedisSource(address, follow=follow is not False, batch=batch)
    return FileSource(address.path, bookmarks, follow=bool(follow), batch=batch)


def open_sink(address: Address, *, kafka: Mapping[str, str] | None = None) -> Sink:
    """A sink."""
    if address.kind == "none":
        return NoSink()
    if address.kind == "standard":
        return StandardOutput()
    if address.kind == "kafka":
        from dsrd.live.streams.kafka import KafkaSink

        return KafkaSink(address, kafka or {})
    if address.kind == "redis":
        from dsrd.live.streams.redis_streams import RedisSink

        return RedisSink(address)
    return FileSink(address.path)


def name_of(address: Address) -> str:
    """The name under which it is known between starts."""
    return str(address.path.absolute()) if address.kind == "file" else str(address)
