"""Data sets of the Temporal Graph Benchmark in our evaluator, compared with that benchmark's loop."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from dsrd.config import EvaluateConfig, RunConfig, overridden
from dsrd.data.tgb import Benchmark, from_tgb, from_tgb_arrays
from dsrd.errors import DsrdError
from dsrd.evaluate import metrics
from dsrd.evaluate.pass_queries import draw
from dsrd.evaluate.scoring import evaluate, measure, score_pass
from dsrd.evaluate.task import Task
from dsrd.events import NULL
from dsrd.models import GraphSpec, TemporalModel, create, model_class
from dsrd.protocol import DYGLIB
from dsrd.train.trainer import Trainer
from support.tgb import EVENTS, PAGES, USERS, tgb_like

RANDOM = EvaluateConfig(negatives=("random",))


@pytest.fixture(scope="module")
def source() -> SimpleNamespace:
    return tgb_like()


@pytest.fixture(scope="module")
def benchmark(source: SimpleNamespace) -> Benchmark:
    return from_tgb(source)


def test_events_features_and_parts_are_converted(source: SimpleNamespace, benchmark: Benchmark) -> None:
    data, task = source.full_data, Task.of_parts(*benchmark)
    events = benchmark.dataset.events
    assert (events.src - 1).tolist() == data["sources"].tolist()
    assert (events.dst - 1).tolist() == data["destinations"].tolist()
    assert events.time.tolist() == data["timestamps"].tolist()
    assert np.allclose(benchmark.dataset.edge_x[1:], data["edge_feat"], atol=1e-6)
    assert benchmark.dataset.bipartite
    assert benchmark.dataset.node_dim == 0
    for part in ("train", "val", "test"):
        rows = getattr(task.split, part).id.numpy() - 1
        assert rows.tolist() == np.flatnonzero(getattr(source, f"{part}_mask")).tolist()
    assert list(task.passes) == ["val", "test"]
    assert len(task.split.withheld) == 0
    trained = set(data["sources"][source.train_mask]) | set(data["destinations"][source.train_mask])
    every = set(data["sources"]) | set(data["destinations"])
    assert set((task.split.new_nodes - 1).tolist()) == every - trained


def test_each_event_has_its_own_candidates(source: SimpleNamespace, benchmark: Benchmark) -> None:
    lengths = set()
    for part in ("val", "test"):
        columns = [source.full_data[key][getattr(source, f"{part}_mask")] for key in KEYS]
        expected = source.negative_sampler.query_batch(*columns, split_mode=part)
        rows = [[node - 1 for node in row.tolist() if node != NULL] for row in benchmark.candidates[part]]
        assert rows == expected
        lengths |= set(map(len, rows))
    assert len(lengths) > 1, "the test wants events with fewer candidates than others"


KEYS = ("sources", "destinations", "timestamps")


def test_an_unsorted_stream_is_sorted_with_its_candidates(benchmark: Benchmark) -> None:
    shuffled = tgb_like()
    order = np.random.default_rng(1).permutation(EVENTS)
    shuffled.full_data = {key: column[order] for key, column in shuffled.full_data.items()}
    for part in ("train", "val", "test"):
        setattr(shuffled, f"{part}_mask", getattr(shuffled, f"{part}_mask")[order])
    again = from_tgb(shuffled)
    assert "sorted by time" in again.dataset.notes[0]
    assert torch.equal(again.dataset.events.time, benchmark.dataset.events.time)
    for part in ("val", "test"):
        sorted_pass, original = (Task.of_parts(*each).passes[part] for each in (again, benchmark))
        keys = [
            sorted(zip(*(c.tolist() for c in (p.events.src, p.events.dst, p.events.time)), strict=True))
            for p in (sorted_pass, original)
        ]
        assert keys[0] == keys[1]
        by_event = {
            (u, v, t): wrong for u, v, t, wrong in zip(*(x.tolist() for x in row_columns(original)), strict=True)
        }
        for u, v, t, wrong in zip(*(x.tolist() for x in row_columns(sorted_pass)), strict=True):
            assert by_event[u, v, t] == wrong


def row_columns(each: Any) -> tuple[torch.Tensor, ...]:
    return each.events.src, each.events.dst, each.events.time, each.candidates


def test_arrays_and_a_mapping_give_the_same(source: SimpleNamespace, benchmark: Benchmark) -> None:
    parts = {part: getattr(source, f"{part}_mask") for part in ("train", "val", "test")}
    again = from_tgb_arrays("tgbl-tiny", source.full_data, parts, source.negative_sampler.eval_set)
    assert again.dataset.digest == benchmark.dataset.digest
    assert all(torch.equal(again.candidates[part], benchmark.candidates[part]) for part in ("val", "test"))


def test_the_pyg_wrapper_is_unwrapped(source: SimpleNamespace, benchmark: Benchmark) -> None:
    assert from_tgb(SimpleNamespace(name="tgbl-tiny", dataset=source)).dataset.digest == benchmark.dataset.digest


def test_nodes_beyond_the_events_have_a_row_of_features() -> None:
    source = tgb_like()
    last = USERS + PAGES - 1
    source.node_feat = np.ones((last + 1, 2))
    event = next(iter(source.negative_sampler.eval_set["test"]))
    source.negative_sampler.eval_set["test"][event] = np.array([last + 5])  # a node without events
    data = from_tgb(source).dataset
    assert data.num_nodes == last + 5 + 2
    assert data.node_x[0].tolist() == data.node_x[-1].tolist() == [0, 0]
    assert data.node_x[1].tolist() == data.node_x[last + 1].tolist() == [1, 1]


def small(name: str, task: Task) -> TemporalModel:
    torch.manual_seed(0)
    cls, data = model_class(name), task.dataset
    spec = GraphSpec(num_nodes=data.num_nodes, node_dim=data.node_dim, edge_dim=data.edge_dim)
    model = create(name, spec, overridden(cls.Config(), cls.card.small))
    model.calibrate(task.split.train)
    for batch in task.split.train.batches(50):
        model.observe(batch, task.train_past)
    return model.eval()


def reciprocal_rank(true: float, wrong: np.ndarray) -> float:
    """The benchmark's rank: midway between first and last among equal scores."""
    optimistic, pessimistic = (wrong > true).sum(), (wrong >= true).sum()
    return float(1 / (0.5 * (optimistic + pessimistic) + 1))


