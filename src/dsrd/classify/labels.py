"""Reads the classes of nodes from a file: `.npy` by node id, or a CSV of names and labels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from torch import Tensor

from dsrd.data import column_arrays
from dsrd.data.dataset import Dataset
from dsrd.data.parse import csv_head, csv_origin, read_csv, read_npy
from dsrd.data.read import folder_of
from dsrd.errors import DsrdError
from dsrd.events import as_tensor

FILE = "node_labels.npy"
"""The file of node classes in a benchmark folder."""

COLUMNS = ("node", "label")


def label_file(dataset: str, data_dir: str | Path | None = None) -> Path | None:
    """The file of node classes in the folder of a data set, or None."""
    folder = folder_of(dataset, data_dir)
    return folder / FILE if folder is not None and (folder / FILE).is_file() else None


def read_node_labels(path: Path, dataset: Dataset) -> Tensor:
    """The class of every node, nan for a node without one.  # [N] float32

    A `.npy` file has one number per node id, negative for no class. Any other file is read as CSV with the columns
    `node` (names as in the stream) and `label`.
    """
    if not path.is_file():
        raise DsrdError(f"{path}: no such file; give a .npy by node id, or a CSV with the columns node,label")
    label = np.full(dataset.num_nodes, np.nan, np.float32)
    if path.suffix == ".npy":
        classes = read_npy(path)
        if classes.ndim != 1 or len(classes) != len(label):
            raise DsrdError(
                f"{path}: shape {classes.shape}, expected ({len(label)},): one class per node id, entry 0 unused"
            )
        with np.errstate(over="ignore"):
            label[1:] = np.where(classes[1:] < 0, np.nan, classes[1:])
        if np.isinf(label).any():
            raise DsrdError(
                f"{path}: row {int(np.isinf(label).argmax())}: the label is too large; give a class number"
            )
        return as_tensor(label)
    origin, head = csv_origin(path), csv_head(path)
    missing = [name for name in COLUMNS if name not in head.names]
    if missing:
        raise origin.error(f"there is no column '{missing[0]}'; a file of classes has the columns node,label")
    table = read_csv(path, head, only=COLUMNS, text=["node"])
    row_label = column_arrays.float32s(table["label"], "label", origin)
    codes, distinct = column_arrays.names(table["node"], "node", origin, keep_spaces=dataset.columns.keep_spaces)
    written = distinct.to_pylist()
    for row, code in enumerate(codes.tolist()):
        name = written[code]
        node = _node(name, dataset)
        if not node:
            raise origin.error(f"no event has a node '{name}'; correct the name or remove the row", row)
        label[node] = row_label[row]
    return as_tensor(label)


def _node(name: str, dataset: Dataset) -> int:
    """The id of a name, as a source if possible, else as a target; 0 if it is unknown."""
    if dataset.names is not None:
        return dataset.names.find(name) or dataset.names.find(name, target=True) or 0
    return int(name) if name.isdecimal() and int(name) < dataset.num_nodes else 0
