"""Cost of a model as streams, node sets and batches grow: `python benchmarks/scaling.py`.

- by_events, by_nodes: a model observes a synthetic stream; then its last events are scored (with one random
  negative each) and observed, in batches of 200. Microseconds per event.
- by_batch: forward and backward of one large batch, in chunks that give the same loss and gradient.

Longer streams and more nodes, in bounded memory: `benchmarks/beyond_memory.py`.

Each size runs in its own process, on one thread, so that its peak memory is measured alone. Seconds are CPU
seconds; `wall` marks elapsed ones. Every size of a stream is measured three times, in rotation, and the fastest
counts, so that other load on the machine affects all sizes alike. Prints the figures and then one JSON object,
which `--save FILE` also appends to a file.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from dsrd.config import overridden
from dsrd.events import Events, Query
from dsrd.history.past import Past
from dsrd.machine import load_average, peak_rss_mb
from dsrd.models import DEFAULT, GraphSpec, TemporalModel, create, model_class
from dsrd.negatives.sampling import TrainingNegatives
from dsrd.synthetic.drawing import synth
from dsrd.synthetic.settings import SynthConfig
from dsrd.train.loop import backward_in_chunks
from record import print_record

Figures = dict[str, Any]
EVENTS = [
    (10_000, 200),
    (100_000, 200),
    (1_000_000, 200),
    (10_000_000, 200),
]  # every node has more events than a window
NODES = [(1_000_000, 1_000), (1_000_000, 10_000), (1_000_000, 100_000), (1_000_000, 1_000_000)]
EDGES = [(10_000, 1_000), (100_000, 10_000), (1_000_000, 100_000)]
SCORED = 4_000  # events scored at the end
WARM_UP = 2_000  # events before timing starts: compilation, growth of the state
CHUNK = 1_000  # events
REPEATS = 3


def build(model_name: str, precision: str, stream: Events) -> TemporalModel:
    torch.manual_seed(0)
    settings = {"precision": precision} if precision else {}
    model = create(model_name, GraphSpec(num_nodes=1), overridden(model_class(model_name).Config(), settings))
    model.calibrate(stream)
    return model


def timed(work: Callable[[], Any]) -> tuple[float, float]:
    """(CPU seconds, elapsed seconds) of a call."""
    began = time.process_time(), time.perf_counter()
    work()
    return time.process_time() - began[0], time.perf_counter() - began[1]


@torch.no_grad()
def stream_cost(model: TemporalModel, stream: Events) -> Figures:
    """Microseconds per event to observe a stream, and to score and observe its end."""
    past, start = Past(stream), len(stream) - SCORED
    model.eval()
    negatives = TrainingNegatives(stream, 0)

    def observe(events: Events, size: int) -> None:
        for batch in events.batches(size):
            model.observe(batch, past)

    def score_and_observe(events: Events) -> None:
        for batch in events.batches(200):
            model.score(Query.cat(batch.query(), negatives.sample(batch)), past.during(batch))
            model.observe(batch, past)

    observe(stream[:WARM_UP], WARM_UP)
    observed, observed_wall = timed(lambda: observe(stream[WARM_UP:start], 10_000))
    before, scored = model.state.snapshot(), []
    for _ in range(REPEATS):
        model.state.restore(before)
        scored.append(timed(lambda: score_and_observe(stream[start:])))
    per_event, best = 1e6 / (start - WARM_UP), min(scored)
    return {
        "observe_us": round(per_event * observed, 2),
        "observe_wall_us": round(per_event * observed_wall, 2),
        "score_and_observe_us": round(1e6 * best[0] / SCORED, 1),
        "score_and_observe_wall_us": round(1e6 * best[1] / SCORED, 1),
    }


def batch_cost(model: TemporalModel, stream: Events) -> Figures:
    """Seconds for forward and backward of the stream as one batch."""
    past, negatives = Past(stream), TrainingNegatives(stream, 0)
    model.train()
    backward_in_chunks(model, stream[:WARM_UP], negatives, past, CHUNK)
    model.state.reset()
    model.zero_grad()
    seconds, wall = timed(lambda: backward_in_chunks(model, stream, negatives, past, CHUNK))
    return {"seconds": round(seconds, 2), "wall_seconds": round(wall, 2), "chunk": CHUNK}


TABLES = {  # sizes, function, number of measurements, and the figure that decides which was fastest
    "by_events": (EVENTS, stream_cost, 3, "score_and_observe_us"),
    "by_nodes": (NODES, stream_cost, 3, "score_and_observe_us"),
    "by_batch": (EDGES, batch_cost, 1, "seconds"),
}


def one(table: str, size: int, model_name: str, precision: str) -> Figures:
    torch.set_num_threads(1)
    sizes, cost, _, _ = TABLES[table]
    events, nodes = sizes[size]
    stream, load = synth(SynthConfig(events=events, nodes=nodes)).events, load_average()
    model = build(model_name, precision, stream)
    figures = {"events": events, "nodes": nodes, **cost(model, stream)}
    state_mb = round(model.state.nbytes() / 2**20, 1)
    return {**figures, "state_mb": state_mb, "peak_rss_mb": peak_rss_mb(), "load": load}


def measure(table: str, size: int, arguments: argparse.Namespace) -> Figures:
    """One size in a fresh process with one thread."""
    single = {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
    call = [sys.executable, __file__, "--model", arguments.model, "--precision", arguments.precision]
    call += ["--only", table, "--size", str(size)]
    output = subprocess.run(
        call, env={**os.environ, **single}, stdout=subprocess.PIPE, text=True, check=True
    ).stdout
    figures: Figures = json.loads(output.splitlines()[-1])
    return figures


def fastest(table: str, arguments: argparse.Namespace) -> list[Figures]:
    """The fastest measurement of every size."""
    sizes, _, repeats, figure = TABLES[table]
    best: dict[int, Figures] = {}
    for _ in range(repeats):
        for size in (n for n, (events, _) in enumerate(sizes) if events <= arguments.most):
            measured = measure(table, size, arguments)
            print(table, measured, flush=True)
            best[size] = min(measured, best.get(size, measured), key=lambda figures: float(figures[figure]))
    return list(best.values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=DEFAULT)
    parser.add_argument(
        "--precision", default="", help="precision of the state, for a model that has this setting"
    )
    parser.add_argument("--most", type=int, default=10_000_000, help="skip streams with more events")
    parser.add_argument("--only", choices=TABLES, help="measure one table")
    parser.add_argument(
        "--size", type=int, help="with --only: measure one of its sizes (0, 1, ...), in this process"
    )
    parser.add_argument("--save", type=Path, help="append the result to this file")
    arguments = parser.parse_args()
    if arguments.only and arguments.size is not None:
        print(json.dumps(one(arguments.only, arguments.size, arguments.model, arguments.precision)))
        return
    tables: dict[str, list[Figures]] = {}
    for table in [arguments.only] if arguments.only else TABLES:
        tables[table] = fastest(table, arguments)
    print_record(
        arguments.save,
        benchmark="scaling",
        model=arguments.model,
        precision=arguments.precision or "default",
        figures=tables,
    )


if __name__ == "__main__":
    main()
