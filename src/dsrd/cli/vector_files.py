"""Files with one vector per node."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
from numpy.typing import NDArray

from dsrd.errors import DsrdError
from dsrd.files import replacing

SUFFIXES = (".parquet", ".npy")


def check_target(path: Path) -> None:
    """Raise an error for a file that `write` cannot write."""
    if path.suffix not in SUFFIXES:
        raise DsrdError(f"{path}: cannot write '{path.suffix}'; use a name that ends in {' or '.join(SUFFIXES)}")


def write(path: Path, vectors: NDArray[np.float32], nodes: Sequence[str]) -> None:
    """Write the vectors [N - 1, d] of the nodes with ids 1, 2, ...

    `.npy`: row = node id, row 0 is zeros. `.parquet`: columns `node` (the name), `e0`, `e1`, ...
    """
    check_target(path)
    with replacing(path) as temporary:
        if path.suffix == ".npy":
            with temporary.open("wb") as file:  # given a path, numpy would add a suffix to it
                np.save(file, np.concatenate([np.zeros_like(vectors[:1]), vectors]))
        else:
            columns = {f"e{i}": vectors[:, i] for i in range(vectors.shape[1])}
            table = pa.table({"node": pa.array(nodes, pa.string()), **columns})
            pyarrow.parquet.write_table(table, str(temporary), compression="zstd")
