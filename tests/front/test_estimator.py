"""`dsrd.LinkPredictor`: inputs, outputs, and that queries change no state."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch
from sklearn.base import clone

import dsrd
from dsrd.cli import main
from dsrd.errors import DsrdError
from dsrd.models import model_class, names

from .conftest import COLUMNS, estimator

Opened = Callable[[str], dsrd.LinkPredictor]
ANSWERS = ["probability", "partner", "rate", "surprise", "known"]
ASK = {"caller": ["ann", "eve"], "callee": ["bob", "zoe"], "ticket": [7, 8]}


@pytest.fixture
def calls() -> dsrd.Dataset:
    return dsrd.load("calls.csv", **COLUMNS)


@pytest.mark.parametrize("name", names())
def test_python_and_the_command_line_make_the_same_run(name: str):
    """The same settings give the same weights and the same results."""
    settings = {} if model_class(name).card.rule else {"train.epochs": 1}
    settings |= {f"model.{key}": value for key, value in model_class(name).card.small.items()}
    keywords = {key.replace(".", "__"): value for key, value in settings.items()}
    stream = dsrd.load("calls.csv", **COLUMNS)
    from_python = (
        dsrd.LinkPredictor(name, seed=3, **keywords).fit(stream, progress=False).evaluate(progress=False).record
    )
    words = ["train", "-d", "calls.csv", "--source", "caller", "--target", "callee", "--time", "date", "-m", name]
    words += ["--seed", "3", "--threads", "1", "--out", "run"]
    words += [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    with pytest.raises(SystemExit) as left:
        main(words)
    assert left.value.code == 0
    from_command = json.loads(Path("run/record.json").read_text())
    assert from_command["digests"] == from_python["digests"]
    for key in ("results", "validation", "config", "rules"):
        assert from_command.get(key) == json.loads(json.dumps(from_python.get(key)))


def test_evaluate_changes_neither_model_nor_arguments(opened: Opened):
    model = opened("tgn")
    probability = model.predict([("ann", "bob")])["probability"]
    fitted = model.fitted
    state = {name: value.clone() for name, value in model.module.state.fields_now().items()}
    weights = {name: value.clone() for name, value in model.module.state_dict().items()}
    trained = {name: value.clone() for name, value in fitted.state_after_training().items()}
    results = [
        model.evaluate(protocol=name, progress=False).record["results"] for name in ("dyglib", "strict") * 2
    ]
    model.evaluate("day.csv", progress=False)
    assert results[:2] == results[2:]
    assert all(torch.equal(model.module.state[name], value) for name, value in state.items())
    assert all(torch.equal(model.module.state_dict()[name], value) for name, value in weights.items())
    assert all(torch.equal(fitted.state_after_training()[name], value) for name, value in trained.items())
    assert np.array_equal(model.predict([("ann", "bob")])["probability"], probability)


def test_the_default_protocol_depends_on_the_stream(calls: dsrd.Dataset):
    from dataclasses import replace

    own_stream = dsrd.LinkPredictor().run_for(calls)
    assert (own_stream.protocol, own_stream.evaluate.order) == ("strict", "fast")
    catalogued = dsrd.LinkPredictor().run_for(replace(calls, catalogued=True))
    assert (catalogued.protocol, catalogued.evaluate.order) == ("dyglib", "py37")
    chosen = dsrd.LinkPredictor(protocol="dyglib", order="py38").run_for(calls)
    assert (chosen.protocol, chosen.evaluate.order) == ("dyglib", "py38")


def test_settings_are_resolved_in_the_constructor():
    with pytest.raises(DsrdError, match=r"unknown setting 'epoch'; did you mean"):
        dsrd.LinkPredictor(epoch=3)
    with pytest.raises(DsrdError, match=r"write train__batch_size or evaluate__batch_size"):
        dsrd.LinkPredictor(batch_size=3)
    with pytest.raises(DsrdError, match=r"train.epochs=many: expected a whole number"):
        dsrd.LinkPredictor(epochs="many")
    with pytest.raises(DsrdError, match="unknown protocol"):
        dsrd.LinkPredictor(protocol="strickt")
    with pytest.raises(DsrdError, match="unknown preset"):
        dsrd.LinkPredictor(preset="papers")
    with pytest.raises(DsrdError, match="unknown model"):
        dsrd.LinkPredictor("tgm")
    recipe = model_class("dsrd").card.recipe
    run = dsrd.LinkPredictor().run_for(dsrd.load("calls.csv", **COLUMNS))
    assert {name: getattr(run.train, name) for name in recipe} == dict(recipe)


def test_parameters_work_as_in_scikit_learn(calls: dsrd.Dataset):
    model = dsrd.LinkPredictor("graphmixer", epochs=1, dim=8, seed=4)
    assert model.get_params()["dim"] == 8
    copy = clone(model)
    assert copy is not model
    assert copy.get_params() == model.get_params() == model.clone().get_params()
    assert not model.__sklearn_is_fitted__()
    assert model.fit(calls, progress=False).__sklearn_is_fitted__()
    assert model.set_params(epochs=2).get_params()["epochs"] == 2
    with pytest.raises(DsrdError, match="not fitted; call fit"):
        model.predict([("ann", "bob")])
    assert repr(copy) == "LinkPredictor(model='graphmixer', seed=4, epochs=1, dim=8)"


def test_an_opened_model_can_be_cloned_and_fitted_again(opened: Opened):
    model = opened("tgn")
    stream = dsrd.load("calls.csv", **COLUMNS, features=["cost"])
    again = clone(model).fit(stream, progress=False)
    assert again.run == model.run
    assert all(
        torch.equal(a, b) for a, b in zip(again.module.parameters(), model.module.parameters(), strict=True)
    )


def test_on_epoch_is_called_after_every_epoch(calls: dsrd.Dataset):
    seen: list[tuple[int, dict[str, float]]] = []
    others: list[int] = []
    tell = [lambda epoch, metrics: seen.append((epoch, dict(metrics))), lambda epoch, _: others.append(epoch)]
    dsrd.LinkPredictor("tgn", epochs=3, dim=8, time_dim=8).fit(calls, on_epoch=tell, progress=False)
    assert [epoch for epoch, _ in seen] == others == [1, 2, 3]
    assert all(set(metrics) == {"loss", "val_ap", "val_auc", "seconds", "best_epoch"} for _, metrics in seen)
    assert all(math.isfinite(value) for _, metrics in seen for value in metrics.values())


@pytest.mark.parametrize("kind", [pd.DataFrame, pl.DataFrame, pa.table])
def test_frames_are_returned_as_frames_with_their_columns(opened: Opened, kind: Callable):
    pairs = kind(ASK)
    result = opened("dsrd").predict(pairs)
    assert type(result) is type(pairs)
    columns = result.column_names if kind is pa.table else list(result.columns)
    assert columns == ["caller", "callee", "ticket", *ANSWERS]
    values = result["known"].to_pylist() if kind is pa.table else list(result["known"])
    assert values == [True, False]
    assert (pairs.column_names if kind is pa.table else list(pairs.columns)) == ["caller", "callee", "ticket"]


def test_predict_accepts_its_own_output(opened: Opened):
    model = opened("dsrd")
    first = model.predict(pa.table(ASK))
    Path("answers.csv").write_text(dsrd.Table(first).to_csv())
    again = model.predict("answers.csv")
    assert again.columns == ["caller", "callee", "ticket", *ANSWERS]
    assert all(np.array_equal(again[name], first[name].to_numpy(zero_copy_only=False)) for name in ANSWERS)
    assert again["ticket"] == ["7", "8"]


def test_predict_at_a_time(opened: Opened):
    model = opened("dsrd")
    ways = [
        model.predict([("ann", "bob")], at="2024-05-25")["probability"],
        model.predict([("ann", "bob")], at=pd.Timestamp("2024-05-25"))["probability"],
        model.predict([("ann", "bob", "2024-05-25")])["probability"],
        model.predict([("ann", "bob")], at=1716595200)["probability"],
    ]
    assert all(np.array_equal(way, ways[0]) for way in ways)
    assert not np.array_equal(model.predict([("ann", "bob")])["probability"], ways[0])
    with pytest.raises(DsrdError, match="time soon: give a number"):
        model.predict([("ann", "bob")], at="soon")
    with pytest.raises(DsrdError, match="there is a column 'date', and a time was passed too"):
        model.predict([("ann", "bob", "2024-05-25")], at="2024-05-25")


@pytest.mark.parametrize("name", ["dsrd", "tgn", "graphmixer"])
def test_a_query_in_the_past_uses_only_what_came_before(opened: Opened, name: str):
    """For a time inside the stream, a model gives the scores of one that has observed nothing later."""
    model = opened(name)
    first = dsrd.load("calls.csv", **COLUMNS, features=["cost"]).head(120, 11)
    moment = first.written_time(float(first.events.time[-1]) + 1)
    model.save("weights", history=False)
    fitted = model.fitted
    now = model.predict([("ann", "bob")])["probability"]
    early = model.predict([("ann", "bob")], at=moment)["probability"]
    from dsrd.estimator.online import OnlineModel

    fitted.online = OnlineModel(fitted.online.model, first)
    fitted.online.model.state.reset()
    alone = model.predict([("ann", "bob")], at=moment)["probability"]
    assert np.allclose(early, alone, atol=0 if name != "tgn" else 1e-6, rtol=0)
    assert early != now


@pytest.mark.parametrize("model", ["dsrd", "localglobal"])
def test_partners_are_the_best_of_all_targets(opened: Opened, model: str):
    predictor = opened(model)
    everybody = sorted({row.split(",")[1] for row in Path("calls.csv").read_text().splitlines()[1:]})
    scored = predictor.predict([("ann", other) for other in everybody])
    order = np.argsort(-scored["probability"], kind="stable")
    best = predictor.partners("ann", k=3)
    assert best.columns == scored.columns
    assert np.allclose(best["probability"], scored["probability"][order[:3]], atol=1e-6)
    assert len(predictor.partners(["ann", "bob"], k=100)) == 2 * len(everybody)
    assert set(predictor.partners(["ann", "zoe"], k=1)["known"]) == {True, False}
    assert len(predictor.partners("ann", k=2, at="2024-05-25")["date"]) == 2
    with pytest.raises(DsrdError, match="k=0: give a whole number, 1 or more"):
        predictor.partners("ann", k=0)


def test_unknown_names(opened: Opened, capsys: pytest.CaptureFixture[str]):
    model = opened("dsrd")
    with pytest.raises(DsrdError, match=r"unknown node 'anm'; did you mean 'ann'"):
        model.predict([("anm", "bob")], strict_names=True)
    with pytest.raises(DsrdError, match=r"unknown node 'anm'"):
        model.partners("anm", strict_names=True)
    assert model.predict([("anm", "bob")], progress=True)["known"].tolist() == [False]
    assert "never seen before: 'anm'; did you mean 'ann'" in capsys.readouterr().err
    with pytest.raises(DsrdError, match="unknown head 'pears'"):
        model.predict([("ann", "bob")], head="pears")


def test_heads_are_chosen_by_name(opened: Opened):
    model = opened("dsrd")
    by_head = {head: model.predict([("ann", "bob")], head=head)["probability"] for head in model.module.heads}
    assert len(by_head) == 2
    assert by_head["partner"] != by_head["pair"]
    assert np.array_equal(model.predict([("ann", "bob")])["probability"], by_head["partner"])
    assert set(model.evaluate(head="pair", progress=False).record) >= {"head", "results"}


def test_both_readings_and_the_questions_are_in_the_results(opened: Opened):
    model = opened("dsrd")
    results = model.evaluate(questions=True, asked_events=7, progress=False)
    assert set(results.record["heads"]) == {"pair", "law"}
    assert results.questions["partner"]["ranked_events"] == 7
    assert results.questions.table()["model"][0] == "dsrd"
    assert "P(random pair)" in str(results)
    by_law = model.evaluate(reading="law", progress=False)
    assert by_law.questions is None
    assert by_law.record["head"] == "law"
    assert set(by_law.record["heads"]) == {"partner", "pair"}
    assert by_law.record["results"] == results.record["heads"]["law"]["results"]
    with pytest.raises(DsrdError, match=r"evaluate\.reading=law: EdgeBank has no intensity"):
        dsrd.LinkPredictor("edgebank", reading="law").fit(dsrd.load("calls.csv", **COLUMNS), progress=False)


def test_surprise_is_a_probability_in_bits(opened: Opened):
    """Without an intensity, and with few targets, the sum is exact: all targets' probabilities add up to one."""
    model = opened("tgn")
    targets = sorted({row.split(",")[1] for row in Path("calls.csv").read_text().splitlines()[1:]})
    bits = [
        model.surprise(pa.table({"caller": ["ann"], "callee": [each], "date": ["2024-05-22"], "cost": [1.0]}))
        for each in targets
    ]
    probability = np.array([2.0 ** -table["surprise"][0].as_py() for table in bits])
    assert np.isclose(probability.sum(), 1, atol=1e-5)
    best_target = model.partners("ann", k=1, at="2024-05-22")["callee"][0]
    assert targets[int(probability.argmax())] == best_target
    percentile = np.array([table["percentile"][0].as_py() for table in bits])
    assert ((percentile >= 0) & (percentile <= 100)).all()
    assert (np.diff(percentile[np.argsort(-probability)]) >= 0).all(), "the less likely, the higher"


