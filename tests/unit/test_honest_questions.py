"""The questions beside the published columns: what is asked, and what comes back, against plain loops."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from dsrd.config import EvaluateConfig
from dsrd.data.read import load
from dsrd.evaluate.metrics import average_precision
from dsrd.evaluate.questions import Asker, ask, questions_of_test
from dsrd.evaluate.task import Task
from dsrd.events import Query
from dsrd.models import GraphSpec, create
from support.intensities import KnownIntensity, by_hash, constant

QUESTIONS = ("partner", "pairs", "awake", "first")


@pytest.fixture(scope="module")
def task() -> Task:
    return Task.of(load("synth:events=2000,snapshots=200"))


class Facts:
    """What a stream holds, as sets and dictionaries."""

    def __init__(self, task: Task) -> None:
        full = task.split.full
        self.events = list(zip(full.src.tolist(), full.dst.tolist(), full.time.tolist(), strict=True))
        self.occurs = set(self.events)

    def known(self, time: float) -> tuple[set[int], set[int], set[tuple[int, int]]]:
        """Sources, targets and pairs before a time."""
        earlier = [(u, v) for u, v, t in self.events if t < time]
        return {u for u, _ in earlier}, {v for _, v in earlier}, set(earlier)


@pytest.fixture(scope="module")
def facts(task: Task) -> Facts:
    return Facts(task)


@pytest.fixture(scope="module")
def asker(task: Task) -> Asker:
    return Asker(task.passes["test"], task.split.full)


def rows_and_negatives(asker: Asker, question: str) -> list[tuple[int, tuple[int, int, float]]]:
    asked = asker.questions()[question]
    wrong = asked.negative
    triples = zip(wrong.src.tolist(), wrong.dst.tolist(), wrong.time.tolist(), strict=True)
    return list(zip(asked.rows.tolist(), triples, strict=True))


@pytest.mark.parametrize("question", QUESTIONS)
def test_events_and_negatives_are_what_the_question_says(question: str, asker: Asker, facts: Facts) -> None:
    events = asker.events
    asked = dict(rows_and_negatives(asker, question))
    expected = []
    for row in range(len(events)):
        u, v, t = int(events.src[row]), int(events.dst[row]), float(events.time[row])
        sources, targets, met = facts.known(t)
        kept = {
            "partner": True,
            "pairs": True,
            "awake": (u, v) in met,
            "first": (u, v) not in met and u in sources and v in targets,
        }[question]
        if kept:
            expected.append(row)
            a, b, time = asked[row]
            assert time == t
            assert a in sources | {u}
            assert b in targets
            assert {
                "partner": a == u and b != v,
                "pairs": a in sources,
                "awake": (a, b) in met and (a, b, t) not in facts.occurs,
                "first": a in sources and (a, b) not in met and (a, b, t) not in facts.occurs,
            }[question]
    assert sorted(asked) == expected
    assert len(expected) > 20


def test_negatives_are_uniform(task: Task) -> None:
    """Many draws at one time: every choice comes as often as every other, within five standard deviations."""
    asker = Asker(task.passes["test"], task.split.full)
    time = np.full(60_000, float(asker.events.time[0]))
    choices = asker.targets.before(time[0])
    drawn = asker.targets.draw(np.random.default_rng(0), time)
    counts = np.array([(drawn == node).sum() for node in choices])
    mean = len(time) / len(choices)
    assert counts.sum() == len(time)
    assert np.abs(counts - mean).max() < 5 * math.sqrt(mean)


def test_answers_are_those_of_a_plain_loop(task: Task, facts: Facts, asker: Asker) -> None:
    """Ranks among all targets known at the time, ties in the middle, and AP by head."""
    model = KnownIntensity(by_hash, lambda query: -by_hash(query), strict=True)
    answers = questions_of_test(model, task, EvaluateConfig(asked_events=50), model.state.snapshot())
    events = task.split.test
    ranks = []
    for row in np.linspace(0, len(events) - 1, 50).round().astype(int).tolist():
        true = events[row : row + 1].query()
        targets = sorted(facts.known(float(true.time))[1] - {int(true.dst)})
        wrong = by_hash(
            Query(true.src.expand(len(targets)), torch.tensor(targets), true.time.expand(len(targets)))
        )
        ranks.append(1 + int((wrong > by_hash(true)).sum()) + 0.5 * int((wrong == by_hash(true)).sum()))
    partner = answers["partner"]
    assert partner["ranked_events"] == 50
    assert partner["mrr"] == pytest.approx(100 * np.mean([1 / rank for rank in ranks]), abs=1e-3)
    assert partner["hits@10"] == pytest.approx(100 * np.mean([rank <= 10 for rank in ranks]), abs=1e-3)
    for question, sign, head in (("partner", 1, "partner"), ("awake", -1, "pair"), ("first", -1, "pair")):
        asked = asker_of(task).questions()[question]
        true, wrong = sign * by_hash(events.query()[torch.from_numpy(asked.rows)]), sign * by_hash(asked.negative)
        label = np.repeat([1, 0], [len(true), len(wrong)])
        assert answers[question]["head"] == head
        assert answers[question]["events"] == len(true)
        assert answers[question]["ap_split"] == pytest.approx(
            100 * average_precision(label, torch.cat([true, wrong]).numpy()), abs=1e-3
        )
    random = asker_of(task).questions()["pairs"].negative
    assert answers["pairs"]["mean_probability"] == pytest.approx(
        float((-by_hash(random)).sigmoid().mean()), abs=1e-5
    )


def asker_of(task: Task) -> Asker:
    """A new one: its generator starts again."""
    return Asker(task.passes["test"], task.split.full)


def test_the_truth_answers_everything_and_a_constant_nothing(task: Task, facts: Facts) -> None:
    def truth(query: Query) -> Tensor:
        triples = zip(query.src.tolist(), query.dst.tolist(), query.time.tolist(), strict=True)
        return torch.tensor([9.0 if triple in facts.occurs else -9.0 for triple in triples])

    for score, ap, mrr in ((truth, 100.0, 100.0), (constant, 50.0, None)):
        model = KnownIntensity(score, score)
        answers = questions_of_test(model, task, EvaluateConfig(asked_events=20), model.state.snapshot())
        assert answers["awake"]["ap"] == answers["first"]["ap"] == ap
        assert answers["awake"]["auc"] == answers["first"]["auc"] == ap
        assert mrr is None or answers["partner"]["mrr"] > 70  # other targets of the same source are true as well
    assert answers["pairs"]["mean_probability"] == 0.5


def test_a_model_with_one_score_answers_all_questions_with_it(task: Task) -> None:
    model = create("recency", GraphSpec())
    model.calibrate(task.split.train)
    answers = questions_of_test(model, task, EvaluateConfig(asked_events=5), None)
    assert {answers[question]["head"] for question in QUESTIONS} == {"link"}
    assert answers["awake"]["ap"] > 55


@pytest.mark.parametrize("known", ["all", "trained"])
def test_answers_do_not_depend_on_the_batch_size(task: Task, known: str) -> None:
    found = []
    for size in (7, 200):
        model = create("edgebank", GraphSpec())
        for batch in task.split.train.batches(200):
            model.observe(batch, task.train_past)
        config = EvaluateConfig(batch_size=size, asked_events=30, known=known)  # type: ignore[arg-type]
        found.append(ask(model, task.passes["test"], task.split.full, task.full_past, config))
    assert found[0] == found[1]
