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
SHARP = "dsrd"  # tells ages apart before any training
QUICK = HeadConfig(lr=1e-2, epochs=30, dropout=0.0)


def stream(events: int = 1200, classes: int = 2, seed: int = 0) -> Dataset:
    """The label says how long ago the source last acted: one event of memory is enough to know it."""
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
    model = create(name, spec, kind.Config(**kind.small))
    model.calibrate(data.events)
    return model


def embedded(data: Dataset, name: str = MODEL) -> tuple[NodeTask, torch.Tensor]:
    task = NodeTask.of(data)
    past = Past(data.events, edge_x=data.edge_x, node_x=data.node_x, num_nodes=data.num_nodes)
    return task, NodeEmbedder(backbone(data, name), task, past, DYGLIB, 50).embed_all()


def test_the_cut_is_the_published_one_without_a_node_filter():
    time = np.sort(np.random.default_rng(0).random(1000).round(2))
    rows = NodeTask.of(Dataset.from_arrays("x", [1] * 1000, [2] * 1000, time, label=np.arange(1000) % 2)).rows
    first, second = np.quantile(time, [0.7, 0.85])
    assert rows["train"] == slice(0, int((time <= first).sum()))
    assert rows["val"] == slice(rows["train"].stop, int((time <= second).sum()))
    assert rows["test"] == slice(rows["val"].stop, 1000)


def test_the_positives_of_the_published_cut(real_data: Any):
    task = NodeTask.of(real_data("wikipedia"))
    assert [task.counts(part)["1"] for part in ("train", "val", "test")] == [156, 17, 44]


def test_binary_figures_equal_sklearn():
    rng = np.random.default_rng(1)
    target, score = (rng.random(400) < 0.1).astype(np.int64), rng.random((400, 1)).round(2)
    found = measure(target, score, ["0", "1"])
    auc, auprc = roc_auc_score(target, score[:, 0]), average_precision_score(target, score[:, 0])
    assert found["auc"] == pytest.approx(100 * auc, abs=1e-4)
    assert found["auprc"] == pytest.approx(100 * auprc, abs=1e-4)
    assert found["auprc_factor"] == pytest.approx(auprc / target.mean(), abs=1e-4)
    assert found["auc_low"] < found["auc"] < found["auc_high"]
    assert found["auprc_low"] < found["auprc"] < found["auprc_high"]
    assert found["positives"] == target.sum()


def test_multi_class_figures_equal_sklearn():
    rng = np.random.default_rng(2)
    target = rng.choice(3, 300, p=[0.2, 0.3, 0.5])
    score = rng.dirichlet([1, 1, 1], 300) + 0.3 * np.eye(3)[target]
    score /= score.sum(1, keepdims=True)
    found = measure(target, score, ["a", "b", "c"])
    assert found["auc"] == pytest.approx(100 * roc_auc_score(target, score, multi_class="ovr"), abs=1e-4)
    each = [average_precision_score(target == number, score[:, number]) for number in range(3)]
    assert found["auprc"] == pytest.approx(100 * np.mean(each), abs=1e-4)
    assert [one["auprc"] for one in found["classes"].values()] == pytest.approx([100 * x for x in each], abs=1e-4)
    assert found["classes"]["b"]["positives"] == (target == 1).sum()
    for number, one in enumerate(found["classes"].values()):
        assert one["auprc_factor"] == pytest.approx(each[number] / (target == number).mean(), abs=1e-4)
        assert one["auc_low"] < one["auc"] < one["auc_high"]
        assert one["auprc_low"] < one["auprc"] < one["auprc_high"]
    assert found["auc_low"] < found["auc"] < found["auc_high"]


def test_a_class_that_a_part_lacks_does_not_count():
    target, score = (
        np.array([0, 1, 0, 1]),
        np.array([[0.5, 0.4, 0.1], [0.3, 0.6, 0.1], [0.4, 0.5, 0.1], [0, 1, 0]]),
    )
    found = measure(target, score, ["a", "b", "c"], draws=50)
    assert found["auc"] == 100.0
    assert np.isnan(found["classes"]["c"]["auc"])
    assert found["classes"]["c"]["positives"] == 0


def test_a_draw_is_weighed_as_sklearn_does():
    rng = np.random.default_rng(3)
    label, score = rng.random(200) < 0.3, rng.random(200).round(1)
    count = rng.multinomial(200, [1 / 200] * 200, size=3)
    auc, ap = Ranking.of(label, score).weighted(count)
    assert auc == pytest.approx([roc_auc_score(label, score, sample_weight=row) for row in count])
    assert ap == pytest.approx([average_precision_score(label, score, sample_weight=row) for row in count])


