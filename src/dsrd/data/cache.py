"""Parsed streams kept as Arrow files, so that a file is parsed once and afterwards only mapped into memory.

A folder holds `events.arrow` (row = event id, row 0 is padding) and `nodes.arrow` (row = node id). Its name
tells the source files and the reader's options, then their size and date: an edited file is another folder.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import platformdirs
import pyarrow as pa
from numpy.typing import NDArray
from torch import Tensor

from dsrd.data.dataset import Dataset, Names
from dsrd.errors import DsrdError
from dsrd.events import Events, as_tensor

VERSION = 1
"""Raised when the layout or a reader changes, so that old folders are not opened."""


def cache_dir() -> Path:
    """Where parsed streams are kept: $DSRD_CACHE, or the user's cache folder."""
    return Path(os.environ.get("DSRD_CACHE") or platformdirs.user_cache_dir("dsrd"))


def cached(files: Sequence[Path], options: str, read: Callable[[], Dataset]) -> Dataset:
    """What `read` gives for these files and options; read again only if a file changed or the copy is damaged.

    A cache that cannot be written costs nothing but time: the data set then carries a note.
    """
    folder = cache_dir() / _key(files, options)
    if folder.exists():
        try:
            return open_folder(folder)
        except (pa.ArrowException, OSError, ValueError, KeyError, TypeError):
            shutil.rmtree(folder, ignore_errors=True)
    dataset = read()
    try:
        save_folder(dataset, folder)
    except (pa.ArrowException, OSError, DsrdError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        return replace(dataset, notes=(*dataset.notes, f"not cached in {folder.parent}: {reason}"))
    for outdated in folder.parent.glob(f"{folder.name.split('-')[0]}-*"):
        if outdated != folder:
            shutil.rmtree(outdated, ignore_errors=True)
    return dataset


def save_folder(dataset: Dataset, folder: Path) -> None:
    """Write under a temporary name and rename, so that a folder is whole or not there."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=".writing-", dir=folder.parent))
    try:
        _write(temporary / "events.arrow", _event_columns(dataset), _metadata(dataset))
        _write(temporary / "nodes.arrow", _node_columns(dataset), {})
        temporary.chmod(0o755)
        if not folder.exists():  # another process may have been faster; its copy says the same
            temporary.rename(folder)
    except OSError:
        if not folder.exists():
            raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def open_folder(folder: Path) -> Dataset:
    """Map a folder into memory; nothing is copied, so the tensors must not be written to."""
    events, about = _map(folder / "events.arrow")
    nodes, _ = _map(folder / "nodes.arrow")
    known = json.loads(about[b"dsrd"])
    if (events.num_rows, nodes.num_rows) != (known["num_events"] + 1, known["num_nodes"]):
        raise ValueError("row counts differ from what was written")
    src, dst, time = (as_tensor(_flat(events["src"])), as_tensor(_flat(events["dst"])), _flat(events["time"]))
    number = as_tensor(np.arange(1, events.num_rows))
    names = Names(nodes["name"], known["first_target"]) if known["named"] else None
    return Dataset(
        name=known["name"],
        events=Events(src[1:], dst[1:], as_tensor(time)[1:], number),
        edge_x=_matrix(events, "edge_x"),
        node_x=_matrix(nodes, "node_x"),
        label=as_tensor(_flat(events["label"]))[1:] if "label" in events.schema.names else None,
        names=names,
        bipartite=known["bipartite"],
        digest=known["digest"],
        notes=tuple(known["notes"]),
    )


def _key(files: Sequence[Path], options: str) -> str:
    resolved = [file.resolve() for file in files]
    which = json.dumps([[str(file) for file in resolved], options])
    state = json.dumps([VERSION, *((file.stat().st_size, file.stat().st_mtime_ns) for file in resolved)])
    return "-".join(hashlib.blake2b(text.encode(), digest_size=10).hexdigest() for text in (which, state))


def _metadata(dataset: Dataset) -> dict[str, Any]:
    return {
        "name": dataset.name,
        "num_events": len(dataset.events),
        "num_nodes": dataset.num_nodes,
        "bipartite": dataset.bipartite,
        "named": dataset.names is not None,
        "first_target": dataset.names.first_target if dataset.names else None,
        "digest": dataset.digest,
        "notes": list(dataset.notes),
    }


def _event_columns(dataset: Dataset) -> dict[str, pa.Array]:
    src, dst, time, _ = dataset.events.numpy()
    columns = {"src": src, "dst": dst, "time": time}
    if dataset.label is not None:
        columns["label"] = dataset.label.numpy()
    padded = {name: pa.array(np.concatenate([values[:1] * 0, values])) for name, values in columns.items()}
    return {**padded, **_lists("edge_x", dataset.edge_x)}


def _node_columns(dataset: Dataset) -> dict[str, pa.Array]:
    names = pa.nulls(dataset.num_nodes) if dataset.names is None else dataset.names.array
    return {"name": names, **_lists("node_x", dataset.node_x)}


def _lists(name: str, x: Tensor) -> dict[str, pa.Array]:
    """A matrix as one column of rows; no column when the width is 0."""
    if not x.shape[1]:
        return {}
    flat = pa.array(x.numpy().reshape(-1))
    return {name: pa.FixedSizeListArray.from_arrays(flat, x.shape[1])}


def _write(path: Path, columns: dict[str, pa.Array], about: dict[str, Any]) -> None:
    batch = pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
    schema = batch.schema.with_metadata({"dsrd": json.dumps(about)})
    with path.open("wb") as file:
        with pa.ipc.new_file(file, schema) as writer:
            writer.write_batch(batch.replace_schema_metadata(schema.metadata))
        file.flush()
        os.fsync(file.fileno())


def _map(path: Path) -> tuple[pa.RecordBatch, dict[bytes, bytes]]:
    reader = pa.ipc.open_file(pa.memory_map(str(path), "r"))
    batch = reader.get_batch(0)
    batch.validate()
    return batch, reader.schema.metadata


def _flat(column: pa.Array) -> NDArray[Any]:
    return column.to_numpy(zero_copy_only=True)  # type: ignore[no-any-return]


def _matrix(batch: pa.RecordBatch, name: str) -> Tensor:
    if name not in batch.schema.names:
        return as_tensor(np.zeros((batch.num_rows, 0), dtype=np.float32))
    column = batch[name]
    return as_tensor(_flat(column.values).reshape(batch.num_rows, column.type.list_size))  # [rows, d]
