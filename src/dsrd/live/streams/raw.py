"""`Raw`: events as they came from a source, not yet read, and what a source is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from dsrd.live.incoming import Position

POLL = 0.2  # seconds after which a source that has nothing says so, so that its reader can stop


@dataclass(frozen=True)
class Raw:
    """Events that came together, one line each."""

    block: bytes
    place: Callable[[int], str]
    """What errors call a line: `events.csv: line 7`."""
    source: str = ""
    """The name under which the position is kept."""
    after: Sequence[int] | None = None
    """How far the source is read after each line; None: it cannot be read again."""

    @cached_property
    def lines(self) -> list[bytes]:
        return self.block.removesuffix(b"\n").split(b"\n")

    def position(self, rows: Sequence[int] | range) -> Position | None:
        """How far the source is read after each of these lines."""
        if self.after is None:
            return None
        after = self.after
        return Position(self.source, tuple(after if len(rows) == len(after) else [after[row] for row in rows]))


class Source(Protocol):
    """Where events come from."""

    format: str
    """`csv` or `json`."""
    header: list[str]
    delimiter: str
    """Of a CSV source, known once its first lines came."""

    def start(self, position: Callable[[str], int | None]) -> None:
        """Open the source where the log has read it up to; `position` knows by name."""

    def batches(self) -> Iterator[Raw | None]:
        """Events as they come; None when there were none for a moment."""

    def close(self) -> None: ...
