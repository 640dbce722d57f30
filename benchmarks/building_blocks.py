"""Speed and memory of what models are built on: look-ups, negatives, metrics, reading, splitting.

Run `make bench` or `python benchmarks/building_blocks.py`. Each benchmark runs in its own process, on one thread.
Prints the figures and then one JSON object; `--save FILE` also appends that to a file. Ratios are measured within
one process, and the machine's load is reported with them. Wikipedia's events come from $DSRD_DATA; without them a
synthetic stream of that size is used, and the result says which.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from dsrd.data.convert import write
from dsrd.data.dataset import Dataset
from dsrd.data.read import load
from dsrd.data.split import split
from dsrd.errors import DsrdError
from dsrd.evaluate.metrics import batch_means
from dsrd.evaluate.task import passes
from dsrd.events import Events
from dsrd.history.past import Past
from dsrd.machine import load_average, peak_rss_mb
from dsrd.negatives.sampling import draw_negatives
from dsrd.synthetic.drawing import synth
from dsrd.synthetic.settings import SynthConfig
from record import print_record

Figures = dict[str, Any]


def timed(work: Callable[[], Any], repeats: int = 1) -> float:
    """Seconds of the fastest of several runs."""
    best = float("inf")
    for _ in range(repeats):
        began = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - began)
    return best


def wikipedia() -> tuple[Dataset, str]:
    try:
        return load("wikipedia"), "wikipedia"
    except DsrdError:
        return load("synth:events=157474,nodes=9227,bipartite=true"), "synthetic, of wikipedia's size"


def one_by_one(events: Events, node: np.ndarray, at: np.ndarray, k: int) -> Callable[[], None]:
    """The usual implementation: a sorted list per node, and for each query a binary search and three slices."""
    src, dst, time, id = events.numpy()
    ends, others = np.concatenate([src, dst]), np.concatenate([dst, src])
    times, ids = np.tile(time, 2), np.tile(id, 2)
    order = np.lexsort((ids, ends))
    bounds = np.searchsorted(ends[order], np.arange(events.num_nodes + 1))
    lists = [order[bounds[n] : bounds[n + 1]] for n in range(events.num_nodes)]
    per_node = [(others[rows], ids[rows], times[rows]) for rows in lists]
    result = np.zeros((len(node), k), np.int64), np.zeros((len(node), k), np.int64), np.zeros((len(node), k))

    def loop() -> None:
        for q, (n, t) in enumerate(zip(node.tolist(), at.tolist(), strict=True)):
            stop = np.searchsorted(per_node[n][2], t)
            first = max(0, stop - k)
            for target, column in zip(result, per_node[n], strict=True):
                target[q, k - (stop - first) :] = column[first:stop]

    return loop


def recent() -> Figures:
    """100,000 look-ups of the last 20 interactions."""
    dataset, name = wikipedia()
    events, k, queries = dataset.events, 20, 100_000
    rows = torch.from_numpy(np.random.default_rng(0).integers(0, len(events), queries))
    node, at = events.src[rows], events.time[rows]
    past = Past(events)
    past.recent(node, at, k)  # compile before timing
    seconds = timed(lambda: past.recent(node, at, k), repeats=5)
    loop = timed(one_by_one(events, node.numpy(), at.numpy(), k))
    return {
        "data": name,
        "queries_per_second": round(queries / seconds),
        "loop_queries_per_second": round(queries / loop),
        "times_faster": round(loop / seconds, 1),
        "wanted": "20 times faster, 1,000,000 queries a second",
        "met": loop / seconds >= 20 and queries / seconds >= 1e6,
    }


def _negatives(order: str) -> float:
    dataset, _ = wikipedia()
    test = passes(split(dataset.events))[2]

    def draw() -> None:
        for strategy in ("historical", "inductive"):
            draw_negatives(
                strategy,  # type: ignore[arg-type]
                test.events,
                test.pool,
                seed=test.seed,
                last_observed=test.last_observed,
                order=order,  # type: ignore[arg-type]
            )

    return timed(draw)


def negatives_published() -> Figures:
    """Historical and inductive negatives of the whole test set in the published order, with compilation."""
    seconds = _negatives("py37")
    met = seconds < 20 and peak_rss_mb() < 2000
    return {"data": wikipedia()[1], "seconds": round(seconds, 2), "wanted": "20 s and 2 GB", "met": met}


def negatives_fast() -> Figures:
    """The same negatives in another order, with the same distribution."""
    seconds = _negatives("fast")
    return {"data": wikipedia()[1], "seconds": round(seconds, 3), "wanted": "1 s", "met": seconds < 1}


def read_csv() -> Figures:
    """Parsing a CSV file of a million rows with text ids."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "million.csv"
        events = synth(SynthConfig(events=1_000_000)).events
        with path.open("w") as file:
            file.write("source,target,time\n")
            rows = zip(events.src.tolist(), events.dst.tolist(), events.time.tolist(), strict=True)
            file.writelines(f"user{src},user{dst},{at}\n" for src, dst, at in rows)
        seconds = timed(lambda: load(path, cache=False))
    return {"seconds": round(seconds, 2), "wanted": "3 s", "met": seconds < 3}


