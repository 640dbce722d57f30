"""Where events go with their surprise: standard output, a file, nowhere. `kafka` and `redis_streams` have more."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, BinaryIO, Protocol

from dsrd.decoding import parsed_json
from dsrd.errors import DsrdError
from dsrd.files import full_disk, require_writable

TAIL = 1 << 20  # bytes at the end of a file in which its last line is looked for


class Sink(Protocol):
    """Takes lines. After `write` they are where they belong."""

    @property
    def wanted(self) -> bool:
        """Whether anybody reads the lines."""

    def last(self) -> int | None:
        """The number of the newest event it holds; None if that cannot be known."""

    def write(self, seqs: Sequence[int], lines: Sequence[str]) -> None: ...

    def sync(self) -> None:
        """See to it that what was written survives a power cut, as far as that can be done from here."""

    def close(self) -> None: ...


class NoSink:
    """Events are observed only."""

    wanted = False

    def last(self) -> int | None:
        return None

    def write(self, seqs: Sequence[int], lines: Sequence[str]) -> None:
        """Nothing."""

    def sync(self) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""


class StandardOutput:
    """Lines on standard output. After a kill the latest ones may come again, with the same numbers."""

    wanted = True

    def __init__(self, stream: BinaryIO | None = None) -> None:
        self._stream = sys.stdout.buffer if stream is None else stream

    def last(self) -> int | None:
        return None

    def write(self, seqs: Sequence[int], lines: Sequence[str]) -> None:
        self._stream.write(_joined(lines))
        self._stream.flush()

    def sync(self) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing: it was flushed after every batch."""


class FileSink:
    """Lines at the end of a file. It says itself how far it goes, so each event is in it exactly once."""

    wanted = True

    def __init__(self, path: Path) -> None:
        self._path = path
        if path.suffix.lower() not in (".jsonl", ".ndjson", ".json"):
            raise DsrdError(f"{path}: events are written as JSON lines; let the name end in .jsonl")
        require_writable(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file: IO[bytes] = path.open("a+b", buffering=0)

    def last(self) -> int | None:
        """The number of the event in the last line; half a line, left by a kill, is cut off."""
        end = self._file.seek(0, os.SEEK_END)
        self._file.seek(max(0, end - TAIL))
        tail = self._file.read()
        whole = tail.rfind(b"\n") + 1
        if not whole and end > TAIL:
            raise self._foreign()
        seq = self._seq_of(tail[tail.rfind(b"\n", 0, whole - 1) + 1 : whole]) if whole else None
        if not whole and tail and (not tail.startswith(b"{") or _is_json(tail)):
            raise self._foreign()  # nothing is cut off a file of others
        self._file.truncate(end - len(tail) + whole)
        return seq

    def _seq_of(self, line: bytes) -> int:
        try:
            seq = parsed_json(line)["seq"]
        except (ValueError, TypeError, KeyError):
            raise self._foreign() from None
        if not isinstance(seq, int):
            raise self._foreign()
        return seq

    def _foreign(self) -> DsrdError:
        return DsrdError(
            f"{self._path}: its last line has no `seq`: it was written by others; choose another file"
        )

    def write(self, seqs: Sequence[int], lines: Sequence[str]) -> None:
        with full_disk(self._path):
            left = memoryview(_joined(lines))
            while left:  # a disk that becomes full takes a part, and refuses the rest
                left = left[self._file.write(left) :]

    def sync(self) -> None:
        with full_disk(self._path):
            os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()


def _is_json(text: bytes) -> bool:
    with suppress(ValueError):
        parsed_json(text)
        return True
    return False


def _joined(lines: Sequence[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()
