"""A stream of events with its features, labels and node names."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from difflib import get_close_matches
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from torch import Tensor

from dsrd.config import DataConfig
from dsrd.data.own_split import OwnSplit
from dsrd.decoding import first_line
from dsrd.errors import DsrdError
from dsrd.events import Events, as_tensor

DEFAULT_COLUMNS = DataConfig()

MOST_SUGGESTED = 5
MOST_COMPARED = 2000
"""Maximal number of names compared letter by letter with a mistyped one: streams may have millions."""

MOST_UNUSED, MOST_IDS_PER_EVENT = 10_000_000, 100
"""Node ids may go up to the first number, or up to so many per event."""

CLOCK_UNITS = {"milliseconds": 1e12, "microseconds": 1e15, "nanoseconds": 1e18}
"""The year 2001, counted since 1970 in each unit; four times as much is the year 2096."""


class Names:
    """The names of nodes: position = node id; entry 0 is padding.

    In a bipartite stream a source and a target may have the same name; `is_target` says which ids are targets.

    >>> names = Names(["", "ann", "bob"])
    >>> names[2], names.id("ann"), len(names)
    ('bob', 1, 3)
    >>> users_and_items = Names.two_kinds(["", "7", "8", "7"], first_target=3)
    >>> users_and_items.id("7"), users_and_items.id("7", target=True)
    (1, 3)
    """

    def __init__(self, names: Sequence[str] | pa.Array, is_target: NDArray[np.bool_] | None = None) -> None:
        self.array = names if isinstance(names, pa.Array) else pa.array(names, pa.string())
        self.is_target = None if is_target is None else np.asarray(is_target, dtype=np.bool_)  # [N]
        if self.is_target is not None and self.is_target.shape != (len(self.array),):
            raise DsrdError(
                f"names: is_target has shape {self.is_target.shape} for {len(self.array)} names; "
                "give one entry per name, padding included"
            )

    @classmethod
    def two_kinds(cls, names: Sequence[str] | pa.Array, first_target: int) -> Names:
        """Names of sources, then names of targets from id `first_target` on."""
        return cls(names, np.arange(len(names)) >= first_target)

    def __len__(self) -> int:
        return len(self.array)

    def __getitem__(self, node: int) -> str:
        return str(self.array[node])

    @cached_property
    def _sources(self) -> dict[str, int]:
        return self._by_name(target=False)

    @cached_property
    def _targets(self) -> dict[str, int]:
        return self._by_name(target=True)

    def find(self, name: str, *, target: bool = False) -> int | None:
        """The node called `name`, or None if there is none."""
        return (self._targets if target and self.is_target is not None else self._sources).get(name)

    def id(self, name: str, *, target: bool = False) -> int:
        """The node called `name`; an error with a few similar names if there is none."""
        node = self.find(name, target=target)
        if node is None:
            kind = "node" if self.is_target is None else "target" if target else "source"
            similar = ", ".join(f"'{known}'" for known in self.suggestions(name, target=target))
            count = len(self._ids(target))
            remedy = f"did you mean {similar}?" if similar else f"none of the {count:,} {kind}s has a similar name"
            raise DsrdError(f"unknown {kind} '{name}'; {remedy}")
        return node

    def suggestions(self, name: str, *, target: bool = False) -> list[str]:
        """At most five similar names: first those that begin with `name`, the shortest first.

        >>> Names(["", "anna", "bob", "ann"]).suggestions("an")
        ['ann', 'anna']
        >>> Names(["", "anna", "bob", "ann"]).suggestions("bbo")
        ['bob']
        """
        known = self.array.take(pa.array(self._ids(target)))
        wanted, lower_case = name.strip().lower(), pc.utf8_lower(known)
        if not wanted:
            return []
        longer = known.filter(pc.starts_with(lower_case, wanted)).slice(0, MOST_COMPARED).to_pylist()
        suggested = dict.fromkeys(sorted(longer, key=lambda each: (len(each), each))[:MOST_SUGGESTED])
        length = pc.utf8_length(lower_case)
        same_length = pc.and_(pc.less_equal(length, len(wanted) + 2), pc.greater_equal(length, len(wanted) - 2))
        for matches, letter in ((pc.starts_with, wanted[0]), (pc.ends_with, wanted[-1])):
            matching = pc.and_(same_length, matches(lower_case, letter))
            similar = known.filter(matching).slice(0, MOST_COMPARED).to_pylist()
            original = {each.lower(): each for each in similar}
            close = get_close_matches(wanted, original, n=MOST_SUGGESTED)
            suggested.update(dict.fromkeys(original[each] for each in close))
        return list(suggested)[:MOST_SUGGESTED]

    def with_more(self, added: Sequence[tuple[str, bool]]) -> Names:
        """These names, followed by further nodes, each given as (name, whether it is a target).

        >>> Names(["", "ann"]).with_more([("bob", False)]).id("bob")
        2
        """
        more = pa.array([name for name, _ in added], pa.string())
        array = pa.concat_arrays([self.array.cast(pa.string()), more])
        if self.is_target is None:
            return Names(array)
        return Names(array, np.concatenate([self.is_target, np.array([target for _, target in added], np.bool_)]))

    def head(self, nodes: int) -> Names:
        """The names of the first `nodes` ids, padding included."""
        return Names(self.array.slice(0, nodes), None if self.is_target is None else self.is_target[:nodes])

    def _ids(self, target: bool) -> NDArray[np.int64]:
        """The ids of all sources or all targets; of all nodes where the stream does not separate them."""
        if self.is_target is None:
            return np.arange(1, len(self))
        return np.flatnonzero(self.is_target[1:] == target) + 1

    def _by_name(self, target: bool) -> dict[str, int]:
        ids = self._ids(target)[::-1]  # reversed: the first of two equal names wins
        return dict(zip(self.array.take(pa.array(ids)).to_pylist(), ids.tolist(), strict=True))


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """Events with features, labels and node names.

    `edge_x` and `node_x` have a zero row 0 for padding, and width 0 where there are no features or only zeros.

    >>> data = Dataset.from_arrays("tiny", [1, 2], [2, 3], [0.0, 1.0])
    >>> len(data.events), data.num_nodes, data.edge_dim
    (2, 4, 0)
    """

    name: str
    events: Events
    edge_x: Tensor  # [E + 1, edge_dim] float32, row = event id
    node_x: Tensor  # [N, node_dim] float32, row = node id
    label: Tensor | None = None  # [E] float32, of the event (and of its source)
    names: Names | None = None  # None: the ids are the names
    bipartite: bool = False
    digest: str = ""  # of every array: a record states which data it was measured on
    notes: tuple[str, ...] = ()  # what the reader changed, in words ("sorted 12 rows by time")
    columns: DataConfig = DEFAULT_COLUMNS  # how it was read; later tables are read in the same way
    features: tuple[str, ...] = ()  # names of the columns of `edge_x`
    dates: bool = False  # times were dates in the file, and are seconds since 1970 (UTC) here
    catalogued: bool = False  # a copy of a data set of the catalogue
    law: Any = None  # the SynthConfig or MemoryConfig it was drawn from, if it is synthetic
    mode: int = 0o666  # permissions of the files it was read from; copies of it get no others
    own_split: OwnSplit | None = None  # a split that came with the data; None: the published one

    @property
    def published(self) -> bool:
        """Whether others report results on it: a data set of the catalogue, or one that came with its split."""
        return self.catalogued or self.own_split is not None

    @property
    def num_nodes(self) -> int:
        """Number of rows of a table indexed by node id; row 0 is padding."""
        return self.node_x.shape[0]

    @property
    def edge_dim(self) -> int:
        """Width of the edge features."""
        return self.edge_x.shape[1]

    @property
    def node_dim(self) -> int:
        """Width of the node features."""
        return self.node_x.shape[1]

    @property
    def clock_unit(self) -> str | None:
        """The unit of numeric times, if they seem to be milliseconds, microseconds or nanoseconds since 1970.

        >>> Dataset.from_arrays("tiny", [1, 2], [2, 3], [1.7e12, 1.8e12]).clock_unit
        'milliseconds'
        """
        if self.dates or not len(self.events):
            return None
        first, last = float(self.events.time[0]), float(self.events.time[-1])
        return next((unit for unit, low in CLOCK_UNITS.items() if low <= first and last <= 4 * low), None)

    def written_time(self, seconds: float) -> str:
        """A time in the format of the data set: a date in its own format or in ISO 8601, or a number.

        >>> data = Dataset.from_arrays("tiny", [1, 2], [2, 3], [0.0, 1.0])
        >>> data.written_time(17.0), data.written_time(3.5)
        ('17', '3.5')
        """
        seconds = float(seconds)
        if self.dates and self.columns.time_format:
            return datetime.fromtimestamp(seconds, UTC).strftime(self.columns.time_format)
        if self.dates:
            written = str(np.datetime64(round(seconds * 1e6), "us"))
            return (written.rstrip("0").rstrip(".") if "." in written else written) + "Z"
        return str(int(seconds)) if seconds.is_integer() and abs(seconds) < 2**63 else repr(seconds)

    def head(self, events: int, nodes: int) -> Dataset:
        """The first events and nodes, as the data set was before more were added; the digest is that one's too.

        >>> data = Dataset.from_arrays("tiny", [1, 2], [2, 3], [0.0, 1.0])
        >>> data.head(1, 3).digest == Dataset.from_arrays("tiny", [1], [2], [0.0]).digest
        True
        """
        if (events, nodes) == (len(self.events), self.num_nodes):
            return self
        first, edge_x, node_x = self.events[:events], self.edge_x[: events + 1], self.node_x[:nodes]
        label = None if self.label is None else self.label[:events]
        return replace(
            self,
            events=first,
            edge_x=edge_x,
            node_x=node_x,
            label=label,
            names=None if self.names is None else self.names.head(nodes),
            digest=digest_of_parts(first, edge_x, node_x, label),
        )

    def continuing(self, events: int, nodes: int, digest: str) -> Dataset | None:
        """This data set if its first `events` and `nodes` have that `digest`; None if they do not.

        Readers number the targets of a bipartite stream after all sources, so a longer file gives them other ids.
        They get their former ids back here, and the nodes that appeared later follow.
        """
        if events > len(self.events) or nodes > self.num_nodes:
            return None
        if self.head(events, nodes).digest == digest:
            return self
        if self.names is None or self.names.is_target is None or self.node_dim:
            return None
        renumbered = self._numbered_as_grown(events)
        return renumbered if renumbered.head(events, nodes).digest == digest else None

    def _numbered_as_grown(self, events: int) -> Dataset:
        """Ids as if the first events had been read alone: their sources, their targets, then later nodes."""
        assert self.names is not None
        assert self.names.is_target is not None
        src, dst, _, _ = self.events.numpy()
        later = np.stack([src[events:], dst[events:]], axis=1).reshape(-1)
        rest = np.arange(len(self.names))  # names without events
        order = np.concatenate([[0], np.unique(src[:events]), np.unique(dst[:events]), later, rest])
        _, first = np.unique(order, return_index=True)
        old_id = order[np.sort(first)]  # [N], by new id
        new_id = np.empty_like(old_id)
        new_id[old_id] = np.arange(len(old_id))
        names = Names(self.names.array.take(pa.array(old_id)), self.names.is_target[old_id])
        moved = Events(as_tensor(new_id[src]), as_tensor(new_id[dst]), self.events.time, self.events.id)
        digest = digest_of_parts(moved, self.edge_x, self.node_x, self.label)
        return replace(self, events=moved, names=names, digest=digest)

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
        columns: DataConfig = DEFAULT_COLUMNS,
        features: Sequence[str] = (),
        dates: bool = False,
        law: Any = None,
    ) -> Dataset:
        """Check and wrap arrays sorted by time. Feature matrices include the padding row 0.

        Edge features without names are called `f_0`, `f_1`, ...
        """
        events = Events.from_numpy(src, dst, time)
        refuse_gaps(name, events)
        edges = _features(name, "edge", edge_x, len(events) + 1)
        nodes = _features(name, "node", node_x, events.num_nodes, at_least=True)
        labels = None if label is None else _float32s(f"{name}: labels", label)
        if labels is not None and labels.shape != (len(events),):
            raise DsrdError(
                f"{name}: labels have shape {labels.shape}, expected one for each of {len(events)} events"
            )
        if names is not None and len(names) < events.num_nodes:
            raise DsrdError(
                f"{name}: {len(names)} names for node ids up to {events.num_nodes - 1}; "
                "give one per id, with entry 0 as padding"
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
            columns=columns,
            features=tuple(features or map("f_{}".format, range(edges.shape[1]))) if edges.shape[1] else (),
            dates=dates,
            law=law,
        )


def refuse_gaps(name: str, events: Events) -> None:
    """Refuse ids far above the number of events: a table by node id has a row for each id up to the largest."""
    most = max(MOST_UNUSED, MOST_IDS_PER_EVENT * len(events))
    if events.num_nodes > most:
        raise DsrdError(
            f"{name}: node ids up to {events.num_nodes - 1} for {len(events):,} events; number the nodes without "
            "gaps, or read the ids as names (`format` csv)"
        )


def _float32s(what: str, x: Any) -> NDArray[np.float32]:
    try:
        with np.errstate(over="ignore"):
            array = np.asarray(x)
            small = array.astype(np.float32, copy=False)
    except (TypeError, ValueError) as error:
        raise DsrdError(f"{what} are not numbers ({first_line(error)}); give an array of numbers") from error
    if array.dtype != np.float32 and array.dtype.kind == "f" and (np.isinf(small) & np.isfinite(array)).any():
        row = int(np.argwhere(np.isinf(small) & np.isfinite(array))[0][0])
        raise DsrdError(f"{what}: row {row}: a number is beyond 32-bit numbers (3.4e38); scale them")
    return small


def _features(name: str, kind: str, x: Any, rows: int, at_least: bool = False) -> NDArray[np.float32]:
    if x is None:
        return np.zeros((rows, 0), dtype=np.float32)
    matrix = _float32s(f"{name}: {kind} features", x)
    if matrix.ndim != 2 or (matrix.shape[0] < rows if at_least else matrix.shape[0] != rows):
        raise DsrdError(
            f"{name}: {kind} features have shape {tuple(matrix.shape)}, expected {rows} rows "
            f"(row 0 is padding, then one per {'node id' if kind == 'node' else 'event'})"
        )
    if not np.isfinite(matrix).all():
        row = int((~np.isfinite(matrix)).any(axis=1).argmax())
        raise DsrdError(f"{name}: {kind} features: row {row} has a value that is not a number; repair the row")
    return matrix if matrix.any() else np.zeros((matrix.shape[0], 0), dtype=np.float32)


def digest_of_parts(events: Events, edge_x: Tensor, node_x: Tensor, label: Tensor | None) -> str:
    """The digest of a data set, from its events, features and labels."""
    labels = None if label is None else label.numpy()
    return digest_of(*events.numpy()[:3], edge_x.numpy(), node_x.numpy(), labels)


def digest_of(*arrays: NDArray[Any] | None) -> str:
    """A short identifier of the content of arrays; equal arrays have equal digests on every machine."""
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
