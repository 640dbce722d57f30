"""Reading files as Arrow tables and numpy arrays. Errors are one line that names the file and the row."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import TextIOWrapper
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
from numpy.typing import NDArray

from dsrd.errors import DsrdError


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
    with _opened(path) as file:
        header = file.readline()
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
            str(path),
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
    except (pa.ArrowException, OSError) as error:
        raise _csv_fault(path, head, len(head.names) if only else head.fields, error) from error
    return table


def parquet_schema(path: Path) -> pa.Schema:
    with _read_errors(path, "a complete Parquet file"):
        return pyarrow.parquet.read_schema(str(path))


def read_parquet(path: Path, only: Sequence[str]) -> pa.Table:
    with _read_errors(path, "a complete Parquet file"):
        table = pyarrow.parquet.ParquetFile(str(path)).read(columns=list(only))
    if not table.num_rows:
        raise DsrdError(f"{path}: has no events; give one row per event")
    return table


def read_npy(path: Path) -> NDArray[Any]:
    """An array from a `.npy` file, memory-mapped; pickled objects are refused."""
    with _read_errors(path, "a complete .npy file of numbers"):
        array = np.load(path, mmap_mode="r", allow_pickle=False)
        if array.dtype.kind not in "fiub":
            raise ValueError(f"its entries are {array.dtype}")
        return np.asarray(array)


@contextmanager
def _read_errors(path: Path, kind: str) -> Iterator[None]:
    if not path.is_file():
        raise DsrdError(f"{path}: no such file; check the path")
    try:
        yield
    except (pa.ArrowException, OSError, ValueError, EOFError, KeyError) as error:
        raise DsrdError(f"{path}: cannot be read as {kind} ({_first_line(error)}); get the file again") from error


def _open_bytes(path: Path) -> IO[bytes]:
    return cast(IO[bytes], gzip.open(path)) if path.suffix == ".gz" else path.open("rb")


@contextmanager
def _opened(path: Path) -> Iterator[IO[str]]:
    """The text of a file that may be compressed; UTF-8 with or without a byte order mark."""
    try:
        with _open_bytes(path) as file:
            yield TextIOWrapper(file, encoding="utf-8-sig", newline="")
    except FileNotFoundError:
        raise DsrdError(f"{path}: no such file; check the path") from None
    except UnicodeDecodeError as error:
        raise _not_utf8(path) from error
    except (OSError, EOFError, csv.Error) as error:
        raise DsrdError(f"{path}: cannot be read as CSV ({_first_line(error)}); get the file again") from error


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
    return DsrdError(f"{path}: cannot be read as CSV ({_first_line(error)}); repair the file")


def _not_utf8(path: Path) -> DsrdError:
    with _open_bytes(path) as file:
        for number, line in enumerate(file, start=1):
            try:
                line.decode("utf-8")
            except UnicodeDecodeError:
                return DsrdError(f"{path}: row {number}: not UTF-8 text; save the file as UTF-8")
    return DsrdError(f"{path}: not UTF-8 text; save the file as UTF-8")


def _line_of(path: Path, row: int) -> int:
    """The line number of a table row (blank lines are skipped, the header is line 1)."""
    with _opened(path) as file:
        lines = csv.reader(file)
        filled = (lines.line_num for fields in lines if fields)
        return next(line for index, line in enumerate(filled) if index == row + 1)


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
