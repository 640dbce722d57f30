"""`load`: read a stream from a file, a table or a name; parsed files are cached."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import platformdirs

from dsrd.config import DataConfig, overridden
from dsrd.data import catalog, dyglib, parse, tabular, tgb
from dsrd.data.cache import cached
from dsrd.data.convert import from_frame, from_pyg, is_pyg
from dsrd.data.dataset import Dataset
from dsrd.decoding import first_line, regular_file, shortened
from dsrd.errors import DsrdError, unknown

if TYPE_CHECKING:
    from dsrd.synthetic.settings import MemoryConfig, SynthConfig

SYNTH, MEMORY = "synth", "memory"


def load(
    data: Any,
    *,
    source: str = "source",
    target: str = "target",
    time: str = "time",
    features: Sequence[str] = (),
    label: str | None = None,
    time_format: str | None = None,
    format: str = "auto",
    bipartite: bool | None = None,
    keep_spaces: bool = False,
    name: str | None = None,
    data_dir: str | Path | None = None,
    cache: bool = True,
) -> Dataset:
    """Read a stream of events from a table with one row per event and columns `source`, `target` and `time`.

    `data` is a path, the name of a benchmark data set (looked up in `data_dir`, $DSRD_DATA and the user's data
    folder), `tgb:wiki` or another data set of the Temporal Graph Benchmark with its own split, a pandas or polars
    frame, an Arrow table, a PyG `TemporalData`, `synth` or `synth:events=5000` for a synthetic stream, or a
    `Dataset`, which is returned unchanged.

    `source`, `target` and `time` name the columns; `features` names numeric columns, also by pattern (`f_*`).
    `time_format` is the format of dates, as for strptime. `bipartite` says that sources and targets are separate
    nodes, even if they share a name. Spaces around names are removed unless `keep_spaces`. `format` is `csv`,
    `parquet`, `dyglib` (a folder with `ml_NAME.csv`, `ml_NAME.npy`, `ml_NAME_node.npy`) or `dyglib-raw`
    (`NAME.csv` as the benchmarks publish it). Parsed files are cached unless `cache` is false.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder) / "calls.csv"
    ...     _ = path.write_text("caller,callee,time\\nann,bob,3\\nbob,eve,5\\n")
    ...     data = load(path, source="caller", target="callee", cache=False)
    >>> len(data.events), data.names[3], data.events.time.tolist()
    (2, 'eve', [3.0, 5.0])
    """
    columns = {"source": source, "target": target, "time": time, "label": label, "time_format": time_format}
    patterns = (features,) if isinstance(features, str) else tuple(features)
    kinds = {"format": format, "bipartite": bipartite, "keep_spaces": keep_spaces}
    config = overridden(DataConfig(), {**columns, "features": patterns, **kinds})
    return load_with(data, config, name=name, data_dir=data_dir, cache=cache)


def load_with(
    data: Any,
    config: DataConfig = DataConfig(),
    *,
    name: str | None = None,
    data_dir: str | Path | None = None,
    cache: bool = True,
) -> Dataset:
    """`load` with the columns described by one object, which runs store.

    >>> len(load_with("synth:events=500").events)
    500
    """
    if isinstance(data, Dataset):
        dataset = data
    elif isinstance(data, str) and is_synthetic(data):
        dataset = _synthetic(data)
    elif isinstance(data, str) and data.startswith(tgb.PREFIX):
        dataset = tgb.load_named(data, lambda: _read_files("wikipedia", config, data_dir, cache))
    elif isinstance(data, str | os.PathLike):
        dataset = _read_files(data if isinstance(data, str) else Path(data), config, data_dir, cache)
    elif is_pyg(data):
        dataset = from_pyg(data, bipartite=bool(config.bipartite))
    else:
        dataset = from_frame(data, config, name=name or "frame")
    return dataset if name is None else replace(dataset, name=name)


def is_synthetic(name: str) -> bool:
    """Whether a name describes a stream to draw: `synth`, `synth:events=5000`, `memory:taus=10/1000`."""
    return name == SYNTH or name.startswith((f"{SYNTH}:", f"{MEMORY}:"))


def synthetic_config(name: str) -> SynthConfig | MemoryConfig:
    """The settings in `synth:key=value,key=value`, or in `memory:taus=10/1000,key=value`.

    >>> synthetic_config("synth:events=500").events
    500
    """
    from dsrd.synthetic.settings import MemoryConfig, SynthConfig

    family, _, text = name.partition(":")
    settings: dict[str, str] = {}
    for setting in filter(None, text.split(",")):
        key, equals, value = setting.partition("=")
        if not equals:
            raise DsrdError(f"{name}: '{setting}' is not key=value; write for example {family}:events=5000,seed=1")
        settings[key.strip()] = value.strip().replace("/", ",")
    return overridden(MemoryConfig() if family == MEMORY else SynthConfig(), settings, prefix=f"{family}:")


def _synthetic(name: str) -> Dataset:
    # imported here: it loads numba, which plain files do not need
    from dsrd.synthetic.drawing import synth
    from dsrd.synthetic.memory import memory_stream
    from dsrd.synthetic.settings import MemoryConfig

    config = synthetic_config(name)
    return memory_stream(config, name) if isinstance(config, MemoryConfig) else synth(config, name)


def _read_files(dataset: str | Path, config: DataConfig, data_dir: str | Path | None, cache: bool) -> Dataset:
    path = _locate(dataset, data_dir)
    plan = _plan(path, config)
    spec = catalog.get(dyglib.name_of(plan.path)) if plan.format.startswith("dyglib") else None
    if spec is not None and config.bipartite is None:
        config = replace(config, bipartite=spec.bipartite)

    def parsed() -> Dataset:
        return READERS[plan.format](plan.path, config)

    result = cached(plan.files, f"{plan.format} {config}", parsed) if cache else parsed()
    by_name = path != Path(dataset) and catalog.get(str(dataset)) is not None
    return replace(result, catalogued=spec is not None or by_name)


def data_folders(data_dir: str | Path | None = None) -> list[Path]:
    """Folders searched for data sets by name, in order: `data_dir`, $DSRD_DATA, the user's data folder."""
    chosen = [Path(folder) for folder in (data_dir, os.environ.get("DSRD_DATA")) if folder]
    return [*chosen, Path(platformdirs.user_data_dir("dsrd")) / "data"]


