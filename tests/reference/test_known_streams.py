"""DSRD on small streams of a known law: it learns how long their memory lasts, and nothing where there is none."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from dsrd.estimator.link_predictor import LinkPredictor
from dsrd.evaluate.task import Task
from dsrd.history.past import Past
from dsrd.synthetic.memory import memory_stream
from dsrd.synthetic.settings import MemoryConfig
from dsrd.train.trainer import Trainer

SMALL = {"model.dim": 8, "model.heads": 2, "model.neighbors": 4, "model.code_dim": 16}


def learned_half_life(tau: float) -> float:
    """The half-life of what sources repeat, learned from a stream whose memory fades by exp(-age / tau)."""
    stream = memory_stream(MemoryConfig(events=6_000, sources=10, targets=200, taus=(tau,)))
    row = np.arange(len(stream.events)) / len(stream.events)
    parts = {"train": row < 0.7, "val": (row >= 0.7) & (row < 0.75), "test": row >= 0.75}
    run = LinkPredictor("dsrd", protocol="strict", seed=0).run_for(stream)
    few = {"train.epochs": 4, "train.decay_lr": 0.1, "model.layers": 1}  # large steps, because they are few
    trainer = Trainer(run.with_overrides({**SMALL, **few}), Task.of_parts(stream, parts))
    trainer.train()
    memory = trainer.model.learned()["memory"]
    assert memory["repeat"]["share"] > max(memory[name]["share"] for name in ("reply", "follow"))
    return float(memory["repeat"]["half_life_in_events"])


def test_the_learned_memory_lasts_as_long_as_the_streams() -> None:
    short, long = learned_half_life(20), learned_half_life(2_000)
    for learned, tau in ((short, 20), (long, 2_000)):
        assert 1 / 3 < learned / (tau * math.log(2)) < 3
    assert long / short > 10


def test_where_nothing_can_be_known_every_column_is_at_chance() -> None:
    """Uniformly random events. AP is the mean of three streams: one has few events of new nodes.

    Ranks show the smallest differences, so probabilities are looked at as well: log(D p) is near 0 for all pairs.
    """
    columns: dict[tuple[str, str, str], list[float]] = {}
    for seed in range(3):
        stream = memory_stream(MemoryConfig(events=4_000, sources=50, targets=50, novelty=1.0, seed=seed))
        model = LinkPredictor("dsrd", seed=seed, epochs=3, dim=8, heads=2, neighbors=4, code_dim=16)
        record = model.fit(stream, progress=False).evaluate(progress=False).record
        for head, results in (("partner", record["results"]), ("pair", record["heads"]["pair"]["results"])):
            for setting, kinds in results.items():
                for kind, metrics in kinds.items():
                    columns.setdefault((head, setting, kind), []).append(metrics["ap"])
        past = Past(stream.events)
        module = model.module.eval()
        module.state.reset()
        with torch.no_grad():
            module.observe(stream.events[:3_400], past)
            test = stream.events[3_400:]
            logits = [module.score(test.query(), past.during(test), head) for head in ("partner", "pair")]
        assert all(each.abs().mean() < 0.5 for each in logits)
    assert len(columns) == 2 * 2 * 3
    for column, values in columns.items():
        assert np.mean(values) == pytest.approx(50, abs=6), column
