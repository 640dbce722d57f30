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

    >>> names = Names(["", "ann", "bob"])
    >>> names[2], names.id("ann"), len(names)
    ('bob', 1, 3)
    """

    def __init__(self, names: Sequence[str] | pa.Array) -> None:
        self.array = names if isinstance(names, pa.Array) else pa.array(names, pa.string())

    def __len__(self) -> int:
        return len(self.array)

    def __getitem__(self, node: int) -> str:
        return str(self.array[node])

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {name: node for node, name in enumerate(self.array.to_pylist())}

    def id(self, name: str) -> int:
        """The node called `name`; an error with the nearest known name if there is none."""
        try:
            return self._ids[name]
        except KeyError:
            raise unknown("node", name, self._ids) from None


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
        raise DsrdError(
            f"{name}: {kind} features: row {row} has a value that is not a number; repair the row"
        )
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
