"""What it costs to ask a run that was trained before, and to take in what follows: one thread, JSON out.

    python benchmarks/live.py --save results/live.jsonl

A stream is drawn, a model trained for an epoch and saved, if the folder does not hold it yet; then the folder is
opened and asked. `replay_ms` is what an answer cost more when the stream had to be told again first.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import dsrd
from dsrd.estimator.online import OnlineModel
from dsrd.files import append_line
from dsrd.machine import load_average, peak_rss_mb, versions
from dsrd.models import DEFAULT

ASKED = 30


def median_ms(work: Callable[[int], Any], repeats: int = ASKED) -> float:
    """Milliseconds of the median call; each is told its number."""
    seconds = []
    for number in range(repeats):
        began = time.perf_counter()
        work(number)
        seconds.append(time.perf_counter() - began)
    return round(1e3 * statistics.median(seconds), 2)


def trained(folder: Path, name: str, data: str) -> None:
    if not (folder / "now.safetensors").exists():
        dsrd.LinkPredictor(name, epochs=1).fit(dsrd.load(data), folder=folder)


def asked(folder: Path) -> dict[str, Any]:
    began = time.perf_counter()
    model = dsrd.open(folder)
    opened = time.perf_counter() - began
    online = model.fitted.online
    stream, dataset = online.stream, online.stream.dataset()
    sources = [str(node) for node in dataset.events.src[-ASKED:].tolist()]
    model.partners(sources[0])  # compiles, indexes
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
        model.observe([(sources[i % ASKED], sources[-1], last + i + 1) for i in range(count)])

    figures["observe_one_ms"] = median_ms(lambda number: observe(number, 1))
    figures["observe_hundred_ms"] = median_ms(lambda number: observe(number, 100))
    model.surprise([(sources[0], sources[1], stream.last_time + 1)])  # the latest events first, once
    figures["surprise_one_ms"] = median_ms(
        lambda number: model.surprise([(sources[number], sources[0], stream.last_time + 1)])
    )
    return {**figures, "peak_rss_mb": peak_rss_mb(), "load": [load, load_average()]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=DEFAULT)
    parser.add_argument("--data", default="synth:events=300000,nodes=5000,bipartite=true")
    parser.add_argument("--run", type=Path, help="folder to train in, or of a run trained before")
    parser.add_argument("--save", type=Path, help="append the result to this file")
    given = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.run or Path(temporary) / "run"
        trained(folder, given.model, given.data)
        figures = asked(folder)
    about = {"benchmark": "live", "model": given.model, "data": given.data, "figures": figures}
    line = json.dumps({**about, "threads": 1, "versions": versions()})
    if given.save:
        append_line(given.save, line)
    print(line)


if __name__ == "__main__":
    main()
