"""A stream with what came along: features, labels, and the names its nodes had in the file."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from torch import Tensor

from dsrd.errors import DsrdError, unknown
from dsrd.events import Events, as_tensor


class Names:
    """What nodes are called outside: position = node id, entry 0 is nobody.

    In a bipartite stream a source and a target may share a name; targets start at `first_target`.

    >>> names = Names(["", "ann", "bob"])
    >>> names[2], names.id("ann"), len(names)
    ('bob', 1, 3)
    >>> users_and_items = Names(["", "7", "8", "7"], first_target=3)
    >>> users_and_items.id("7"), users_and_items.id("7", target=True)
    (1, 3)
    """

    def __init__(self, names: Sequence[str] | pa.Array, first_target: int | None = None) -> None:
        self.array = names if isinstance(names, pa.Array) else pa.array(names, pa.string())
        self.first_target = first_target

    def __len__(self) -> int:
        return len(self.array)

    def __getitem__(self, node: int) -> str:
        return str(self.array[node])

    @cached_property
    def _sources(self) -> dict[str, int]:
        names = self.array.to_pylist()
        return {names[node]: node for node in range((self.first_target or len(names)) - 1, 0, -1)}

    @cached_property
    def _targets(self) -> dict[str, int]:
        start = self.first_target or 1
        return dict(zip(self.array[start:].to_pylist(), range(start, len(self)), strict=True))

    def find(self, name: str, *, target: bool = False) -> int | None:
        """The node called `name`, or None if there is none."""
        return (self._targets if target and self.first_target else self._sources).get(name)

    def id(self, name: str, *, target: bool = False) -> int:
        """The node called `name`; an error with the nearest known name if there is none."""
        node = self.find(name, target=target)
        if node is None:
            raise unknown("node", name, self._targets if target and self.first_target else self._sources)
        return node


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """Events with features, labels and names.

    `edge_x` and `node_x` have a zero row 0 for padding, and width 0 when there are no features or only zeros.

    >>> data = Dataset.from_arrays("tiny", [1, 2], [2, 3], [0.0, 1.0])
    >>> len(data.events), data.num_nodes, data.edge_dim
    (2, 4, 0)
    """

    name: str
    events: Events
    edge_x: Tensor  # [E + 1, edge_dim] float32, row = event id
    node_x: Tensor  # [N, node_dim] float32, row = node id
    label: Tensor | None = None  # [E] float32, of the interaction (and of its source)
    names: Names | None = None  # None: the ids are the names
    bipartite: bool = False
    digest: str = ""  # of every array, so that a record says what it was measured on
    notes: tuple[str, ...] = ()  # what the reader had to do, for people ("sorted 12 rows by time")

    @property
    def num_nodes(self) -> int:
        """Rows of a table indexed by node id, nobody (0) included."""
        return self.node_x.shape[0]

    @property
    def edge_dim(self) -> int:
        return self.edge_x.shape[1]

    @property
    def node_dim(self) -> int:
        return self.node_x.shape[1]

    @classmethod
    def from_arrays(
        cls,
        name: str,
        src: Any,
        dst: Any,
        time: Any,
        *,
        edge_x: Any = None,
        node_x: Any = None,
        label: Any = None,
        names: Names | None = None,
        bipartite: bool = False,
        notes: tuple[str, ...] = (),
    ) -> Dataset:
        """Check and wrap arrays sorted by time. Feature matrices come with their padding row 0."""
        events = Events.from_numpy(src, dst, time)
        edges = _features(name, "edge", edge_x, len(events) + 1)
        nodes = _features(name, "node", node_x, events.num_nodes, at_least=True)
        labels = None if label is None else np.asarray(label, dtype=np.float32)
        if labels is not None and labels.shape != (len(events),):
            raise DsrdError(
                f"{name}: labels have shape {labels.shape}, expected one for each of {len(events)} events"
            )
        if names is not None and len(names) < events.num_nodes:
            raise DsrdError(
                f"{name}: {len(names)} names for node ids up to {events.num_nodes - 1}; entry 0 names nobody"
            )
        return cls(
            name=name,
            events=events,
            edge_x=as_tensor(edges),
            node_x=as_tensor(nodes),
            label=None if labels is None else as_tensor(labels),
            names=names,
            bipartite=bipartite,
            digest=digest_of(*events.numpy()[:3], edges, nodes, labels),
            notes=notes,
        )


def _features(name: str, kind: str, x: Any, rows: int, at_least: bool = False) -> NDArray[np.float32]:
    if x is None:
        return np.zeros((rows, 0), dtype=np.float32)
    matrix = np.asarray(x, dtype=np.float32)
    if matrix.ndim != 2 or (matrix.shape[0] < rows if at_least else matrix.shape[0] != rows):
        raise DsrdError(
            f"{name}: {kind} features have shape {tuple(matrix.shape)}, expected {rows} rows "
            f"(row 0 is padding, then one per {'node id' if kind == 'node' else 'event'})"
        )
    if not np.isfinite(matrix).all():
        row = int((~np.isfinite(matrix)).any(axis=1).argmax())
        raise DsrdError(f"{name}: {kind} features: row {row} has a value that is not a number; repair the row")
    return matrix if matrix.any() else np.zeros((matrix.shape[0], 0), dtype=np.float32)


def digest_of(*arrays: NDArray[Any] | None) -> str:
    """A short name for the content of arrays: equal arrays, equal digest, on any machine."""
    digest = hashlib.blake2b(digest_size=8)
    for array in arrays:
        if array is None:
            digest.update(b"none")
            continue
        digest.update(f"{array.dtype.str}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).view(np.uint8).reshape(-1).data)
    return digest.hexdigest()


def digest_of_tensors(*tensors: Tensor) -> str:
    return digest_of(*(tensor.detach().cpu().contiguous().numpy() for tensor in tensors))
