"""What `predict`, `partners` and `surprise` say, checked with a model whose law is written down."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from torch import Tensor

import dsrd
from dsrd.estimator import bits
from dsrd.estimator.answers import answer_pairs
from dsrd.estimator.event_rate import event_rate
from dsrd.estimator.online import OnlineModel
from dsrd.events import Query
from dsrd.history.past import Past
from dsrd.models import GraphSpec, ModelCard, TemporalModel

from .conftest import COLUMNS, PEOPLE

Opened = Callable[[str], dsrd.LinkPredictor]
NAMES = np.array(PEOPLE)


@dataclass(frozen=True)
class NoSettings:
    pass


class WrittenLaw(TemporalModel):
    """Knows p(source) and p(target | source), drawn once for the ten people of the log. Keeps no state."""

    Config = NoSettings
    card = ModelCard(paper="a test", reads="nothing", cost="two look-ups")
    heads = ("partner", "pair")

    def __init__(self, num_nodes: int, too_high: float = 0.0) -> None:
        """`too_high` is added to every partner score: the law is then not normalised."""
        super().__init__(NoSettings(), GraphSpec(num_nodes=num_nodes))
        self.num_sources, self.num_targets, self.too_high = 7, 9, too_high  # any numbers: they must cancel
        rng = np.random.default_rng(0)
        people = np.arange(1, 11)
        source, target = np.zeros(num_nodes), np.zeros((num_nodes, num_nodes))
        source[people] = rng.dirichlet(np.ones(10))
        target[np.ix_(people, people)] = rng.dirichlet(np.ones(10), size=10)
        self.source, self.target = torch.from_numpy(source), torch.from_numpy(target)
        self.read: list[tuple[str, int]] = []

    def activity(self, query: Query, past: Past) -> Tensor:
        self.read.append(("activity", len(query)))
        return (self.num_sources * self.source[query.src]).log()

    def score(self, query: Query, past: Past, head: str = "") -> Tensor:
        self.read.append((head, len(query)))
        partner = (self.num_targets * self.target[query.src, query.dst]).log() + self.too_high
        return partner + self.activity(query, past) if head == "pair" else partner


def with_law(model: dsrd.LinkPredictor, too_high: float = 0.0) -> WrittenLaw:
    """Put a model with a written law in place of the fitted one."""
    dataset = model.fitted.online.stream.dataset()
    law = WrittenLaw(dataset.num_nodes, too_high)
    model.fitted.online = OnlineModel(law, dataset)
    return law


def law_of(model: dsrd.LinkPredictor, law: WrittenLaw, caller: str, callee: str) -> tuple[float, float]:
    """(p(source), p(target | source))"""
    source, target = (model.fitted.online.stream.find(name) for name in (caller, callee))
    return float(law.source[source]), float(law.target[source, target])


def everybody(caller: str) -> list[tuple[str, str]]:
    return [(caller, callee) for callee in PEOPLE]


def test_predict_gives_the_law_the_rate_and_the_bits(opened: Opened):
    model = opened("edgebank")
    law = with_law(model)
    table = model.predict([("ann", "bob"), ("eve", "cat"), ("ann", "ann")])
    assert table.columns == ["caller", "callee", "probability", "partner", "rate", "surprise", "known"]
    events = model.fitted.online.stream.dataset().events.time.numpy()
    per_day = float(event_rate(events, np.array([np.nextafter(events[-1], np.inf)]))[0]) * 86_400
    assert per_day == pytest.approx(12, rel=0.1), "the log has twelve calls a day"
    for row in table:
        source, partner = law_of(model, law, row["caller"], row["callee"])
        assert row["partner"] == pytest.approx(partner)
        assert row["rate"] == pytest.approx(per_day * source * partner)
        assert row["surprise"] == pytest.approx(-np.log2(source) - np.log2(partner))
        assert row["probability"] == pytest.approx(9 * partner / (1 + 9 * partner), rel=1e-5)
    by_pair = model.predict([("ann", "bob")], head="pair")
    odds = 63 * np.prod(law_of(model, law, "ann", "bob"))
    assert by_pair["probability"][0] == pytest.approx(odds / (1 + odds), rel=1e-5)
    for answer in ("partner", "rate", "surprise"):
        assert by_pair[answer][0] == table[answer][0], "the head chooses the probability only"


def test_rates_of_all_pairs_add_up_to_the_rate_of_the_stream(opened: Opened):
    model = opened("edgebank")
    with_law(model)
    events = model.fitted.online.stream.dataset().events.time.numpy()
    for at in ("2024-05-10T12:00:00Z", "2024-05-25"):  # after the last event the rate stays as it was
        rate = model.predict([pair for caller in PEOPLE for pair in everybody(caller)], at=at)["rate"]
        seconds = min(pd.Timestamp(at).timestamp(), np.nextafter(events[-1], np.inf))
        assert rate.sum() == pytest.approx(86_400 * event_rate(events, np.array([seconds]))[0])


def test_a_rate_is_per_unit_of_time_where_times_are_numbers(opened: Opened):
    model = opened("edgebank")
    law = with_law(model)
    hours = pd.read_csv("calls.csv")
    hours["date"] = pd.to_datetime(hours["date"]).map(pd.Timestamp.timestamp) / 3600
    stream = dsrd.load(hours, **COLUMNS)
    numbers = dsrd.LinkPredictor("edgebank").fit(stream, progress=False)
    numbers.fitted.online = OnlineModel(law, stream)
    assert numbers.predict([("ann", "bob")])["rate"][0] == pytest.approx(
        model.predict([("ann", "bob")])["rate"][0] / 24
    )


def test_one_read_of_the_partners_and_one_of_the_sources(opened: Opened):
    """There is no sum over targets, and a source is read once for each time."""
    model = opened("edgebank")
    law = with_law(model)
    model.predict([*everybody("ann"), *everybody("bob")])
    assert sorted(law.read) == [("activity", 2), ("partner", 20)]


def test_no_probability_is_above_one(opened: Opened):
    model = opened("edgebank")
    law = with_law(model, too_high=5.0)
    table = model.predict(everybody("ann"))
    raw = np.exp(5.0) * np.array([law_of(model, law, "ann", callee)[1] for callee in PEOPLE])
    assert (raw > 1).any()
    assert table["partner"] == pytest.approx(np.minimum(raw, 1))
    source_bits = -np.log2(law_of(model, law, "ann", "bob")[0])
    assert table["surprise"].min() == pytest.approx(source_bits)


def test_partners_are_normalised_over_the_candidates(opened: Opened):
    model = opened("edgebank")
    law = with_law(model, too_high=5.0)
    table = model.partners("ann", k=100)
    assert table.columns == ["caller", "callee", "probability", "partner", "rate", "surprise", "known"]
    assert table["partner"].sum() == pytest.approx(1)
    for row in table:
        source, partner = law_of(model, law, "ann", row["callee"])
        assert row["partner"] == pytest.approx(partner)
        assert row["surprise"] == pytest.approx(-np.log2(source * partner))
    assert (np.diff(table["partner"]) <= 0).all()
    rate = table["rate"].sum() / law_of(model, law, "ann", "bob")[0]
    assert rate == pytest.approx(12, rel=0.1)
    assert model.partners("ann", k=2, head="pair")["callee"] == table["callee"][:2]
    assert model.partners(["ann", "eve"], k=2, at="2024-05-10")["date"] == ["2024-05-10"] * 4


def test_surprise_has_two_parts(opened: Opened):
    model = opened("edgebank")
    law = with_law(model)
    events = pa.table(
        {"caller": ["ann", "eve"], "callee": ["bob", "cat"], "date": ["2024-05-22", "2024-05-21"], "cost": [1, 1]}
    )
    table = dsrd.Table(model.surprise(events))
    bits = ["surprise", "source_bits", "partner_bits"]
    assert table.columns == ["caller", "callee", "date", "cost", *bits, "percentile", "known"]
    for row in table:
        source, partner = law_of(model, law, row["caller"], row["callee"])
        assert row["source_bits"] == pytest.approx(-np.log2(source), rel=1e-5)
        assert row["partner_bits"] == pytest.approx(-np.log2(partner), rel=1e-5)
        assert row["surprise"] == pytest.approx(row["source_bits"] + row["partner_bits"], rel=1e-5)
    log = [row.split(",") for row in Path("calls.csv").read_text().splitlines()[1:]][-200:]
    recent = np.array([-np.log2(np.prod(law_of(model, law, caller, callee))) for caller, callee, *_ in log])
    less = [100 * (recent < bits - 1e-6).mean() for bits in table["surprise"]]
    upto = [100 * (recent <= bits + 1e-6).mean() for bits in table["surprise"]]
    assert all(low <= each <= high for low, each, high in zip(less, table["percentile"], upto, strict=True))
    assert list(model.fitted.recent) == ["intensity"]
    model.surprise(events, head="pair")
    assert list(model.fitted.recent) == ["intensity"]


@pytest.mark.parametrize("name", ["tgn", "localglobal"])
def test_a_model_without_an_intensity_has_no_rate(opened: Opened, name: str):
    """With few targets the sum over them is exact: `partner` adds up to 1, and equals that of `partners`."""
    model = opened(name)
    table = model.predict(everybody("ann"))
    assert table.columns == ["caller", "callee", "probability", "partner", "surprise", "known"]
    assert table["partner"].sum() == pytest.approx(1)
    assert table["surprise"] == pytest.approx(-np.log2(table["partner"]))
    best = model.partners("ann", k=10)
    assert best.columns == table.columns
    assert dict(zip(best["callee"], best["partner"], strict=True)) == pytest.approx(
        dict(zip(table["callee"], table["partner"], strict=True)), abs=1e-6
    )


def test_an_early_question_reads_the_targets_of_its_time(opened: Opened):
    model = opened("tgn")
    online = model.fitted.online
    events = online.stream.dataset().events
    early = float(events.time[4])
    known = np.unique(events.dst[:4].numpy())
    assert np.array_equal(online.targets(early), known)
    target = torch.from_numpy(known)
    query = Query(torch.ones_like(target), target, torch.full(target.shape, early, dtype=torch.float64))
    assert float(answer_pairs(online, query).partner.sum()) == pytest.approx(1)
    model.observe("day.csv")
    later = online.stream.dataset().events
    for time in (early, float(later.time[250]), online.after_last):
        assert np.array_equal(online.targets(time), np.unique(later.dst[later.time < time].numpy()))


def test_answers_replace_columns_of_that_name_with_a_note(opened: Opened, capsys: pytest.CaptureFixture[str]):
    model = opened("edgebank")
    with_law(model)
    pairs = pd.DataFrame({"caller": ["ann"], "callee": ["bob"], "rate": [3], "tariff": [4]})
    table = model.predict(pairs, progress=True)
    assert list(table.columns) == [
        "caller",
        "callee",
        "rate",
        "tariff",
        "probability",
        "partner",
        "surprise",
        "known",
    ]
    assert table["rate"][0] < 3
    assert "pandas frame: the answers replace its columns rate" in capsys.readouterr().err
    assert list(pairs["rate"]) == [3]
    events = pd.read_csv("day.csv").assign(partner_bits=0)[:10]
    assert (model.surprise(events[events["caller"].isin(PEOPLE)])["partner_bits"] > 0).all()


def test_a_column_of_the_stream_is_never_replaced():
    log = pd.read_csv("calls.csv").rename(columns={"callee": "partner", "caller": "known"})
    stream = dsrd.load(log, source="known", target="partner", time="date")
    model = dsrd.LinkPredictor("edgebank").fit(stream, progress=False)
    with_law(model)
    columns = ["known", "partner", "probability", "dsrd_partner", "rate", "surprise", "dsrd_known"]
    table = model.predict([("ann", "bob")])
    assert table.columns == columns
    assert (table["known"], table["partner"]) == (["ann"], ["bob"])
    best = model.partners("ann", k=10)
    assert best.columns == columns
    assert best["dsrd_partner"].sum() == pytest.approx(1)


def test_no_pairs_give_no_rows(opened: Opened):
    model = opened("edgebank")
    with_law(model)
    table = model.predict(pa.table({"caller": pa.array([], pa.string()), "callee": pa.array([], pa.string())}))
    assert table.num_rows == 0
    assert "rate" in table.column_names


@pytest.mark.parametrize("name", ["localglobal", "tgn"])
@pytest.mark.parametrize("sampled", [2, 4, 100])
def test_the_sampled_sum_is_that_of_plain_loops(
    opened: Opened, monkeypatch: pytest.MonkeyPatch, name: str, sampled: int
):
    """The target and the latest partners count once each, a sampled target for all the others it represents."""
    monkeypatch.setattr(bits, "SAMPLED", sampled)
    monkeypatch.setattr(bits, "PARTNERS", 3)
    online = opened(name).fitted.online
    model, past, now = online.up_to_date(), online.past, online.after_last
    targets = online.targets(now).tolist()
    src, dst = (torch.tensor(ids) for ids in zip(*[(s, d) for s in (2, 5) for d in (*targets, 77)], strict=True))
    query = Query(src, dst, torch.full(src.shape, now, dtype=torch.float64))
    answers = answer_pairs(online, query)

    def score(source: int, target: int) -> float:
        one = Query(torch.tensor([source]), torch.tensor([target]), torch.tensor([now], dtype=torch.float64))
        with torch.no_grad():
            return float(model.score(one, past))

    sample = bits._sample(np.array(targets)).tolist()
    assert len(sample) == min(sampled, len(targets))
    for row, (source, target) in enumerate(zip(src.tolist(), dst.tolist(), strict=True)):
        latest = past.recent(torch.tensor([source]), torch.tensor([now]), 3).node[0].tolist()
        exact = {target, *(node for node in latest if node in targets)}
        others = [node for node in sample if node not in exact]
        represented = len([node for node in targets if node not in exact])
        total = sum(np.exp(score(source, node)) for node in exact)
        total += sum(np.exp(score(source, node)) for node in others) * represented / max(len(others), 1)
        assert float(answers.partner[row]) == pytest.approx(np.exp(score(source, target)) / total, rel=1e-4)
