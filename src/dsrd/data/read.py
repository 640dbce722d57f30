"""`load`: a name or a path to a `Dataset`, from any of the formats below, parsed once."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import platformdirs

from dsrd.data import catalog, dyglib, parse, tabular
from dsrd.data.cache import cached
from dsrd.data.dataset import Dataset
from dsrd.data.tabular import Columns
from dsrd.errors import DsrdError, unknown


def load(
    dataset: str | Path,
    *,
    data_dir: str | Path | None = None,
    format: str = "auto",
    columns: Columns = Columns(),
    bipartite: bool | None = None,
    cache: bool = True,
) -> Dataset:
    """Read a data set: a name (looked up in `data_folders`) or the path of a file or folder.

    Formats: `csv` and `parquet` (your own files, described by `columns`), `dyglib` (a folder with
    `ml_NAME.csv`, `ml_NAME.npy`, `ml_NAME_node.npy`), `dyglib-raw` (`NAME.csv` as the benchmarks publish it).

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder) / "calls.csv"
    ...     _ = path.write_text("source,target,time\\nann,bob,3\\nbob,eve,5\\n")
    ...     data = load(path, cache=False)
    >>> len(data.events), data.names[3], data.events.time.tolist()
    (2, 'eve', [3.0, 5.0])
    """
    path = _locate(dataset, data_dir)
    plan = _plan(path, format, columns)
    if bipartite is None:
        spec = catalog.get(dyglib.name_of(plan.path)) if plan.format.startswith("dyglib") else None
        bipartite = spec.bipartite if spec else None
    read = READERS[plan.format]

    def parsed() -> Dataset:
        return read(plan.path, plan.columns, bipartite)

    if not cache:
        return parsed()
    return cached(plan.files, f"{plan.format} {plan.columns} {bipartite}", parsed)


def data_folders(data_dir: str | Path | None = None) -> list[Path]:
    """Folders that hold data sets by name, first match wins: `data_dir`, $DSRD_DATA, the user's own folder."""
    given = [Path(folder) for folder in (data_dir, os.environ.get("DSRD_DATA")) if folder]
    return [*given, Path(platformdirs.user_data_dir("dsrd")) / "data"]


def folder_of(dataset: str | Path, data_dir: str | Path | None = None) -> Path | None:
    """The folder that is a data set, given by name or path; None for single files and for what is no file."""
    try:
        path = _locate(dataset, data_dir)
    except DsrdError:
        return None
    return path if path.is_dir() else None


@dataclass(frozen=True)
class _Plan:
    path: Path  # of the file with the events
    format: str
    columns: Columns

    @property
    def files(self) -> list[Path]:
        """Everything the result depends on."""
        every = dyglib.parts(self.path) if self.format == "dyglib" else (self.path,)
        return [file for file in every if file.exists()]


def _locate(dataset: str | Path, data_dir: str | Path | None) -> Path:
    """The file or folder meant by a name or a path: what has a separator or a suffix is a path."""
    path = Path(dataset)
    if isinstance(dataset, Path) or path.name != dataset or path.suffix[1:].isalpha():
        return path
    spec = catalog.get(dataset)
    name = spec.name if spec else dataset
    folders = data_folders(data_dir)
    for folder in folders:
        if (folder / name).is_dir():
            return folder / name
    if path.exists():
        return path
    if spec is None:
        raise unknown("data set", dataset, catalog.SPECS)
    tried = ", ".join(str(folder) for folder in folders)
    raise DsrdError(
        f"data set '{name}' is in none of {tried}; run `dsrd data fetch {name}` or set DSRD_DATA to its folder"
    )


def _plan(path: Path, format: str, columns: Columns) -> _Plan:
    if format not in (*READERS, "auto"):
        raise unknown("format", format, [*READERS, "auto"])
    if not path.exists():
        raise DsrdError(f"{path}: no such file; check the path, or give the name of a data set")
    if path.is_dir():
        return _plan_folder(path, format, columns)
    if format != "auto":
        return _Plan(path, format, columns)
    if path.suffix.lower() in (".parquet", ".pq"):
        return _Plan(path, "parquet", columns)
    if path.suffix.lower() in (".npy", ".npz", ".zip"):
        raise DsrdError(f"{path}: holds no table of events; give the .csv file or the folder it lies in")
    head = parse.csv_head(path)
    if {columns.source, columns.target, columns.time} <= set(head.names):
        return _Plan(path, "csv", columns)
    if path.name.startswith(dyglib.PREFIX) and set(dyglib.COLUMNS) <= set(head.names):
        return _Plan(path, "dyglib", columns)
    return _Plan(path, "dyglib-raw" if dyglib.looks_raw(head) else "csv", columns)


def _plan_folder(folder: Path, format: str, columns: Columns) -> _Plan:
    name = folder.resolve().name
    processed = folder / f"{dyglib.PREFIX}{name}.csv"
    if not processed.exists():
        processed = next(
            (file for file in sorted(folder.glob(f"{dyglib.PREFIX}*.csv")) if not file.stem.endswith("_names")),
            processed,
        )
    raw = folder / f"{name}.csv"
    if format in ("auto", "dyglib") and processed.exists():
        return _Plan(processed, "dyglib", columns)
    if format in ("auto", "dyglib-raw") and raw.exists():
        return _Plan(raw, "dyglib-raw", columns)
    expected = {"dyglib": processed.name, "dyglib-raw": raw.name}.get(format, f"{processed.name} or {raw.name}")
    raise DsrdError(f"{folder}: the folder has no {expected}; give the path of the file with the events")


def _read_csv(path: Path, columns: Columns, bipartite: bool | None) -> Dataset:
    origin, head = parse.csv_origin(path), parse.csv_head(path)
    columns.require(head.names, origin)
    ends = [columns.source, columns.target]
    table = parse.read_csv(path, head, only=columns.needed(head.names), text=ends)
    dataset = tabular.from_table(table, columns, origin, name=dyglib.name_of(path), bipartite=bipartite)
    return replace(dataset, notes=dataset.notes + tabular.ignored(columns, head.names))


def _read_parquet(path: Path, columns: Columns, bipartite: bool | None) -> Dataset:
    origin, schema = parse.parquet_origin(path), parse.parquet_schema(path)
    if columns == Columns():
        columns = tabular.written_columns(schema) or columns
    columns.require(schema.names, origin)
    table = parse.read_parquet(path, columns.needed(schema.names))
    dataset = tabular.from_table(table, columns, origin, name=dyglib.name_of(path), bipartite=bipartite)
    return replace(dataset, notes=dataset.notes + tabular.ignored(columns, schema.names))


READERS: dict[str, Callable[[Path, Columns, bool | None], Dataset]] = {
    "csv": _read_csv,
    "parquet": _read_parquet,
    "dyglib": lambda path, columns, bipartite: dyglib.read_processed(path, bipartite),
    "dyglib-raw": lambda path, columns, bipartite: dyglib.read_raw(path, bipartite),
}
