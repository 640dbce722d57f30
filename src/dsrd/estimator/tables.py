"""Tables from users, whose columns are kept, and the tables they get back."""

from __future__ import annotations

import csv
import html
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dsrd.data import parse
from dsrd.data.parse import Origin
from dsrd.errors import DsrdError

PIECE_ROWS, PIECE_BYTES = 50_000, 1 << 22  # of a long file that are read at a time
MOST_ROWS = 60  # rows printed; of a longer table the first and the last ones
Columns = Mapping[str, NDArray[Any] | Sequence[Any]]


class Table:
    """Named columns of equal length; prints as a table in a terminal and in a notebook.

    >>> table = Table({"target": ["bob", "eve"], "probability": [0.75, 0.5]})
    >>> table["target"], len(table)
    (['bob', 'eve'], 2)
    >>> print(table)
    target  probability
    bob          0.7500
    eve          0.5000
    """

    def __init__(self, columns: Columns | pa.Table) -> None:
        self._table = columns if isinstance(columns, pa.Table) else pa.table(_as_arrow(columns))

    @property
    def columns(self) -> list[str]:
        """Names of the columns."""
        return list(self._table.column_names)

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def __getitem__(self, column: str) -> Any:
        """A column: an array of numbers, or a list of strings."""
        if column not in self.columns:
            raise KeyError(f"no column '{column}'; there are {', '.join(self.columns)}")
        values = self._table[column]
        return values.to_pylist() if _is_text(values.type) else values.to_numpy()

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Iterate over the rows as dictionaries."""
        return iter(self._table.to_pylist())

    def to_arrow(self) -> pa.Table:
        """The table as a pyarrow table."""
        return self._table

    def to_pandas(self) -> Any:
        """The table as a pandas frame."""
        _imported("pandas")
        return self._table.to_pandas()

    def to_polars(self) -> Any:
        """The table as a polars frame."""
        return _imported("polars").from_arrow(self._table)

    def to_csv(self) -> str:
        """The table as CSV text; numbers with six digits."""
        text = io.StringIO()
        rows = csv.writer(text, lineterminator="\n")
        rows.writerow(self.columns)
        for row in zip(*(self._table[name].to_pylist() for name in self.columns), strict=True):
            rows.writerow([_csv_text(value) for value in row])
        return text.getvalue()

    def __str__(self) -> str:
        header, rows = self.columns, self._cells()
        widths = [max(len(row[i]) for row in (header, *rows)) for i in range(len(header))]
        right = [not _is_text(kind) for kind in self._table.schema.types]
        lines = []
        for row in (header, *rows):
            cells = (
                cell.rjust(width) if number else cell.ljust(width)
                for cell, width, number in zip(row, widths, right, strict=True)
            )
            lines.append("  ".join(cells).rstrip())
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{html.escape(name)}</th>" for name in self.columns)
        body = "".join(
            "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in self._cells()
        )
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"

    def _cells(self) -> list[list[str]]:
        half = MOST_ROWS // 2
        first = self._table if len(self) <= MOST_ROWS else self._table.slice(0, half)
        rows = [[_cell_text(value) for value in row.values()] for row in first.to_pylist()]
        if len(self) > MOST_ROWS:
            rows.append(["..." for _ in self.columns])
            rows += [
                [_cell_text(value) for value in row.values()]
                for row in self._table.slice(len(self) - half).to_pylist()
            ]
        return rows


@dataclass(frozen=True)
class InputTable:
    """A table from a user, and a function that returns it in the user's format with added or replaced columns."""

    table: pa.Table
    origin: Origin
    with_columns: Callable[[Columns], Any]


def input_table(data: Any, tuple_columns: Sequence[str], name: str = "table") -> InputTable:
    """Read a table from a user.

    It is the path of a CSV or Parquet file, a pandas or polars frame, anything that supports Arrow, or a list of
    tuples whose entries get the names `tuple_columns`. A frame is returned as a frame of the same kind, an Arrow
    table as an Arrow table, everything else as a `Table`. Errors call the table by `name`.
    """
    if isinstance(data, str | Path):
        table, origin = read_file(Path(data))
        return InputTable(table, origin, lambda columns: Table(_replaced(table, columns)))
    if isinstance(data, Table):
        arrow = data.to_arrow()
        return InputTable(arrow, Origin(name, _row_itself), lambda columns: Table(_replaced(arrow, columns)))
    if isinstance(data, list | tuple):
        rows = _from_tuples(data, tuple_columns, name)
        return InputTable(rows, Origin(name, _row_itself), lambda columns: Table(_replaced(rows, columns)))
    kind = type(data).__module__.partition(".")[0]
    origin = Origin(f"{kind} frame" if kind in ("pandas", "polars") else name, _row_itself)
    if kind == "pandas":
        return InputTable(_from_pandas(data, origin), origin, lambda columns: data.assign(**_as_arrays(columns)))
    if kind == "polars":
        return InputTable(_arrow(data, origin), origin, lambda columns: _with_polars_columns(data, columns))
    arrow = _arrow(data, origin)
    return InputTable(arrow, origin, lambda columns: _replaced(arrow, columns))


def with_answers(
    table: InputTable, answers: Columns, stream_columns: Sequence[str], note: Callable[[str], None]
) -> Any:
    """The table of a user with answers added, in the user's format; a note names columns that they replace.

    An answer with the name of a column of the stream does not replace it: see `answer_name`.
    """
    named = {answer_name(name, stream_columns): values for name, values in answers.items()}
    replaced = [name for name in named if name in table.table.column_names]
    if replaced:
        note(f"{table.origin.name}: the answers replace its columns {', '.join(replaced)}")
    return table.with_columns(named)


