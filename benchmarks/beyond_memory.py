"""Streams of many nodes and of many events in little memory: `python benchmarks/beyond_memory.py --only nodes`.

- nodes: ten million nodes. Every event has a new source, and four events in five a new target; other targets are
  earlier nodes, nine times in ten one of the newest hundred thousand. The state keeps walks in 8 bits, rows of
  nodes in a mapped file (`precision=int8`, `rows_on_disk`), the history is on disk.
- events: one hundred million events of twenty thousand nodes, each of which sends to three others, so that the
  tables of pairs are soon full; the history on disk, the state in memory. `--events 10000000` takes minutes.

Events are generated piece by piece, appended to the history, observed, and now and then asked about: a thousand
pairs at the present time, half of them the latest events' own. Weights are random: what is measured are time and
memory. `rss_mb` is the resident memory when a part of the stream is done, with what the operating system may take
back at any time (`of_files_mb`); `peak_rss_mb` the largest of the whole run. Seconds are CPU seconds.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch

from dsrd import Events
from dsrd.events import Query, as_tensor
from dsrd.history.live import Live
from dsrd.machine import load_average, peak_rss_mb
from dsrd.models import GraphSpec, TemporalModel, create, settings
from record import print_record

PIECE = 10_000  # events
ASKED = 1_000  # pairs
PARTS = 10  # of a stream, for each of which figures are kept
RELEASED = 100_000  # events after which the history gives its memory back
CALIBRATED = 300_000  # events that the rates of decay follow from; a node sleeps after as many
YOUNG = 100_000  # nodes
OLD = 20_000  # nodes
STREAMS: dict[str, dict[str, Any]] = {
    "nodes": {"events": 5_560_000, "settings": {"precision": "int8", "rows_on_disk": True}},
    "events": {"events": 100_000_000, "settings": {}},
}


class NewNodes:
    """Every event has a new source, and four in five a new target; other targets are earlier nodes."""

    def __init__(self, events: int) -> None:
        self.num_nodes, self._draw, self._newest = int(1.81 * events), np.random.default_rng(0), 0

    def piece(self, start: int, size: int) -> Events:
        is_new = self._draw.random(size) < 0.8
        source = self._newest + 1 + np.arange(size) + np.concatenate([[0], np.cumsum(is_new)[:-1]])
        young = source - 1 - self._draw.integers(0, YOUNG, size)
        old = self._draw.integers(0, source)
        earlier = np.where(self._draw.random(size) < 0.9, young, old)
        target = np.where(is_new, source + 1, np.maximum(earlier, 1))
        self._newest = int(source[-1] + is_new[-1])
        return events_of(source, target, start)


class OldNodes:
    """Twenty thousand nodes, each of which sends to three others, some far more often than others."""

    def __init__(self, _: int) -> None:
        self.num_nodes, self._draw = OLD + 1, np.random.default_rng(0)

    def piece(self, start: int, size: int) -> Events:
        source = (OLD * self._draw.random(size) ** 1.5).astype(np.int64)
        target = (source + 7 ** self._draw.integers(1, 4, size)) % OLD
        return events_of(1 + source, 1 + target, start)


def events_of(source: Any, target: Any, start: int) -> Events:
    time = np.arange(start, start + len(source), dtype=np.float64)
    events = Events.from_numpy(source, target, time)
    return Events(events.src, events.dst, events.time, events.id + start)


def main() -> None:
    options = parsed()
    torch.set_num_threads(1)
    count = options.events or STREAMS[options.only]["events"]
    figures = measured(options.only, count)
    print_record(options.save, benchmark="beyond_memory", model="dsrd", stream=options.only, figures=figures)


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=STREAMS, default="nodes")
    parser.add_argument(
        "--events", type=int, default=0, help="instead of ten million nodes, a hundred million events"
    )
    parser.add_argument("--save", type=Path, help="append the result to this file")
    return parser.parse_args()


def built(name: str, stream: Any) -> TemporalModel:
    torch.manual_seed(0)
    config = settings("dsrd", "", "default", STREAMS[name]["settings"])
    model = create("dsrd", GraphSpec(num_nodes=stream.num_nodes), config).eval()
    model.calibrate(type(stream)(CALIBRATED).piece(0, CALIBRATED))
    return model


@torch.no_grad()
def measured(name: str, count: int) -> dict[str, Any]:
    """Time and memory after each part of the stream."""
    stream = {"nodes": NewNodes, "events": OldNodes}[name](count)
    model, past, parts = built(name, stream), Live(on_disk=True), []
    warm_up(model)
    load = load_average()
    for part in range(PARTS):
        first, stop = count * part // PARTS, count * (part + 1) // PARTS
        seconds = {"append": 0.0, "observe": 0.0}
        for start in range(first, stop, PIECE):
            events = stream.piece(start, min(PIECE, stop - start))
            seconds["append"] += timed(lambda events=events: past.append(events))
            seconds["observe"] += timed(lambda events=events: model.observe(events, past))
            if start % RELEASED < PIECE:
                past.release()
        query = questions(events, stop)
        asked = [timed(lambda query=query: model.score(query, past)) for _ in range(3)]
        parts.append(
            {
                "events": stop,
                **{f"{verb}_us": round(1e6 * each / (stop - first), 2) for verb, each in seconds.items()},
                "score_us": round(1e6 * min(asked) / ASKED, 1),
                **memory(),
            }
        )
        print(json.dumps(parts[-1]), flush=True)
    state_mb = round(model.state.nbytes() / 2**20, 1)
    return {
        "settings": STREAMS[name]["settings"],
        "events": count,
        "nodes": int(torch.count_nonzero(model.state["last"])),
        "bytes_per_node": model.state.bytes_per_node(),
        "state_mb": state_mb,
        "history_mb": round(sum(column.nbytes for column in past.index) / 2**20, 1),
        "parts": parts,
        "peak_rss_mb": peak_rss_mb(),
        "load": load,
    }


def warm_up(model: TemporalModel) -> None:
    """Compile, on a past and a state that are then forgotten."""
    past, events = Live(on_disk=True), events_of(np.arange(1, 41), np.arange(2, 42), 0)
    past.append(events)
    model.observe(events, past)
    model.score(questions(events, 50), past)
    model.state.reset()


def questions(events: Events, now: int) -> Query:
    """Pairs of the latest events, half of them with the target of another one."""
    rows = torch.arange(len(events))[-ASKED:]
    target = torch.where(rows % 2 == 0, events.dst[rows], events.dst[rows.flip(0)])
    return Query(events.src[rows], target, as_tensor(np.full(len(rows), float(now))))


def timed(work: Any) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def memory() -> dict[str, float]:
    now = psutil.Process().memory_info()
    return {"rss_mb": round(now.rss / 2**20, 1), "of_files_mb": round(now.shared / 2**20, 1)}


if __name__ == "__main__":
    main()
