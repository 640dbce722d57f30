"""Training with one process, with one process of several threads, and with several processes. JSON output.

    python benchmarks/several_processes.py --data uci --batch-size 1000 --workers 2 --save results/scale.jsonl

As many processes as there are workers stay up for the whole measurement and take turns, so that the load of the
machine is the same for all: first the first process alone trains on some batches, then all share the same batches,
then the first one alone again with as many threads, and so on. Two figures for each way:

    seconds   wall clock of a turn, the least of all turns
    cpu       processor time of the busiest process in a turn, the least of all turns; on a busy machine, where
              processes wait for a processor, their ratio says what the wall clock would be on idle ones
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

from dsrd.config import RunConfig
from dsrd.data.read import load
from dsrd.evaluate.task import Task
from dsrd.machine import load_average
from dsrd.models import DEFAULT, configured
from dsrd.processes import ALONE, Processes, connected
from dsrd.train.build import build
from dsrd.train.loop import Learner, train_epoch
from record import print_record

WAYS = ("one process", "shared", "threads")


def measure(arguments: argparse.Namespace, processes: Processes) -> dict[str, dict[str, float]]:
    """The least seconds and processor time of each way, in the first process."""
    torch.set_num_threads(1)
    dataset = load(arguments.data)
    settings = {"train.batch_size": arguments.batch_size, "model.dropout": arguments.dropout}
    run = configured(RunConfig(dataset=dataset.name, model=arguments.model), settings)
    task = Task.of(dataset)
    model = build(run, dataset, task.split.train)
    learner = Learner(run, model, task.split.train, task.train_past, processes)
    events = task.split.train[: arguments.batch_size * arguments.batches]

    def train(with_processes: Processes) -> None:
        more = (learner.optimizer, run.protocol_rules, run.train.batch_size)
        train_epoch(model, events, task.train_past, learner.negatives, *more, processes=with_processes)

    best = {way: {"seconds": float("inf"), "cpu": float("inf")} for way in WAYS}
    train(processes)  # compiles
    for _ in range(arguments.turns):
        turns = {"one process": ALONE, "shared": processes, "threads": ALONE}
        for way, how in turns.items():
            torch.set_num_threads(processes.count if way == "threads" else 1)
            took = timed(lambda how=how: train(how), processes, waits=how is ALONE and not processes.is_first)  # type: ignore[misc]
            for name, value in took.items():
                best[way][name] = min(best[way][name], value)
    return best


def timed(work: Callable[[], None], processes: Processes, waits: bool) -> dict[str, float]:
    """Wall clock and processor time of a turn, of the slowest process; the others wait for those that work."""
    processes.wait()
    began, began_cpu = time.perf_counter(), time.process_time()
    if not waits:
        work()
    used = torch.tensor([time.process_time() - began_cpu] * processes.count)
    used[torch.arange(processes.count) != processes.rank] = 0
    busiest = float(processes.sum_(used).max())
    return {"seconds": time.perf_counter() - began, "cpu": busiest}


def start(arguments: argparse.Namespace, rank: int, meeting: Path) -> subprocess.Popen[bytes]:
    words = [sys.executable, __file__, *sys.argv[1:], "--rank", str(rank), "--meeting", str(meeting)]
    return subprocess.Popen(words, env={**os.environ, "OMP_NUM_THREADS": str(arguments.workers)})


def report(arguments: argparse.Namespace, best: dict[str, dict[str, float]]) -> None:
    alone = best["one process"]
    faster = {
        way: {name: round(alone[name] / best[way][name], 2) for name in alone}
        for way in WAYS
        if way != "one process"
    }
    figures = {way: {name: round(value, 4) for name, value in each.items()} for way, each in best.items()}
    fields = {name: getattr(arguments, name) for name in ("model", "data", "batch_size", "dropout", "workers")}
    load = load_average()
    print_record(
        arguments.save, benchmark="several_processes", **fields, figures=figures, times_faster=faster, load=load
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=DEFAULT)
    parser.add_argument("--data", default="uci")
    parser.add_argument("--batch-size", type=int, default=1000)
    parser.add_argument("--batches", type=int, default=6, help="batches in a turn")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--save", type=Path, help="append the result to this file")
    parser.add_argument("--rank", type=int, default=-1, help=argparse.SUPPRESS)
    parser.add_argument("--meeting", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.rank < 0:
        with tempfile.TemporaryDirectory() as folder:
            started = [start(arguments, rank, Path(folder) / "meeting") for rank in range(arguments.workers)]
            sys.exit(max(process.wait() for process in started))
    with connected(Processes(arguments.rank, arguments.workers), arguments.meeting) as processes:
        best = measure(arguments, processes)
    if processes.is_first:
        report(arguments, best)


if __name__ == "__main__":
    main()
