"""EdgeBank has no weights: it gives the published numbers only if split, negatives and metrics are right."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

import numpy as np
import pytest
import torch

from dsrd.data.dataset import Dataset
from dsrd.estimator.link_predictor import LinkPredictor
from dsrd.events import Events, Query
from dsrd.history.past import Past
from dsrd.models import GraphSpec, create
from dsrd.models.edgebank import EdgeBankConfig

PUBLISHED = {  # AP, AUC against random, historical, inductive negatives; transductive test set
    "wikipedia": (90.37, 90.78, 73.35, 77.27, 80.63, 81.73),
    "enron": (83.53, 87.05, 76.53, 79.59, 73.89, 75.00),
    "uci": (76.20, 77.30, 65.50, 69.56, 57.43, 58.03),
    "CanParl": (64.55, 64.14, 63.84, 63.04, 62.16, 61.41),
    "USLegis": (58.39, 62.57, 63.22, 67.41, 64.74, 68.66),
    "mooc": (57.97, 60.86, 60.71, 61.90, 49.43, 48.18),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_numbers(name: str, real_data: Callable[[str], Dataset]) -> None:
    model = LinkPredictor("edgebank").fit(real_data(name), progress=False)
    results = model.evaluate(progress=False)
    figures = results["transductive"]
    ours = [figures[kind][metric] for kind in ("random", "historical", "inductive") for metric in ("ap", "auc")]
    assert [round(value, 2) for value in ours] == list(PUBLISHED[name])
    assert (results.record["parameters"], results.record["protocol"]) == (0, "dyglib")


def naive_bank(events: list[tuple[int, int, float]], variant: str) -> set[tuple[int, int]]:
    """The pairs in the bank, from the whole history."""
    times = np.array([t for _, _, t in events])
    meetings: dict[tuple[int, int], list[float]] = defaultdict(list)
    for src, dst, t in events:
        meetings[src, dst].append(t)
    if variant == "unlimited":
        return set(meetings)
    if variant == "threshold":
        mean = np.mean([len(when) for when in meetings.values()])
        return {pair for pair, when in meetings.items() if len(when) >= mean}
    if variant == "fixed_window":
        start = np.quantile(times, 1 - 0.15)
    else:
        gaps = sum(np.mean(np.diff(when)) for when in meetings.values() if len(when) > 1)
        start = times.max() - gaps / len(meetings)
    return {(src, dst) for src, dst, t in events if t >= start}


@pytest.mark.parametrize("variant", ["unlimited", "fixed_window", "repeat_window", "threshold"])
@pytest.mark.parametrize("seed", range(4))
def test_every_variant_equals_its_naive_twin(variant: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    src, dst = rng.integers(1, 12, 3000), rng.integers(1, 40 + 400 * (seed % 2), 3000)
    time = np.sort(rng.integers(0, 4000, 3000)) / 7.0
    events = Events.from_numpy(src, dst, time)
    past = Past(events)
    model = create("edgebank", GraphSpec(), EdgeBankConfig(variant=variant))
    every = Query(
        torch.arange(1, 12).repeat_interleave(450), torch.arange(1, 451).repeat(11), torch.zeros(4950).double()
    )
    assert not (model.score(every, past) > 0).any()  # an empty bank contains no pair
    for start in range(0, 3000, 500):
        model.observe(events[start : start + 500], past)
        history = list(zip(src.tolist(), dst.tolist(), time.tolist(), strict=True))[: start + 500]
        bank = naive_bank(history, variant)
        pairs = zip(every.src.tolist(), every.dst.tolist(), strict=True)
        assert (model.score(every, past) > 0).tolist() == [pair in bank for pair in pairs]