def test_surprise_of_one_event_is_what_predict_says(opened: Opened):
    model = opened("dsrd")
    event = pa.table({"caller": ["ann"], "callee": ["bob"], "date": ["2024-05-22"], "cost": [1.0]})
    bits, answer = dsrd.Table(model.surprise(event)), model.predict([("ann", "bob", "2024-05-22")])
    assert bits["surprise"] == pytest.approx(answer["surprise"], rel=1e-5)
    assert 2.0 ** -bits["partner_bits"] == pytest.approx(answer["partner"], rel=1e-5)
    assert bits["source_bits"] + bits["partner_bits"] == pytest.approx(bits["surprise"], rel=1e-5)


def test_surprise_keeps_the_order_of_rows_and_the_run(opened: Opened):
    model = opened("tgn")
    probability = model.predict([("ann", "bob")])["probability"]
    shuffled = pd.read_csv("day.csv").sample(frac=1, random_state=0)
    in_order = model.surprise("day.csv")
    table = model.surprise(shuffled)
    assert list(table.columns) == ["caller", "callee", "date", "cost", "surprise", "percentile", "known"]
    assert table.sort_index()["surprise"].to_numpy() == pytest.approx(in_order["surprise"], abs=1e-5)
    assert not all(in_order["known"])
    assert np.array_equal(model.predict([("ann", "bob")])["probability"], probability)
    with pytest.raises(DsrdError, match="240 events are known already"):
        model.surprise("grown.csv")


