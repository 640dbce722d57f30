"""Pairs to be scored, from a file in the words of the stream they ask about."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from dsrd.config import DataConfig
from dsrd.data import parse, values
from dsrd.data.dataset import Dataset, Names
from dsrd.events import Query, as_tensor


def read_pairs(path: Path, config: DataConfig, dataset: Dataset) -> tuple[Query, list[tuple[str, str, str]]]:
    """The pairs of a CSV or Parquet file as a query, and (source, target, time) as the file writes them.

    Columns are called as in the stream's own file. Without a time column the question is about the moment after
    the stream's last event. A node the stream has never met is a new one: it has no past.
    """
    table, origin = _table(path, config)
    if config.time in table.column_names:
        time = values.times(table[config.time], "time", origin, config.time_format)
        written = [str(value) for value in table[config.time]]
    else:
        time = np.full(len(table), np.nextafter(float(dataset.events.time[-1]), np.inf))
        written = [repr(float(value)) for value in time]
    new = _Newcomers(dataset.num_nodes)
    src = _ids(table[config.source], "source", origin, dataset.names, new)
    dst = _ids(table[config.target], "target", origin, dataset.names, new)
    ends = ([str(value) for value in table[end]] for end in (config.source, config.target))
    return Query(as_tensor(src), as_tensor(dst), as_tensor(time)), list(zip(*ends, written, strict=True))


def _table(path: Path, config: DataConfig) -> tuple[pa.Table, parse.Origin]:
    """The columns that matter and are there; in a CSV file kept letter by letter."""
    parquet = path.suffix.lower() in (".parquet", ".pq")
    origin = parse.parquet_origin(path) if parquet else parse.csv_origin(path)
    head = None if parquet else parse.csv_head(path)
    available = parse.parquet_schema(path).names if head is None else head.names
    for option in ("source", "target"):
        column = getattr(config, option)
        if column not in available:
            raise origin.error(
                f"there is no column '{column}'; it has {', '.join(available)}: call it as in the stream"
            )
    wanted = [name for name in (config.source, config.target, config.time) if name in available]
    if head is None:
        return parse.read_parquet(path, wanted), origin
    return parse.read_csv(path, head, only=wanted, text=wanted), origin


class _Newcomers:
    """Ids for names the stream does not know, one each."""

    def __init__(self, first: int) -> None:
        self.first = first
        self.ids: dict[str, int] = {}

    def id(self, name: str) -> int:
        return self.ids.setdefault(name, self.first + len(self.ids))


def _ids(column: Any, what: str, origin: parse.Origin, names: Names | None, new: _Newcomers) -> Any:
    if names is None:
        return values.integers(column, what, origin, least=1)
    code, distinct = values.names(column, what, origin)
    known = [names.find(str(name), target=what == "target") for name in distinct]
    ids = [new.id(str(name)) if node is None else node for name, node in zip(distinct, known, strict=True)]
    return np.array(ids, dtype=np.int64)[code]
