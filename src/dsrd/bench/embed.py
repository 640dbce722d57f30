"""One vector per node at a time, and files that hold them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import torch
from torch import Tensor

from dsrd.bench.predict import RULES, after_last, from_the_start
from dsrd.data.dataset import Dataset
from dsrd.errors import DsrdError
from dsrd.evaluate.evaluator import Progress, Task, observe_all, silent
from dsrd.files import replacing
from dsrd.models import TemporalModel

SUFFIXES = (".parquet", ".npy")


@torch.no_grad()
def embed(
    model: TemporalModel,
    task: Task,
    time: float | None = None,
    batch_size: int = 200,
    progress: Progress = silent,
) -> Tensor:
    """A vector for every node at a time, from what happened strictly before it; row 0 is zeros.  # [N, d]

    Without a time it is the moment after the last event. The model's state is left as it was.
    """
    at = after_last(task) if time is None else time
    past = task.full_past.to(model.device)
    node = torch.arange(1, task.dataset.num_nodes)
    moment = torch.full(node.shape, at, dtype=torch.float64)
    events = task.split.full
    with from_the_start(model):
        # one node first: a model without embeddings says so before it is told a long stream
        width = model.embed(node[:1].to(model.device), moment[:1].to(model.device), past).shape[1]
        if not model.stateless:
            upto = int(torch.searchsorted(events.time, at))
            observe_all(model, events[:upto], past, RULES, batch_size, progress)
        vectors = torch.zeros(task.dataset.num_nodes, width)
        for start in range(0, len(node), batch_size):
            rows = node[start : start + batch_size]
            found = model.embed(rows.to(model.device), moment[: len(rows)].to(model.device), past)
            vectors[rows] = found.float().cpu()
            progress("embedding", start + len(rows), len(node))
    return vectors


def check_target(path: Path) -> None:
    """Refuse a file that `write` cannot make."""
    if path.suffix not in SUFFIXES:
        raise DsrdError(f"{path}: cannot write '{path.suffix}'; use a name that ends in {' or '.join(SUFFIXES)}")


def write(path: Path, vectors: Tensor, dataset: Dataset) -> None:
    """`.npy`: row = node id. `.parquet`: `node`, as the stream calls it, and `e0`, `e1`, ...; in order of ids."""
    check_target(path)
    matrix = vectors.numpy()
    with replacing(path) as temporary:
        if path.suffix == ".npy":
            with temporary.open("wb") as file:  # given a name, numpy would add a suffix to it
                np.save(file, matrix)
        else:
            names = np.arange(len(matrix)) if dataset.names is None else dataset.names.array
            rows = slice(1, min(len(names), len(matrix)))  # features may have rows for nodes that have no name
            columns = {"node": names[rows]} | {f"e{i}": matrix[rows, i] for i in range(matrix.shape[1])}
            pyarrow.parquet.write_table(pa.table(columns), str(temporary), compression="zstd")