def test_evaluate_on_upcoming_events(opened: Opened):
    model = opened("dsrd")
    model.evaluate(progress=False)
    results = model.evaluate("day.csv", progress=False)
    assert results.record["measured_on"] == "60 later events"
    assert 0 <= results["transductive"]["random"]["ap"] <= 100
    assert "best rule" in results.rows
    assert model.fitted.online.stream.num_events == 240


def test_results_can_be_printed_indexed_and_converted(opened: Opened):
    results = opened("dsrd").evaluate(progress=False)
    text = str(results)
    assert text.splitlines()[0] == "calls: test, strict, AP / AUC in percent, mean over batches"
    assert "best rule" in text
    assert results.verdict in text
    assert results["transductive"]["random"]["ap"] == results.record["results"]["transductive"]["random"]["ap"]
    frame = results.to_frame()
    assert {"model", "setting", "negatives", "ap", "auc"} <= set(frame.columns)
    assert "<table>" in results._repr_html_()
    assert all(len(line) <= 100 for line in text.splitlines()[:-1])


def test_the_best_rule_is_not_chosen_by_its_test_score():
    from dsrd.estimator.results import Results

    def measured(test: float, val: float) -> dict:
        return {
            "results": {"transductive": {"random": {"ap": test, "auc": test}}},
            "validation": {"transductive": {"random": {"ap": val, "auc": val}}},
        }

    record = {"dataset": "calls", "model": "mine", "preset": "default", "protocol": "strict", "head": "link"}
    record |= {**measured(80.0, 80.0), "rules": {"lucky": measured(99.0, 50.0), "sound": measured(78.0, 79.0)}}
    results = Results(record)
    assert results.verdict == (
        "mine adds 2.00 points to the best rule that learns nothing (sound): 80.00 against 78.00 AP, "
        "random negatives, transductive."
    )
    assert "sound (random)" in str(results)


def test_times_in_milliseconds_get_a_warning(capsys: pytest.CaptureFixture[str]):
    frame = pd.read_csv("calls.csv")
    frame["date"] = pd.to_datetime(frame["date"]).astype("int64") // 10**3 // 10**3
    frame["date"] = frame["date"].where(frame["date"] > 10**12, frame["date"] * 1000)
    stream = dsrd.load(frame, **COLUMNS)
    assert stream.clock_unit == "milliseconds"
    estimator("tgn").fit(stream)
    assert "times look like milliseconds since 1970: tgn was made for seconds" in capsys.readouterr().err
    estimator("localglobal").fit(stream)
    assert "milliseconds" not in capsys.readouterr().err
