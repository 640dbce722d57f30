"""Result files: one record per line, as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from dsrd.decoding import parsed_json, read_text
from dsrd.errors import DsrdError
from dsrd.files import append_line, json_text
from dsrd.train.record import Record


def append(path: Path, record: Record) -> None:
    """Append a record to a results file unless the file already contains it."""
    line = json_text(record)
    if path.is_file() and line.encode() in path.read_bytes().splitlines():
        return
    append_line(path, line)


def read(path: Path) -> Iterator[Record]:
    """The records of a results file, in order."""
    if not path.exists():
        raise DsrdError(f"{path}: no such results file")
    for number, line in enumerate(read_text(path).splitlines(), start=1):
        try:
            yield parsed_json(line)
        except ValueError:
            raise DsrdError(f"{path}: line {number} is not a JSON object; remove the line") from None
