"""What it costs to keep DSRD's state in less memory: `python benchmarks/state_formats.py --data uci --epochs 4`.

The model is trained once, with its defaults; the same weights then answer the test part from a state that is kept
in each format. So a row says what a format costs a model that was not trained with it. All events before the test
part are observed in batches of 200; then the test part is scored (protocol strict, head `partner`), against random
and against historical negatives. Seconds are CPU seconds. Prints the rows and then one JSON object.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

import dsrd
from dsrd.config import EvaluateConfig
from dsrd.evaluate.pass_queries import draw
from dsrd.evaluate.scoring import measure, score_pass
from dsrd.evaluate.task import Task
from dsrd.machine import load_average
from dsrd.models import TemporalModel
from dsrd.protocol import PROTOCOLS
from dsrd.train.run_folder import RunFolder
from record import print_record

FORMATS: tuple[dict[str, Any], ...] = (
    {},
    {"precision": "bfloat16"},
    {"precision": "int8"},
    {"slow_code_dim": 32},
    {"precision": "int8", "slow_code_dim": 32},
    {"code_dim": 64},
    {"rows_on_disk": True},
)
CONFIG = EvaluateConfig(negatives=("random", "historical"), order="fast")
WARM_UP = 400  # events before timing: compilation, first rows
BATCH = 200


def main() -> None:
    options = parsed()
    torch.set_num_threads(1)
    folder = options.run / options.data
    if not RunFolder(folder).best.exists():
        stream = dsrd.load(options.data)
        model = dsrd.LinkPredictor("dsrd", protocol="strict", seed=0, epochs=options.epochs, order="fast")
        model.fit(stream, folder=folder)
    saved = RunFolder(folder)
    task = Task.of(dsrd.load(options.data))
    rows = []
    for given in FORMATS:
        rows.append({"settings": given, **measured(saved, task, given)})
        print(json.dumps(rows[-1]), flush=True)
    epochs = len(saved.progress().history)
    figures = {"data": options.data, "epochs": epochs, "formats": rows}
    print_record(options.save, benchmark="state_formats", model="dsrd", figures=figures)


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="uci")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--run", type=Path, default=Path("runs/state-formats"), help="keeps the trained models")
    parser.add_argument("--save", type=Path, help="append the result to this file")
    return parser.parse_args()


def measured(folder: RunFolder, task: Task, given: dict[str, Any]) -> dict[str, Any]:
    """AP of the test part, bytes of the state and CPU microseconds with these settings."""
    run = folder.config()
    model = folder.load_model(replace(run, model_args={**run.model_args, **given})).eval()
    rules, asked = PROTOCOLS["strict"], draw(task.passes["test"], PROTOCOLS["strict"], CONFIG)
    before = task.split.full[: int(np.searchsorted(task.split.full.time.numpy(), float(task.split.test.time[0])))]
    observe(model, before[:WARM_UP], task)
    with torch.no_grad():
        model.score(before[WARM_UP : 2 * WARM_UP].query(), task.full_past)
    began = time.process_time()
    observe(model, before[WARM_UP:], task)
    observed = time.process_time() - began
    began = time.process_time()
    results = measure(asked, score_pass(model, asked, task.full_past, rules, BATCH, "partner").probabilities())
    scored = time.process_time() - began
    pairs = len(asked.pass_.events) * (1 + len(asked.negatives))
    return {
        "bytes_per_node": model.state.bytes_per_node(),
        "state_mb": round(model.state.nbytes() / 2**20, 1),
        "ap": {kind: results[kind]["ap"] for kind in asked.negatives},
        "observe_us": round(1e6 * observed / (len(before) - WARM_UP), 2),
        "score_us": round(1e6 * scored / pairs, 1),
        "load": load_average(),
    }


def observe(model: TemporalModel, events: dsrd.Events, task: Task) -> None:
    """Observe events whole timestamp by whole timestamp."""
    for flush in PROTOCOLS["strict"].flushes(events, BATCH, exact=True):
        model.observe(events[flush], task.full_past)


if __name__ == "__main__":
    main()
