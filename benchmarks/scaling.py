"""Cost of a model as streams, node sets and batches grow: `python benchmarks/scaling.py`.

- by_events, by_nodes: a synthetic stream is observed; then its last events are scored (one random negative each)
  and observed, in batches of 200. Microseconds per event.
- by_batch: forward and backward of ONE batch of many edges, in chunks that give the same loss and gradient.

Each size runs in a process of its own, on one thread, so that its peak memory is its own. Seconds are those the
process worked (`wall` ones beside them). Sizes of a stream take turns, three each, and the fastest turn counts:
what else the machine does slows a minute, and no size has that minute to itself. Prints the figures and, last, one
JSON object (`--save FILE`).
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
from dsrd.files import append_line
from dsrd.history.past import Past
from dsrd.machine import load_average, peak_rss_mb, versions
from dsrd.models import DEFAULT, GraphSpec, TemporalModel, create, model_class
from dsrd.negatives.sampling import TrainingNegatives
from dsrd.synthetic.drawing import synth
from dsrd.synthetic.settings import SynthConfig
from dsrd.train.loop import backward_in_chunks

Figures = dict[str, Any]
EVENTS = [(10_000, 200), (100_000, 200), (1_000_000, 200), (10_000_000, 200)]  # windows are full in all of them
NODES = [(1_000_000, 1_000), (1_000_000, 10_000), (1_000_000, 100_000), (1_000_000, 1_000_000)]
EDGES = [(10_000, 1_000), (100_000, 10_000), (1_000_000, 100_000)]
ASKED = 4_000  # events scored at the end
WARM_UP = 2_000  # events: compilation, first rows
CHUNK = 1_000  # events
REPEATS = 3


def made(model_name: str, precision: str, stream: Events) -> TemporalModel:
    torch.manual_seed(0)
    given = {"precision": precision} if precision else {}
    model = create(model_name, GraphSpec(num_nodes=1), overridden(model_class(model_name).Config(), given))
    model.calibrate(stream)
    return model


def worked(work: Callable[[], Any]) -> tuple[float, float]:
    """Seconds (of the process, by the wall) that something takes."""
    began = time.process_time(), time.perf_counter()
    work()
    return time.process_time() - began[0], time.perf_counter() - began[1]


@torch.no_grad()
def stream_cost(model: TemporalModel, stream: Events) -> Figures:
    """Microseconds per event to observe a stream, and to score and observe its end."""
    past, start = Past(stream), len(stream) - ASKED
    model.eval()
    negatives = TrainingNegatives(stream, 0)

    def observe(events: Events, size: int) -> None:
        for batch in events.batches(size):
            model.observe(batch, past)

    def ask(events: Events) -> None:
        for batch in events.batches(200):
            model.score(Query.cat(batch.query(), negatives.sample(batch)), past.during(batch))
            model.observe(batch, past)

    observe(stream[:WARM_UP], WARM_UP)
    observed, observed_wall = worked(lambda: observe(stream[WARM_UP:start], 10_000))
    before, asked = model.state.snapshot(), []
    for _ in range(REPEATS):
        model.state.restore(before)
        asked.append(worked(lambda: ask(stream[start:])))
    each, best = 1e6 / (start - WARM_UP), min(asked)
    return {
        "observe_us": round(each * observed, 2),
        "observe_wall_us": round(each * observed_wall, 2),
        "score_and_observe_us": round(1e6 * best[0] / ASKED, 1),
        "score_and_observe_wall_us": round(1e6 * best[1] / ASKED, 1),
    }


def batch_cost(model: TemporalModel, stream: Events) -> Figures:
    """Seconds for forward and backward of the stream as one batch."""
    past, negatives = Past(stream), TrainingNegatives(stream, 0)
    model.train()
    backward_in_chunks(model, stream[:WARM_UP], negatives, past, CHUNK)
    model.state.reset()
    model.zero_grad()
    seconds, wall = worked(lambda: backward_in_chunks(model, stream, negatives, past, CHUNK))
    return {"seconds": round(seconds, 2), "wall_seconds": round(wall, 2), "chunk": CHUNK}


TABLES = {  # sizes, what is measured, turns, and the figure that says which turn was fastest
    "by_events": (EVENTS, stream_cost, 3, "score_and_observe_us"),
    "by_nodes": (NODES, stream_cost, 3, "score_and_observe_us"),
    "by_batch": (EDGES, batch_cost, 1, "seconds"),
}


def one(table: str, size: int, model_name: str, precision: str) -> Figures:
    torch.set_num_threads(1)
    sizes, cost, _, _ = TABLES[table]
    events, nodes = sizes[size]
    stream, load = synth(SynthConfig(events=events, nodes=nodes)).events, load_average()
    model = made(model_name, precision, stream)
    figures = {"events": events, "nodes": nodes, **cost(model, stream)}
    state_mb = round(model.state.nbytes() / 2**20, 1)
    return {**figures, "state_mb": state_mb, "peak_rss_mb": peak_rss_mb(), "load": load}


def measure(table: str, size: int, given: argparse.Namespace) -> Figures:
    """One size in a fresh process with one thread."""
    single = {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
    call = [sys.executable, __file__, "--model", given.model, "--precision", given.precision]
    call += ["--only", table, "--size", str(size)]
    output = subprocess.run(
        call, env={**os.environ, **single}, stdout=subprocess.PIPE, text=True, check=True
    ).stdout
    figures: Figures = json.loads(output.splitlines()[-1])
    return figures


def fastest(table: str, given: argparse.Namespace) -> list[Figures]:
    """The fastest turn of every size."""
    sizes, _, turns, figure = TABLES[table]
    best: dict[int, Figures] = {}
    for _ in range(turns):
        for size in (n for n, (events, _) in enumerate(sizes) if events <= given.most):
            turn = measure(table, size, given)
            print(table, turn, flush=True)
            best[size] = min(turn, best.get(size, turn), key=lambda figures: float(figures[figure]))
    return list(best.values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=DEFAULT)
    parser.add_argument("--precision", default="", help="of the state, for a model that has this setting")
    parser.add_argument("--most", type=int, default=10_000_000, help="leave out longer streams")
    parser.add_argument("--only", choices=TABLES, help="one table")
    parser.add_argument("--size", type=int, help="with --only: one of its sizes (0, 1, ...), in this process")
    parser.add_argument("--save", type=Path, help="append the result to this file")
    given = parser.parse_args()
    if given.only and given.size is not None:
        print(json.dumps(one(given.only, given.size, given.model, given.precision)))
        return
    found: dict[str, list[Figures]] = {}
    for table in [given.only] if given.only else TABLES:
        found[table] = fastest(table, given)
    about = {"benchmark": "scaling", "model": given.model, "precision": given.precision or "default"}
    line = json.dumps({**about, "figures": found, "threads": 1, "versions": versions()})
    if given.save:
        append_line(given.save, line)
    print(line)


if __name__ == "__main__":
    main()
