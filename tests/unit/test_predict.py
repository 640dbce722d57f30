"""Likeliest partners, embeddings, learned constants: what they say, and that asking changes nothing."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest
import torch

from dsrd.bench import embed as embedding
from dsrd.bench.embed import embed
from dsrd.bench.predict import after_last, from_the_start, predict, top_partners
from dsrd.config import RunConfig, overridden
from dsrd.data.dataset import Dataset, Names
from dsrd.data.synthetic import SynthConfig, synth
from dsrd.errors import DsrdError
from dsrd.evaluate.evaluator import Task
from dsrd.events import Events, Query
from dsrd.graph.past import Past
from dsrd.models import GraphSpec, TemporalModel, create, model_class, names
from dsrd.models.dsrd import DSRD
from dsrd.train.fit import Fit

EMBEDDING = [name for name in names() if model_class(name).embed is not TemporalModel.embed]


@pytest.fixture(scope="module")
def task() -> Task:
    return Task.of(synth(SynthConfig(events=500)))


def ready(name: str, task: Task, **more: object) -> TemporalModel:
    """A model that has seen the training events; random weights do for what is tested here."""
    cls, data = model_class(name), task.dataset
    torch.manual_seed(0)
    spec = GraphSpec(num_nodes=data.num_nodes, node_dim=data.node_dim, edge_dim=data.edge_dim)
    model = create(name, spec, overridden(cls.Config(), {**cls.small, **more}))
    model.calibrate(task.split.train)
    with torch.no_grad():
        for batch in task.split.train.batches(50):
            model.observe(batch, task.full_past)
    return model.eval()


def same_state(model: TemporalModel, before: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(model.state[field], value) for field, value in before.items())


def every_pair(task: Task, node: int, time: float) -> Query:
    """With whoever was a target before that time."""
    events = task.dataset.events
    met = {node for node, when in zip(events.dst.tolist(), events.time.tolist(), strict=True) if when < time}
    target = torch.tensor(sorted(met))
    return Query(torch.full_like(target, node), target, torch.full(target.shape, time, dtype=torch.float64))


@pytest.mark.parametrize("name", names())
@pytest.mark.parametrize("part", ["train", "test"])
def test_top_partners_are_all_pairs_sorted(name: str, part: str, task: Task):
    model = ready(name, task)
    before = model.state.snapshot()
    time = float(getattr(task.split, part).time[20])
    query = every_pair(task, 3, time)
    assert (len(query) == len(task.dataset.events.dst.unique())) == (part == "test")
    scores = predict(model, task, query)
    wanted = sorted(zip(scores.tolist(), query.dst.tolist(), strict=True), key=lambda pair: (-pair[0], pair[1]))
    ids, found = top_partners(model, task, 3, time, 7)
    assert list(zip(found.tolist(), ids.tolist(), strict=True)) == wanted[:7]
    assert len(top_partners(model, task, 3, time, 10**6)[0]) == len(query)
    assert same_state(model, before)


def test_equal_scores_stand_in_the_order_of_nodes(task: Task):
    ids, scores = top_partners(ready("edgebank", task), task, 3, k=10**6)
    assert len(set(scores.tolist())) == 2
    for value in set(scores.tolist()):
        same = ids[scores == value].tolist()
        assert same == sorted(same)


def test_top_partners_by_default_are_those_after_the_last_event(task: Task):
    model, last = ready("dsrd", task), float(task.dataset.events.time[-1])
    assert after_last(task) > last
    ids, scores = top_partners(model, task, 3)
    others = top_partners(model, task, 3, after_last(task), 10)
    assert (ids.tolist(), scores.tolist()) == (others[0].tolist(), others[1].tolist())


def test_the_question_decides_the_score(task: Task):
    model = ready("dsrd", task)
    _, partner = top_partners(model, task, 3, k=3)
    model.ask("pair")
    _, pair = top_partners(model, task, 3, k=3)
    assert partner.tolist() != pair.tolist()


def test_no_partners_is_no_question(task: Task):
    with pytest.raises(DsrdError, match="top 0: give 1 or more"):
        top_partners(ready("edgebank", task), task, 3, k=0)


def test_before_the_first_event_nobody_can_be_named(task: Task):
    with pytest.raises(DsrdError, match=r"nobody was a target before 0\.0; ask about a later time"):
        top_partners(ready("edgebank", task), task, 3, time=0.0)


def test_targets_of_a_bipartite_stream_are_its_second_kind():
    task = Task.of(synth(SynthConfig(events=500, bipartite=True)))
    ids, _ = top_partners(ready("edgebank", task), task, 1, k=10**6)
    assert not {*ids.tolist()} & {*task.dataset.events.src.tolist()}


def test_a_failure_leaves_the_state_as_it_was(task: Task):
    model = ready("dsrd", task)
    before = model.state.snapshot()
    with pytest.raises(RuntimeError, match="stop"), from_the_start(model):
        raise RuntimeError("stop")
    assert same_state(model, before)


@pytest.mark.parametrize("name", EMBEDDING)
@pytest.mark.parametrize("part", ["train", "test"])
def test_embeddings_know_what_came_before_and_nothing_else(name: str, part: str, task: Task):
    data, time = task.dataset, float(getattr(task.split, part).time[20])
    model = ready(name, task)
    before = model.state.snapshot()
    vectors = embed(model, task, time, batch_size=7)
    assert vectors.shape[0] == data.num_nodes
    assert torch.isfinite(vectors).all()
    assert not vectors[0].any()
    assert vectors[1:].any()
    assert same_state(model, before)
    parts = replace(
        task.split, **{name: other(getattr(task.split, name), time) for name in ("full", "train", "val", "test")}
    )
    past = Past(other(data.events, time), num_nodes=data.num_nodes, seed=1)
    changed = replace(task, split=parts, full_past=past)
    assert torch.equal(embed(model, changed, time, batch_size=7), vectors)
    assert not torch.allclose(embed(model, changed, batch_size=7), embed(model, task, batch_size=7))


def other(events: Events, since: float) -> Events:
    """The events with another future: from `since` on everybody meets node 1."""
    return replace(events, dst=torch.where(events.time >= since, 1, events.dst))


def test_a_model_without_embeddings_says_so(task: Task):
    with pytest.raises(DsrdError, match="edgebank has no embeddings; "):
        embed(ready("edgebank", task), task)


def test_an_embedding_is_the_end_the_heads_see(task: Task):
    model, node = ready("dsrd", task), torch.tensor([3, 5])
    assert isinstance(model, DSRD)
    time = torch.full((2,), after_last(task), dtype=torch.float64)
    with torch.no_grad():
        vectors = model.embed(node, time, task.full_past)
        seen = model.body.represent(Query(node, torch.zeros_like(node), time), task.full_past, model.state)
    dim, own = model.config.dim, vectors.shape[1] - model.config.dim - 2 * model.config.code_dim
    assert torch.equal(vectors[:, :dim], seen[:, :dim])  # the source's h
    assert torch.equal(vectors[:, dim : dim + own], seen[:, -2 * own : -own])  # what is said of the source alone


@pytest.mark.parametrize("called", [None, Names(["", "ann", "bob"])])
def test_files_of_embeddings(called: Names | None, tmp_path: Path):
    data = Dataset.from_arrays("tiny", [1, 2], [2, 1], [0.0, 1.0], names=called)
    vectors = torch.arange(6.0).view(3, 2)
    for name in ("a.npy", "a.parquet"):
        embedding.write(tmp_path / name, vectors, data)
    assert np.load(tmp_path / "a.npy").tolist() == vectors.tolist()
    table = pyarrow.parquet.read_table(tmp_path / "a.parquet").to_pydict()
    assert table == {"node": ["ann", "bob"] if called else [1, 2], "e0": [2.0, 4.0], "e1": [3.0, 5.0]}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.npy", "a.parquet"]


@pytest.mark.parametrize("name", names())
def test_learned_constants_are_fit_for_json(name: str, task: Task):
    found = ready(name, task).learned()
    assert json.loads(json.dumps(found)) == found


@pytest.mark.parametrize(
    ("ablate", "used"),
    [
        ("none", {"lambda", "alpha", "gamma", "delta"}),
        ("no_temporal_decay", {"gamma", "delta"}),
        ("no_diffusion", {"lambda", "alpha", "gamma"}),
        ("no_state", {"lambda", "alpha"}),
        ("no_block", set()),
    ],
)
def test_constants_are_those_that_training_can_move(ablate: str, used: set[str], task: Task):
    """An ablated part's constants get no gradient: they are not learned, and not shown."""
    model = ready("dsrd", task, ablate=ablate)
    model.score(task.split.val.query(), task.full_past).sum().backward()
    moved = {
        name.rpartition("raw_")[2]
        for name, weight in model.named_parameters()
        if "raw_" in name and weight.grad is not None and weight.grad.any()
    }
    assert moved == used
    learned = model.learned()
    for key, scales in (
        ("walks_fade_in_events", model.config.scales),
        ("counts_fade_in_events", model.config.count_scales),
    ):
        shares = torch.tensor(learned.pop(key)) / len(task.split.train)
        assert torch.allclose(shares, torch.tensor(scales), rtol=1e-4)
    assert list(learned) == (["layer_1", "layer_2"] if used else [])
    assert all(set(layer) == used and len(layer["lambda" if "lambda" in used else "gamma"]) == 2
               for layer in learned.values())  # fmt: skip


@pytest.mark.parametrize("name", ["dsrd", "graphmixer"])
def test_every_epoch_logs_what_was_learned(name: str, task: Task):
    run = RunConfig(dataset="synth", model=name).with_overrides({"train.epochs": 2})
    fit = Fit(replace(run, model_args=dict(model_class(name).small)), task)
    history = fit().history
    assert [("learned" in line) for line in history] == [name == "dsrd"] * 2
    if name == "dsrd":
        assert history[fit.progressed.best_epoch - 1]["learned"] == fit.model.learned()