def test_intervals_are_those_of_the_plain_bootstrap():
    rng = np.random.default_rng(4)
    label = rng.random(300) < 0.2
    score = label + rng.normal(size=300)
    found = bootstrap([Ranking.of(label, score)], seed=0)  # [1, 2, draws]
    draws = [rng.integers(0, 300, 300) for _ in range(1000)]
    plain = np.percentile([roc_auc_score(label[rows], score[rows]) for rows in draws], [2.5, 97.5])
    assert np.percentile(found[0, 0], [2.5, 97.5]) == pytest.approx(plain, abs=0.01)
    assert np.array_equal(bootstrap([Ranking.of(label, score)], seed=0), found)
    assert not np.array_equal(bootstrap([Ranking.of(label, score)], seed=1), found)


def test_recent_activity_is_learnt_by_a_frozen_backbone():
    task, x = embedded(stream(), SHARP)
    fitted = fit_head(x, task, QUICK)
    found = measure(task.targets("test"), fitted.scores["test"], task.names)
    assert found["auc_low"] > 90
    assert found["auprc_factor"] > 1.5
    assert 1 <= fitted.best_epoch <= fitted.epochs <= QUICK.epochs


def test_several_classes_are_learnt():
    task, x = embedded(stream(classes=3), SHARP)
    assert task.names == ["1", "2", "3"]
    fitted = fit_head(x, task, QUICK)
    assert fitted.scores["test"].shape == (len(task.targets("test")), 3)
    found = measure(task.targets("test"), fitted.scores["test"], task.names)
    assert found["auc_low"] > 80


def test_shuffled_labels_are_not_learnt():
    data = stream()
    mixed = np.random.default_rng(0).permutation(data.label.numpy())  # type: ignore[union-attr]
    task, x = embedded(Dataset.from_arrays("mixed", *data.events.numpy()[:3], label=mixed), SHARP)
    found = measure(task.targets("test"), fit_head(x, task, QUICK).scores["test"], task.names)
    assert found["auc_low"] <= 50 <= found["auc_high"]  # equal where the head has given up


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


def test_unlabelled_events_are_seen_and_not_asked_about():
    data = stream()
    label = data.label.numpy().copy()  # type: ignore[union-attr]
    label[::2] = np.nan
    task, x = embedded(Dataset.from_arrays("half", *data.events.numpy()[:3], label=label))
    torch.testing.assert_close(x, embedded(data)[1][1::2])
    assert sum(len(task.targets(part)) for part in ("train", "val", "test")) == len(label) // 2
    assert len(fit_head(x, task, QUICK).scores["val"]) == len(task.targets("val"))