@pytest.mark.parametrize("name", ["edgebank", "graphmixer", "dsrd", "tgn"])
def test_mrr_is_that_of_a_loop_over_events(name: str, source: SimpleNamespace, benchmark: Benchmark) -> None:
    """Event by event, as in the benchmark's examples: the scores, the rank, and a mean over events."""
    task, size = Task.of_parts(*benchmark), 50
    model = small(name, task)
    config = replace(RANDOM, batch_size=size)
    results, _ = evaluate(model, task, DYGLIB, config, model.state.snapshot(), parts=("val", "test"))

    model = small(name, task)
    for part in ("val", "test"):
        each, found_ranks = task.passes[part].events, []
        for start in range(0, len(each), size):
            batch = each[start : start + size]
            now = task.full_past.during(batch)
            for src, dst, time in zip(batch.src.tolist(), batch.dst.tolist(), batch.time.tolist(), strict=True):
                wrong = source.negative_sampler.eval_set[part][src - 1, dst - 1, int(time)]
                targets = torch.tensor([dst, *(int(node) + 1 for node in wrong)])
                query = type(batch.query())(
                    torch.full_like(targets, src), targets, torch.full(targets.shape, time, dtype=torch.float64)
                )
                with torch.no_grad():
                    score = torch.sigmoid(model.score(query, now)).numpy()
                found_ranks.append(reciprocal_rank(score[0], score[1:]))
            model.observe(batch, task.full_past)
        ranking = results[""][part]["transductive"]["ranking"]
        # scores of one pair in two calls may differ in the last bit, which can break a tie
        assert ranking["mrr"] == pytest.approx(100 * np.mean(found_ranks), abs=1e-3)
        assert ranking["candidates"] == task.passes[part].candidates.shape[1]


def test_ranks_are_the_benchmarks(benchmark: Benchmark) -> None:
    rng = np.random.default_rng(0)
    true, wrong = rng.integers(0, 4, 300) / 4, rng.integers(0, 4, (300, 7)) / 4
    wrong[rng.random(wrong.shape) < 0.2] = -np.inf  # fewer candidates
    expected = [reciprocal_rank(one, some[np.isfinite(some)]) for one, some in zip(true, wrong, strict=True)]
    assert metrics.mrr(metrics.ranks(true, wrong)) == pytest.approx(np.mean(expected), abs=1e-12)


@pytest.mark.parametrize("name", ["edgebank", "graphmixer", "dsrd"])
def test_training_on_own_parts_ranks_own_candidates(name: str, benchmark: Benchmark) -> None:
    task = Task.of_parts(*benchmark)
    run = RunConfig(dataset="tgbl-tiny", model=name, model_args=model_class(name).card.small, evaluate=RANDOM)
    trainer = Trainer(run.with_overrides({"train.epochs": 2, "train.batch_size": 50}), task)
    trainer.train()
    assert trainer.validation.ranked is None, "early stopping looks at random negatives alone"
    trained = trainer.model.state.snapshot()
    results, digests = evaluate(trainer.model, task, trainer.protocol, run.evaluate, trained)
    found_on_test = results[""]["test"]["transductive"]
    assert set(found_on_test) == {"random", "ranking"}
    assert 0 < found_on_test["ranking"]["mrr"] <= 100
    bare = Task.of_parts(benchmark.dataset, benchmark.parts)
    assert digests["test"] != evaluate(trainer.model, bare, trainer.protocol, run.evaluate, trained)[1]["test"]


