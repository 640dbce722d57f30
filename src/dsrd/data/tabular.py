"""Tables of events (CSV, Parquet, data frames), with columns of any name, as a `Dataset`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dsrd.config import DataConfig
from dsrd.data import column_arrays
from dsrd.data.dataset import Dataset, Names
from dsrd.data.oddities import odd_events, odd_names
from dsrd.data.parse import Origin
from dsrd.decoding import decoding, shortened

METADATA = b"dsrd"
"""Key of the schema metadata in tables that `dsrd` wrote: what the columns cannot express."""

ROLES = ("source", "target", "time", "label")


def feature_names(columns: DataConfig, available: Sequence[str]) -> list[str]:
    """The columns that match the feature patterns, in table order; source, target, time and label are left out."""
    other_roles = _roles(columns).values()
    return [
        name
        for name in available
        if name not in other_roles and any(fnmatchcase(name, pattern) for pattern in columns.features)
    ]


def needed(columns: DataConfig, available: Sequence[str]) -> list[str]:
    """The columns to read.

    >>> columns = DataConfig(time="when", features=("f_*",))
    >>> needed(columns, ["source", "target", "when", "f_0", "f_1", "note"])
    ['source', 'target', 'when', 'f_0', 'f_1']
    """
    return [*_roles(columns).values(), *feature_names(columns, available)]


def require(columns: DataConfig, available: Sequence[str], origin: Origin) -> None:
    """Raise an error for the first column that is missing, occurs twice, or has two roles."""
    roles = _roles(columns)
    role_of: dict[str, str] = {}
    for role, wanted in roles.items():
        if wanted not in available:
            raise origin.error(
                f"there is no column '{wanted}', only {_listed(available)}; set `{role}` to the right one"
            )
        if wanted in role_of:
            raise origin.error(
                f"'{wanted}' is both the {role_of[wanted]} and the {role} column; name another one with `{role}`"
            )
        role_of[wanted] = role
    for pattern in columns.features:
        matching = [name for name in available if fnmatchcase(name, pattern)]
        if not matching:
            raise origin.error(f"no column matches '{pattern}', only {_listed(available)}; correct `features`")
        taken = [name for name in matching if name in role_of]
        if len(taken) == len(matching):
            raise origin.error(f"'{taken[0]}' is the {role_of[taken[0]]} column; take it out of `features`")
    wanted_names = needed(columns, available)
    twice = next((name for name in wanted_names if available.count(name) > 1), None)
    if twice is not None:
        raise origin.error(f"the column '{twice}' occurs {available.count(twice)} times; rename all but one")


def from_table(table: pa.Table, columns: DataConfig, origin: Origin, *, name: str) -> Dataset:
    """Check every entry, sort the events by time, and number the nodes from 1 in order of appearance.

    Bipartite: sources and targets have separate names, and targets are numbered after all sources.
    """
    written = _written(table.schema, origin)
    bipartite = columns.bipartite
    if bipartite is None:
        bipartite = bool(written.get("bipartite", False))
    require(columns, table.column_names, origin)
    time, dates = column_arrays.dated_times(table[columns.time], "time", origin, columns.time_format)
    order, notes = _order(time)
    if not dates and column_arrays.look_like_days(time):
        notes += (
            f"times such as {time[0]:.0f} look like dates and are read as numbers; if they are dates, "
            "give the `time_format` %Y%m%d",
        )
    if written.get("ids_are_names"):
        src, dst = (
            column_arrays.integers(table[end], end, origin, least=1) for end in (columns.source, columns.target)
        )
        names: Names | None = None
    else:
        src, dst, names, name_notes = _number(table, columns, origin, order, bipartite)
        notes += name_notes
    features = feature_names(columns, table.column_names)
    edge_x = np.zeros((len(time) + 1, len(features)), dtype=np.float32)  # [E + 1, d]
    for j, feature in enumerate(features):
        edge_x[1:, j] = column_arrays.float32s(table[feature], f"feature '{feature}'", origin)[order]
    label = column_arrays.float32s(table[columns.label], "label", origin)[order] if columns.label else None
    notes += odd_events(src[order], dst[order], time[order], dates)
    return Dataset.from_arrays(
        name,
        src[order],
        dst[order],
        time[order],
        edge_x=edge_x if features else None,
        label=label,
        names=names,
        bipartite=bipartite,
        notes=notes,
        columns=replace(columns, bipartite=bipartite),
        features=features,
        dates=dates or bool(written.get("dates", False)),
    )


WRITTEN: dict[str, tuple[type, ...]] = {
    "bipartite": (bool,),
    "ids_are_names": (bool,),
    "features": (list,),
    "label": (str, type(None)),
    "dates": (bool,),
    "keep_spaces": (bool,),
}
"""What the metadata of a table that `dsrd` wrote hold, and of which type."""


def _written(schema: pa.Schema, origin: Origin) -> dict[str, Any]:
    """The metadata of a table that `dsrd` wrote; of any other table, nothing."""
    text = (schema.metadata or {}).get(METADATA)
    if text is None:
        return {}
    remedy = "convert the original again, or remove the metadata `dsrd` from its schema"
    with decoding(f"{origin.name}: metadata", "those of a table that dsrd wrote", remedy):
        written = {"keep_spaces": False, **json.loads(text)}
        for name, kinds in WRITTEN.items():
            if not isinstance(written[name], kinds):
                raise ValueError(f"{name} is {written[name]}")
        if not all(isinstance(pattern, str) for pattern in written["features"]):
            raise ValueError(f"features are {written['features']}")
    return written


def written_columns(columns: DataConfig, schema: pa.Schema, origin: Origin) -> DataConfig:
    """The columns stored in a table that `dsrd` wrote, unless others are requested."""
    written = _written(schema, origin)
    if not written or replace(columns, format="auto", bipartite=None) != DataConfig():
        return columns
    kept = {"features": tuple(written["features"]), "label": written["label"]}
    return replace(columns, **kept, keep_spaces=written["keep_spaces"])


def ignored(columns: DataConfig, available: Sequence[str]) -> tuple[str, ...]:
    """A note about columns that are not read: they may be features the user forgot to name."""
    read = needed(columns, available)
    unread = [name for name in available if name not in read]
    if not unread:
        return ()
    return (f"ignored {_listed(unread)}; choose features with `features`, a label with `label`",)


def _roles(columns: DataConfig) -> dict[str, str]:
    """The column of every role that has one."""
    return {role: getattr(columns, role) for role in ROLES if getattr(columns, role) is not None}


def _order(time: NDArray[np.float64]) -> tuple[Any, tuple[str, ...]]:
    late = int((np.diff(time) < 0).sum())
    if not late:
        return slice(None), ()
    note = f"sorted by time: {late:,} of {len(time):,} rows were earlier than the row before"
    return np.argsort(time, kind="stable"), (note,)


def _number(
    table: pa.Table, columns: DataConfig, origin: Origin, order: Any, bipartite: bool
) -> tuple[NDArray[np.int64], NDArray[np.int64], Names, tuple[str, ...]]:
    """Node ids by table row, their names, and notes; ids follow the first appearance in time."""
    src_read, dst_read = (
        column_arrays.node_names(table[name], role, origin, keep_spaces=columns.keep_spaces)
        for role, name in (("source", columns.source), ("target", columns.target))
    )
    (src, src_names), (dst, dst_names) = ((read.codes, read.distinct) for read in (src_read, dst_read))
    stripped = src_read.stripped + dst_read.stripped
    if bipartite:
        src_rank, src_names = _by_appearance(src[order], src_names)
        dst_rank, dst_names = _by_appearance(dst[order], dst_names)
        first_target = len(src_names) + 1
        names = Names.two_kinds(_with_padding(src_names, dst_names), first_target)
        notes = odd_names(src_names, stripped) + odd_names(dst_names, 0)
        return src_rank[src] + 1, dst_rank[dst] + first_target, names, notes
    both = pa.concat_arrays([src_names, dst_names]).dictionary_encode()
    shared = np.asarray(both.indices).astype(np.int64)
    src, dst = shared[src], shared[dst + len(src_names)]
    rank, distinct = _by_appearance(np.stack([src[order], dst[order]], axis=1).reshape(-1), both.dictionary)
    return rank[src] + 1, rank[dst] + 1, Names(_with_padding(distinct)), odd_names(distinct, stripped)


def _by_appearance(codes: NDArray[np.int64], names: pa.Array) -> tuple[NDArray[np.int64], pa.Array]:
    """(new number of each code, names in the new order); numbers follow the first appearance."""
    first = np.full(len(names), len(codes))
    first[codes[::-1]] = np.arange(len(codes))[::-1]  # reversed: the earliest position is assigned last
    oldest_first = np.argsort(first, kind="stable")
    rank = np.empty_like(oldest_first)
    rank[oldest_first] = np.arange(len(names))
    used = int((first < len(codes)).sum())  # a categorical column may have categories without rows
    return rank, names.take(pa.array(oldest_first[:used]))


def _with_padding(*names: pa.Array) -> pa.Array:
    return pa.concat_arrays([pa.array([""], pa.string()), *names])


def _listed(names: Sequence[str], most: int = 12) -> str:
    shown = ", ".join(shortened(name, 60) for name in names[:most]) + (", ..." if len(names) > most else "")
    return f"the column{'s' if len(names) > 1 else ''} {shown}"
