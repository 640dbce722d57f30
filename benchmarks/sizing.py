"""Disk and memory of a live engine, per event and node: `python benchmarks/sizing.py --save results/live.jsonl`.

A default model is trained on a call log. Its engine then observes events between nodes that exist, without ids
and with ids, and at last events that each bring a new node, in batches of 200. After each part: by how much the
log has grown per event, before and after compaction, and the memory of the process and the state in it. Prints the
figures, then one JSON object.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch

import dsrd
from dsrd.data.sample import write_sample
from dsrd.live import Engine, LiveSettings
from record import print_record

BATCH = 200
QUIET = LiveSettings(watch=0.0, snapshot_events=0, snapshot_minutes=0, keep_ids=0)


def main() -> None:
    options = parsed()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="dsrd-sizing-") as folder:
        run = trained(Path(folder), options.model)
        with Engine(Path(folder) / "data", run, QUIET) as engine:
            figures = measured(engine, options)
    for name, part in figures.items():
        print(f"{name}: " + ", ".join(f"{key} {value:,}" for key, value in part.items()))
    print_record(options.save, benchmark="sizing", model=options.model, **figures)


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=100_000, help="between nodes that exist")
    parser.add_argument("--nodes", type=int, default=20_000, help="that are new")
    parser.add_argument("--model", default="dsrd")
    parser.add_argument("--save", type=Path)
    return parser.parse_args()


def trained(folder: Path, model: str) -> Path:
    log, *_ = write_sample(folder)
    stream = dsrd.load(log, source="caller", target="callee", time="date")
    dsrd.LinkPredictor(model, epochs=1).fit(stream, folder=folder / "run", progress=False)
    return folder / "run"


def measured(engine: Engine, options: argparse.Namespace) -> dict[str, dict[str, float]]:
    """Each part of the events, and what it has cost."""
    draw = np.random.default_rng(0)
    names = [f"person {number}" for number in range(1_000)]
    _observe(engine, events(engine, draw, names, 10 * BATCH))  # arrays that double are large enough for a while
    half = options.events // 2
    return {
        "events": _cost(engine, events(engine, draw, names, half)),
        "events_with_ids": _cost(engine, events(engine, draw, names, half, ids=True)),
        "new_nodes": _cost(engine, events(engine, draw, names, options.nodes, new=True)),
        "at_rest": _at_rest(engine),
    }


def events(
    engine: Engine,
    draw: np.random.Generator,
    names: list[str],
    count: int,
    *,
    ids: bool = False,
    new: bool = False,
) -> Iterator[list[dict[str, Any]]]:
    """Batches of events; with `new`, each has a source that nobody has seen."""
    start = engine.state().time + 1
    pairs = draw.integers(0, len(names), (count, 2)).tolist()
    rows = [
        {
            "source": f"new person {row}" if new else names[source],
            "target": names[target],
            "time": start + row * 0.01,
            **({"id": f"2024-call-{row:09d}"} if ids else {}),
        }
        for row, (source, target) in enumerate(pairs)
    ]
    return (rows[first : first + BATCH] for first in range(0, count, BATCH))


def _observe(engine: Engine, batches: Iterator[list[dict[str, Any]]]) -> int:
    return sum(engine.observe(batch).accepted for batch in batches)


def _memory() -> float:
    gc.collect()
    if sys.platform == "linux":
        ctypes.CDLL(None).malloc_trim(0)  # what was freed goes back to the system
    return float(psutil.Process().memory_info().rss)


def _log(engine: Engine) -> int:
    return sum(file.stat().st_size for file in engine.folder.path.glob("log.sqlite*") if "shm" not in file.name)


def _state(engine: Engine) -> int:
    with engine.reading():
        return int(engine.live.timeline.present.nbytes())


def _cost(engine: Engine, batches: Iterator[list[dict[str, Any]]]) -> dict[str, float]:
    """Bytes per event: the log before and after compaction, all memory of the process, the state of the model."""
    engine.compact(vacuum=True)
    log, memory, state, began = _log(engine), _memory(), _state(engine), time.process_time()
    count = _observe(engine, batches)
    seconds, grown = time.process_time() - began, _memory()
    raw = _log(engine)
    engine.compact(vacuum=True)
    return {
        "log_bytes": round((raw - log) / count, 1),
        "compacted_log_bytes": round((_log(engine) - log) / count, 1),
        "memory_bytes": round((grown - memory) / count, 1),
        "state_bytes": round((_state(engine) - state) / count, 1),
        "events_per_cpu_second": round(count / seconds),
    }


def _at_rest(engine: Engine) -> dict[str, float]:
    """The whole engine at the end."""
    state, snapshots = engine.state(), engine.folder.snapshots
    newest = max(snapshots.glob("*.safetensors"), key=lambda file: file.stat().st_mtime)
    return {
        "events": state.events,
        "nodes": state.nodes,
        "memory_mb": round(_memory() / 1e6, 1),
        "state_mb": round(_state(engine) / 1e6, 2),
        "snapshot_mb": round(newest.stat().st_size / 1e6, 2),
        "log_mb": round(_log(engine) / 1e6, 2),
    }


if __name__ == "__main__":
    main()
