"""A data set as two Arrow files.

`events.arrow`: row = event id. `nodes.arrow`: row = node id. Row 0 is padding in both. If the data came with lists
of candidates, `candidates.safetensors` has them. `events.arrow`, written last, has all checksums.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from safetensors.torch import load, save
from torch import Tensor

from dsrd import checksums
from dsrd.config import DataConfig, overridden
from dsrd.data.dataset import Dataset, Names
from dsrd.data.own_split import OwnSplit
from dsrd.decoding import unreadable
from dsrd.errors import DsrdError
from dsrd.events import Events, as_tensor
from dsrd.files import replacing
from dsrd.synthetic.settings import law_from

EVENTS, NODES, CANDIDATES = "events.arrow", "nodes.arrow", "candidates.safetensors"
CHECKSUMS, METADATA_CHECKSUM = "checksums", b"dsrd_checksum"
DAMAGED = (pa.ArrowException, OSError, ValueError, KeyError, TypeError, MemoryError, DsrdError)
"""What `read_dataset` raises for files that are missing, truncated or of another program."""


def write_dataset(dataset: Dataset, folder: Path, compressed: bool = False) -> None:
    """Write both files into an existing folder, each under a temporary name first; the events last.

    Compressed files are several times smaller, but cannot be memory-mapped.
    """
    own, written = dataset.own_split, dict[str, str]()
    if own is not None and own.candidates is not None:
        candidates = save(dict(own.candidates))
        written[CANDIDATES] = checksums.of_bytes(candidates)
        with replacing(folder / CANDIDATES, dataset.mode) as temporary:
            temporary.write_bytes(candidates)
    nodes, events = _node_columns(dataset), _event_columns(dataset)
    for file, columns in ((NODES, nodes), (EVENTS, events)):
        written |= {f"{file}/{name}": checksums.of_column(column) for name, column in columns.items()}
    metadata = {**_metadata(dataset), CHECKSUMS: written}
    for file, columns, text in ((NODES, nodes, {}), (EVENTS, events, metadata)):
        _write(folder / file, columns, text, compressed, dataset.mode)


def is_dataset(folder: Path) -> bool:
    """Whether a folder holds what `write_dataset` writes."""
    return (folder / EVENTS).exists() and (folder / NODES).exists()


def held_extent(folder: Path) -> tuple[int, int, str]:
    """(number of events, number of nodes, digest) of the data set in a folder; its columns are not read."""
    with closing(_opened(folder / EVENTS, mapped=True)) as file:
        metadata = _parsed(pa.ipc.open_file(file).schema.metadata)
    return metadata["num_events"], metadata["num_nodes"], metadata["digest"]


def read_dataset(folder: Path, mapped: bool) -> Dataset:
    """Read what `write_dataset` wrote; everything is compared with its checksum first.

    `mapped`: memory-map the files and copy nothing. The tensors must then not be written to, nor the files
    replaced while they are in use (Windows refuses that). Otherwise everything is read into memory.
    """
    events, schema_metadata = _read(folder / EVENTS, mapped)
    nodes, _ = _read(folder / NODES, mapped)
    metadata = _parsed(schema_metadata)
    if events.num_rows != metadata["num_events"] + 1 or nodes.num_rows < metadata["num_nodes"]:
        raise ValueError("row counts differ from what was written")
    nodes = nodes.slice(
        0, metadata["num_nodes"]
    )  # a process that was killed has written more nodes, but no events
    _verify(events, nodes, metadata.get(CHECKSUMS))
    src, dst, time = (as_tensor(_flat(events[name]))[1:] for name in ("src", "dst", "time"))
    return Dataset(
        name=metadata["name"],
        events=Events(src, dst, time, as_tensor(np.arange(1, events.num_rows))),
        edge_x=_matrix(events, "edge_x"),
        node_x=_matrix(nodes, "node_x"),
        label=as_tensor(_flat(events["label"]))[1:] if "label" in events.schema.names else None,
        names=_names(nodes) if metadata["named"] else None,
        bipartite=metadata["bipartite"],
        digest=metadata["digest"],
        notes=tuple(metadata["notes"]),
        columns=overridden(DataConfig(), metadata["columns"], prefix="data."),
        features=tuple(metadata["features"]),
        dates=metadata["dates"],
        catalogued=metadata["catalogued"],
        law=None if metadata["law"] is None else law_from(metadata["law"]),
        mode=(folder / EVENTS).stat().st_mode & 0o666,
        own_split=_own_split(metadata, folder),  # earlier versions knew none
    )


def _metadata(dataset: Dataset) -> dict[str, Any]:
    own = dataset.own_split
    return {
        "name": dataset.name,
        "num_events": len(dataset.events),
        "num_nodes": dataset.num_nodes,
        "bipartite": dataset.bipartite,
        "named": dataset.names is not None,
        "digest": dataset.digest,
        "notes": list(dataset.notes),
        "columns": asdict(dataset.columns),
        "features": list(dataset.features),
        "dates": dataset.dates,
        "catalogued": dataset.catalogued,
        "law": None if dataset.law is None else asdict(dataset.law),
        "own_split": None if own is None else {"borders": own.borders, "all_others": own.candidates is None},
    }


def _own_split(metadata: dict[str, Any], folder: Path) -> OwnSplit | None:
    stored = metadata.get("own_split")
    if stored is None:
        return None
    val_start, test_start = stored["borders"]
    if stored["all_others"]:
        return OwnSplit(val_start, test_start, None)
    content = (folder / CANDIDATES).read_bytes()
    expected = metadata.get(CHECKSUMS)
    if expected is not None and checksums.of_bytes(content) != expected[CANDIDATES]:
        raise ValueError(f"the checksum of {CANDIDATES} differs")
    return OwnSplit(val_start, test_start, load(content))


def _parsed(schema_metadata: dict[bytes, bytes]) -> dict[str, Any]:
    """The metadata of `events.arrow`."""
    text, stored = schema_metadata[b"dsrd"], schema_metadata.get(METADATA_CHECKSUM)
    if stored is not None and stored.decode() != checksums.of_bytes(text):
        raise ValueError("the checksum of its metadata differs")
    metadata: dict[str, Any] = json.loads(text)
    if (stored is None) != (CHECKSUMS not in metadata):
        raise ValueError("some of its checksums are gone")
    return metadata


def _verify(events: pa.RecordBatch, nodes: pa.RecordBatch, expected: dict[str, str] | None) -> None:
    """Compare all columns with their checksums; earlier versions wrote none."""
    columns = {
        f"{file}/{name}": batch[name]
        for file, batch in ((EVENTS, events), (NODES, nodes))
        for name in batch.schema.names
    }
    if expected is None:
        return
    if columns.keys() != expected.keys() - {CANDIDATES}:
        raise ValueError("its columns differ from those that were written")
    for name, column in columns.items():
        if checksums.of_column(column) != expected[name]:
            raise ValueError(f"the checksum of {name} differs")


def _event_columns(dataset: Dataset) -> dict[str, pa.Array]:
    src, dst, time, _ = dataset.events.numpy()
    columns = {"src": src, "dst": dst, "time": time}
    if dataset.label is not None:
        columns["label"] = dataset.label.numpy()
    padded = {name: pa.array(np.concatenate([np.zeros(1, x.dtype), x])) for name, x in columns.items()}
    return {**padded, **_lists("edge_x", dataset.edge_x)}


def _node_columns(dataset: Dataset) -> dict[str, pa.Array]:
    names = dataset.names
    columns = {"name": pa.nulls(dataset.num_nodes) if names is None else names.array}
    if names is not None and names.is_target is not None:
        columns["is_target"] = pa.array(names.is_target)
    return {**columns, **_lists("node_x", dataset.node_x)}


def _names(nodes: pa.RecordBatch) -> Names:
    if "is_target" not in nodes.schema.names:
        return Names(nodes["name"])
    return Names(nodes["name"], nodes["is_target"].to_numpy(zero_copy_only=False))


def _lists(name: str, x: Tensor) -> dict[str, pa.Array]:
    """A matrix as one column of fixed-size lists; no column if the width is 0."""
    if not x.shape[1]:
        return {}
    flat = pa.array(x.numpy().reshape(-1))
    return {name: pa.FixedSizeListArray.from_arrays(flat, x.shape[1])}


def _write(
    path: Path, columns: dict[str, pa.Array], metadata: Mapping[str, Any], compressed: bool, mode: int
) -> None:
    batch = pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
    text = json.dumps(metadata)
    schema = batch.schema.with_metadata({"dsrd": text, METADATA_CHECKSUM: checksums.of_bytes(text.encode())})
    options = pa.ipc.IpcWriteOptions(compression="zstd" if compressed else None)
    with replacing(path, mode) as temporary, pa.ipc.new_file(str(temporary), schema, options=options) as writer:
        writer.write_batch(batch.replace_schema_metadata(schema.metadata))


def _read(path: Path, mapped: bool) -> tuple[pa.RecordBatch, dict[bytes, bytes]]:
    if mapped:
        return _first_batch(_opened(path, mapped))
    with closing(_opened(path, mapped)) as file:
        return _first_batch(file)


def _opened(path: Path, mapped: bool) -> pa.NativeFile:
    try:
        return pa.memory_map(str(path), "r") if mapped else pa.OSFile(str(path), "rb")
    except PermissionError as error:
        raise unreadable(path) from error


def _first_batch(file: pa.NativeFile) -> tuple[pa.RecordBatch, dict[bytes, bytes]]:
    reader = pa.ipc.open_file(file)
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