def metrics() -> Figures:
    """AP and AUC of 100,000 scored pairs of each kind, in batches of 200."""
    positive, negative = np.random.default_rng(0).random((2, 100_000))
    seconds = timed(lambda: batch_means(positive, negative, 200), repeats=3)
    return {"seconds": round(seconds, 3), "wanted": "0.5 s", "met": seconds < 0.5}


def ten_million() -> Figures:
    """Drawing, splitting and indexing ten million synthetic events."""
    began = time.perf_counter()
    dataset = synth(SynthConfig(events=10_000_000))
    drawn = time.perf_counter()
    parts = split(dataset.events)
    cut = time.perf_counter()
    Past(parts.full)
    seconds = time.perf_counter() - began
    return {
        "seconds": round(seconds, 1),
        "draw": round(drawn - began, 1),
        "split": round(cut - drawn, 1),
        "index": round(time.perf_counter() - cut, 1),
        "wanted": "60 s and 4 GB",
        "met": seconds < 60 and peak_rss_mb() < 4000,
    }


def reopen() -> Figures:
    """Opening a file of ten million events for the second time."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["DSRD_CACHE"] = f"{folder}/cache"
        path = Path(folder) / "events.parquet"
        write(synth(SynthConfig(events=10_000_000)), path)
        first = timed(lambda: load(path))
        second = timed(lambda: load(path))
    return {"first": round(first, 2), "seconds": round(second, 4), "wanted": "1 s", "met": second < 1}


BENCHMARKS = {
    each.__name__: each
    for each in (recent, negatives_published, negatives_fast, read_csv, metrics, ten_million, reopen)
}


def measure(name: str) -> Figures:
    """Run one benchmark in a fresh process with one thread, so that its peak memory is measured alone."""
    single = {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1", "ARROW_NUM_THREADS": "1"}
    call = [sys.executable, __file__, "--only", name]
    output = subprocess.run(call, env={**os.environ, **single}, capture_output=True, text=True, check=True).stdout
    figures: Figures = json.loads(output.splitlines()[-1])
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=BENCHMARKS, help="run one benchmark, in this process")
    parser.add_argument("--save", type=Path, help="append the result to this file")
    arguments = parser.parse_args()
    if arguments.only:
        torch.set_num_threads(1)
        load_before = load_average()
        figures = BENCHMARKS[arguments.only]()
        print(json.dumps({**figures, "peak_rss_mb": peak_rss_mb(), "load": load_before}))
        return
    results: Figures = {}
    for name, benchmark in BENCHMARKS.items():
        results[name] = measure(name)
        text = " ".join(f"{key}={value}" for key, value in results[name].items())
        print(f"{name}: {(benchmark.__doc__ or '').strip()}\n    {text}", flush=True)
    print_record(arguments.save, benchmark="building_blocks", figures=results)


if __name__ == "__main__":
    main()