@pytest.mark.parametrize(
    ("label", "said"),
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
def test_labels_that_cannot_be_used_are_refused(label: Any, said: str):
    rows = np.arange(100)
    data = Dataset.from_arrays("bad", rows % 9 + 1, rows % 7 + 10, rows, label=label)
    with pytest.raises(DsrdError, match=said):
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


# A head that is kept, and events that come after it was trained.


def fitted(data: Dataset, name: str = MODEL, **more: Any) -> LinkPredictor:
    return LinkPredictor(name, epochs=1, **model_class(name).small).fit(data, progress=False, **more)


def rows(data: Dataset, first: int, last: int | None = None) -> list[tuple[int, int, float]]:
    """Events of a data set as somebody would hand them over."""
    return list(zip(*(column[first:last].tolist() for column in data.events.numpy()[:3]), strict=True))


def cut_before_test(classifier: NodeClassifier) -> tuple[NodeClassifier, list[tuple[int, int, float]]]:
    """The same head on a run that has not seen the test events yet, and those."""
    run, data = classifier.fitted, classifier.fitted.task.dataset
    first = NodeTask.of(data).rows["test"].start
    online = OnlineModel(run.evaluated, data.head(first, data.num_nodes))
    return NodeClassifier(replace(run, online=online, _task=None), classifier.head), rows(data, first)


@pytest.mark.parametrize("name", [SHARP, STATELESS])
@pytest.mark.parametrize("classes", [2, 3])
def test_test_events_that_come_as_new_ones_get_the_scores_of_training(name: str, classes: int):
    classifier = NodeClassifier.fit(fitted(stream(400, classes), name), epochs=3)
    earlier, new = cut_before_test(classifier)
    found, scores = earlier.predict(new), classifier.scores["test"]
    if classes == 2:
        assert found.columns == ["source", "target", "time", "probability", "known"]
        assert np.array_equal(found["probability"], scores[:, 0])
    else:
        assert found.columns == ["source", "target", "time", "class", "probability", "known"]
        assert np.array_equal(found["probability"], scores.max(axis=1))
        assert found["class"] == [classifier.head.classes[best] for best in scores.argmax(axis=1)]
    assert found["known"].all()


@pytest.mark.parametrize("training", ["end to end", "from scratch"])
def test_models_that_learned_along_score_new_events_as_in_training(training: Any):
    classifier = NodeClassifier.fit(fitted(stream(300), SHARP), training, seed=3, epochs=2)
    earlier, new = cut_before_test(classifier)
    np.testing.assert_allclose(earlier.predict(new)["probability"], classifier.scores["test"][:, 0], atol=1e-5)


def test_events_of_the_own_timestamp_are_visible_to_heads_trained_so():
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
def test_new_events_are_classified_as_in_one_walk_through_the_whole_stream(name: str):
    data, known = stream(240), 200
    model = fitted(data.head(known, data.num_nodes), name)
    classifier = NodeClassifier.fit(model, epochs=3)
    found = classifier.predict(rows(data, known))["probability"]

    past = Past(data.events, edge_x=data.edge_x, node_x=data.node_x, seed=1)
    embedder = NodeEmbedder(model.fitted.evaluated, NodeTask.of(data), past, STRICT, 200)
    with model.fitted.online.state_preserved():
        expected = probabilities(classifier.head.head(embedder.embed_all()))[known:, 0]
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert np.ptp(found) > 0

    model.observe(rows(data, known, 220))  # the stream goes on, the head stays
    np.testing.assert_allclose(classifier.predict(rows(data, 220))["probability"], expected[20:], atol=1e-5)


def test_events_in_two_goes_are_classified_as_in_one_by_a_model_that_learned_along():
    data, known = stream(240), 200
    model = fitted(data.head(known, data.num_nodes))
    classifier = NodeClassifier.fit(model, "end to end", epochs=2)
    found = classifier.predict(rows(data, known))["probability"]
    model.observe(rows(data, known, 220))
    np.testing.assert_allclose(classifier.predict(rows(data, 220))["probability"], found[20:], atol=1e-5)


@pytest.mark.parametrize("name", [MODEL, SHARP])
def test_the_head_belongs_to_the_model_that_validation_chose(name: str):
    """Also if another one, trained on all events, predicts the links."""
    data, known = stream(240), 200
    plain, final = (fitted(data.head(known, data.num_nodes), name, final=more) for more in (False, True))
    assert final.fitted.evaluated is not final.module
    one, other = (NodeClassifier.fit(model, epochs=3).predict(rows(data, known)) for model in (plain, final))
    np.testing.assert_allclose(one["probability"], other["probability"], atol=1e-5)


@pytest.mark.parametrize("training", ["frozen", "end to end", "from scratch"])
@pytest.mark.parametrize("final", [False, True])
def test_a_run_stays_as_it_is_and_its_head_can_be_opened_again(training: Any, final: bool, tmp_path: Path):
    data, known = stream(220), 200
    model = fitted(data.head(known, data.num_nodes), folder=tmp_path / "run", final=final)
    before = {path: path.read_bytes() for path in (tmp_path / "run").iterdir()}
    links = model.predict(rows(data, known))["probability"]
    classifier = NodeClassifier.fit(model, training, epochs=2)
    found = classifier.predict(rows(data, known))["probability"]
    assert np.array_equal(model.predict(rows(data, known))["probability"], links)
    classifier.save()
    again = NodeClassifier.open(model)
    assert again.head.digest == classifier.head.digest
    assert np.array_equal(again.predict(rows(data, known))["probability"], found)
    model.save()
    after = {path: path.read_bytes() for path in (tmp_path / "run").iterdir()}
    assert set(after) - set(before) == {tmp_path / "run" / "head.safetensors"}
    assert {path: after[path] for path in before} == before


def test_rows_come_back_in_their_own_order_and_new_sources_are_marked():
    data = stream(300)
    classifier = NodeClassifier.fit(fitted(data, STATELESS), epochs=2)
    asked = [(3, 25, 400.0), (31, 25, 350.0), (3, 26, 320.0), (31, 25, 500.0)]
    found = classifier.predict(asked)
    assert found["source"] == ["3", "31", "3", "31"]
    assert found["known"].tolist() == [True, False, True, False]
    for row, chance in zip(asked, found["probability"], strict=True):
        upto = sorted((each for each in asked if each[2] <= row[2]), key=lambda each: each[2])
        assert classifier.predict(upto)["probability"][-1] == pytest.approx(chance, abs=1e-6)


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
