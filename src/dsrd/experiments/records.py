"""Result files: one record per line, as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from dsrd.errors import DsrdError
from dsrd.files import append_line, json_text
from dsrd.train.record import Record


def append(path: Path, record: Record) -> None:
    """Append a record to a results file unless the file already contains it."""
    line = json_text(record)
    if path.is_file() and line in path.read_text(encoding="utf-8").splitlines():
        return
    append_line(path, line)


def read(path: Path) -> Iterator[Record]:
    """The records of a results file, in order."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        raise DsrdError(f"{path}: no such results file") from None
    for number, line in enumerate(lines, start=1):
        try:
            yield json.loads(line)
        except ValueError:
            raise DsrdError(f"{path}: line {number} is not a JSON object; remove the line") from None
