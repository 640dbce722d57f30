"""Labels of nodes, the events a prediction may use, and end-to-end training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dsrd.classify.embedder import NodeEmbedder
from dsrd.classify.head import HeadConfig, fit_end_to_end, fit_head
from dsrd.classify.labels import label_file, read_node_labels
from dsrd.classify.metrics import measure
from dsrd.classify.task import PARTS, NodeTask
from dsrd.data.dataset import Dataset, Names
from dsrd.errors import DsrdError
from dsrd.events import Events
from dsrd.history.past import Past
from dsrd.models import GraphSpec, create, model_class
from dsrd.protocol import PROTOCOLS

MODELS = ("dsrd", "tgn", "graphmixer")  # exact state, lagging state, no state
JOINT = HeadConfig(lr=5e-3, epochs=8, patience=8, dropout=0.0)


def citations(papers: int = 400, years: int = 12, seed: int = 0) -> tuple[Dataset, torch.Tensor]:
    """Papers come with their references, all in one year; classes 1, 2, 3 cite 1, 4 or 16 older papers."""
    rng = np.random.default_rng(seed)
    src, dst, time = [], [], []
    label = np.full(papers + 41, np.nan, np.float32)
    for number in range(papers):
        node, kind = 41 + number, int(rng.integers(1, 4))
        label[node] = kind
        cited = rng.choice(40 + number // 4, 4 ** (kind - 1), replace=False) + 1
        src += [node] * len(cited)
        dst += cited.tolist()
        time += [number * years // papers] * len(cited)
    return Dataset.from_arrays("papers", src, dst, time), torch.from_numpy(label)


def gaps(events: int = 900, seed: int = 0) -> Dataset:
    """The label says whether the source had an event recently, so one event of memory is enough."""
    rng = np.random.default_rng(seed)
    src, label, last = np.empty(events, np.int64), np.zeros(events), np.full(21, -100)
    for row in range(events):
        src[row] = rng.integers(1, 6) if rng.random() < 0.5 else rng.integers(6, 21)
        label[row], last[src[row]] = row - last[src[row]] > 10, row
    return Dataset.from_arrays("gaps", src, rng.integers(21, 31, events), np.arange(events), label=label)


def backbone(data: Dataset, name: str, train: Events | None = None) -> Any:
    torch.manual_seed(0)
    kind = model_class(name)
    model = create(name, GraphSpec(num_nodes=data.num_nodes), kind.Config(**kind.card.small))
    model.calibrate(data.events if train is None else train)
    return model


def embedder_of(
    task: NodeTask, name: str, protocol: str = "dyglib", batch_size: int = 50, train: Events | None = None
) -> NodeEmbedder:
    past = Past(task.dataset.events, num_nodes=task.dataset.num_nodes)
    return NodeEmbedder(backbone(task.dataset, name, train), task, past, PROTOCOLS[protocol], batch_size)


def test_every_node_is_one_question_at_its_first_event():
    data, label = citations()
    task = NodeTask.of(data, node_label=torch.nan_to_num(label, 2.0))
    assert (task.asks, task.visible) == ("nodes", "same-time")
    src, dst, time, _ = data.events.numpy()
    first: dict[int, float] = {}
    for a, b, t in zip(src.tolist(), dst.tolist(), time.tolist(), strict=True):
        first.setdefault(a, t)
        first.setdefault(b, t)
    assert dict(zip(task.node.tolist(), data.events.time[task.row].tolist(), strict=True)) == first
    assert len(task.node) == len(first)
    nodes_by_part = [set(task.node[task.questions(part)].tolist()) for part in PARTS]
    assert sum(map(len, nodes_by_part)) == len(set.union(*nodes_by_part)), "a node's label is in one part only"
    cuts = [float(data.events.time[task.rows[part]].max()) for part in PARTS]
    assert cuts == sorted(set(cuts)), "no year is in two parts"


def test_both_ends_of_every_event_are_questions():
    data, label = citations()
    task = NodeTask.of(data, asks="ends", node_label=torch.nan_to_num(label, 2.0))
    assert (task.asks, task.visible) == ("ends", "same-time")
    questions = list(zip(task.node.tolist(), task.row.tolist(), strict=True))
    pairs = zip(data.events.src.tolist(), data.events.dst.tolist(), strict=True)
    assert questions == [(end, row) for row, pair in enumerate(pairs) for end in pair]
    once = NodeTask.of(data, node_label=torch.nan_to_num(label, 2.0))
    first = [questions.index(each) for each in zip(once.node.tolist(), once.row.tolist(), strict=True)]
    # the first question about a node gets the same embedding in both tasks
    torch.testing.assert_close(
        embedder_of(task, MODELS[0]).embed_all()[first], embedder_of(once, MODELS[0]).embed_all()
    )


def test_nodes_without_a_class_are_no_questions():
    data, label = citations()
    task = NodeTask.of(data, node_label=label)
    assert task.node.min() > 40
    assert task.names == ["1", "2", "3"]
    assert sum(sum(task.counts(part).values()) for part in PARTS) == int((~label.isnan()).sum())


def test_classes_of_nodes_can_come_from_event_labels():
    data, label = citations()
    src, dst, time, _ = data.events.numpy()
    labelled = Dataset.from_arrays("papers", src, dst, time, label=label[data.events.src])
    task = NodeTask.of(labelled, asks="nodes")
    assert task.digest == NodeTask.of(data, node_label=label).digest
    changing = label[data.events.src].numpy().copy()
    row = int(np.flatnonzero(src == src[-1])[0])
    changing[row] = changing[row] % 3 + 1
    with pytest.raises(DsrdError, match=f"node {src[-1]} has different labels over time"):
        NodeTask.of(Dataset.from_arrays("papers", src, dst, time, label=changing), asks="nodes")


@pytest.mark.parametrize("name", MODELS)
def test_same_time_uses_the_first_events_and_nothing_later(name: str):
    data, label = citations(papers=150)
    task = NodeTask.of(data, node_label=label)
    past = Past(data.events)
    assert task.with_past("test", past) == 1
    assert NodeTask.of(data, visible="before", node_label=label).with_past("test", past) == 0
    x = embedder_of(task, name).embed_all()
    before = embedder_of(NodeTask.of(data, visible="before", node_label=label), name).embed_all()
    torch.testing.assert_close(
        before, before[:1].expand_as(before)
    )  # no history: all nodes have the same embedding
    assert len(x.unique(dim=0)) > 2

    src, dst, time, _ = data.events.numpy()
    repeated = np.append(src[1:] == src[:-1], False)
    kept = (time < 9) | ~repeated  # one reference per paper from then on: earlier questions do not change
    other = Dataset.from_arrays("papers", src[kept], dst[kept], time[kept])
    y = embedder_of(NodeTask.of(other, node_label=label), name, train=data.events).embed_all()
    early = data.events.time[task.row] < 9
    assert torch.equal(x[early], y[early])
    assert not torch.equal(x[~early], y[~early])


@pytest.mark.parametrize("name", MODELS)
def test_same_time_does_not_depend_on_the_protocol_or_the_batches(name: str):
    data, label = citations(papers=100)
    task = NodeTask.of(data, node_label=label)
    x = embedder_of(task, name).embed_all()
    torch.testing.assert_close(embedder_of(task, name, "strict", 7).embed_all(), x, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", MODELS)
def test_same_time_equals_a_slow_reference(name: str):
    """For each question, observe everything up to its timestamp from the start, then embed the node."""
    data, label = citations(papers=60, years=6)
    task = NodeTask.of(data, node_label=label)
    embedder = embedder_of(task, name)
    x = embedder.embed_all()
    model, years = embedder.model, data.events.time[task.row]
    for question in range(0, len(task.node), 7):
        model.state.reset()
        for year in data.events.time.unique().tolist():
            if year <= years[question]:
                model.observe(data.events[torch.nonzero(data.events.time == year).squeeze(1)], embedder.past)
        with torch.no_grad():
            right_after = torch.tensor([np.nextafter(float(years[question]), np.inf)], dtype=torch.float64)
            slow = model.embed(task.node[question : question + 1], right_after, embedder.past)
        torch.testing.assert_close(x[question : question + 1], slow, atol=1e-5, rtol=1e-4)


def test_the_first_timestamp_is_visible_too():
    data = Dataset.from_arrays("zero", [1, 2, 3, 4], [5, 6, 7, 8], [0.0, 0.0, 1.0, 2.0])
    label = torch.tensor([np.nan, 1, 2, 1, 2, 2, 1, 2, 1])
    task = NodeTask.of(data, node_label=label)
    assert Past(data.events).degree(task.node, task.time).tolist() == [1] * 8


@pytest.mark.parametrize("name", MODELS)
def test_gradients_flow_through_embeddings(name: str):
    """Every weight outside of the link heads gets a gradient from a label; in DSRD, the first guess too."""
    data = gaps(300)
    task = NodeTask.of(data)
    embedder = embedder_of(task, name)
    for part in ("train", "val"):
        for questions, past in embedder.batches(part):
            embedder.embed(questions, past).square().sum().backward()
    model = embedder.model
    model.zero_grad()
    test_questions = task.questions("test")
    embedder.embed(test_questions, embedder.past.during(data.events[test_questions])).square().sum().backward()
    learns = {key for key, weight in model.named_parameters() if weight.grad is not None and weight.grad.any()}
    every = {key for key, weight in model.named_parameters() if weight.requires_grad}
    idle = ("head.", "partner.0.", "source.")  # the last layers of the two factors are 0 in a new model
    assert every - learns == {key for key in every if key.startswith(idle)}


@pytest.mark.parametrize("name", MODELS)
def test_events_are_learnt_end_to_end(name: str):
    task = NodeTask.of(gaps())
    embedder = embedder_of(task, name)
    start = {key: value.clone() for key, value in embedder.model.state_dict().items()}
    fitted = fit_end_to_end(embedder, JOINT)
    metrics = measure(task.targets("test"), fitted.scores["test"], task.names)
    assert metrics["auc_low"] > 80
    assert metrics["auprc_factor"] > 1.2
    assert fitted.best_epoch == int(len(fitted.val_auc) - np.argmax(fitted.val_auc[::-1]))
    assert any(not torch.equal(value, start[key]) for key, value in embedder.model.state_dict().items())


@pytest.mark.parametrize(
    "name", ["dsrd", "graphmixer"]
)  # not TGN: attention averages, so it cannot count references
def test_classes_of_nodes_are_learnt_frozen_and_end_to_end(name: str):
    data, label = citations()
    task = NodeTask.of(data, node_label=label)
    frozen = fit_head(embedder_of(task, name).embed_all(), task, HeadConfig(lr=1e-2, epochs=40, dropout=0.0))
    joint = fit_end_to_end(embedder_of(task, name), JOINT)
    for fitted in (frozen, joint):
        metrics = measure(task.targets("test"), fitted.scores["test"], task.names)
        assert metrics["auc_low"] > 65
        assert set(metrics["classes"]) == {"1", "2", "3"}
        assert all(one["auprc_factor"] > 1.1 for one in metrics["classes"].values())


def test_end_to_end_is_fixed_by_its_seed_and_keeps_the_best_weights():
    task = NodeTask.of(gaps(400))
    config = HeadConfig(lr=5e-3, epochs=3, dropout=0.2)
    one, same, other = (fit_end_to_end(embedder_of(task, "tgn"), config, seed) for seed in (5, 5, 6))
    assert np.array_equal(one.scores["test"], same.scores["test"])
    assert one.val_auc == same.val_auc
    assert not np.array_equal(one.scores["test"], other.scores["test"])

    embedder = embedder_of(task, "graphmixer")
    fitted = fit_end_to_end(embedder, config)
    again = fitted.head(embedder.embed_all()[task.questions("test")]).sigmoid().detach().numpy()
    np.testing.assert_allclose(again, fitted.scores["test"], rtol=1e-4)


def test_labels_of_test_events_are_not_learnt_from():
    data = gaps(400)
    assert data.label is not None
    task = NodeTask.of(data)
    flipped = data.label.numpy().copy()
    flipped[task.rows["test"]] = 1 - flipped[task.rows["test"]]
    src, dst, time, _ = data.events.numpy()
    other = NodeTask.of(Dataset.from_arrays("gaps", src, dst, time, label=flipped))
    config = HeadConfig(lr=5e-3, epochs=2)
    one, two = (fit_end_to_end(embedder_of(each, "graphmixer"), config) for each in (task, other))
    assert np.array_equal(one.scores["test"], two.scores["test"])


def test_a_model_without_embeddings_is_refused_end_to_end():
    with pytest.raises(DsrdError, match="no embeddings"):
        fit_end_to_end(embedder_of(NodeTask.of(gaps(100)), "edgebank"))


def test_every_real_paper_is_one_question(real_data: Any):
    data = real_data("pubmed")
    file = label_file("pubmed")
    assert file is not None
    task = NodeTask.of(data, node_label=read_node_labels(file, data))
    assert {part: task.counts(part) for part in PARTS} == {
        "train": {"1": 3261, "2": 5865, "3": 4631},
        "val": {"1": 553, "2": 1462, "3": 1990},
        "test": {"1": 289, "2": 548, "3": 1118},
    }
    assert len(task.node.unique()) == len(task.node) == 19_717


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"asks": "node"}, "unknown value of asks 'node'; did you mean 'nodes'?"),
        (
            {"asks": "ends", "visible": "target"},
            "visible=target: is for labels of events, these are of ends; use before",
        ),
        ({"visible": "sametime"}, "unknown value of visible 'sametime'; did you mean 'same-time'?"),
        ({"node_label": torch.full((31,), np.nan)}, "no event has a label"),
        ({"node_label": torch.ones(31)}, "every label is 1"),
        ({"node_label": (torch.arange(31) == 1).float()}, "the val events have "),
    ],
)
def test_impossible_tasks_are_refused(options: dict[str, Any], message: str):
    with pytest.raises(DsrdError) as error:
        NodeTask.of(gaps(300), **options)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_classes_are_read_by_id_or_by_name(tmp_path: Path):
    names = Names.two_kinds(["", "ann", "bob", "ann"], first_target=3)
    data = Dataset.from_arrays("people", [1, 2], [3, 3], [0.0, 1.0], names=names)
    np.save(tmp_path / "node_labels.npy", np.array([-1, 2, -1, 1]))
    by_id = read_node_labels(tmp_path / "node_labels.npy", data)
    assert by_id.tolist()[1::2] == [2, 1]
    assert by_id[[0, 2]].isnan().all()
    assert label_file(str(tmp_path)) == tmp_path / "node_labels.npy"
    assert label_file("synth:events=500") is None
    (tmp_path / "classes.csv").write_text("label,node\n4,bob\n5,ann\n")
    by_name = read_node_labels(tmp_path / "classes.csv", data)
    assert by_name[[2, 1]].tolist() == [4, 5]
    plain = Dataset.from_arrays("ids", [1, 2], [3, 3], [0.0, 1.0])
    (tmp_path / "ids.csv").write_text("node,label\n3,1\n")
    assert read_node_labels(tmp_path / "ids.csv", plain)[3] == 1


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("no.csv", None, "no such file"),
        ("a.csv", "name,label\n1,1\n", "there is no column 'node'"),
        ("a.csv", "node,label\n1,1\n9,1\n", "row 3: no event has a node '9'"),
        ("a.csv", "node,label\n1,much\n", "not a number"),
        ("a.npy", None, "shape (2,), expected (4,)"),
    ],
)
def test_a_file_of_classes_that_does_not_fit_is_refused(tmp_path: Path, file: str, text: str | None, message: str):
    data = Dataset.from_arrays("ids", [1, 2], [3, 3], [0.0, 1.0])
    if text is not None:
        (tmp_path / file).write_text(text)
    elif file.endswith(".npy"):
        np.save(tmp_path / file, np.array([1, 2]))
    with pytest.raises(DsrdError) as error:
        read_node_labels(tmp_path / file, data)
    assert message in str(error.value)
    assert file in str(error.value)
