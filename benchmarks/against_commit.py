"""How many times faster this tree is than a commit of it: both take turns in one run, on the same work.

The commit is checked out into a temporary folder (`git worktree`). One process for each of the two trains on the
same batches and scores the same pairs. They are timed in turns, in seconds of the process, and the least of each
counts: what else the machine does then disturbs both alike, and least where it counts.

    python benchmarks/against_commit.py a66b691 --dataset uci --turns 7 --save results/speed-ratio.jsonl
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from record import print_record

TREE = Path(__file__).resolve().parent.parent
PLACES = (0.25, 0.5, 0.75)  # where the timed batches are in the training events


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commit", help="what to compare with, as git names it")
    parser.add_argument("--at", type=Path, help="a checkout of the commit, if there is one: its code is compiled")
    parser.add_argument("--dataset", default="uci")
    parser.add_argument("--model", default="dsrd")
    parser.add_argument("--preset", default="published")
    parser.add_argument("--batches", type=int, default=12, help="training batches at each of three places")
    parser.add_argument(
        "--pairs", type=int, default=2000, help="test events, which are scored with one negative each"
    )
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--save", type=Path, help="file to append the record to")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        answer_turns(options)
        return
    print_record(
        options.save,
        benchmark="against_commit",
        **(compare(options, options.at) if options.at else compare_checked_out(options)),
    )


def compare_checked_out(options: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "commit"
        git("worktree", "add", "--detach", str(place), options.commit)
        try:
            return compare(options, place)
        finally:
            git("worktree", "remove", "--force", str(place))


def git(*words: str) -> str:
    return subprocess.run(
        ["git", "-C", str(TREE), *words], check=True, capture_output=True, text=True
    ).stdout.strip()


def compare(options: argparse.Namespace, place: Path) -> dict[str, Any]:
    """Seconds of both in turns; the least of each, and their ratios."""
    workers = {"commit": start(place), "here": start(TREE)}
    loads, seconds = [os.getloadavg()[0]], {name: list[dict[str, float]]() for name in workers}
    for worker in workers.values():
        ask(worker)  # compiles
    for _ in range(options.turns):
        for name, worker in workers.items():
            seconds[name].append(ask(worker))
        loads.append(os.getloadavg()[0])
    for worker in workers.values():
        worker.communicate()
    least = {
        name: {part: min(turn[part] for turn in turns) for part in turns[0]} for name, turns in seconds.items()
    }
    parts = ("seconds_per_epoch", "seconds_per_1000_pairs")
    turns = range(options.turns)
    return {
        "commit": git("rev-parse", "--short", options.commit),
        "here": git("rev-parse", "--short", "HEAD")
        + ("" if not git("status", "--short", "src") else " and changes"),
        "dataset": options.dataset,
        "model": options.model,
        "preset": options.preset,
        "turns": options.turns,
        "loss": {name: turn["loss"] for name, turn in least.items()},
        "least": {name: {part: round(turn[part], 5) for part in parts} for name, turn in least.items()},
        "times_faster": {part: round(least["commit"][part] / least["here"][part], 2) for part in parts},
        "times_faster_by_turn": {
            part: [round(seconds["commit"][turn][part] / seconds["here"][turn][part], 2) for turn in turns]
            for part in parts
        },
        "load": [round(min(loads), 1), round(max(loads), 1)],
    }


def start(tree: Path) -> subprocess.Popen[str]:
    """A worker that runs the code of this tree."""
    environment = {**os.environ, "PYTHONPATH": str(tree / "src"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, __file__, *sys.argv[1:], "--worker"]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env=environment, cwd=tree, stdin=pipe, stdout=pipe, text=True)


def ask(worker: subprocess.Popen[str]) -> dict[str, float]:
    """One turn of a worker."""
    assert worker.stdin
    assert worker.stdout
    worker.stdin.write("turn\n")
    worker.stdin.flush()
    answer: dict[str, float] = json.loads(worker.stdout.readline())
    return answer


def answer_turns(options: argparse.Namespace) -> None:
    """Time the same work once for every line of the input."""
    import torch

    from dsrd.data.read import load_with
    from dsrd.estimator.link_predictor import LinkPredictor
    from dsrd.evaluate.task import Task
    from dsrd.train.trainer import Trainer

    torch.set_num_threads(1)
    stream = load_with(options.dataset)
    trainer = Trainer(LinkPredictor(options.model, preset=options.preset).run_for(stream), Task.of(stream))
    weights = {name: weight.clone() for name, weight in trainer.model.state_dict().items()}
    for _ in sys.stdin:
        trainer.model.load_state_dict(weights)
        answer = {**train(trainer, options.batches), **score(trainer, options.pairs)}
        print(json.dumps(answer), flush=True)


def train(trainer: Any, batches: int) -> dict[str, float]:
    """Seconds per epoch by some batches at some places, and the mean loss of the last place."""
    import torch

    from dsrd.negatives.sampling import TrainingNegatives
    from dsrd.train.loop import train_epoch

    events, size, past = trainer.task.split.train, trainer.run.train.batch_size, trainer.task.train_past
    negatives, seen, seconds, timed, loss = TrainingNegatives(events, 0), 0, 0.0, 0, 0.0
    trainer.model.state.reset()
    torch.manual_seed(0)
    for place in PLACES:
        start = max(int(place * len(events)) // size * size, seen)
        observe(trainer.model, events[seen:start], past, size)
        block, seen = events[start : start + batches * size], min(start + batches * size, len(events))
        began = time.process_time()
        loss = train_epoch(
            trainer.model, block, past, negatives, trainer.learner.optimizer, trainer.protocol, size,
            trainer.learner.average.update, reset=False,
        )  # fmt: skip
        seconds, timed = seconds + time.process_time() - began, timed + len(block)
    return {"seconds_per_epoch": seconds * len(events) / timed, "loss": loss}


def score(trainer: Any, count: int) -> dict[str, float]:
    """Seconds per 1,000 pairs: test events, each with a random negative, scored and observed."""
    from dataclasses import replace

    from dsrd.evaluate.pass_queries import draw
    from dsrd.evaluate.scoring import score_pass

    task, config = trainer.task, trainer.run.evaluate
    events = task.split.full
    test = task.passes["test"]
    first = len(events) - len(test.events)
    trainer.model.state.reset()
    observe(trainer.model, events[:first], task.full_past, config.batch_size)
    part = replace(test, events=test.events[:count])
    queries = draw(part, trainer.protocol, config, strategies=("random",))
    began = time.process_time()
    score_pass(trainer.model, queries, task.full_past, trainer.protocol, config.batch_size)
    return {"seconds_per_1000_pairs": 1000 * (time.process_time() - began) / (2 * len(part.events))}


def observe(model: Any, events: Any, past: Any, size: int) -> None:
    """Let the model observe events, untimed."""
    import torch

    with torch.no_grad():
        for batch in events.batches(size):
            model.observe(batch, past)
            model.state.detach_()


if __name__ == "__main__":
    main()
