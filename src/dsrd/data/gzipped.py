"""Reading gzip files up to a limit: a file of a megabyte may otherwise fill the memory of a machine."""

from __future__ import annotations

import io
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from dsrd.decoding import expansion_limit, too_large

SUFFIX = ".gz"


def is_gzipped(path: Path) -> bool:
    return path.suffix.lower() == SUFFIX


class Expanded(io.RawIOBase):
    """The expanded content of a gzip file; an error where it becomes far larger than the file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._limit = expansion_limit(path.stat().st_size)
        self._file: Any = pa.input_stream(str(path), compression="gzip")
        self._read = 0

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        """At most `size` bytes; without a size, everything up to the limit."""
        block: bytes = self._file.read(self._limit + 1 if size is None or size < 0 else size)
        self._read += len(block)
        if self._read > self._limit:
            raise too_large(self._path, self._limit)
        return block

    def readinto(self, buffer: Any) -> int:
        block = self.read(len(buffer))
        buffer[: len(block)] = block
        return len(block)

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()


def opened(path: Path) -> IO[bytes]:
    """The bytes of a file, expanded if it is compressed."""
    return io.BufferedReader(Expanded(path), 1 << 16) if is_gzipped(path) else path.open("rb")
