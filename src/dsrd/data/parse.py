"""Reading files as Arrow tables and numpy arrays. Errors are one line that names the file and the row."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import TextIOWrapper
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
from numpy.typing import NDArray

from dsrd.data import gzipped
from dsrd.decoding import decoding, expansion_limit, first_line, regular_file, too_large
from dsrd.errors import DsrdError

PARQUET = "a complete Parquet file"
LEAST_ENTRY = 4  # bytes that an entry of a column takes in memory
LONGEST_HEADER = 1 << 24  # characters; a file whose first line is longer is not a table


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a table came from; errors name the place as a user would look it up."""

    name: str
    number: Callable[[int], int] = lambda row: row  # table row -> row number in the file

    def error(self, message: str, row: int | None = None) -> DsrdError:
        place = "" if row is None else f"row {self.number(row)}: "
        return DsrdError(f"{self.name}: {place}{message}")


def csv_origin(path: Path) -> Origin:
    """Rows are numbered as lines of the file, with the header as line 1; looked up only for an error."""
    return Origin(str(path), lambda row: _line_of(path, row))


def parquet_origin(path: Path) -> Origin:
    return Origin(str(path), lambda row: row + 1)


@dataclass(frozen=True, slots=True)
class Head:
    """The first two lines of a CSV file."""

    names: list[str]
    fields: int  # fields of the first data row; 0 if there is none
    delimiter: str


def csv_head(path: Path) -> Head:
    """Header, number of fields, and delimiter: the most frequent of comma, tab and semicolon in the header."""
    _refuse_other_formats(path)
    with _opened(path) as file:
        header = file.readline(LONGEST_HEADER)
        if len(header) == LONGEST_HEADER:
            raise DsrdError(f"{path}: has no header line; it needs one, and one line per event")
        if not header.strip():
            raise DsrdError(f"{path}: the file is empty; it needs a header line and one line per event")
        delimiter = max(",\t;", key=header.count)
        names = next(csv.reader([header], delimiter=delimiter))
        first = next((row for row in csv.reader(file, delimiter=delimiter) if row), [])
    return Head([name.strip() for name in names], len(first), delimiter)


def read_csv(path: Path, head: Head, *, only: Sequence[str] = (), text: Sequence[str] = ()) -> pa.Table:
    """The columns `only` of a CSV file. Those in `text` stay text; the types of the others are inferred.

    Without `only`, the header is skipped and the columns are called f0, f1, ...: for files whose header has fewer
    names than the rows have fields.
    """
    if not head.fields:
        raise DsrdError(f"{path}: has a header but no events; give one line per event")
    try:
        table = pyarrow.csv.read_csv(
            gzipped.Expanded(path) if gzipped.is_gzipped(path) else str(path),
            read_options=pyarrow.csv.ReadOptions(
                column_names=head.names if only else None,
                autogenerate_column_names=not only,
                skip_rows=1,
            ),
            parse_options=pyarrow.csv.ParseOptions(delimiter=head.delimiter),
            convert_options=pyarrow.csv.ConvertOptions(
                include_columns=list(only) or None,
                # Few distinct names, many rows: a dictionary stores each name once per block.
                column_types={name: pa.dictionary(pa.int32(), pa.string()) for name in text},
            ),
        )
    except DsrdError:
        raise
    except Exception as error:
        raise _csv_fault(path, head, len(head.names) if only else head.fields, error) from error
    return table


def csv_pieces(path: Path, head: Head, size: int) -> Iterator[pa.Table]:
    """A CSV file as tables of text, each from about `size` bytes: the whole need not fit into memory."""
    try:
        reader = pyarrow.csv.open_csv(
            str(path),
            read_options=pyarrow.csv.ReadOptions(column_names=head.names, skip_rows=1, block_size=size),
            parse_options=pyarrow.csv.ParseOptions(delimiter=head.delimiter),
            convert_options=pyarrow.csv.ConvertOptions(column_types={name: pa.string() for name in head.names}),
        )
        for batch in reader:
            yield pa.Table.from_batches([batch])
    except (pa.ArrowException, OSError) as error:
        raise _csv_fault(path, head, len(head.names), error) from error


def parquet_pieces(path: Path, size: int) -> Iterator[pa.Table]:
    """A Parquet file as tables of at most `size` rows."""
    with decoding(regular_file(path), PARQUET), pyarrow.parquet.ParquetFile(str(path)) as file:
        for batch in file.iter_batches(batch_size=size):
            yield pa.Table.from_batches([batch])


