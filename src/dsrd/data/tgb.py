"""Link-prediction data sets of the Temporal Graph Benchmark (`tgbl-*`), with its split and negatives.

py-tgb stores negatives in pickles, which can execute any code. Nothing here opens a pickle: py-tgb loads the data
set, because the user did that or named it (`tgb:review`), and only arrays are taken from it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dsrd.data.dataset import Dataset
from dsrd.data.own_split import RANKED, Candidates, OwnSplit
from dsrd.data.split import cut
from dsrd.errors import DsrdError
from dsrd.events import NULL, as_tensor

NegativesOf = Callable[[str, Any, Any, Any], Sequence[Any]]
"""(part, sources, targets, times) -> the negative targets of each event, in the ids of the benchmark."""

EVENT_COLUMNS = ("sources", "destinations", "timestamps")
PARTS = ("train", "val", "test")
PREFIX, WIKI = "tgb:", "tgb:wiki"
QUERY_SIZE = 1000  # events per call of py-tgb, which returns negatives as lists of Python numbers


class Benchmark(NamedTuple):
    """The arguments of `Task.of_parts`: `Task.of_parts(*from_tgb(dataset))`."""

    dataset: Dataset
    parts: Mapping[str, NDArray[np.bool_]]  # masks [E] of train, val, test
    candidates: Mapping[str, Tensor]  # negative targets of val and test: [E, m], NULL where a row has fewer


def load_named(name: str, wikipedia: Callable[[], Dataset]) -> Dataset:
    """The data set `tgb:NAME` with its own split: from py-tgb if it is installed and has the data.

    `tgb:wiki` can also be made from a copy of wikipedia, which `wikipedia` reads.
    """
    short = name.removeprefix(PREFIX).removeprefix("tgbl-")
    loaded = _loaded_by_py_tgb(f"tgbl-{short}")
    if loaded is not None:
        return replace(_with_own_split(from_tgb(loaded)), name=PREFIX + short)
    if PREFIX + short == WIKI:
        return _wiki(wikipedia)
    if find_spec("tgb") is None:
        raise DsrdError(
            f"{name}: only py-tgb reads these data; run `pip install dsrd[tgb]` and let it download them"
        )
    raise DsrdError(
        f"{name}: py-tgb has no such data; download them with tgb.linkproppred.dataset."
        f"LinkPropPredDataset('tgbl-{short}')"
    )


def _loaded_by_py_tgb(name: str) -> Any:
    """A data set that py-tgb has downloaded earlier, with its negatives; None if it has none, or is not here."""
    if find_spec("tgb") is None:
        return None
    with redirect_stdout(sys.stderr):  # py-tgb prints where it looks; standard output is for results
        try:
            dataset = import_module("tgb.linkproppred.dataset").LinkPropPredDataset(name=name, download=False)
            dataset.load_val_ns()
            dataset.load_test_ns()
        except (FileNotFoundError, ValueError):  # ValueError: a name it does not know
            return None
    return dataset


def _wiki(wikipedia: Callable[[], Dataset]) -> Dataset:
    """tgbl-wiki-v2: the events of wikipedia, cut at quantiles of time, ranked among all other targets.

    Its generator asks for more negatives than there are targets, and so takes every one that the source does not
    meet in that second. Two events of each part meet two targets at once; here they have one candidate more.
    """
    try:
        copy = wikipedia()
    except DsrdError as error:
        raise DsrdError(f"{WIKI}: neither py-tgb nor the data folder has it: {error}") from error
    own_split = OwnSplit(*cut(copy.events.time.numpy()))
    return replace(copy, name=WIKI, own_split=own_split, catalogued=False)


def _with_own_split(benchmark: Benchmark) -> Dataset:
    """The data set of a benchmark, with its parts and candidates as its own split."""
    dataset, parts, candidates = benchmark
    all_others = OwnSplit(int(np.argmax(parts["val"])), int(np.argmax(parts["test"])))
    masks = all_others.masks(len(dataset.events))
    if not all(np.array_equal(masks[part], parts[part]) for part in PARTS):
        raise DsrdError(f"{dataset.name}: its parts do not follow each other in time; use from_tgb, Task.of_parts")
    others = all_others.candidates_of(dataset.events)
    if all(_same_candidates(candidates[part], others[part]) for part in RANKED):
        return replace(dataset, own_split=all_others)
    return replace(dataset, own_split=replace(all_others, candidates=candidates))


def _same_candidates(listed: Tensor, others: Candidates) -> bool:
    """Whether lists of candidates are those of `others`, in any order; compared in pieces to save memory."""
    pieces = (slice(start, start + QUERY_SIZE) for start in range(0, len(listed), QUERY_SIZE))
    return tuple(listed.shape) == tuple(others.shape) and all(
        torch.equal(listed[rows].sort(dim=1).values, others[rows]) for rows in pieces
    )


def from_tgb(dataset: Any) -> Benchmark:
    """Convert a data set that py-tgb has loaded: a `LinkPropPredDataset` or a `PyGLinkPropPredDataset`.

    Its `load_val_ns()` and `load_test_ns()` must have been called. Node ids start at 0 there, at 1 here.
    """
    if isinstance(dataset, str):
        raise DsrdError(_remedy(dataset))
    dataset = getattr(dataset, "dataset", dataset)  # the PyG one wraps the other
    try:
        name, data, sampler = dataset.name, dataset.full_data, dataset.negative_sampler
        parts = {part: getattr(dataset, f"{part}_mask") for part in PARTS}
    except AttributeError as error:
        raise DsrdError(f"not a data set of py-tgb ({error}); give a LinkPropPredDataset") from error
    if "edge_type" in data:
        raise DsrdError(f"{name}: its events have types, which no model here reads; give a tgbl-* data set")

    def negatives_of(part: str, *events: Any) -> Sequence[Any]:
        try:
            negatives: Sequence[Any] = sampler.query_batch(*events, split_mode=part)
        except (KeyError, TypeError, ValueError) as error:
            raise DsrdError(
                f"{name}: has no negatives for {part} ({error}); call its load_{part}_ns() before from_tgb"
            ) from error
        return negatives

    return _converted(name, data, parts, negatives_of, getattr(dataset, "node_feat", None))


def from_tgb_arrays(
    name: str,
    data: Mapping[str, Any],
    parts: Mapping[str, Any],
    negatives: Mapping[str, Mapping[tuple[Any, Any, Any], Any]],
    node_feat: Any = None,
) -> Benchmark:
    """The same from arrays: `data` has `sources`, `destinations`, `timestamps` and optionally `edge_feat`; `parts`
    are masks; `negatives` of `val` and `test` map (source, destination, timestamp) to negative destinations.

    >>> data = {"sources": [0, 1, 0], "destinations": [2, 3, 3], "timestamps": [5, 6, 7]}
    >>> parts = {"train": [1, 0, 0], "val": [0, 1, 0], "test": [0, 0, 1]}
    >>> benchmark = from_tgb_arrays("tiny", data, parts, {"val": {(1, 3, 6): [2, 4]}, "test": {(0, 3, 7): [2]}})
    >>> benchmark.dataset.events.src.tolist(), benchmark.candidates["val"].tolist()
    ([1, 2, 1], [[3, 5]])
    """

    def negatives_of(part: str, *columns: Any) -> Sequence[Any]:
        events = list(zip(*(column.tolist() for column in columns), strict=True))
        missing = next((event for event in events if event not in negatives[part]), None)
        if missing is not None:
            raise DsrdError(
                f"{name}: no negatives for the event {missing} of {part}; give an entry for each event"
            )
        return [negatives[part][event] for event in events]

    return _converted(name, data, parts, negatives_of, node_feat)


def _remedy(name: str) -> str:
    if find_spec("tgb") is None:
        return "py-tgb is not installed; run `pip install dsrd[tgb]`, then give the data set it has loaded"
    return f"'{name}' is a name; give LinkPropPredDataset('{name}') of py-tgb, with its negatives loaded"


def _converted(
    name: str, data: Mapping[str, Any], parts: Mapping[str, Any], negatives_of: NegativesOf, node_feat: Any
) -> Benchmark:
    """Events sorted by time with ids from 1; candidates in the order of the sorted events."""
    columns = {key: np.asarray(data[key]) for key in EVENT_COLUMNS}
    columns |= {part: np.asarray(parts[part], dtype=np.bool_) for part in PARTS}
    if data.get("edge_feat") is not None:
        columns["edge_feat"] = np.asarray(data["edge_feat"])
    order = np.argsort(columns["timestamps"], kind="stable")
    for key, column in columns.items():
        if len(column) != len(order):
            raise DsrdError(
                f"{name}: {key} has {len(column)} rows for {len(order)} timestamps; give one per event"
            )
        columns[key] = column[order]
    src, dst, time = (columns[key] for key in EVENT_COLUMNS)
    masks = {part: columns[part] for part in PARTS}
    candidates = {
        part: _padded(name, part, negatives_of, *(column[masks[part]] for column in (src, dst, time)))
        for part in RANKED
    }
    rows = 1 + max(int(ids.max(initial=NULL)) for ids in (src + 1, dst + 1, *candidates.values()))
    unsorted = int((np.diff(order) < 0).sum())
    dataset = Dataset.from_arrays(
        name,
        src + 1,
        dst + 1,
        time,
        edge_x=_with_padding_row(columns["edge_feat"], len(src) + 1) if "edge_feat" in columns else None,
        node_x=_with_padding_row(np.zeros((0, 1)) if node_feat is None else np.asarray(node_feat), rows),
        bipartite=not np.isin(dst, src).any(),
        notes=(f"sorted by time: {unsorted} rows were earlier than the row before",) if unsorted else (),
    )
    return Benchmark(dataset, masks, {part: as_tensor(targets) for part, targets in candidates.items()})


def _padded(
    name: str, part: str, negatives_of: NegativesOf, src: NDArray[Any], dst: NDArray[Any], time: NDArray[Any]
) -> NDArray[np.int64]:
    """The negative targets of each event, with ids from 1: [E, m], NULL where an event has fewer."""
    rows: list[NDArray[np.int64]] = []
    for start in range(0, len(src), QUERY_SIZE):
        batch = slice(start, start + QUERY_SIZE)
        negatives = negatives_of(part, src[batch], dst[batch], time[batch])
        rows += [np.asarray(targets, dtype=np.int64) + 1 for targets in negatives]
    length = np.array([len(row) for row in rows], dtype=np.int64)
    padded = np.full((len(rows), length.max(initial=0)), NULL, dtype=np.int64)
    for padded_row, row in zip(padded, rows, strict=True):
        if row.min(initial=1) < 1:
            raise DsrdError(f"{name}: {row.min() - 1} among the negatives of {part}; node ids start at 0")
        padded_row[: len(row)] = row
    return padded


def _with_padding_row(x: NDArray[Any], rows: int) -> NDArray[np.float32]:
    """Features below a padding row 0, with zeros for ids that have none: at least [rows, d]."""
    matrix = x[:, None] if x.ndim == 1 else x
    padded = np.zeros((max(rows, len(matrix) + 1), matrix.shape[1]), dtype=np.float32)
    padded[1 : len(matrix) + 1] = matrix
    return padded