def answer_name(name: str, stream_columns: Sequence[str]) -> str:
    """The column of an answer: its own name, or with a prefix if the source, target or time is called that.

    >>> answer_name("rate", ["user", "partner", "time"]), answer_name("partner", ["user", "partner", "time"])
    ('rate', 'dsrd_partner')
    """
    return f"dsrd_{name}" if name in stream_columns else name


def read_file(path: Path) -> tuple[pa.Table, Origin]:
    """All columns of a CSV or Parquet file; those of a CSV as the text in the file."""
    if is_parquet(path):
        origin, names = parse.parquet_origin(path), parse.parquet_schema(path).names
        _refuse_duplicates(names, origin)
        return parse.read_parquet(path, names), origin
    origin, head = parse.csv_origin(path), parse.csv_head(path)
    _refuse_duplicates(head.names, origin)
    table = parse.read_csv(path, head, only=head.names, text=head.names)
    return pa.table({name: table[name].cast(pa.string()) for name in table.column_names}), origin


def file_pieces(path: Path) -> Iterator[InputTable]:
    """`read_file`, a piece at a time: a file of any length in bounded memory. Rows are numbered as in the file."""
    if is_parquet(path):
        whole = parse.parquet_origin(path)
        _refuse_duplicates(parse.parquet_schema(path).names, whole)
        pieces = parse.parquet_pieces(path, PIECE_ROWS)
    else:
        whole, head = parse.csv_origin(path), parse.csv_head(path)
        _refuse_duplicates(head.names, whole)
        pieces = parse.csv_pieces(path, head, PIECE_BYTES)
    start = 0
    for table in pieces:
        origin = Origin(str(path), partial(_later_row, whole.number, start))
        yield arrow_input(table, origin)
        start += len(table)
    if not start:
        raise DsrdError(f"{path}: has no rows; give one pair per row")


def arrow_input(table: pa.Table, origin: Origin) -> InputTable:
    """An Arrow table, which stays one when columns are added."""
    return InputTable(table, origin, partial(_replaced, table))


def _later_row(number: Callable[[int], int], start: int, row: int) -> int:
    return number(start + row)


def is_parquet(path: Path) -> bool:
    """Whether a file is Parquet, by its name."""
    return path.suffix.lower() in (".parquet", ".pq")


def _refuse_duplicates(names: Sequence[str], origin: Origin) -> None:
    duplicate = next((name for name in names if list(names).count(name) > 1), None)
    if duplicate is not None:
        raise origin.error(f"there are two columns '{duplicate}'; rename one of them")


def _from_tuples(rows: Sequence[Any], names: Sequence[str], table_name: str) -> pa.Table:
    for number, row in enumerate(rows):
        if isinstance(row, str) or not isinstance(row, Sequence) or not 2 <= len(row) <= len(names):
            forms = f"({', '.join(names[:2])}) or ({', '.join(names)})"
            raise DsrdError(f"{table_name}: entry {number} is {row!r}; give tuples {forms}")
    width = len(rows[0]) if rows else 2
    if any(len(row) != width for row in rows):
        raise DsrdError(f"{table_name}: some entries have a time and some have none; give it for all or for none")
    columns = {}
    for i, name in enumerate(names[:width]):
        values = [row[i] for row in rows]
        try:
            columns[name] = pa.array([str(value) for value in values] if i < 2 else values)
        except (pa.ArrowException, TypeError) as error:
            raise DsrdError(f"{table_name}: {name}: {error}; write all entries alike") from error
    return pa.table(columns)


def _from_pandas(frame: Any, origin: Origin) -> pa.Table:
    _refuse_duplicates([str(name) for name in frame.columns], origin)
    columns = {}
    for name in frame.columns:
        try:
            columns[str(name)] = pa.Array.from_pandas(frame[name])
        except (pa.ArrowException, TypeError, ValueError):
            continue  # a column of arbitrary objects; if it is needed, an error says that it is missing
    return pa.table(columns)


def _arrow(data: Any, origin: Origin) -> pa.Table:
    try:
        table = pa.table(data)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise origin.error(
            f"cannot be read as a table ({str(error).splitlines()[0]}); give a pandas, polars or pyarrow table, "
            "the path of a file, or a list of tuples"
        ) from error
    _refuse_duplicates(table.column_names, origin)
    return table


def _replaced(table: pa.Table, columns: Columns) -> pa.Table:
    for name, values in columns.items():
        column = pa.array(values)
        place = table.column_names.index(name) if name in table.column_names else -1
        table = table.append_column(name, column) if place < 0 else table.set_column(place, name, column)
    return table


def _with_polars_columns(frame: Any, columns: Columns) -> Any:
    polars = _imported("polars")
    return frame.with_columns(**{name: polars.Series(name, values) for name, values in columns.items()})


def _as_arrays(columns: Columns) -> dict[str, Any]:
    return {name: np.asarray(values) for name, values in columns.items()}


def _as_arrow(columns: Columns) -> dict[str, pa.Array]:
    return {name: values if isinstance(values, pa.Array) else pa.array(values) for name, values in columns.items()}


def _imported(module: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        raise DsrdError(f"{module} is not installed; run `pip install dsrd[frames]`") from error


def _row_itself(row: int) -> int:
    """Rows of a table in memory are counted from 0, without a header."""
    return row


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_dictionary(kind))


def _cell_text(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if not isinstance(value, float):
        return str(value)
    return f"{value:.4f}" if value == 0 or abs(value) >= 0.001 else f"{value:.2e}"


def _csv_text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:.6g}" if isinstance(value, float) else str(value)
