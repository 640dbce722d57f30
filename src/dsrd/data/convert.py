"""Conversion of data sets to and from data frames, Arrow tables, PyG and files."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import torch

from dsrd.config import DataConfig
from dsrd.data import dyglib
from dsrd.data.dataset import Dataset, Names
from dsrd.data.parse import Origin
from dsrd.data.tabular import METADATA, from_table, needed, require, written_columns
from dsrd.decoding import first_line
from dsrd.errors import DsrdError
from dsrd.files import replacing, require_writable


def from_frame(frame: Any, columns: DataConfig = DataConfig(), *, name: str = "frame") -> Dataset:
    """A data set from a pandas or polars frame, a pyarrow table, or any object with the Arrow interface.

    >>> frame = pa.table({"source": ["ann", "bob"], "target": ["bob", "eve"], "time": [3, 5]})
    >>> from_frame(frame).num_nodes
    4
    """
    origin = Origin(name)
    try:
        table = pa.table(_with_distinct_columns(frame, columns, origin))
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise origin.error(
            f"cannot be read as a table ({first_line(error)}); give a pandas, polars or pyarrow table"
        ) from error
    if not table.num_rows:
        raise origin.error("has no events; give one row per event")
    return from_table(table, written_columns(columns, table.schema, origin), origin, name=name)


def _with_distinct_columns(frame: Any, columns: DataConfig, origin: Origin) -> Any:
    """The frame; only its needed columns if names occur twice, which pandas allows and Arrow refuses."""
    available = list(map(str, getattr(frame, "columns", ()))) if hasattr(frame, "loc") else []
    if len(set(available)) == len(available):
        return frame
    require(columns, available, origin)
    return frame[needed(columns, available)]


def to_table(dataset: Dataset) -> pa.Table:
    """Columns `source`, `target` (names, or ids where there are none), `time`, `label`, `f_0`, `f_1`, ...

    The schema metadata keeps what the columns cannot express, so that reading the table gives the same ids.

    >>> data = Dataset.from_arrays("tiny", [1, 2], [2, 3], [0.0, 1.0], label=[0, 1])
    >>> to_table(data).column_names
    ['source', 'target', 'time', 'label']
    """
    src, dst, time, event = dataset.events.numpy()
    ends: dict[str, Any] = {"source": src, "target": dst}
    if dataset.names is not None:
        ends = {end: dataset.names.array.take(pa.array(ids)) for end, ids in ends.items()}
    columns = {**ends, "time": time}
    if dataset.label is not None:
        columns["label"] = dataset.label.numpy()
    features = dataset.edge_x.numpy()[event]  # [E, d]
    columns.update({f"f_{j}": features[:, j] for j in range(dataset.edge_dim)})
    metadata = {
        "bipartite": dataset.bipartite,
        "ids_are_names": dataset.names is None,
        "features": ["f_*"] if dataset.edge_dim else [],
        "label": None if dataset.label is None else "label",
        "dates": dataset.dates,
        "keep_spaces": True,  # names are written as they are
    }
    return pa.table(columns).replace_schema_metadata({METADATA: json.dumps(metadata)})


def to_pandas(dataset: Dataset) -> Any:
    """`to_table` as a pandas frame."""
    _need("pandas", "frames")
    return to_table(dataset).to_pandas()


def to_polars(dataset: Dataset) -> Any:
    """`to_table` as a polars frame."""
    return _need("polars", "frames").from_arrow(to_table(dataset))


def is_pyg(data: Any) -> bool:
    """Whether an object is of a PyG class; PyG is not imported for it."""
    return any(kind.__module__.startswith("torch_geometric.") for kind in type(data).__mro__)


def from_pyg(data: Any, *, name: str = "pyg", bipartite: bool = False) -> Dataset:
    """A data set from a `torch_geometric.data.TemporalData`; its node ids, which start at 0, become names."""
    order = torch.argsort(data.t, stable=True)
    message, label = data.msg if "msg" in data else None, data.y if "y" in data else None
    edge_x = None
    if message is not None and message.numel():
        rows = message[order].reshape(len(order), -1).numpy()  # [E, d]
        edge_x = np.concatenate([np.zeros_like(rows[:1]), rows])
    return Dataset.from_arrays(
        name,
        data.src[order].numpy() + 1,
        data.dst[order].numpy() + 1,
        data.t[order].numpy(),
        edge_x=edge_x,
        label=None if label is None else label[order].reshape(-1).numpy(),
        names=Names(["", *map(str, range(int(torch.cat([data.src, data.dst]).max()) + 1))]),
        bipartite=bipartite,
    )


def to_pyg(dataset: Dataset) -> Any:
    """A `torch_geometric.data.TemporalData` with ids from 0; it cannot hold names and node features."""
    temporal_data = _need("torch_geometric.data", "pyg").TemporalData
    events = dataset.events
    whole = events.time == events.time.round()
    return temporal_data(
        src=events.src - 1,
        dst=events.dst - 1,
        t=events.time.long() if bool(whole.all()) else events.time,  # PyG models expect whole seconds
        msg=dataset.edge_x[events.id],
        **({} if dataset.label is None else {"y": dataset.label}),
    )


def write(dataset: Dataset, path: str | Path) -> tuple[str, ...]:
    """Write a `.csv` or `.parquet` file, or a folder in the processed benchmark layout; notes say what is lost."""
    path = check_target(path)
    if path.suffix == "":
        _write_folder(dataset, path)
        return ()
    with replacing(path) as temporary:
        if path.suffix == ".csv":
            pyarrow.csv.write_csv(to_table(dataset), str(temporary))
        else:
            pyarrow.parquet.write_table(to_table(dataset), str(temporary), compression="zstd")
    if dataset.node_dim:
        return (
            f"{path}: node features are left out, a table of events cannot hold them; write a folder to keep them",
        )
    return ()


def check_target(path: str | Path) -> Path:
    """The path, checked: `write` can write there. Call it before a long stream is read or drawn."""
    path = Path(path)
    if path.suffix not in ("", ".csv", ".parquet"):
        raise DsrdError(f"{path}: cannot write {path.suffix}; use .csv, .parquet or a folder (no suffix)")
    if path.suffix == "" and path.is_file():
        raise DsrdError(f"{path}: is a file; give a new folder, or a name that ends in .csv or .parquet")
    require_writable(path if path.suffix else path / f"{dyglib.PREFIX}{path.name}.csv")
    return path


def _write_folder(dataset: Dataset, folder: Path) -> None:
    src, dst, time, event = dataset.events.numpy()
    label = np.zeros(len(event)) if dataset.label is None else dataset.label.numpy()
    events_file, edge_file, node_file, names_file = dyglib.parts(folder / f"{dyglib.PREFIX}{folder.name}.csv")
    columns = {"": np.arange(len(event)), "u": src, "i": dst, "ts": time, "label": label, "idx": event}
    for file, x in ((edge_file, dataset.edge_x), (node_file, dataset.node_x)):
        # Other readers expect at least one column of features.
        matrix = x.numpy() if x.shape[1] else np.zeros((len(x), 1), np.float32)
        with replacing(file) as temporary, temporary.open("wb") as handle:
            np.save(handle, matrix)
    if dataset.names is not None:
        is_target = dataset.names.is_target
        targets = np.zeros(len(dataset.names), np.bool_) if is_target is None else is_target
        named = {"name": dataset.names.array, "target": targets}
        with replacing(names_file) as temporary:
            pyarrow.csv.write_csv(pa.table(named), str(temporary))
    # Written last: a folder with this file is complete.
    with replacing(events_file) as temporary:
        pyarrow.csv.write_csv(pa.table(columns), str(temporary))


def _need(module: str, extra: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        package = module.split(".")[0].replace("_", "-")
        raise DsrdError(f"{package} is not installed; run `pip install dsrd[{extra}]`") from error
