"""A stream that grows: later tables are read like the first one, and unseen names get the next ids."""

from __future__ import annotations

from dataclasses import dataclass, replace
from glob import escape
from typing import Literal, get_args

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from torch import Tensor

from dsrd.config import DataConfig
from dsrd.data import column_arrays, tabular
from dsrd.data.dataset import Dataset, digest_of_parts
from dsrd.data.parse import Origin
from dsrd.errors import DsrdError, unknown
from dsrd.events import Events, as_tensor

Late = Literal["refuse", "drop", "now"]
"""What to do with events older than the newest known one: raise an error, drop them, or move them to its time."""

Ids = NDArray[np.int64]


@dataclass(frozen=True)
class Arrival:
    """New events of a stream, with its ids and in time order."""

    events: Events
    edge_x: Tensor  # [E, edge_dim]
    label: Tensor  # [E], nan where there is no label
    row: Ids  # [E]: the row of the table that each event came from
    known: NDArray[np.bool_]  # [E]: both nodes were known before
    new_names: tuple[tuple[str, bool], ...]  # (name, whether it is a target of a bipartite stream), in order of id
    late: int  # number of events older than the newest known one
    skipped: int  # number of leading rows that the stream already contains


class GrowingStream:
    """A data set to which later events are appended.

    Nodes are numbered in order of appearance, as a reader of the whole stream would number them.
    """

    def __init__(self, dataset: Dataset) -> None:
        self._dataset = dataset
        self._arrivals: list[Arrival] = []
        self._names = dataset.names
        self._new_ids: tuple[dict[str, int], dict[str, int]] = ({}, {})  # of new names: of sources, of targets
        self._new_names: list[tuple[str, bool]] = []
        self.num_events = len(dataset.events)
        self.num_nodes = dataset.num_nodes
        self.last_time = float(dataset.events.time[-1]) if self.num_events else -np.inf

    @property
    def has_arrivals(self) -> bool:
        """Whether `dataset` has events to join."""
        return bool(self._arrivals)

    @property
    def columns(self) -> DataConfig:
        return self._dataset.columns

    @property
    def bipartite(self) -> bool:
        return self._dataset.bipartite

    @property
    def edge_dim(self) -> int:
        return self._dataset.edge_dim

    @property
    def numbered(self) -> bool:
        """Whether nodes have ids only, no names."""
        return self._names is None

    def find(self, name: str, *, target: bool = False) -> int | None:
        """The node called `name`, or None if the stream does not know it."""
        if self._names is None:
            return int(name) if name.isdecimal() and 1 <= int(name) < self.num_nodes else None
        node = self._names.find(name, target=target)
        return self._new_ids[self._side(target)].get(name) if node is None else node

    def name(self, node: int) -> str:
        """The name of a node, or its id as text."""
        if self._names is None:
            return str(node)
        return self._names[node] if node < len(self._names) else self._new_names[node - len(self._names)][0]

    def suggestions(self, name: str, *, target: bool = False) -> list[str]:
        """At most five known names that are similar to `name`."""
        return (
            [] if self._names is None else self._names.with_more(self._new_names).suggestions(name, target=target)
        )

    def _side(self, target: bool) -> int:
        return int(target and self._separate_targets)

    @property
    def _separate_targets(self) -> bool:
        """Whether a source and a target with the same name are different nodes."""
        return self._names is not None and self._names.is_target is not None

    def arrival(self, table: pa.Table, origin: Origin, late: Late = "refuse") -> Arrival:
        """Read a table of later events; the stream itself does not change.

        A table may also begin with all events of the stream, followed by new ones: the known rows are skipped.
        """
        if late not in get_args(Late):
            raise unknown("value of late", late, get_args(Late))
        tabular.require(replace(self.columns, label=None, features=()), table.column_names, origin)
        columns = self._columns_in(table, origin)
        tabular.require(columns, table.column_names, origin)
        time = column_arrays.times(table[columns.time], "time", origin, columns.time_format)
        row = np.argsort(time, kind="stable")
        src, dst, known, new_names = self._ids(table, columns, origin, row)
        edge_x = self._features(table, origin)
        skipped = self._known_rows(src[row], dst[row], time[row], edge_x[row])
        row = row[skipped:]
        older = time[row] < self.last_time
        if older.any() and late == "refuse":
            first = int(row[older].min())
            raise origin.error(
                f"time {table[columns.time][first]} is older than the newest known event "
                f"({self._dataset.written_time(self.last_time)}); leave the row out, or add the events "
                "with `late` set to drop or now",
                first,
            )
        if late == "drop" and older.any():
            row = row[~older]
            src, dst, known, new_names = self._ids(table, columns, origin, row)
        event_time = np.maximum(time[row], self.last_time) if self.num_events else time[row]
        event_id = np.arange(self.num_events + 1, self.num_events + 1 + len(row))
        return Arrival(
            events=Events.from_numpy(src[row], dst[row], event_time, event_id),
            edge_x=as_tensor(edge_x[row]),
            label=as_tensor(_label(table, columns, origin)[row]),
            row=row,
            known=known[row],
            new_names=new_names,
            late=int(older.sum()),
            skipped=skipped,
        )

    def append(self, arrival: Arrival) -> None:
        """Append what `arrival` returned; no other events may have been appended since."""
        if not len(arrival.events):
            return
        if int(arrival.events.id[0]) != self.num_events + 1:
            raise DsrdError("other events were appended since these were read; read the table again")
        self._arrivals.append(arrival)
        first = self.num_nodes if self._names is None else len(self._names) + len(self._new_names)
        for node, (name, target) in enumerate(arrival.new_names, start=first):
            self._new_ids[self._side(target)][name] = node
            self._new_names.append((name, target))
        self.num_events += len(arrival.events)
        self.num_nodes = max(self.num_nodes, arrival.events.num_nodes)
        self.last_time = float(arrival.events.time[-1])

    def dataset(self) -> Dataset:
        """All events so far as one data set."""
        if self._arrivals:
            self._dataset = self._joined()
            self._names, self._arrivals, self._new_names, self._new_ids = self._dataset.names, [], [], ({}, {})
        return self._dataset

    def events_since(self, first: int) -> Events:
        """All events except the first `first`; recent ones are returned without joining the whole stream."""
        joined = len(self._dataset.events)
        if first < joined or not self._arrivals:
            return self.dataset().events[first:]
        return Events.cat(*(arrival.events for arrival in self._arrivals))[first - joined :]

    def _joined(self) -> Dataset:
        old, new = self._dataset, self._arrivals
        events = Events.cat(old.events, *(arrival.events for arrival in new))
        edge_x = torch.cat([old.edge_x, *(arrival.edge_x for arrival in new)])
        node_x = torch.cat([old.node_x, old.node_x.new_zeros(self.num_nodes - old.num_nodes, old.node_dim)])
        label = old.label
        if label is not None:
            label = torch.cat([label, *(arrival.label for arrival in new)])
        names = old.names.with_more(self._new_names) if old.names is not None else None
        digest = digest_of_parts(events, edge_x, node_x, label)
        return replace(old, events=events, edge_x=edge_x, node_x=node_x, label=label, names=names, digest=digest)

    def _columns_in(self, table: pa.Table, origin: Origin) -> DataConfig:
        """The columns of the stream; the table may lack the label, which is often unknown for new events."""
        columns, features = self.columns, self._dataset.features
        matching = features if columns.features == () else tabular.feature_names(columns, table.column_names)
        other = [name for name in (*features, *matching) if name not in table.column_names or name not in features]
        if features and other:
            raise origin.error(
                f"the feature columns differ by '{other[0]}'; give those of the stream: {', '.join(features)}"
            )
        label = columns.label if columns.label in table.column_names else None
        return replace(columns, label=label, features=tuple(map(escape, features)))

    def _known_rows(self, src: Ids, dst: Ids, time: NDArray[np.float64], edge_x: NDArray[np.float32]) -> int:
        """The number of leading rows that repeat the stream: all its events, or 0."""
        count = self.num_events
        if not count or len(src) < count or time[0] >= self.last_time:
            return 0
        known = self.dataset()
        old_src, old_dst, old_time, _ = known.events.numpy()
        columns = ((src, old_src), (dst, old_dst), (time, old_time), (edge_x, known.edge_x.numpy()[1:]))
        return count if all(np.array_equal(new[:count], old) for new, old in columns) else 0

    def _ids(
        self, table: pa.Table, columns: DataConfig, origin: Origin, row: Ids
    ) -> tuple[Ids, Ids, NDArray[np.bool_], tuple[tuple[str, bool], ...]]:
        """For each table row the ids of source and target and whether both were known; and the new names."""
        if self._names is None:
            src, dst = (
                column_arrays.integers(table[end], end, origin, least=1)
                for end in (columns.source, columns.target)
            )
            most = self.num_nodes + 2 * len(row)  # a state has one row for every id up to the largest
            for end, ids in ((columns.source, src), (columns.target, dst)):
                if len(ids) and ids.max() >= most:
                    raise origin.error(
                        f"{end} is {ids.max()}, far above the {self.num_nodes - 1:,} nodes of the stream; "
                        "number new nodes without gaps",
                        int(ids.argmax()),
                    )
            return src, dst, (src < self.num_nodes) & (dst < self.num_nodes), ()
        sides = []
        for end, column, target in (("source", columns.source, False), ("target", columns.target, True)):
            code, distinct = column_arrays.names(table[column], end, origin, keep_spaces=columns.keep_spaces)
            names = distinct.to_pylist()
            ids = np.array([self.find(name, target=target) or 0 for name in names], dtype=np.int64)
            sides.append((code, names, ids))
        (src_code, src_names, src_ids), (dst_code, dst_names, dst_ids) = sides
        known = (src_ids[src_code] > 0) & (dst_ids[dst_code] > 0)
        new: dict[tuple[str, bool], int] = {}
        first = len(self._names) + len(self._new_names)
        for new_row in row[~known[row]]:
            for code, names, ids, target in (
                (src_code[new_row], src_names, src_ids, False),
                (dst_code[new_row], dst_names, dst_ids, True),
            ):
                if not ids[code]:
                    ids[code] = new.setdefault((names[code], target and self._separate_targets), first + len(new))
        return src_ids[src_code], dst_ids[dst_code], known, tuple(new)

    def _features(self, table: pa.Table, origin: Origin) -> NDArray[np.float32]:
        """Features in the column order of the stream, whatever the order in the table."""
        matrix = np.zeros((len(table), self.edge_dim), dtype=np.float32)
        for j, feature in enumerate(self._dataset.features):
            matrix[:, j] = column_arrays.float32s(table[feature], f"feature '{feature}'", origin)
        return matrix


def _label(table: pa.Table, columns: DataConfig, origin: Origin) -> NDArray[np.float32]:
    if columns.label is None:
        return np.full(len(table), np.nan, dtype=np.float32)
    return column_arrays.float32s(table[columns.label], "label", origin)
