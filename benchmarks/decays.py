"""Do learned decays follow the stream? `python benchmarks/decays.py --save results/decays.jsonl`.

Trains the default model on streams whose memory has a known time constant tau (`dsrd.synthetic.memory`): four of
them a decade apart, and one stream with two constants at once. The settings and the initial weights are the same
for all. Each stream gives one JSON line: the true half-lives (tau log 2, in events), the half-lives that the model
starts with and the ones it has learned, and the excess of its log loss over the true law.

No node is withheld from training: the events of a withheld node would be missing from the clock.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from math import log
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from dsrd.config import RunConfig
from dsrd.estimator.link_predictor import LinkPredictor
from dsrd.evaluate.calibration import calibration
from dsrd.evaluate.task import Task
from dsrd.models import DEFAULT
from dsrd.synthetic.memory import memory_stream
from dsrd.synthetic.settings import MemoryConfig
from dsrd.train.trainer import Trainer
from record import print_record

STREAMS = ((5.0,), (50.0,), (500.0,), (5_000.0,), (30.0, 3_000.0))


def main() -> None:
    options = parsed()
    torch.set_num_threads(1)
    settings = dict(pair.split("=", 1) for pair in options.set)
    for taus in options.taus or STREAMS:
        law = MemoryConfig(
            events=options.events, sources=options.sources, targets=options.targets, taus=taus, seed=options.seed
        )
        for seed in range(options.seeds):
            print_record(options.save, benchmark="decays", **learned_decays(law, options, settings, seed))


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=40_000)
    parser.add_argument("--sources", type=int, default=10, help="few, so that each acts several times within tau")
    parser.add_argument("--targets", type=int, default=200)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--sample", type=int, default=200, help="test events whose log loss is measured")
    parser.add_argument("--seed", type=int, default=0, help="of the streams")
    parser.add_argument("--seeds", type=int, default=1, help="how many initialisations of the model")
    parser.add_argument("--model", default=DEFAULT)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a setting of the run")
    parser.add_argument("--save", type=Path)
    parser.add_argument(
        "--taus", action="append", type=constants, metavar="TAU[/TAU]", help="only this stream (repeatable)"
    )
    return parser.parse_args()


def constants(text: str) -> tuple[float, ...]:
    return tuple(float(part) for part in text.split("/"))


def learned_decays(
    law: MemoryConfig, options: argparse.Namespace, settings: dict[str, str], seed: int
) -> dict[str, Any]:
    """Train on one stream; what the model has learned beside what is true."""
    stream = memory_stream(law)
    row = np.arange(law.events) / law.events
    task = Task.of_parts(stream, {"train": row < 0.7, "val": (row >= 0.7) & (row < 0.85), "test": row >= 0.85})
    run: RunConfig = LinkPredictor(options.model, protocol="strict", seed=seed).run_for(stream)
    trainer = Trainer(run.with_overrides({"train.epochs": options.epochs, **settings}), task)
    before = trainer.model.learned()
    progress = trainer.train()
    model = trainer.model
    trained = None if model.state_from_events else model.state.snapshot()
    measured = calibration(model, task, trainer.protocol, run.evaluate, trained, sample=options.sample)
    return {
        "model": options.model,
        "settings": settings,
        "seed": seed,
        "taus": law.taus,
        "true_half_lives": [round(tau * log(2), 2) for tau in law.taus],
        "half_lives_before": half_lives(before, law.taus),
        "half_lives": half_lives(model.learned(), law.taus),
        "learned": model.learned(),
        "val_ap": [line["val_ap"] for line in progress.history],
        "calibration": {
            name: {key: value for key, value in factor.items() if key != "curve"}
            for name, factor in measured.items()
            if isinstance(factor, dict)
        },
        "events": law.events,
        "sources": law.sources,
        "targets": law.targets,
        "epochs": progress.epoch,
    }


def half_lives(learned: dict[str, Any], taus: Sequence[float]) -> list[dict[str, float]]:
    """For each true constant the share of the learned memory that is nearest to it, and its half-life.

    With one constant that is the half-life of the whole memory. With several, each rate of the grid belongs to the
    constant that is nearest on a logarithmic scale.
    """
    memory = learned["memory"]
    scales, weights = np.array(memory["scales_in_events"]), np.array(memory["repeat"]["weights"])
    nearest = np.abs(np.log(scales[:, None] / np.array(taus))).argmin(axis=1)
    return [
        {"share": round(float(part.sum()), 4), "events": round(half_life(scales, part), 2)}
        for part in (weights * (nearest == number) for number in range(len(taus)))
    ]


def half_life(scales: NDArray[np.float64], weights: NDArray[np.float64]) -> float:
    """The age at which a mixture of exponentials has fallen to a half."""
    ages = np.geomspace(scales[0] / 10, scales[-1], 100_000)
    kept = (weights[:, None] * np.exp(-ages / scales[:, None])).sum(axis=0)
    return float(ages[np.argmax(kept <= weights.sum() / 2)])


if __name__ == "__main__":
    main()
