"""Cost per event of a model as streams and node sets grow: `python benchmarks/scaling.py`.

For each size a synthetic stream is drawn and observed; then its last events are scored (one random negative each)
and observed, in batches of 200 on one thread. Prints the figures and, last, one JSON object (`--save FILE`).
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch

from dsrd.bench.records import load_average, peak_rss_mb, versions
from dsrd.data.synthetic import SynthConfig, synth
from dsrd.events import Query
from dsrd.files import append_line
from dsrd.graph.negatives import TrainingNegatives
from dsrd.graph.past import Past
from dsrd.models import DEFAULT, GraphSpec, create

EVENTS = [(10_000, 1_000), (100_000, 1_000), (1_000_000, 1_000), (10_000_000, 1_000)]
NODES = [(1_000_000, 1_000), (1_000_000, 10_000), (1_000_000, 100_000), (1_000_000, 1_000_000)]
ASKED = 4_000  # events scored at the end
REPEATS = 3


@torch.no_grad()
def cost(model_name: str, events: int, nodes: int) -> dict[str, Any]:
    """Microseconds per event to observe a stream, and to score and observe its end."""
    stream = synth(SynthConfig(events=events, nodes=nodes)).events
    past = Past(stream)
    model = create(model_name, GraphSpec(num_nodes=stream.num_nodes)).eval()
    model.calibrate(stream)
    start = len(stream) - ASKED
    model.observe(stream[: min(2_000, start)], past)  # compiled before it is timed
    began = time.perf_counter()
    for batch in stream[min(2_000, start) : start].batches(10_000):
        model.observe(batch, past)
    observed = (time.perf_counter() - began) / max(start - 2_000, 1)
    negatives, best = TrainingNegatives(stream, 0), float("inf")
    trained = model.state.snapshot()
    for _ in range(REPEATS):
        model.state.restore(trained)
        began = time.perf_counter()
        for batch in stream[start:].batches(200):
            model.score(Query.cat(batch.query(), negatives.sample(batch)), past.during(batch))
            model.observe(batch, past)
        best = min(best, (time.perf_counter() - began) / ASKED)
    return {
        "events": events,
        "nodes": nodes,
        "observe_us": round(1e6 * observed, 2),
        "score_and_observe_us": round(1e6 * best, 1),
        "state_mb": round(model.state.nbytes() / 2**20, 1),
        "peak_rss_mb": peak_rss_mb(),
        "load": load_average(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=DEFAULT)
    parser.add_argument("--most", type=int, default=10_000_000, help="leave out longer streams")
    parser.add_argument("--save", type=Path, help="append the result to this file")
    given = parser.parse_args()
    torch.set_num_threads(1)
    found: dict[str, list[dict[str, Any]]] = {}
    for name, sizes in (("by_events", EVENTS), ("by_nodes", NODES)):
        found[name] = []
        for events, nodes in sizes:
            if events <= given.most:
                found[name].append(cost(given.model, events, nodes))
                print(name, found[name][-1], flush=True)
    line = json.dumps({"benchmark": "scaling", "model": given.model, "figures": found, "versions": versions()})
    if given.save:
        append_line(given.save, line)
    print(line)


if __name__ == "__main__":
    main()
