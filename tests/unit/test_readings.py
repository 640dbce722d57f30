"""The reading `law` against plain sets of pairs, and how it comes out of an evaluation."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from dsrd.config import EvaluateConfig, RunConfig
from dsrd.data.read import load
from dsrd.errors import DsrdError
from dsrd.evaluate.pass_queries import draw
from dsrd.evaluate.readings import NegativesLaw
from dsrd.evaluate.scoring import evaluate, measured_heads
from dsrd.evaluate.task import Pass, Task
from dsrd.events import Events, Query
from dsrd.models import GraphSpec, create
from dsrd.protocol import DYGLIB, STRICT, Protocol
from support.intensities import KnownIntensity, by_hash, constant


@pytest.fixture(scope="module")
def task() -> Task:
    return Task.of(load("synth:events=2000,snapshots=60"))


def slow_law(pass_: Pass, strategy: str, batch_size: int, query: Query) -> list[float]:
    """q of every row by the words of the protocol, with Python sets."""
    pool = list(zip(pass_.pool.src.tolist(), pass_.pool.dst.tolist(), pass_.pool.time.tolist(), strict=True))
    grid = len({u for u, _, _ in pool}) * len({v for _, v, _ in pool})
    observed = {(u, v) for u, v, t in pool if t <= pass_.last_observed} if strategy == "inductive" else set()
    q = []
    for start in range(0, len(query), batch_size):
        rows = range(start, min(start + batch_size, len(query)))
        first, last = float(pass_.events.time[rows[0]]), float(pass_.events.time[rows[-1]])
        met = {(u, v) for u, v, t in pool if t < first} - observed
        candidates = met - {(u, v) for u, v, t in pool if first <= t <= last}
        missing = max(0, len(rows) - len(candidates))
        for row in rows:
            pair = (int(query.src[row]), int(query.dst[row]))
            from_past = (1 - missing / len(rows)) / len(met) if pair in met else 0.0
            q.append(from_past + missing / len(rows) / grid)
    return q


@pytest.mark.parametrize("name", ["val", "val/new", "test", "test/new"])
@pytest.mark.parametrize("strategy", ["historical", "inductive"])
@pytest.mark.parametrize("batch_size", [7, 200])
def test_the_law_is_that_of_plain_sets(task: Task, name: str, strategy: str, batch_size: int) -> None:
    pass_ = task.passes[name]
    law = NegativesLaw(pass_, batch_size)
    drawn = draw(pass_, DYGLIB, EvaluateConfig(batch_size=batch_size, order="fast")).negatives[strategy]
    for query in (pass_.events.query(), drawn):
        q = law.log_probability(strategy, query).exp()
        assert q.tolist() == pytest.approx(slow_law(pass_, strategy, batch_size, query), rel=1e-9)
        assert not bool(q.isnan().any())


def test_the_law_can_draw_every_negative_and_not_every_event(task: Task) -> None:
    pass_ = task.passes["test"]
    queries = draw(pass_, DYGLIB, EvaluateConfig())
    law = NegativesLaw(pass_, 200)
    for strategy, negative in queries.negatives.items():
        assert not bool(law.log_probability(strategy, negative).isneginf().any())
    assert bool(law.log_probability("historical", pass_.events.query()).isneginf().any())


def test_what_happens_during_a_batch_does_not_change_the_law(task: Task) -> None:
    """Events of one batch, one of them a repetition: it can be drawn as much as a pair that does not meet."""
    stream = Events.from_numpy([1, 2, 3, 1, 5], [6, 7, 8, 6, 9], [0, 1, 2, 3, 4])
    pass_ = replace(task.passes["test"], events=stream[3:4], stream=stream[3:], pool=stream, last_observed=1.0)
    asleep = Query(torch.tensor([2]), torch.tensor([7]), stream.time[3:4])
    law = NegativesLaw(pass_, 1)
    assert law.log_probability("historical", stream[3:4].query()).exp().tolist() == pytest.approx([1 / 3])
    assert law.log_probability("historical", asleep).exp().tolist() == pytest.approx([1 / 3])
    assert law.log_probability("inductive", asleep).tolist() == [-np.inf]


@pytest.mark.parametrize("protocol", [DYGLIB, STRICT])
def test_an_intensity_that_knows_nothing_scores_what_is_given_away(task: Task, protocol: Protocol) -> None:
    model = KnownIntensity(constant, constant)
    results, _ = evaluate(model, task, protocol, EvaluateConfig(), model.state.snapshot(), heads=model.heads)
    pass_ = task.passes["test"]
    for strategy in ("random", "historical"):
        figures = results["law"]["test"]["transductive"][strategy]
        certain = NegativesLaw(pass_, 200).log_probability(strategy, pass_.events.query()).isneginf().double()
        share = float(np.mean([float(batch.mean()) for batch in certain.split(200)]))
        assert figures["auc"] == pytest.approx(100 * (share + (1 - share) / 2), abs=1e-3)
        assert results["pair"]["test"]["transductive"][strategy]["auc"] == 50


def test_both_readings_come_from_one_scoring(task: Task) -> None:
    """Each head scores every event once per pass, and reading by the law asks nothing more."""
    model = KnownIntensity(by_hash, lambda query: by_hash(query) / 2)
    results, _ = evaluate(model, task, STRICT, EvaluateConfig(), model.state.snapshot(), heads=model.heads)
    assert list(results) == ["partner", "pair", "law"]
    asked = {head: sum(map(len, queries)) for head, queries in model.asked.items()}
    events = sum(len(pass_.events) for pass_ in task.passes.values() if pass_.part == "test")
    assert asked == {"partner": 4 * events, "pair": 4 * events}  # the event and three negatives
    law, partner = (results[label]["test"]["transductive"] for label in ("law", "partner"))
    assert law["random"] == pytest.approx(partner["random"], abs=1e-3)
    assert law["historical"]["ap"] > results["pair"]["test"]["transductive"]["historical"]["ap"]
    settings = results["law"]["test"].values()
    assert np.isfinite(
        [value for setting in settings for kind in setting.values() for value in kind.values()]
    ).all()


def test_the_setting_puts_the_reading_first(task: Task) -> None:
    model, config = KnownIntensity(by_hash, by_hash), EvaluateConfig(reading="law", negatives=("historical",))
    results, _ = evaluate(model, task, STRICT, config, model.state.snapshot(), heads=measured_heads(model, config))
    assert list(results) == ["law", "partner", "pair"]
    with pytest.raises(DsrdError, match=r"evaluate\.head=pair: .* leave one of the two out"):
        measured_heads(model, replace(config, head="pair"))
    with pytest.raises(DsrdError, match=r"evaluate\.reading=law: EdgeBank has no intensity"):
        measured_heads(create("edgebank", GraphSpec()), config)


def test_new_settings_do_not_change_the_digest_of_older_runs() -> None:
    run = RunConfig(dataset="uci", model="mine")
    assert run.digest == "af363a2c726dd44b"
    assert run.with_overrides({"evaluate.reading": "law"}).digest != run.digest
    assert run.with_overrides({"evaluate.questions": "true"}).digest != run.digest
