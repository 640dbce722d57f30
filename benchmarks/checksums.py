"""What checksums cost: how fast they are, and how much longer saving and opening take with them.

Run `python benchmarks/checksums.py`. Seconds are those of the processor, on one thread; with and without
verification alternate in one process, and the figures are minima. Prints the figures and then one JSON object;
`--save FILE` also appends that to a file.
"""

from __future__ import annotations

import argparse
import hashlib
import tempfile
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

from dsrd import checksums
from dsrd.data.arrow import read_dataset, write_dataset
from dsrd.data.dataset import Dataset
from dsrd.machine import load_average
from dsrd.train import checkpoint
from record import print_record

REPEATS = 5
GB = 1e9


def seconds(work: Callable[[], Any]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def compared(work: Callable[[], Any]) -> dict[str, float]:
    """Seconds with checksums and without, in turns."""
    with_, without = [], []
    for _ in range(REPEATS):
        with_.append(seconds(work))
        with (
            patch.object(checksums, "of_tensor", lambda _: ""),
            patch.object(checksums, "of_column", lambda _: ""),
            patch("dsrd.data.arrow._verify", lambda *_: None),
        ):
            without.append(seconds(work))
    return {"seconds": round(min(with_), 4), "without_checksums": round(min(without), 4)}


def algorithms(size: int) -> dict[str, float]:
    """Gigabytes per second of what Python and its usual packages offer."""
    data = np.random.default_rng(0).integers(0, 256, size, dtype=np.uint8)
    kinds: dict[str, Callable[[], Any]] = {
        "crc32": lambda: zlib.crc32(data),
        "adler32": lambda: zlib.adler32(data),
        "blake2b": lambda: hashlib.blake2b(data).digest(),
        "sha256": lambda: hashlib.sha256(data).digest(),
    }
    try:
        import xxhash
    except ModuleNotFoundError:
        pass
    else:
        kinds["xxh3_64"] = lambda: xxhash.xxh3_64_digest(data)
    return {name: round(size / GB / min(seconds(work) for _ in range(3)), 2) for name, work in kinds.items()}


def cache(events: int, folder: Path) -> dict[str, Any]:
    """Opening a cached stream, memory-mapped."""
    rng = np.random.default_rng(0)
    ends = [rng.integers(1, 100_001, events) for _ in range(2)]
    data = Dataset.from_arrays("drawn", *ends, np.arange(events, dtype=float))
    write_dataset(data, folder)
    size = sum(file.stat().st_size for file in folder.iterdir())
    return {
        "events": events,
        "megabytes": round(size / 1e6),
        **compared(lambda: read_dataset(folder, mapped=True)),
    }


def checkpoints(megabytes: int, folder: Path) -> dict[str, Any]:
    tensor = {"weights": {str(number): torch.rand(megabytes * 25_000) for number in range(10)}}
    file = folder / "best.safetensors"
    saving = compared(lambda: checkpoint.save(file, tensor, {}))
    checkpoint.save(file, tensor, {})
    opening = []
    bare = []
    for _ in range(REPEATS):
        opening.append(seconds(lambda: checkpoint.load(file)))
        with patch.object(checkpoint, "_note", lambda _: ({}, None)):
            bare.append(seconds(lambda: checkpoint.load(file)))
    opened = {"seconds": round(min(opening), 4), "without_checksums": round(min(bare), 4)}
    return {"megabytes": megabytes, "saving": saving, "opening": opened}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--save", type=Path)
    parser.add_argument("--events", type=int, default=10_000_000)
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        figures: dict[str, Any] = {
            "gigabytes_per_second": algorithms(200_000_000),
            "cache": cache(options.events, Path(folder)),
            "checkpoint": checkpoints(100, Path(folder)),
            "load": load_average(),
        }
    for name, value in figures.items():
        print(f"{name}: {value}")
    print_record(options.save, benchmark="checksums", **figures)


if __name__ == "__main__":
    main()
