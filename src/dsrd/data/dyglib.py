"""The two layouts of the benchmark files: raw (`wikipedia.csv`) and processed (`ml_wikipedia.csv`, `.npy`)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dsrd.config import DataConfig
from dsrd.data import column_arrays
from dsrd.data.dataset import Dataset, Names
from dsrd.data.parse import Head, Origin, csv_head, csv_origin, read_csv, read_npy
from dsrd.errors import DsrdError

PREFIX = "ml_"
COLUMNS = ("u", "i", "ts", "label", "idx")
USER_ITEM = "user_id"
"""First name in the header of raw files of users and items; the last name of the header covers all features."""


def parts(path: Path) -> tuple[Path, Path, Path, Path]:
    """(events, edge features, node features, names): the files of a processed data set.

    Published data sets have no file of names; `convert.write` adds one.
    """
    return (
        path,
        path.with_suffix(".npy"),
        path.with_name(f"{path.stem}_node.npy"),
        path.with_name(f"{path.stem}_names.csv"),
    )


def name_of(path: Path) -> str:
    """The data set's name: "uci" for `ml_uci.csv` and for `uci.csv`."""
    return path.name.split(".")[0].removeprefix(PREFIX)


def looks_raw(head: Head) -> bool:
    """Whether a header is that of a raw file: one name for all features, or fewer names than fields."""
    return head.fields > len(head.names) or head.names[0] == USER_ITEM


def read_processed(path: Path, config: DataConfig) -> Dataset:
    """Read a processed data set; ids, order and features stay exactly as in the files."""
    events, edge_file, node_file, names_file = parts(path)
    origin, head = csv_origin(events), csv_head(events)
    missing = [name for name in COLUMNS if name not in head.names]
    if missing:
        raise origin.error(
            f"there is no column '{missing[0]}'; processed files have {', '.join(COLUMNS)}: "
            "read other files with the `format` csv"
        )
    table = read_csv(events, head, only=COLUMNS)
    edge_x, node_x = float32s(edge_file), float32s(node_file)
    src, dst = (
        _below(column_arrays.integers(table[end], end, origin, least=1), end, len(node_x), node_file, origin)
        for end in ("u", "i")
    )
    row = column_arrays.integers(table["idx"], "idx", origin, least=1)
    if len(edge_x) != len(row) + 1:
        raise DsrdError(
            f"{edge_file}: {len(edge_x)} rows for {len(row)} events; "
            f"expected {len(row) + 1}, with row 0 as padding"
        )
    if (row != np.arange(1, len(row) + 1)).any():
        edge_x = edge_x[np.append(0, _below(row, "idx", len(edge_x), edge_file, origin))]
    time, dates = _in_order(table["ts"], origin, config)
    bipartite = not len(np.intersect1d(src, dst)) if config.bipartite is None else config.bipartite
    return Dataset.from_arrays(
        name_of(path),
        src,
        dst,
        time,
        edge_x=edge_x,
        node_x=node_x,
        label=column_arrays.float32s(table["label"], "label", origin),
        names=_read_names(names_file) if names_file.exists() else None,
        bipartite=bipartite,
        columns=replace(config, bipartite=bipartite),
        dates=dates,
    )


def read_raw(path: Path, config: DataConfig) -> Dataset:
    """Read `u,i,ts,label,features...` with ids from 0; items of a bipartite stream are numbered from 0 too."""
    origin, head = csv_origin(path), csv_head(path)
    if 0 < head.fields < 4:
        raise origin.error(
            f"rows have {head.fields} fields; raw files have at least user, item, time and label: "
            "read other files with the `format` csv"
        )
    table = read_csv(path, head)
    first, second, when, state, *features = table.column_names
    src = column_arrays.integers(table[first], "user (field 1)", origin, least=0) + 1
    dst = column_arrays.integers(table[second], "item (field 2)", origin, least=0) + 1
    bipartite = head.names[0] == USER_ITEM if config.bipartite is None else config.bipartite
    time, dates = _in_order(table[when], origin, config)
    edge_x = np.zeros((len(src) + 1, len(features)), dtype=np.float32)  # [E + 1, d]
    for j, feature in enumerate(features):
        edge_x[1:, j] = column_arrays.float32s(table[feature], f"feature {j} (field {j + 5})", origin)
    return Dataset.from_arrays(
        name_of(path),
        src,
        dst + src.max() if bipartite else dst,
        time,
        edge_x=edge_x,
        label=column_arrays.float32s(table[state], "label (field 4)", origin),
        bipartite=bipartite,
        columns=replace(config, bipartite=bipartite),
        dates=dates,
    )


def float32s(path: Path) -> NDArray[np.float32]:
    """A `.npy` file of features as 32-bit numbers; larger ones are refused."""
    array = read_npy(path)
    with np.errstate(over="ignore"):
        small = np.asarray(array, dtype=np.float32)
    if array.dtype.itemsize > 4 and array.dtype.kind == "f":
        too_large = np.isinf(small) & np.isfinite(array)
        if too_large.any():
            row = int(np.argwhere(too_large)[0][0])
            raise DsrdError(
                f"{path}: row {row}: {array[too_large][0]:g} is beyond 32-bit numbers; scale the features"
            )
    return small


def _in_order(column: pa.ChunkedArray, origin: Origin, config: DataConfig) -> tuple[NDArray[np.float64], bool]:
    """Times, and whether they are dates. Unsorted rows are refused: benchmark results depend on their order."""
    time, dates = column_arrays.dated_times(column, "time", origin, config.time_format)
    late = np.diff(time) < 0
    if late.any():
        row = int(late.argmax()) + 1
        raise origin.error(f"time {time[row]} is earlier than the row before; sort the rows by time", row)
    return time, dates


def _below(ids: NDArray[np.int64], what: str, rows: int, file: Path, origin: Origin) -> NDArray[np.int64]:
    if ids.max() >= rows:
        row = int((ids >= rows).argmax())
        raise origin.error(f"{what} is {ids[row]}, but {file.name} ends at row {rows - 1}; get both again", row)
    return ids


def _read_names(path: Path) -> Names:
    head = csv_head(path)
    table = read_csv(path, head, only=["name", "target"], text=["name"])
    targets = np.asarray(table["target"])
    if targets.dtype != np.bool_:
        raise DsrdError(f"{path}: target is not true or false in every row; convert the original again")
    return Names(table["name"].cast(pa.string()).combine_chunks(), targets if targets.any() else None)
