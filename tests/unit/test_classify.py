"""Node classification: the metrics and their intervals, the frozen protocol, labels that cannot be used."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score, roc_auc_score

from dsrd.classify import NodeClassifier
from dsrd.classify.embedder import NodeEmbedder
from dsrd.classify.head import HeadConfig, fit_head, probabilities
from dsrd.classify.metrics import Ranking, bootstrap, measure
from dsrd.classify.task import NodeTask
from dsrd.data.dataset import Dataset
from dsrd.errors import DsrdError
from dsrd.estimator.link_predictor import LinkPredictor
from dsrd.estimator.online import OnlineModel
from dsrd.history.past import Past
from dsrd.models import GraphSpec, create, model_class
from dsrd.protocol import DYGLIB, STRICT

MODEL = "tgn"
STATELESS = "graphmixer"
SHARP = "dsrd"  # its embeddings distinguish ages before any training
QUICK = HeadConfig(lr=1e-2, epochs=30, dropout=0.0)


def stream(events: int = 1200, classes: int = 2, seed: int = 0) -> Dataset:
    """The label says how long ago the source had its last event, so one event of memory is enough."""
    rng = np.random.default_rng(seed)
    src, gap = np.empty(events, np.int64), np.zeros(events)
    last = np.full(21, -100.0)
    for row in range(events):
        src[row] = rng.integers(1, 6) if rng.random() < 0.5 else rng.integers(6, 21)
        gap[row], last[src[row]] = row - last[src[row]], row
    label = np.digitize(gap, np.quantile(gap, np.arange(1, classes) / classes)) + (classes > 2)
    return Dataset.from_arrays("gaps", src, rng.integers(21, 31, events), np.arange(events), label=label)


def backbone(data: Dataset, name: str = MODEL) -> Any:
    torch.manual_seed(0)
    spec = GraphSpec(num_nodes=data.num_nodes, node_dim=data.node_dim, edge_dim=data.edge_dim)
    kind = model_class(name)
    model = create(name, spec, kind.Config(**kind.card.small))
    model.calibrate(data.events)
    return model


def embedded(data: Dataset, name: str = MODEL) -> tuple[NodeTask, torch.Tensor]:
    task = NodeTask.of(data)
    past = Past(data.events, edge_x=data.edge_x, node_x=data.node_x, num_nodes=data.num_nodes)
    return task, NodeEmbedder(backbone(data, name), task, past, DYGLIB, 50).embed_all()


def test_the_split_is_the_published_one_without_withheld_nodes():
    time = np.sort(np.random.default_rng(0).random(1000).round(2))
    rows = NodeTask.of(Dataset.from_arrays("x", [1] * 1000, [2] * 1000, time, label=np.arange(1000) % 2)).rows
    first, second = np.quantile(time, [0.7, 0.85])
    assert rows["train"] == slice(0, int((time <= first).sum()))
    assert rows["val"] == slice(rows["train"].stop, int((time <= second).sum()))
    assert rows["test"] == slice(rows["val"].stop, 1000)


def test_the_published_split_has_the_published_positives(real_data: Any):
    task = NodeTask.of(real_data("wikipedia"))
    assert [task.counts(part)["1"] for part in ("train", "val", "test")] == [156, 17, 44]


def test_binary_metrics_equal_sklearn():
    rng = np.random.default_rng(1)
    target, score = (rng.random(400) < 0.1).astype(np.int64), rng.random((400, 1)).round(2)
    metrics = measure(target, score, ["0", "1"])
    auc, auprc = roc_auc_score(target, score[:, 0]), average_precision_score(target, score[:, 0])
    assert metrics["auc"] == pytest.approx(100 * auc, abs=1e-4)
    assert metrics["auprc"] == pytest.approx(100 * auprc, abs=1e-4)
    assert metrics["auprc_factor"] == pytest.approx(auprc / target.mean(), abs=1e-4)
    assert metrics["auc_low"] < metrics["auc"] < metrics["auc_high"]
    assert metrics["auprc_low"] < metrics["auprc"] < metrics["auprc_high"]
    assert metrics["positives"] == target.sum()


def test_multi_class_metrics_equal_sklearn():
    rng = np.random.default_rng(2)
    target = rng.choice(3, 300, p=[0.2, 0.3, 0.5])
    score = rng.dirichlet([1, 1, 1], 300) + 0.3 * np.eye(3)[target]
    score /= score.sum(1, keepdims=True)
    metrics = measure(target, score, ["a", "b", "c"])
    assert metrics["auc"] == pytest.approx(100 * roc_auc_score(target, score, multi_class="ovr"), abs=1e-4)
    each = [average_precision_score(target == number, score[:, number]) for number in range(3)]
    assert metrics["auprc"] == pytest.approx(100 * np.mean(each), abs=1e-4)
    assert [one["auprc"] for one in metrics["classes"].values()] == pytest.approx(
        [100 * x for x in each], abs=1e-4
    )
    assert metrics["classes"]["b"]["positives"] == (target == 1).sum()
    for number, one in enumerate(metrics["classes"].values()):
        assert one["auprc_factor"] == pytest.approx(each[number] / (target == number).mean(), abs=1e-4)
        assert one["auc_low"] < one["auc"] < one["auc_high"]
        assert one["auprc_low"] < one["auprc"] < one["auprc_high"]
    assert metrics["auc_low"] < metrics["auc"] < metrics["auc_high"]


def test_a_class_that_does_not_occur_is_left_out_of_the_mean():
    target, score = (
        np.array([0, 1, 0, 1]),
        np.array([[0.5, 0.4, 0.1], [0.3, 0.6, 0.1], [0.4, 0.5, 0.1], [0, 1, 0]]),
    )
    metrics = measure(target, score, ["a", "b", "c"], draws=50)
    assert metrics["auc"] == 100.0
    assert np.isnan(metrics["classes"]["c"]["auc"])
    assert metrics["classes"]["c"]["positives"] == 0


def test_weighted_metrics_equal_sklearn():
    rng = np.random.default_rng(3)
    label, score = rng.random(200) < 0.3, rng.random(200).round(1)
    count = rng.multinomial(200, [1 / 200] * 200, size=3)
    auc, ap = Ranking.of(label, score).weighted(count)
    assert auc == pytest.approx([roc_auc_score(label, score, sample_weight=row) for row in count])
    assert ap == pytest.approx([average_precision_score(label, score, sample_weight=row) for row in count])


def test_intervals_equal_a_plain_bootstrap():
    rng = np.random.default_rng(4)
    label = rng.random(300) < 0.2
    score = label + rng.normal(size=300)
    resampled = bootstrap([Ranking.of(label, score)], seed=0)  # [1, 2, draws]
    draws = [rng.integers(0, 300, 300) for _ in range(1000)]
    plain = np.percentile([roc_auc_score(label[rows], score[rows]) for rows in draws], [2.5, 97.5])
    assert np.percentile(resampled[0, 0], [2.5, 97.5]) == pytest.approx(plain, abs=0.01)
    assert np.array_equal(bootstrap([Ranking.of(label, score)], seed=0), resampled)
    assert not np.array_equal(bootstrap([Ranking.of(label, score)], seed=1), resampled)


def test_recent_activity_is_learnt_by_a_frozen_backbone():
    task, x = embedded(stream(), SHARP)
    fitted = fit_head(x, task, QUICK)
    metrics = measure(task.targets("test"), fitted.scores["test"], task.names)
    assert metrics["auc_low"] > 90
    assert metrics["auprc_factor"] > 1.5
    assert 1 <= fitted.best_epoch <= fitted.epochs <= QUICK.epochs


def test_several_classes_are_learnt():
    task, x = embedded(stream(classes=3), SHARP)
    assert task.names == ["1", "2", "3"]
    fitted = fit_head(x, task, QUICK)
    assert fitted.scores["test"].shape == (len(task.targets("test")), 3)
    metrics = measure(task.targets("test"), fitted.scores["test"], task.names)
    assert metrics["auc_low"] > 80


def test_shuffled_labels_are_not_learnt():
    data = stream()
    mixed = np.random.default_rng(0).permutation(data.label.numpy())  # type: ignore[union-attr]
    task, x = embedded(Dataset.from_arrays("mixed", *data.events.numpy()[:3], label=mixed), SHARP)
    metrics = measure(task.targets("test"), fit_head(x, task, QUICK).scores["test"], task.names)
    assert metrics["auc_low"] <= 50 <= metrics["auc_high"]  # both are 50 if the head predicts a constant


def test_embeddings_change_no_weights_and_do_not_use_the_future():
    data = stream(events=300)
    model, task = backbone(data), NodeTask.of(data)
    model.train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    x = NodeEmbedder(model, task, Past(data.events), DYGLIB, 50).embed_all()
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    src, dst, time, _ = data.events.numpy()
    other = dst.copy()
    other[250:] = 21 + (other[250:] - 20) % 10
    changed = Dataset.from_arrays("changed", src, other, time, label=data.label)
    assert torch.equal(embedded(changed)[1][:250], x[:250])


def test_the_head_is_fixed_by_its_seed():
    task, x = embedded(stream(events=400))
    one, same, other = (fit_head(x, task, HeadConfig(epochs=3), seed) for seed in (5, 5, 6))
    assert np.array_equal(one.scores["test"], same.scores["test"])
    assert not np.array_equal(one.scores["test"], other.scores["test"])


def test_patience_ends_training():
    task, x = embedded(stream(events=400))
    fitted = fit_head(x, task, HeadConfig(lr=0.3, epochs=100, patience=2))
    assert fitted.epochs in (fitted.best_epoch + 2, 100)
    assert fitted.epochs < 100


def test_unlabelled_events_are_observed_but_are_no_questions():
    data = stream()
    label = data.label.numpy().copy()  # type: ignore[union-attr]
    label[::2] = np.nan
    task, x = embedded(Dataset.from_arrays("half", *data.events.numpy()[:3], label=label))
    torch.testing.assert_close(x, embedded(data)[1][1::2])
    assert sum(len(task.targets(part)) for part in ("train", "val", "test")) == len(label) // 2
    assert len(fit_head(x, task, QUICK).scores["val"]) == len(task.targets("val"))


@pytest.mark.parametrize(
    ("label", "message"),
    [
        (None, "has no labels; name their column"),
        (np.full(100, np.nan), "no event has a label"),
        (np.zeros(100), "every label is 0"),
        (np.linspace(0, 1, 100), "labels are not classes"),
        (np.arange(100) < 50, "the val events have only the label 0"),
        (np.where(np.arange(100) < 85, np.arange(100) % 2, 1), "the test events have only the label 1"),
        (np.where(np.arange(100) < 85, np.arange(100) % 2, np.nan), "the test events have no label"),
    ],
)
def test_unusable_labels_are_refused(label: Any, message: str):
    rows = np.arange(100)
    data = Dataset.from_arrays("bad", rows % 9 + 1, rows % 7 + 10, rows, label=label)
    with pytest.raises(DsrdError, match=message):
        NodeTask.of(data)


def test_sources_without_a_past_are_counted():
    rows = np.arange(100)
    data = Dataset.from_arrays("once", np.where(rows < 90, rows + 1, 1), rows * 0 + 200, rows, label=rows % 2)
    assert NodeTask.of(data).with_past("val", Past(data.events)) == 0
    assert NodeTask.of(data).with_past("test", Past(data.events)) == pytest.approx(10 / 15)


def test_too_few_times_are_refused():
    data = Dataset.from_arrays("short", [1] * 4, [2] * 4, [0.0, 0.0, 1.0, 1.0], label=[0, 1, 0, 1])
    with pytest.raises(DsrdError, match="short: 2 distinct times cannot be cut"):
        NodeTask.of(data)


def test_a_model_without_embeddings_is_refused():
    data = stream(events=100)
    with pytest.raises(DsrdError, match="no embeddings"):
        NodeEmbedder(backbone(data, "edgebank"), NodeTask.of(data), Past(data.events), DYGLIB, 50).embed_all()


# Predictions for events after the training.


def fitted(data: Dataset, name: str = MODEL, **more: Any) -> LinkPredictor:
    return LinkPredictor(name, epochs=1, **model_class(name).card.small).fit(data, progress=False, **more)


def rows(data: Dataset, first: int, last: int | None = None) -> list[tuple[int, int, float]]:
    """Events of a data set as a list of tuples."""
    return list(zip(*(column[first:last].tolist() for column in data.events.numpy()[:3]), strict=True))


def cut_before_test(classifier: NodeClassifier) -> tuple[NodeClassifier, list[tuple[int, int, float]]]:
    """The same head on a run that has not observed the test events, and those events."""
    run, data = classifier.fitted, classifier.fitted.task.dataset
    first = NodeTask.of(data).rows["test"].start
    online = OnlineModel(run.evaluated, data.head(first, data.num_nodes))
    return NodeClassifier(replace(run, online=online, _task=None), classifier.head), rows(data, first)


@pytest.mark.parametrize("name", [SHARP, STATELESS])
@pytest.mark.parametrize("classes", [2, 3])
def test_test_events_as_upcoming_events_get_the_scores_of_training(name: str, classes: int):
    classifier = NodeClassifier.fit(fitted(stream(400, classes), name), epochs=3)
    earlier, new = cut_before_test(classifier)
    table, scores = earlier.predict(new), classifier.scores["test"]
    if classes == 2:
        assert table.columns == ["source", "target", "time", "probability", "known"]
        assert np.array_equal(table["probability"], scores[:, 0])
    else:
        assert table.columns == ["source", "target", "time", "class", "probability", "known"]
        assert np.array_equal(table["probability"], scores.max(axis=1))
        assert table["class"] == [classifier.head.classes[best] for best in scores.argmax(axis=1)]
    assert table["known"].all()


@pytest.mark.parametrize("training", ["end to end", "from scratch"])
def test_models_trained_with_their_head_score_upcoming_events_as_in_training(training: Any):
    classifier = NodeClassifier.fit(fitted(stream(300), SHARP), training, seed=3, epochs=2)
    earlier, new = cut_before_test(classifier)
    np.testing.assert_allclose(earlier.predict(new)["probability"], classifier.scores["test"][:, 0], atol=1e-5)


def test_same_time_events_are_visible_to_heads_trained_with_them():
    data = stream(400)
    src, dst, time, _ = data.events.numpy()
    label = (src % 2).astype(np.float32)
    data = Dataset.from_arrays("pairs", src, dst, time // 4, label=label)
    for name in (SHARP, STATELESS):
        classifier = NodeClassifier.fit(fitted(data, name), asks="ends", epochs=3)
        assert classifier.head.visible == "same-time"
        earlier, new = cut_before_test(classifier)
        assert np.array_equal(earlier.predict(new)["probability"], classifier.scores["test"][:, 0])


@pytest.mark.parametrize("name", [MODEL, SHARP, STATELESS])
def test_upcoming_events_are_classified_as_in_one_run_through_the_stream(name: str):
    data, known = stream(240), 200
    model = fitted(data.head(known, data.num_nodes), name)
    classifier = NodeClassifier.fit(model, epochs=3)
    probability = classifier.predict(rows(data, known))["probability"]

    past = Past(data.events, edge_x=data.edge_x, node_x=data.node_x, seed=1)
    embedder = NodeEmbedder(model.fitted.evaluated, NodeTask.of(data), past, STRICT, 200)
    with model.fitted.online.state_preserved():
        expected = probabilities(classifier.head.head(embedder.embed_all()))[known:, 0]
    np.testing.assert_allclose(probability, expected, atol=1e-5)
    assert np.ptp(probability) > 0

    model.observe(rows(data, known, 220))  # the stream continues, the head does not change
    np.testing.assert_allclose(classifier.predict(rows(data, 220))["probability"], expected[20:], atol=1e-5)


def test_a_model_trained_with_its_head_may_observe_events_in_two_steps():
    data, known = stream(240), 200
    model = fitted(data.head(known, data.num_nodes))
    classifier = NodeClassifier.fit(model, "end to end", epochs=2)
    probability = classifier.predict(rows(data, known))["probability"]
    model.observe(rows(data, known, 220))
    np.testing.assert_allclose(classifier.predict(rows(data, 220))["probability"], probability[20:], atol=1e-5)


@pytest.mark.parametrize("name", [MODEL, SHARP])
def test_the_head_uses_the_model_that_validation_chose(name: str):
    """Even if a model trained on all events predicts the links."""
    data, known = stream(240), 200
    plain, final = (fitted(data.head(known, data.num_nodes), name, final=more) for more in (False, True))
    assert final.fitted.evaluated is not final.module
    one, other = (NodeClassifier.fit(model, epochs=3).predict(rows(data, known)) for model in (plain, final))
    np.testing.assert_allclose(one["probability"], other["probability"], atol=1e-5)


@pytest.mark.parametrize("training", ["frozen", "end to end", "from scratch"])
@pytest.mark.parametrize("final", [False, True])
def test_training_a_head_does_not_change_the_run(training: Any, final: bool, tmp_path: Path):
    data, known = stream(220), 200
    model = fitted(data.head(known, data.num_nodes), folder=tmp_path / "run", final=final)
    before = {path: path.read_bytes() for path in (tmp_path / "run").iterdir()}
    links = model.predict(rows(data, known))["probability"]
    classifier = NodeClassifier.fit(model, training, epochs=2)
    probability = classifier.predict(rows(data, known))["probability"]
    assert np.array_equal(model.predict(rows(data, known))["probability"], links)
    classifier.save()
    again = NodeClassifier.open(model)
    assert again.head.digest == classifier.head.digest
    assert np.array_equal(again.predict(rows(data, known))["probability"], probability)
    model.save()
    after = {path: path.read_bytes() for path in (tmp_path / "run").iterdir()}
    assert set(after) - set(before) == {tmp_path / "run" / "head.safetensors"}
    assert {path: after[path] for path in before} == before


def test_rows_keep_their_order_and_new_sources_are_marked():
    data = stream(300)
    classifier = NodeClassifier.fit(fitted(data, STATELESS), epochs=2)
    events = [(3, 25, 400.0), (31, 25, 350.0), (3, 26, 320.0), (31, 25, 500.0)]
    table = classifier.predict(events)
    assert table["source"] == ["3", "31", "3", "31"]
    assert table["known"].tolist() == [True, False, True, False]
    for row, probability in zip(events, table["probability"], strict=True):
        until_then = sorted((event for event in events if event[2] <= row[2]), key=lambda event: event[2])
        assert classifier.predict(until_then)["probability"][-1] == pytest.approx(probability, abs=1e-6)


def test_heads_without_a_folder_and_known_events_are_refused():
    data = stream(300)
    classifier = NodeClassifier.fit(model := fitted(data, STATELESS), epochs=1)
    with pytest.raises(DsrdError, match="came from no folder"):
        classifier.save()
    with pytest.raises(DsrdError, match="came from no folder"):
        NodeClassifier.open(model)
    with pytest.raises(DsrdError, match="the first 300 events are known already"):
        classifier.predict([*rows(data, 0), (1, 21, 900.0)])
    with pytest.raises(DsrdError, match=r"unknown setting 'head\.epoch'"):
        NodeClassifier.fit(model, epoch=1)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"epochs": 0}, "head.epochs=0: give 1 or more"),
        ({"hidden": (80,)}, "head.hidden=80: give two widths of 1 or more, as 80,10"),
        ({"hidden": (80, 0)}, "head.hidden=80,0: give two widths"),
        ({"lr": float("nan")}, "head.lr=nan: give a number above 0"),
        ({"dropout": 1.0}, "head.dropout=1.0: give 0 to below 1"),
    ],
)
def test_settings_of_the_head_have_limits(setting: dict[str, Any], message: str):
    with pytest.raises(DsrdError) as error:
        HeadConfig(**setting)
    assert str(error.value).startswith(message)
