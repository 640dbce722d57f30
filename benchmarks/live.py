"""Cost of using a trained run: opening it, scoring, and adding new events. One thread, JSON output.

    python benchmarks/live.py --save results/live.jsonl

Draws a stream, trains a model for one epoch and saves it, unless the folder already holds a run; then opens the
folder and times each call. `replay_ms` is the time to rebuild the state by observing the whole stream again.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import dsrd
from dsrd.estimator.online import OnlineModel
from dsrd.machine import load_average, peak_rss_mb
from dsrd.models import DEFAULT
from record import print_record

CALLS = 30  # timed calls of each kind


def median_ms(work: Callable[[int], Any], repeats: int = CALLS) -> float:
    """Milliseconds of the median call; `work` gets the number of the call."""
    seconds = []
    for number in range(repeats):
        began = time.perf_counter()
        work(number)
        seconds.append(time.perf_counter() - began)
    return round(1e3 * statistics.median(seconds), 2)


def train_once(folder: Path, name: str, data: str) -> None:
    if not (folder / "now.safetensors").exists():
        dsrd.LinkPredictor(name, epochs=1).fit(dsrd.load(data), folder=folder)


def timings(folder: Path) -> dict[str, Any]:
    began = time.perf_counter()
    model = dsrd.open(folder)
    opened = time.perf_counter() - began
    online = model.fitted.online
    stream, dataset = online.stream, online.stream.dataset()
    sources = [str(node) for node in dataset.events.src[-CALLS:].tolist()]
    model.partners(sources[0])  # compile and index before timing
    load = load_average()
    figures: dict[str, Any] = {
        "events": stream.num_events,
        "nodes": stream.num_nodes - 1,
        "targets": len(online.targets(online.after_last)),
        "open_ms": round(1e3 * opened, 1),
        "partners_ms": median_ms(lambda number: model.partners(sources[number], k=10)),
        "predict_one_ms": median_ms(lambda number: model.predict([(sources[number], sources[0])])),
    }
    began = time.perf_counter()
    OnlineModel(model.module, dataset).up_to_date()
    figures["replay_ms"] = round(1e3 * (time.perf_counter() - began), 1)

    def observe(number: int, count: int) -> None:
        last = stream.last_time
        model.observe([(sources[i % CALLS], sources[-1], last + i + 1) for i in range(count)])

    figures["observe_one_ms"] = median_ms(lambda number: observe(number, 1))
    figures["observe_hundred_ms"] = median_ms(lambda number: observe(number, 100))
    model.surprise([(sources[0], sources[1], stream.last_time + 1)])  # scores the recent events, once
    figures["surprise_one_ms"] = median_ms(
        lambda number: model.surprise([(sources[number], sources[0], stream.last_time + 1)])
    )
    return {**figures, "peak_rss_mb": peak_rss_mb(), "load": [load, load_average()]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=DEFAULT)
    parser.add_argument("--data", default="synth:events=300000,nodes=5000,bipartite=true")
    parser.add_argument("--run", type=Path, help="folder of a run; trained there if it does not exist")
    parser.add_argument("--save", type=Path, help="append the result to this file")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.run or Path(temporary) / "run"
        train_once(folder, arguments.model, arguments.data)
        figures = timings(folder)
    print_record(arguments.save, benchmark="live", model=arguments.model, data=arguments.data, figures=figures)


if __name__ == "__main__":
    main()
