"""The records of a report: read from files and folders, sorted into kinds, checked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from dsrd.checksums import verified
from dsrd.decoding import own_json
from dsrd.errors import DsrdError
from dsrd.experiments import records as record_files
from dsrd.files import json_text

Record = Mapping[str, Any]
Records = Sequence[Record]

READ_FROM = "read_from"
"""Entry that `read` adds to every record: its file and line."""
NEEDED = {
    "link": ("dataset", "model", "preset", "seed", "protocol", "results", "timing", "config", "digests"),
    "node": ("dataset", "model", "preset", "seed", "protocol", "results", "config"),
    "audit": ("dataset", "negatives", "unlearned"),
    "learned": ("dataset", "learned"),
    "calibration": ("dataset", "model", "calibration"),
    "speed": ("dataset", "model", "timing"),
    "benchmark": ("benchmark",),
    "surprise": ("events",),
}
"""Entries that a record of each kind must have."""
CONFIG_NEEDED = ("model_args", "train", "evaluate")
NOT_RECORDS = ("log.jsonl",)
"""Files of run folders that hold lines of another kind."""


def read(paths: Iterable[Path]) -> list[Record]:
    """The records in these files, and in all files of records and runs below these folders; each once.

    A file holds a record per line, or one record. An empty file or folder is refused, and so is a line that is no
    record of this library.
    """
    found: dict[str, Record] = {}
    repeated = 0
    for path in paths:
        files = list(_files(path)) if path.is_dir() else [path]
        if not files:
            raise DsrdError(f"{path}: no records in this folder; give files of records or folders of runs")
        for file in files:
            before = len(found), repeated
            for line, record in _lines(file):
                place = f"{file.name}:{line}"
                placed = {**record, READ_FROM: place} if isinstance(record, Mapping) else {READ_FROM: place}
                check(placed)
                repeated += found.setdefault(json_text(record), placed) is not placed
            if before == (len(found), repeated):
                raise DsrdError(f"{file}: no records in this file; remove it from the list")
    if not found:
        raise DsrdError("no records; give files of records or folders of runs")
    return list(found.values())


def _files(folder: Path) -> Iterator[Path]:
    yield from (file for file in sorted(folder.rglob("*.jsonl")) if file.name not in NOT_RECORDS)
    yield from sorted(folder.rglob("record.json"))


def _lines(file: Path) -> Iterator[tuple[int, Record]]:
    """Line numbers and records; a file of one JSON object over several lines is one record."""
    if not file.is_file():
        raise DsrdError(f"{file}: no such file of records; give files of records or folders of runs")
    if file.suffix == ".json":
        try:
            whole = own_json(file)
            whole = verified(whole) if isinstance(whole, dict) else whole
        except ValueError as error:
            raise DsrdError(f"{file}: is not a JSON object, or damaged ({error}); remove it") from None
        yield 1, whole
        return
    yield from enumerate(record_files.read(file), start=1)


def kind_of(record: Any) -> str:
    """What a record is about; empty for an object that is no record.

    >>> kind_of({"dataset": "uci", "model": "mine", "results": {}}), kind_of({"colour": "red"})
    ('link', '')
    """
    if not isinstance(record, Mapping):
        return ""
    if "benchmark" in record:
        return "benchmark"
    if "results" in record and "model" in record:
        return "node" if record.get("task") == "node" else "link"
    for kind, entry in (("audit", "unlearned"), ("calibration", "calibration"), ("learned", "learned")):
        if entry in record:
            return kind
    if "seconds_per_1000_pairs" in _mapping(record.get("timing")):
        return "speed"
    events = record.get("events")
    if isinstance(events, list) and events and "surprise" in _mapping(events[0]):
        return "surprise"
    return ""


def check(record: Any) -> None:
    """Refuse an object that is no record, or lacks what a record of its kind must have."""
    place, kind = _place(record), kind_of(record)
    if not kind:
        raise DsrdError(f"{place}: is no record of a run, an audit or a benchmark; remove it")
    lacking = [name for name in NEEDED[kind] if name not in record]
    if not lacking and "config" in NEEDED[kind]:
        config = _mapping(record["config"])
        lacking = [f"config.{name}" for name in CONFIG_NEEDED if not isinstance(config.get(name), Mapping)]
    if not lacking and kind == "link" and not isinstance(record["results"], Mapping):
        lacking = ["results by setting"]
    if lacking:
        name = " on ".join(str(record[key]) for key in ("model", "dataset") if key in record) or kind
        raise DsrdError(
            f"{place}: the record of {name} has no {', '.join(lacking)}; measure it again or remove it"
        )


def of_kind(records: Records, *kinds: str) -> list[Record]:
    """The records of these kinds, in order."""
    return [record for record in records if kind_of(record) in kinds]


def _place(record: Any) -> str:
    return str(record[READ_FROM]) if isinstance(record, Mapping) and READ_FROM in record else "a record"


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