def test_ranking_in_pieces_changes_nothing(benchmark: Benchmark, monkeypatch: pytest.MonkeyPatch) -> None:
    task = Task.of_parts(*benchmark)
    model = small("graphmixer", task)
    drawn = draw(task.passes["test"], DYGLIB, RANDOM)
    whole = score_pass(model, drawn, task.full_past, DYGLIB, 50).ranked
    monkeypatch.setattr("dsrd.evaluate.scoring.AT_ONCE", 17)
    pieces = score_pass(model, drawn, task.full_past, DYGLIB, 50).ranked
    assert whole is not None
    assert pieces is not None
    assert torch.allclose(whole, pieces, atol=1e-6)
    assert torch.equal(torch.isinf(whole), benchmark.candidates["test"] == NULL)


def test_candidates_are_scored_as_the_true_pair_is(benchmark: Benchmark) -> None:
    """A model that differs by kind of negatives scores true pairs and candidates by the same view."""
    task = Task.of_parts(*benchmark)
    config = overridden(model_class("edgebank").Config(), {"random": "fixed_window"})
    bank = create("edgebank", GraphSpec(), config)
    bank.observe(task.split.train, task.train_past)
    window = create("edgebank", GraphSpec(), replace(config, variant="fixed_window"))
    window.observe(task.split.train, task.train_past)
    drawn = draw(task.passes["val"], DYGLIB, RANDOM)
    chosen, named = (
        measure(drawn, score_pass(model, drawn, task.full_past, DYGLIB, 50)) for model in (bank, window)
    )
    assert chosen == named


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda source: source.negative_sampler.eval_set.clear(), "call its load_val_ns()"),
        (lambda source: delattr(source, "full_data"), "give a LinkPropPredDataset"),
        (lambda source: source.full_data.update(edge_type=np.zeros(EVENTS)), "give a tgbl-* data set"),
        (lambda source: source.full_data.update(sources=np.zeros(5)), "sources has 5 rows for 400 timestamps"),
        (lambda source: source.full_data.update(edge_feat=np.zeros((5, 2))), "edge_feat has 5 rows"),
    ],
)
def test_data_that_cannot_be_converted_are_refused(spoil: Any, message: str) -> None:
    source = tgb_like()
    spoil(source)
    with pytest.raises(DsrdError) as refused:
        from_tgb(source)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_name_instead_of_data_gets_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dsrd.data.tgb.find_spec", lambda _: None)
    with pytest.raises(DsrdError, match=r"pip install dsrd\[tgb\]"):
        from_tgb("tgbl-wiki")
    monkeypatch.setattr("dsrd.data.tgb.find_spec", lambda _: object())
    with pytest.raises(DsrdError, match=r"LinkPropPredDataset\('tgbl-wiki'\)"):
        from_tgb("tgbl-wiki")


def test_an_event_without_negatives_is_named() -> None:
    data = {"sources": [0, 1, 0], "destinations": [2, 3, 3], "timestamps": [5, 6, 7]}
    parts = {"train": [1, 0, 0], "val": [0, 1, 0], "test": [0, 0, 1]}
    with pytest.raises(DsrdError, match=r"no negatives for the event \(0, 3, 7\) of test"):
        from_tgb_arrays("tiny", data, parts, {"val": {(1, 3, 6): [2]}, "test": {}})
    with pytest.raises(DsrdError, match="-1 among the negatives of val"):
        from_tgb_arrays("tiny", data, parts, {"val": {(1, 3, 6): [-1]}, "test": {}})


def test_invalid_parts_are_refused(benchmark: Benchmark) -> None:
    data, parts = benchmark.dataset, dict(benchmark.parts)
    with pytest.raises(DsrdError, match="must be the last events"):
        Task.of_parts(data, {**parts, "val": parts["test"], "test": parts["val"]})
    with pytest.raises(DsrdError, match="must be the last events"):
        Task.of_parts(data, {**parts, "train": ~parts["test"]})
    with pytest.raises(DsrdError, match="no part may be empty"):
        Task.of_parts(data, {**parts, "val": np.zeros(EVENTS, np.bool_)})
    with pytest.raises(DsrdError, match=r"mask of train has shape \(3,\)"):
        Task.of_parts(data, {**parts, "train": [1, 1, 1]})
    with pytest.raises(DsrdError, match=r"candidates of test have shape \(2, 4\)"):
        Task.of_parts(data, parts, {"test": torch.ones(2, 4, dtype=torch.int64)})
    with pytest.raises(DsrdError, match="candidates of train; give them for val and test"):
        Task.of_parts(data, parts, {"train": torch.ones(2, 4, dtype=torch.int64)})
