"""Rules have no weights: they give the published MRR of tgbl-wiki-v2 only if split and candidates are right."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dsrd.data.dataset import Dataset
from dsrd.data.read import load
from dsrd.estimator.link_predictor import LinkPredictor
from dsrd.evaluate.task import Task

MRR = {"edgebank": (52.67, 49.47), "localglobal": (84.15, 82.06)}  # validation, test
PUBLISHED = {"edgebank": (0.527, 0.495), "localglobal": (None, 0.821)}  # to three digits, on the leaderboard


@pytest.fixture(scope="module")
def wiki(real_data: Callable[[str], Dataset]) -> Dataset:
    real_data("wikipedia")  # skips where there is none
    return load("tgb:wiki")


def test_split(wiki: Dataset) -> None:
    task = Task.of(wiki)
    assert [len(part) for part in (task.split.train, task.split.val, task.split.test)] == [110_232, 23_621, 23_621]
    assert len(task.split.withheld) == 0
    candidates = task.passes["test"].candidates
    assert candidates is not None
    assert tuple(candidates.shape) == (23_621, 999)


@pytest.mark.parametrize("rule", ["edgebank", pytest.param("localglobal", marks=pytest.mark.slow)])
def test_mrr(rule: str, wiki: Dataset) -> None:
    results = LinkPredictor(rule, negatives="random").fit(wiki, progress=False).evaluate(progress=False)
    assert (results.record["dataset"], results.record["protocol"]) == ("tgb:wiki", "dyglib")
    ours = [results.record[part]["transductive"]["ranking"]["mrr"] for part in ("validation", "results")]
    assert [round(value, 2) for value in ours] == list(MRR[rule])
    for mrr, published in zip(ours, PUBLISHED[rule], strict=True):
        assert published is None or round(mrr / 100, 3) == pytest.approx(published)
