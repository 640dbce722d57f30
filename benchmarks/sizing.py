"""Disk and memory of a live engine, per event and node: `python benchmarks/sizing.py --save results/sizing.jsonl`.

A default model is trained on a call log. Its engine then observes events of pairs that have met, without ids and
with ids, then of pairs that never met, and at last events that each bring a new node, in batches of 200. After
each part: by how much the log has grown per event, before and after compaction, and the model's state and the
history in memory. Prints the figures, then one JSON object.
"""

from __future__ import annotations

import argparse
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
    parser.add_argument("--events", type=int, default=50_000, help="of each kind")
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
    people = [f"person {number}" for number in range(1_000)]
    known = draw.integers(0, len(people), (5_000, 2)).tolist()
    pairs = [(people[source], people[target]) for source, target in known]
    met = [pairs[row] for row in draw.integers(0, len(pairs), options.events).tolist()]
    strangers = [
        (people[source], people[target]) for source, target in draw.integers(0, 1_000, (options.events, 2))
    ]
    new = [(f"new person {row}", people[row % 1_000]) for row in range(options.nodes)]
    _observe(engine, events(engine, pairs))
    return {
        "known_pairs": _cost(engine, events(engine, met)),
        "known_pairs_with_ids": _cost(engine, events(engine, met, ids=True)),
        "new_pairs": _cost(engine, events(engine, strangers)),
        "new_nodes": _cost(engine, events(engine, new)),
        "at_rest": _at_rest(engine),
    }


def events(engine: Engine, pairs: list[tuple[str, str]], *, ids: bool = False) -> Iterator[list[dict[str, Any]]]:
    """Batches of events, one per pair."""
    start = engine.state().time + 1
    for first in range(0, len(pairs), BATCH):
        batch = []
        for row, (source, target) in enumerate(pairs[first : first + BATCH], start=first):
            event: dict[str, Any] = {"source": source, "target": target, "time": start + row * 0.01}
            batch.append(event | {"id": f"2024-call-{row:09d}"} if ids else event)
        yield batch


def _observe(engine: Engine, batches: Iterator[list[dict[str, Any]]]) -> int:
    return sum(engine.observe(batch).accepted for batch in batches)


def _memory() -> float:
    return float(psutil.Process().memory_info().rss)


def _log(engine: Engine) -> int:
    return sum(file.stat().st_size for file in engine.folder.path.glob("log.sqlite*") if "shm" not in file.name)


def _sizes(engine: Engine) -> tuple[int, int]:
    """Bytes of the state and of the history."""
    with engine.reading():
        present = engine.live.timeline.present
        return present.nbytes(), sum(array.nbytes for array in present.past.index)


def _cost(engine: Engine, batches: Iterator[list[dict[str, Any]]]) -> dict[str, float]:
    """Bytes per event: the log before and after compaction, the state of the model, the history."""
    engine.compact(vacuum=True)
    log, sizes, began = _log(engine), _sizes(engine), time.process_time()
    count = _observe(engine, batches)
    seconds, raw = time.process_time() - began, _log(engine)
    engine.compact(vacuum=True)
    state, history = (round((now - before) / count, 1) for now, before in zip(_sizes(engine), sizes, strict=True))
    return {
        "log_bytes": round((raw - log) / count, 1),
        "compacted_log_bytes": round((_log(engine) - log) / count, 1),
        "state_bytes": state,
        "history_bytes": history,
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
        "state_mb": round(_sizes(engine)[0] / 1e6, 2),
        "history_mb": round(_sizes(engine)[1] / 1e6, 2),
        "snapshot_mb": round(newest.stat().st_size / 1e6, 2),
        "log_mb": round(_log(engine) / 1e6, 2),
    }


if __name__ == "__main__":
    main()