def folder_of(dataset: str | Path, data_dir: str | Path | None = None) -> Path | None:
    """The folder of a data set, by name or path; None for single files and for everything that is not a file."""
    try:
        path = _locate(dataset, data_dir)
    except DsrdError:
        return None
    return path if path.is_dir() else None


@dataclass(frozen=True)
class _Plan:
    """Which file to read, and how."""

    path: Path  # of the file with the events
    format: str

    @property
    def files(self) -> list[Path]:
        """All files that the result depends on."""
        candidates = dyglib.parts(self.path) if self.format == "dyglib" else (self.path,)
        return [file for file in candidates if file.exists()]


def _locate(dataset: str | Path, data_dir: str | Path | None) -> Path:
    """The file or folder of a name or a path; text with a separator or a suffix is a path."""
    path = Path(dataset)
    if isinstance(dataset, Path) or path.name != dataset or path.suffix[1:].isalpha():
        return path
    spec = catalog.get(dataset)
    name = spec.name if spec else dataset
    folders = data_folders(data_dir)
    for folder in folders:
        if _exists(folder / name) and (folder / name).is_dir():
            return folder / name
    if _exists(path):
        return path
    if spec is None:
        raise unknown("data set", dataset, catalog.SPECS)
    searched = ", ".join(str(folder) for folder in folders)
    raise DsrdError(
        f"data set '{name}' is in none of {searched}; fetch it, or set DSRD_DATA to the folder that holds {name}"
    )


def _plan(path: Path, config: DataConfig) -> _Plan:
    format = config.format
    if format not in (*READERS, "auto"):
        raise unknown("format", format, [*READERS, "auto"])
    if not _exists(path):
        raise DsrdError(f"{path}: no such file; check the path, or give the name of a data set")
    if path.is_dir():
        return _plan_folder(path, format)
    regular_file(path)
    if format != "auto":
        return _Plan(path, format)
    if path.suffix.lower() in (".parquet", ".pq"):
        return _Plan(path, "parquet")
    if path.suffix.lower() in (".npy", ".npz", ".zip"):
        raise DsrdError(f"{path}: holds no table of events; give the .csv file, or the folder that contains it")
    head = parse.csv_head(path)
    if {config.source, config.target, config.time} <= set(head.names):
        return _Plan(path, "csv")
    if path.name.startswith(dyglib.PREFIX) and set(dyglib.COLUMNS) <= set(head.names):
        return _Plan(path, "dyglib")
    return _Plan(path, "dyglib-raw" if dyglib.looks_raw(head) else "csv")


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError as error:
        raise DsrdError(f"{shortened(str(path))}: {first_line(error).lower()}; check the path") from error


def _plan_folder(folder: Path, format: str) -> _Plan:
    name = folder.resolve().name
    processed = folder / f"{dyglib.PREFIX}{name}.csv"
    if not processed.exists():
        processed = next(
            (file for file in sorted(folder.glob(f"{dyglib.PREFIX}*.csv")) if not file.stem.endswith("_names")),
            processed,
        )
    raw = folder / f"{name}.csv"
    if format in ("auto", "dyglib") and processed.exists():
        return _Plan(processed, "dyglib")
    if format in ("auto", "dyglib-raw") and raw.exists():
        return _Plan(raw, "dyglib-raw")
    expected = {"dyglib": processed.name, "dyglib-raw": raw.name}.get(format, f"{processed.name} or {raw.name}")
    raise DsrdError(f"{folder}: the folder has no {expected}; give the path of the file with the events")


def _read_csv(path: Path, columns: DataConfig) -> Dataset:
    origin, head = parse.csv_origin(path), parse.csv_head(path)
    tabular.require(columns, head.names, origin)
    text = [columns.source, columns.target, *([columns.time] if columns.time_format else [])]
    table = parse.read_csv(path, head, only=tabular.needed(columns, head.names), text=text)
    dataset = tabular.from_table(table, columns, origin, name=dyglib.name_of(path))
    return replace(dataset, notes=dataset.notes + tabular.ignored(columns, head.names))


def _read_parquet(path: Path, columns: DataConfig) -> Dataset:
    origin, schema = parse.parquet_origin(path), parse.parquet_schema(path)
    columns = tabular.written_columns(columns, schema, origin)
    tabular.require(columns, schema.names, origin)
    table = parse.read_parquet(path, tabular.needed(columns, schema.names))
    dataset = tabular.from_table(table, columns, origin, name=dyglib.name_of(path))
    return replace(dataset, notes=dataset.notes + tabular.ignored(columns, schema.names))


READERS: dict[str, Callable[[Path, DataConfig], Dataset]] = {
    "csv": _read_csv,
    "parquet": _read_parquet,
    "dyglib": dyglib.read_processed,
    "dyglib-raw": dyglib.read_raw,
}
