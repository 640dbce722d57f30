"""Answers about tables of pairs, and about files of pairs of any length: a piece at a time, in bounded memory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet
from numpy.typing import NDArray

from dsrd.estimator.answers import answer_pairs
from dsrd.estimator.fitted import Fitted
from dsrd.estimator.queries import NodeIds, query_of, time_of
from dsrd.estimator.tables import InputTable, Table, file_pieces, is_parquet, with_answers
from dsrd.events import Query
from dsrd.files import replacing
from dsrd.reporter import step


class PairScorer:
    """Adds what a fitted model says to tables of pairs."""

    def __init__(self, fitted: Fitted, at: Any, head: str | None, strict_names: bool) -> None:
        self._fitted, online = fitted, fitted.online
        self._head, self._at = online.model.head_called(head), time_of(at, online.stream)
        self._node_ids = NodeIds(online.stream, strict_names)
        self._early = 0
        self._notes: list[str] = []

    def answered(self, pairs: InputTable) -> Any:
        """The table with the answers as further columns, in the user's format."""
        online, columns = self._fitted.online, self._fitted.online.stream.columns

        def answer() -> tuple[Query, Any, dict[str, Any]]:
            query, known = query_of(pairs, online.stream, self._node_ids, self._at)
            online.settle(query.time)
            return query, known, answer_pairs(online, query, self._head).columns()

        query, known, answers = online.lock.run(answer)
        self._early += early(self._fitted, query.time.numpy())
        names = (columns.source, columns.target, columns.time)
        return with_answers(pairs, {**answers, "known": known}, names, self._note)

    def _note(self, line: str) -> None:
        if line not in self._notes:
            self._notes.append(line)

    def notes(self) -> list[str]:
        """What the user should know about all tables so far."""
        return [*self._node_ids.notes(), *_early_note(self._early), *self._notes]


class FileJob(NamedTuple):
    """A file of pairs to be answered."""

    pairs: Path  # Parquet or CSV
    out: Path  # Parquet or CSV; on a cluster also a folder
    at: Any = None  # the time of rows that have none
    head: str = ""
    strict_names: bool = False


def score_file(fitted: Fitted, job: FileJob, note: Callable[[str], None]) -> int:
    """Answer a file of pairs, which need not fit into memory; returns the number of rows."""
    scorer, rows = PairScorer(fitted, job.at, job.head, job.strict_names), 0
    with replacing(job.out) as temporary, TableWriter(temporary, is_parquet(job.out)) as out:
        for pairs in file_pieces(job.pairs):
            out.write(scorer.answered(pairs))
            rows += len(pairs.table)
            step("pairs", rows)
    for line in scorer.notes():
        note(line)
    return rows


class TableWriter:
    """Writes tables with the same columns one after the other into a Parquet or CSV file."""

    def __init__(self, path: Path, parquet: bool) -> None:
        self._path, self._parquet = path, parquet
        self._writer: Any = None

    def __enter__(self) -> TableWriter:
        if not self._parquet:
            self._writer = self._path.open("w", encoding="utf-8", newline="")
        return self

    def __exit__(self, *error: object) -> None:
        if self._writer is not None:
            self._writer.close()

    def write(self, table: pa.Table) -> None:
        """Append the rows of a table."""
        if self._parquet:
            if self._writer is None:
                self._writer = pyarrow.parquet.ParquetWriter(str(self._path), table.schema)
            self._writer.write_table(table.cast(self._writer.schema))
            return
        text = Table(table).to_csv()
        self._writer.write(text if self._writer.tell() == 0 else text.partition("\n")[2])


def early(fitted: Fitted, time: NDArray[np.float64]) -> int:
    """How many of these times lie in the time of training."""
    return int((time <= fitted.trained_until()).sum()) if fitted.online.model.num_parameters else 0


def early_notes(fitted: Fitted, time: NDArray[np.float64]) -> list[str]:
    """A warning for queries in the time of training: the weights have learned from later events."""
    return _early_note(early(fitted, time))


def _early_note(count: int) -> list[str]:
    return (
        [f"{count:,} questions lie in the time of training: the weights have learned from later events"]
        if count
        else []
    )
