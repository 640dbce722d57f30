"""Redis Streams as sources and sinks, by redis-py (extra `redis`)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from dsrd.errors import DsrdError, MachineError
from dsrd.live.streams.address import Address
from dsrd.live.streams.raw import POLL, Raw

SHIFT = 64  # bits of the second part of an entry's id, and of its place in the stream


def client(address: Address) -> Any:
    """A connection, or an error that says how to get the package."""
    try:
        import redis
    except ImportError:
        raise DsrdError("Redis needs a further package; install it with `pip install 'dsrd[redis]'`") from None
    host, _, port = address.server.partition(":")
    return redis.Redis(host, int(port or 6379), username=address.user, password=address.password)


class RedisSource:
    """The entries of a stream; the position is the id of the latest one read, and its place in the stream.

    An entry has the fields of an event, or a single field with a JSON object.
    """

    format = "json"
    header: list[str] = []  # noqa: RUF012 - always empty
    delimiter = ","

    def __init__(self, address: Address, *, follow: bool, batch: int) -> None:
        self._address, self._follow, self._batch = address, follow, batch
        self._redis = client(address)
        self._after = 0  # the id of the latest entry read, as one number
        self._place = 0  # how many entries were added up to that one

    def start(self, position: Callable[[str], int | None]) -> None:
        self._after, self._place = divmod(position(str(self._address)) or 0, 1 << SHIFT)
        with _faults(self._address):
            if not self._redis.exists(self._address.name):
                if self._after:
                    raise self._lost("the stream is gone")
                return
            about = self._redis.xinfo_stream(self._address.name)
        if self._after and self._after > _number(about["last-generated-id"]):
            raise self._lost(f"it ends with {about['last-generated-id'].decode()}")
        self._check_nothing_removed(about)

    def _check_nothing_removed(self, about: dict[str, Any]) -> None:
        """Entries that were not read may have been trimmed away, or deleted one by one.

        The server counts the first kind exactly while there are none of the second, of which it knows only the
        latest. Deleting a bad entry is a remedy: that is a loss if none of the entries read before is left.
        """
        removed, deleted = (
            about.get("entries-added", 0) - about["length"],
            about.get("max-deleted-entry-id", b"0-0"),
        )
        if not self._after:
            self._place = max(removed, 0)
        elif _number(deleted):
            first = about["first-entry"]
            if _number(deleted) > self._after and (first is None or _number(first[0]) > self._after):
                raise self._lost(f"entries up to {deleted.decode()} were removed")
        elif removed > self._place:
            raise self._lost(f"{removed - self._place} of the entries that followed were removed")

    def _lost(self, reason: str) -> DsrdError:
        return DsrdError(
            f"{self._address}: was read up to {_id(self._after)} before, and {reason}: entries are lost, or this "
            "is another stream of that name; read it with a new data folder"
        )

    def close(self) -> None:
        self._redis.close()

    def batches(self) -> Iterator[Raw | None]:
        block = int(1e3 * POLL) if self._follow else None
        while True:
            with _faults(self._address):
                found = self._redis.xread({self._address.name: _id(self._after)}, self._batch, block)
            entries = _entries(found)
            if entries:
                yield self._raw(entries)
                self._after = _number(entries[-1][0])
                self._place += len(entries)
            elif self._follow:
                yield None
            else:
                return

    def _raw(self, entries: Sequence[tuple[bytes, dict[bytes, bytes]]]) -> Raw:
        ids = [each.decode() for each, _ in entries]
        return Raw(
            b"".join(_line(fields) + b"\n" for _, fields in entries),
            lambda row: f"{self._address}: entry {ids[row]}",
            str(self._address),
            [(_number(each) << SHIFT) + place for place, each in enumerate(ids, start=self._place + 1)],
        )


class RedisSink:
    """Adds an entry per line, under the number of its event as id.

    Redis refuses an id that is not larger than the last: no event is written twice.
    """

    wanted = True

    def __init__(self, address: Address) -> None:
        self._address, self._redis = address, client(address)

    def last(self) -> int | None:
        """The newest event in the stream."""
        with _faults(self._address):
            newest = self._redis.xrevrange(self._address.name, count=1)
        if not newest:
            return None
        first, second = newest[0][0].decode().split("-")
        if int(second) or b"event" not in newest[0][1]:
            raise DsrdError(f"{self._address}: holds entries of others; choose another stream")
        return int(first)

    def write(self, seqs: Sequence[int], lines: Sequence[str]) -> None:
        with _faults(self._address):
            pipe = self._redis.pipeline(transaction=False)
            for seq, line in zip(seqs, lines, strict=True):
                pipe.xadd(self._address.name, {"event": line}, id=f"{seq}-0")
            pipe.execute()

    def sync(self) -> None:
        """Nothing: the server has confirmed what was written."""

    def close(self) -> None:
        self._redis.close()


@contextmanager
def _faults(address: Address) -> Iterator[None]:
    import redis

    try:
        yield
    except redis.exceptions.ResponseError as error:
        raise DsrdError(f"{address}: {error}; is this the stream you mean?") from error
    except redis.exceptions.RedisError as error:
        raise MachineError(f"{address}: the server does not answer ({error}); check its address") from error


def _entries(found: Any) -> list[tuple[bytes, dict[bytes, bytes]]]:
    """The entries of the one stream asked for, by either version of the protocol."""
    if not found:
        return []
    entries = next(iter(found.values()))[0] if isinstance(found, dict) else found[0][1]
    return list(entries)


def _line(fields: dict[bytes, bytes]) -> bytes:
    if len(fields) == 1 and next(iter(fields.values())).lstrip().startswith(b"{"):
        return next(iter(fields.values())).replace(b"\n", b" ")
    return json.dumps({_text(name): _text(value) for name, value in fields.items()}).encode()


def _text(value: bytes) -> str:
    return value.decode("utf-8", "surrogateescape")


def _number(entry: bytes | str) -> int:
    """The id of an entry as one number."""
    first, _, second = (entry.decode() if isinstance(entry, bytes) else entry).partition("-")
    return (int(first) << SHIFT) + int(second or 0)


def _id(number: int) -> str:
    return f"{number >> SHIFT}-{number & ((1 << SHIFT) - 1)}"