def parquet_schema(path: Path) -> pa.Schema:
    with decoding(regular_file(path), PARQUET):
        return pyarrow.parquet.read_schema(str(path))


def read_parquet(path: Path, only: Sequence[str]) -> pa.Table:
    """The columns `only`; a file that is far smaller than what it expands to is refused."""
    with decoding(regular_file(path), PARQUET):
        file = pyarrow.parquet.ParquetFile(str(path))
        limit = expansion_limit(path.stat().st_size)
        if file.metadata.num_rows * len(only) * LEAST_ENTRY > limit:
            raise too_large(path, limit)
        table = file.read(columns=list(only))
        table.validate()
    if not table.num_rows:
        raise DsrdError(f"{path}: has no events; give one row per event")
    return table


def read_npy(path: Path) -> NDArray[Any]:
    """A matrix or a vector from a `.npy` file, memory-mapped; pickled objects are refused."""
    with decoding(regular_file(path), "a complete .npy file of numbers"):
        array = np.load(path, mmap_mode="r", allow_pickle=False)
        if not isinstance(array, np.ndarray):
            raise ValueError("it is an archive of several arrays")
        if array.dtype.kind not in "fiub":
            raise ValueError(f"its entries are {array.dtype}")
        if not array.ndim:
            raise ValueError("it is a single number, not an array")
        return np.asarray(array)


OTHER_FORMATS = {
    b"\x1f\x8b": "is compressed by gzip; give it a name that ends in .gz",
    b"BZh": "is compressed by bzip2; expand it first",
    b"\xfd7zXZ": "is compressed by xz; expand it first",
    b"(\xb5/\xfd": "is compressed by zstandard; expand it first",
    b"PK\x03\x04": "is a zip archive or a spreadsheet; give a CSV file",
    b"PAR1": "is a Parquet file; give it a name that ends in .parquet",
    b"\xff\xfe": "row 1: not UTF-8 but UTF-16; save the file as UTF-8",
    b"\xfe\xff": "row 1: not UTF-8 but UTF-16; save the file as UTF-8",
}
"""First bytes of files that are often taken for CSV, and what to do."""


def _refuse_other_formats(path: Path) -> None:
    if gzipped.is_gzipped(path):
        return
    with decoding(regular_file(path), "CSV"), path.open("rb") as file:
        start = file.read(8)
    for magic, remedy in OTHER_FORMATS.items():
        if start.startswith(magic):
            raise DsrdError(f"{path}: {remedy}")


@contextmanager
def _opened(path: Path) -> Iterator[IO[str]]:
    """The text of a file that may be compressed; UTF-8 with or without a byte order mark."""
    with decoding(regular_file(path), "CSV"), gzipped.opened(path) as file:
        try:
            yield TextIOWrapper(file, encoding="utf-8-sig", newline="")
        except UnicodeDecodeError as error:
            raise _not_utf8(path) from error


def _csv_fault(path: Path, head: Head, expected: int, error: Exception) -> DsrdError:
    """The error for a file that Arrow could not parse; the csv module reads it again to find the row."""
    with _opened(path) as file:
        lines = csv.reader(file, delimiter=head.delimiter)
        for row in lines:
            if row and lines.line_num > 1 and len(row) != expected:
                number, fields = lines.line_num, len(row)
                if fields < expected and next(lines, None) is None:
                    return DsrdError(
                        f"{path}: row {number}: the last line has {fields} of {expected} fields: the file "
                        "is truncated; get it again or delete the line"
                    )
                return DsrdError(
                    f"{path}: row {number}: {fields} fields where {expected} are expected; repair the line"
                )
    if "utf8" in str(error).lower():
        return _not_utf8(path)
    return DsrdError(f"{path}: cannot be read as CSV ({first_line(error)}); repair the file")


def _not_utf8(path: Path) -> DsrdError:
    with gzipped.opened(path) as file:
        for number, line in enumerate(file, start=1):
            try:
                line.decode("utf-8")
            except UnicodeDecodeError:
                return DsrdError(f"{path}: row {number}: not UTF-8 text; save the file as UTF-8")
    return DsrdError(f"{path}: not UTF-8 text; save the file as UTF-8")


def _line_of(path: Path, row: int) -> int:
    """The line number of a table row (blank lines are skipped, the header is line 1)."""
    try:
        with _opened(path) as file:
            lines = csv.reader(file)
            filled = (lines.line_num for fields in lines if fields)
            return next((line for index, line in enumerate(filled) if index == row + 1), row + 2)
    except DsrdError:  # an entry that is too long for the csv module
        return row + 2
