"""Standard input as a source: lines of JSON until it ends."""

from __future__ import annotations

import queue
import sys
import threading
from collections.abc import Callable, Iterator
from typing import BinaryIO

from dsrd.live.streams.raw import POLL, Raw

BLOCK = 1 << 18  # bytes read at a time, at most
WAITING = 16  # blocks read ahead


class StandardInput:
    """Standard input cannot be read again: it has no position. Events of which some may come twice need an id."""

    format = "json"
    header: list[str] = []  # noqa: RUF012 - always empty
    delimiter = ","

    def __init__(self, batch: int, stream: BinaryIO | None = None) -> None:
        self._stream = sys.stdin.buffer if stream is None else stream
        self._batch = batch
        self._blocks: queue.Queue[bytes] = queue.Queue(WAITING)

    def start(self, position: Callable[[str], int | None]) -> None:
        threading.Thread(target=self._read, name="dsrd-standard-input", daemon=True).start()

    def close(self) -> None:
        """Nothing: the thread ends with the process."""

    def _read(self) -> None:
        read = getattr(self._stream, "read1", self._stream.read)
        while block := read(BLOCK):
            self._blocks.put(block)
        self._blocks.put(b"")

    def batches(self) -> Iterator[Raw | None]:
        rest, number = b"", 0
        while True:
            try:
                block = self._blocks.get(timeout=POLL)
            except queue.Empty:
                yield None
                continue
            rest += block
            whole = len(rest) if not block else rest.rfind(b"\n") + 1
            lines, rest = rest[:whole].removesuffix(b"\n"), rest[whole:]
            if whole:
                each = lines.split(b"\n")
                for start in range(0, len(each), self._batch):
                    part = each[start : start + self._batch]
                    yield Raw(b"\n".join(part) + b"\n", _place(number + start))
                number += len(each)
            if not block:
                return


def _place(first: int) -> Callable[[int], str]:
    return lambda row: f"standard input: line {first + row + 1}"
