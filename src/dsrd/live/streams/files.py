"""A file as a source: read once, or followed as it grows."""

from __future__ import annotations

import csv
import gzip
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, cast

import numpy as np

from dsrd.errors import DsrdError
from dsrd.live.streams.bookmarks import Bookmarks
from dsrd.live.streams.raw import POLL, Raw

BLOCK = 1 << 20  # bytes read at a time
MOST_UNFINISHED = 1 << 24  # bytes of a line without an end
HEAD = 1 << 10  # first bytes, by which a file is known again
MARK = b"\xef\xbb\xbf"  # of UTF-8 text, written by some programs


class FileSource:
    """The lines of a CSV or JSONL file. Its position is the number of bytes read.

    A file that is followed may only grow: one that was truncated, or replaced by another, is refused.
    """

    def __init__(self, path: Path, bookmarks: Bookmarks, *, follow: bool, batch: int) -> None:
        self._path, self._bookmarks, self._follow, self._batch = path, bookmarks, follow, batch
        self.format = _format(path)
        self.header: list[str] = []
        self.delimiter = ","
        self._packed = path.suffix == ".gz"
        if self._packed and follow:
            raise DsrdError(f"{path}: a compressed file cannot be followed; write it uncompressed")
        self._name = f"file:{path.absolute()}"
        self._offset = 0  # of the first byte that was not passed on
        self._first_line = 0  # number of the first line after `_offset`, from 0; -1: not counted
        self._file: IO[bytes] | None = None
        self._identity: tuple[int, int] | None = None

    def start(self, position: Callable[[str], int | None]) -> None:
        if not self._path.is_file():
            raise DsrdError(f"{self._path}: no such file; check the path")
        self._file = self._opened()
        self._identity = _identity(os.fstat(self._file.fileno()))
        done = position(self._name) or 0
        self._check_same(done)
        if done:
            self._offset, self._first_line = done, -1
            self._check_continued(done)
            self._file.seek(0)
            self._read_header()
            self._file.seek(done)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def batches(self) -> Iterator[Raw | None]:
        rest = b""
        while True:
            block = self._read()
            if block:
                rest += block
                whole = rest.rfind(b"\n") + 1
                if not whole and len(rest) > MOST_UNFINISHED:
                    raise DsrdError(f"{self._path}: has a line of more than {MOST_UNFINISHED:,} bytes; repair it")
                lines, rest = rest[:whole], rest[whole:]
                yield from self._batches_of(lines)
            elif self._follow:
                self._check_only_grown()
                yield None
                time.sleep(POLL)
            else:
                if rest:
                    yield from self._batches_of(rest)
                return

    def _opened(self) -> IO[bytes]:
        return cast(IO[bytes], gzip.open(self._path)) if self._packed else self._path.open("rb")

    def _read(self, size: int = BLOCK) -> bytes:
        assert self._file is not None
        try:
            return self._file.read(size)
        except (OSError, EOFError) as error:
            raise DsrdError(f"{self._path}: cannot be read ({error}); get the file again") from error

    def _batches_of(self, lines: bytes) -> Iterator[Raw]:
        """Lines in batches, without the header."""
        if lines and self._offset == 0:
            start = len(MARK) if lines.startswith(MARK) else 0
            if self.format == "csv":
                end = lines.find(b"\n") + 1 or len(lines)
                self._take_header(lines[start:end])
                self._first_line, start = 1, end
            self._offset, lines = start, lines[start:]
        ends = np.flatnonzero(np.frombuffer(lines, np.uint8) == 10) + 1
        if len(lines) and (not len(ends) or ends[-1] != len(lines)):
            ends = np.append(ends, len(lines))  # the last line of a file that does not grow
        start = 0
        for first in range(0, len(ends), self._batch):
            of_batch = ends[first : first + self._batch]
            end = int(of_batch[-1])
            yield Raw(lines[start:end], self._place(), self._name, (self._offset + of_batch - start).tolist())
            self._offset += end - start
            if self._first_line >= 0:
                self._first_line += len(of_batch)
            start = end

    def _place(self) -> Callable[[int], str]:
        offset, first = self._offset, self._first_line
        return lambda row: f"{self._path}: line {(self._lines_before(offset) if first < 0 else first) + row + 1}"

    def _lines_before(self, offset: int) -> int:
        """Counted for an error only."""
        with self._opened() as file:
            count = 0
            while offset > 0 and (block := file.read(min(BLOCK, offset))):
                count, offset = count + block.count(b"\n"), offset - len(block)
        return count

    def _read_header(self) -> None:
        assert self._file is not None
        if self.format == "csv":
            self._take_header(self._file.readline().removeprefix(MARK))

    def _take_header(self, line: bytes) -> None:
        try:
            text = line.decode().strip("\r\n")
        except UnicodeDecodeError:
            raise DsrdError(f"{self._path}: line 1: is not UTF-8 text; write UTF-8") from None
        self.delimiter = max(",\t;", key=text.count)
        try:
            self.header = [name.strip() for name in next(csv.reader([text], delimiter=self.delimiter), [])]
        except csv.Error as error:
            raise DsrdError(f"{self._path}: line 1: is not CSV ({error}); get the file again") from None
        if not any(self.header):
            raise DsrdError(f"{self._path}: has no header; its first line must name the columns")

    # --- The same file -------------------------------------------------------------------------------------------

    def _check_same(self, done: int) -> None:
        """Whether it begins as it did when it was read before, and is as long."""
        assert self._file is not None
        known = self._bookmarks.read("source", self._name)
        head = self._read(HEAD)
        self._file.seek(0)
        if known is not None and done:
            begins = bytes.fromhex(known["begins"])[:done]  # what follows may have been mended
            if not head.startswith(begins):
                raise DsrdError(
                    f"{self._path}: is another file than the one read before; give that, or a new name"
                )
        if known is None or known["begins"] != head.hex():
            self._bookmarks.write("source", self._name, {"begins": head.hex()})

    def _check_continued(self, done: int) -> None:
        assert self._file is not None
        self._file.seek(done - 1)
        last, following = self._file.read(1), self._file.read(1)
        if not last:
            raise DsrdError(
                f"{self._path}: is shorter than what was read of it before; it was truncated or replaced: put "
                "back what is missing, or give events that follow under a new name"
            )
        if last != b"\n" and following not in (b"", b"\n", b"\r"):
            raise DsrdError(
                f"{self._path}: its last line was continued after it had been read; end each line with a newline, "
                "and follow a file that grows"
            )

    def _check_only_grown(self) -> None:
        assert self._file is not None
        try:
            now = self._path.stat()
        except FileNotFoundError:
            raise self._rotated("was removed or renamed") from None
        if _identity(now) != self._identity:
            raise self._rotated("was replaced by another file")
        if now.st_size < self._file.tell():
            raise self._rotated("was truncated")

    def _rotated(self, what: str) -> DsrdError:
        return DsrdError(
            f"{self._path}: {what} while it was followed; all its lines before that are in the log. Write events "
            "that follow to a new file, and start again with that"
        )


def _format(path: Path) -> str:
    suffixes = [suffix.lower() for suffix in path.suffixes if suffix.lower() != ".gz"]
    known = {".csv": "csv", ".tsv": "csv", ".jsonl": "json", ".ndjson": "json", ".json": "json"}
    if not suffixes or suffixes[-1] not in known:
        raise DsrdError(f"{path}: neither .csv nor .jsonl; rename it so that its name says what it holds")
    return known[suffixes[-1]]


def _identity(stat: os.stat_result) -> tuple[int, int]:
    return stat.st_dev, stat.st_ino
