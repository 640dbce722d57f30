"""A model at the end of its stream: top partners, embeddings, learned constants. Queries change no state."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest
import torch

from dsrd.cli import vector_files
from dsrd.config import RunConfig, overridden
from dsrd.errors import DsrdError
from dsrd.estimator.answers import answer_pairs, best_partners
from dsrd.estimator.online import OnlineModel
from dsrd.evaluate.task import Task
from dsrd.events import Events, Query
from dsrd.models import GraphSpec, TemporalModel, create, model_class, names
from dsrd.models.dsrd import DSRD
from dsrd.synthetic.drawing import synth
from dsrd.synthetic.settings import SynthConfig
from dsrd.train.trainer import Trainer
from support.random_heads import with_random_heads

EMBEDDING = [name for name in names() if model_class(name).embed is not TemporalModel.embed]


@pytest.fixture(scope="module")
def task() -> Task:
    return Task.of(synth(SynthConfig(events=500)))


def ready(name: str, task: Task, **more: object) -> TemporalModel:
    """A model with random weights that has observed the training events."""
    cls, data = model_class(name), task.dataset
    torch.manual_seed(0)
    spec = GraphSpec(num_nodes=data.num_nodes, node_dim=data.node_dim, edge_dim=data.edge_dim)
    model = create(name, spec, overridden(cls.Config(), {**cls.card.small, **more}))
    model.calibrate(task.split.train)
    with torch.no_grad():
        for batch in task.split.train.batches(50):
            model.observe(batch, task.full_past)
    return with_random_heads(model).eval()


def online(name: str, task: Task, **more: object) -> OnlineModel:
    return OnlineModel(ready(name, task, **more), task.dataset)


def same_state(model: TemporalModel, before: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(model.state[field], value) for field, value in before.items())


def every_pair(task: Task, node: int, time: float) -> Query:
    """All pairs of a node with a target of an event before that time."""
    events = task.dataset.events
    met = {node for node, when in zip(events.dst.tolist(), events.time.tolist(), strict=True) if when < time}
    target = torch.tensor(sorted(met))
    return Query(torch.full_like(target, node), target, torch.full(target.shape, time, dtype=torch.float64))


@pytest.mark.parametrize("name", names())
@pytest.mark.parametrize("part", ["train", "test"])
def test_top_partners_are_all_pairs_sorted(name: str, part: str, task: Task):
    model = online(name, task)
    before = model.up_to_date().state.snapshot()
    time = float(getattr(task.split, part).time[20])
    query = every_pair(task, 3, time)
    assert (len(query) == len(task.dataset.events.dst.unique())) == (part == "test")
    _, everybody = best_partners(model, 3, 10**6, time)
    assert len(everybody.partner) == len(query)
    assert float(everybody.partner.sum()) == pytest.approx(1)
    scores = answer_pairs(model, query).probability
    ids, answers = best_partners(model, 3, 7, time)
    best = [*zip(query.dst.tolist(), scores.tolist(), strict=True)]
    best.sort(key=lambda pair: (-pair[1], pair[0]))
    assert answers.probability.tolist() == pytest.approx([score for _, score in best[:7]], abs=1e-6)
    by_id = dict(best)
    assert [by_id[node] for node in ids.tolist()] == pytest.approx(answers.probability.tolist(), abs=1e-6)
    assert same_state(model.up_to_date(), before)


def test_equal_scores_are_ordered_by_id(task: Task):
    ids, answers = best_partners(online("edgebank", task), 3, 10**6)
    scores = answers.partner
    assert len(set(scores.tolist())) == 2
    for value in set(scores.tolist()):
        same = ids[scores == value].tolist()
        assert same == sorted(same)


def test_top_partners_by_default_are_those_after_the_last_event(task: Task):
    model, last = online("dsrd", task), float(task.dataset.events.time[-1])
    assert model.after_last > last
    ids, answers = best_partners(model, 3, 10)
    other_ids, others = best_partners(model, 3, 10, model.after_last)
    assert (ids.tolist(), answers.partner.tolist()) == (other_ids.tolist(), others.partner.tolist())


def test_heads_give_different_scores(task: Task):
    model = online("dsrd", task)
    partner, pair = (best_partners(model, 3, 3, head=head)[1].probability for head in ("partner", "pair"))
    assert partner.tolist() != pair.tolist()


def test_k_must_be_positive(task: Task):
    with pytest.raises(DsrdError, match="k=0: give a whole number, 1 or more"):
        best_partners(online("edgebank", task), 3, 0)


def test_there_are_no_partners_before_the_first_event(task: Task):
    with pytest.raises(DsrdError, match=r"there is no target before 0; choose a later time"):
        best_partners(online("edgebank", task), 3, 10, 0.0)


def test_partners_in_a_bipartite_stream_are_targets():
    task = Task.of(synth(SynthConfig(events=500, bipartite=True)))
    ids, _ = best_partners(online("edgebank", task), 1, 10**6)
    assert not {*ids.tolist()} & {*task.dataset.events.src.tolist()}


def test_an_error_does_not_change_the_state(task: Task):
    model = online("dsrd", task)
    before = model.up_to_date().state.snapshot()

    def fail() -> None:
        with model.state_preserved() as lent:
            lent.state.reset()
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        fail()
    assert same_state(model.up_to_date(), before)


@pytest.mark.parametrize("name", EMBEDDING)
@pytest.mark.parametrize("part", ["train", "test"])
def test_embeddings_use_only_what_came_before(name: str, part: str, task: Task):
    data, time = task.dataset, float(getattr(task.split, part).time[20])
    model, node = online(name, task), torch.arange(1, data.num_nodes)
    before = model.up_to_date().state.snapshot()
    vectors = model.embed(node, time)
    assert vectors.shape[0] == data.num_nodes - 1
    assert torch.isfinite(vectors).all()
    assert vectors.any()
    assert same_state(model.up_to_date(), before)
    changed = OnlineModel(model.model, replace(data, events=other(data.events, time)))
    assert torch.equal(changed.embed(node, time), vectors)
    now = changed.embed(node)
    assert not torch.allclose(now, OnlineModel(model.model, data).embed(node))


def other(events: Events, since: float) -> Events:
    """The same events, but from `since` on every target is node 1."""
    return replace(events, dst=torch.where(events.time >= since, 1, events.dst))


def test_a_model_without_embeddings_is_refused(task: Task):
    with pytest.raises(DsrdError, match="edgebank has no embeddings; "):
        online("edgebank", task).embed(torch.tensor([1]))


def test_an_embedding_is_the_input_of_the_heads(task: Task):
    model, node = ready("dsrd", task), torch.tensor([3, 5])
    assert isinstance(model, DSRD)
    time = torch.full((2,), float(task.dataset.events.time[-1]) + 1, dtype=torch.float64)
    with torch.no_grad():
        vectors = model.embed(node, time, task.full_past)
        query = Query(node, torch.zeros_like(node), time)
        represented, guess = model.body.represent(query, task.full_past, model.state)
    assert torch.equal(represented[:, -1], guess)
    dim, source_dim = model.config.dim, vectors.shape[1] - model.config.dim - 2 * model.config.code_dim
    assert torch.equal(vectors[:, :dim], represented[:, :dim])  # the source's h
    assert torch.equal(
        vectors[:, dim : dim + source_dim], represented[:, -2 * source_dim - 1 : -source_dim - 1]
    )  # the features of the source alone


def test_files_of_embeddings(tmp_path: Path):
    vectors = np.array([[2, 3], [4, 5]], np.float32)
    for name in ("a.npy", "a.parquet"):
        vector_files.write(tmp_path / name, vectors, ["ann", "bob"])
    assert np.load(tmp_path / "a.npy").tolist() == [[0, 0], [2, 3], [4, 5]]
    table = pyarrow.parquet.read_table(tmp_path / "a.parquet").to_pydict()
    assert table == {"node": ["ann", "bob"], "e0": [2.0, 4.0], "e1": [3.0, 5.0]}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.npy", "a.parquet"]


@pytest.mark.parametrize("name", names())
def test_learned_constants_can_be_written_as_json(name: str, task: Task):
    learned = ready(name, task).learned()
    assert json.loads(json.dumps(learned)) == learned


LAYER = {"lambda", "alpha", "gamma", "delta"}  # learned constants of each layer
READS, MEMORY = {"place"}, {"kinds", "uniform"}  # those of the state reads and of the first guess


@pytest.mark.parametrize(
    ("ablate", "used"),
    [
        ("none", LAYER | READS | MEMORY),
        ("no_temporal_decay", {"gamma"} | MEMORY),
        ("no_age_features", LAYER | READS | MEMORY),
        ("no_diffusion", {"lambda", "alpha", "gamma"} | READS | MEMORY),
        ("no_state", {"lambda", "alpha"}),
        ("no_block", READS | MEMORY),
    ],
)
def test_learned_constants_are_those_with_a_gradient(ablate: str, used: set[str], task: Task):
    """The constants of an ablated part get no gradient, so they are not shown."""
    model = ready("dsrd", task, ablate=ablate)
    model.score(task.split.val.query(), task.full_past).sum().backward()
    moved = {
        name.rpartition("raw_")[2]
        for name, weight in model.named_parameters()
        if "raw_" in name and weight.grad is not None and weight.grad.any()
    }
    assert moved == used
    learned = model.learned()
    assert ("retention" in learned) == bool(used & READS)
    assert ("memory" in learned) == bool(used & MEMORY)
    shown = used & LAYER | ({"delta"} if ablate == "no_temporal_decay" else set())  # it stays at its first value
    layers = {key: values for key, values in learned.items() if key.startswith("layer_")}
    assert list(layers) == (["layer_1", "layer_2"] if shown else [])
    assert all(set(layer) == shown for layer in layers.values())
    assert all(len(values) == model.config.heads for layer in layers.values() for values in layer.values())


def test_half_lives_are_in_events_of_the_training_stream(task: Task):
    model, fastest, slowest = ready("dsrd", task), *(len(task.split.train) * scale for scale in (1e-5, 1.0))
    learned = model.learned()
    lives = learned["retention"]["half_life_in_events"]
    assert [len(layer) for layer in lives] == [model.config.heads] * model.config.layers
    kinds = [learned["memory"][kind] for kind in ("repeat", "reply", "follow")]
    every = [life for layer in lives for life in layer] + [kind["half_life_in_events"] for kind in kinds]
    assert all(math.log(2) * fastest <= life <= math.log(2) * slowest for life in every)
    assert learned["memory"]["uniform"] + sum(kind["share"] for kind in kinds) == pytest.approx(1, abs=1e-3)
    assert all(sum(kind["weights"]) == pytest.approx(1, abs=1e-3) for kind in kinds)


@pytest.mark.parametrize("name", ["dsrd", "graphmixer"])
def test_every_epoch_logs_the_learned_constants(name: str, task: Task):
    run = RunConfig(dataset="synth", model=name).with_overrides({"train.epochs": 2})
    trainer = Trainer(replace(run, model_args=dict(model_class(name).card.small)), task)
    history = trainer.train().history
    assert [("learned" in line) for line in history] == [name == "dsrd"] * 2
    if name == "dsrd":
        assert history[trainer.progress.best_epoch - 1]["learned"] == trainer.model.learned()
