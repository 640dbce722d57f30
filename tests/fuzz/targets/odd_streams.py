"""Streams that are correct and strange: two nodes, one moment, absurd clocks, more nodes than events."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa

import dsrd
from fuzz.targets import VALID, DifferentError, Target, refused_or
from fuzz.targets.runs import estimator

MODELS = ("dsrd", "tgn", "pint", "edgebank", "graphmixer", "tpnet")
CLOCKS = ("equal", "two", "seconds", "tiny", "huge", "negative", "backwards", "far", "integers", "dates", "nan")
SIZES = (0, 1, 2, 3, 5, 10, 30, 100, 100, 200, 200, 400, 3000)
NODES = (1, 2, 2, 3, 5, 20, 200, 5000)


class OddStream(Target):
    """Training on a stream that nobody expected, then asking: refused, or finite numbers."""

    area, share = "size and odd streams", 2

    def prepare(self, folder: Path) -> None:
        plain = {**self.draw(Random(0), []), "events": 100, "nodes": 20, "clock": "seconds"}
        for name in MODELS:  # compiled code is then there in every process that is forked
            (folder / name).mkdir()
            self.attempt({**plain, "model": name}, folder / name)

    def draw(self, chance: Random, corpus: list[Any]) -> Any:
        return {
            "model": chance.choice(MODELS),
            "events": chance.choice(SIZES),
            "nodes": chance.choice(NODES),
            "clock": chance.choice(CLOCKS),
            "loops": chance.random() < 0.2,  # a node may meet itself
            "hub": chance.random() < 0.2,  # one source for all events
            "bipartite": chance.choice((None, None, True, False)),
            "features": chance.choice((0, 0, 1, 3)),
            "size_of_features": chance.choice((1.0, 1e-38, 1e30, 3e38)),
            "protocol": chance.choice(("strict", "dyglib")),
            "seed": chance.randrange(1000),
        }

    def attempt(self, case: Any, folder: Path) -> str:
        def use() -> str:
            options = {"bipartite": case["bipartite"], "features": ["x*"] if case["features"] else ()}
            stream = dsrd.load(table_of(case), **options)
            model = estimator(case["model"], protocol=case["protocol"])
            model.fit(stream, folder=folder / "run", progress=False)
            results = model.evaluate(progress=False)
            check_results(results.record["results"], str(results))
            names = model.nodes[:3]
            said = model.predict([(one, other) for one in names for other in names])
            numbers = np.asarray(said["probability"], dtype=float)
            if not ((numbers >= 0) & (numbers <= 1)).all():
                raise DifferentError(f"probabilities {numbers}")
            return VALID

        return refused_or(use)


def table_of(case: Any) -> pa.Table:
    rng, count, nodes = np.random.default_rng(case["seed"]), case["events"], case["nodes"]
    source = rng.integers(0, nodes, count) if not case["hub"] else np.zeros(count, int)
    target = rng.integers(0, nodes, count)
    if not case["loops"] and nodes > 1:
        target = np.where(target == source, (target + 1) % nodes, target)
    columns: dict[str, Any] = {
        "source": [f"n{node}" for node in source],
        "target": [f"n{node}" for node in target],
        "time": times(case["clock"], count, rng),
    }
    for column in range(case["features"]):
        columns[f"x{column}"] = rng.normal(size=count).clip(-1, 1) * case["size_of_features"]
    return pa.table(columns)


def times(clock: str, count: int, rng: np.random.Generator) -> Any:
    steps = np.cumsum(rng.integers(0, 3, count)).astype(float)
    return {
        "equal": np.full(count, 7.0),
        "two": np.where(np.arange(count) < count // 2, 1.0, 2.0),
        "seconds": steps,
        "tiny": steps * 1e-300,
        "huge": steps * 1e300,
        "negative": steps - 1e6,
        "backwards": steps[::-1],
        "far": 1e15 + steps,
        "integers": steps.astype(np.int64) + (1 << 62),
        "dates": pa.array((steps * 8.64e13).astype(np.int64)).cast(pa.timestamp("ns")),
        "nan": np.where(np.arange(count) == count // 2, np.nan, steps),
    }[clock]


def check_results(results: Any, shown: str) -> None:
    """Every figure is a number of percent, and there is at least one."""
    figures = [
        value
        for kinds in results.values()
        for metrics in kinds.values()
        for value in metrics.values()
        if value is not None
    ]
    if not figures or not all(0 <= value <= 100 for value in figures):
        raise DifferentError(f"figures {figures}, shown as {shown[:200]}")
