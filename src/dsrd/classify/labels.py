"""Classes of nodes, from a file of their own: `.npy` by node id, or a table of names and labels."""

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
"""Where a benchmark folder keeps the classes of its nodes."""

COLUMNS = ("node", "label")


def beside(dataset: str, data_dir: str | Path | None = None) -> Path | None:
    """The file of classes that lies with a data set, or None."""
    folder = folder_of(dataset, data_dir)
    return folder / FILE if folder is not None and (folder / FILE).is_file() else None


def read_node_labels(path: Path, dataset: Dataset) -> Tensor:
    """The class of every node, nan where there is none.  # [N] float32

    `.npy`: one number per node id, a negative one for no class. Anything else is read as CSV with the columns
    `node` (as in the stream) and `label`.
    """
    if not path.is_file():
        raise DsrdError(f"{path}: no such file; give a .npy by node id, or a CSV with the columns node,label")
    label = np.full(dataset.num_nodes, np.nan, np.float32)
    if path.suffix == ".npy":
        found = read_npy(path)
        if found.ndim != 1 or len(found) != len(label):
            raise DsrdError(
                f"{path}: shape {found.shape}, expected ({len(label)},): one class per node id, entry 0 for nobody"
            )
        label[1:] = np.where(found[1:] < 0, np.nan, found[1:])
        return as_tensor(label)
    origin, head = csv_origin(path), csv_head(path)
    missing = [name for name in COLUMNS if name not in head.names]
    if missing:
        raise origin.error(f"there is no column '{missing[0]}'; a file of classes has the columns node,label")
    table = read_csv(path, head, only=COLUMNS, text=["node"])
    given = column_arrays.numbers(table["label"], "label", origin)
    for row, name in enumerate(table["node"].to_pylist()):
        node = _node(name, dataset)
        if not node:
            raise origin.error(f"no event has a node '{name}'; correct the name or remove the row", row)
        label[node] = given[row]
    return as_tensor(label)


def _node(name: str, dataset: Dataset) -> int:
    """The node called so, a source before a target; 0 if there is none."""
    if dataset.names is not None:
        return dataset.names.find(name) or dataset.names.find(name, target=True) or 0
    return int(name) if name.isdecimal() and int(name) < dataset.num_nodes else 0
