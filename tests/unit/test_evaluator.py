"""The evaluator against a plain loop over the events."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from sklearn.metrics import average_precision_score, roc_auc_score

from dsrd.config import EvaluateConfig, RunConfig, overridden
from dsrd.data.dataset import Dataset
from dsrd.data.read import load
from dsrd.errors import DsrdError
from dsrd.evaluate.ceiling import ceiling
from dsrd.evaluate.pass_queries import draw, draw_if_possible
from dsrd.evaluate.scoring import arriving, catch_up, evaluate, measure, observe_all, score_pass
from dsrd.evaluate.task import Task
from dsrd.events import Events
from dsrd.models import GraphSpec, Snapshot, TemporalModel, create, model_class
from dsrd.negatives.sampling import NoNegativeError
from dsrd.protocol import DYGLIB, STRICT, Protocol, aligned, protocol_named


@pytest.fixture(scope="module")
def task() -> Task:
    return Task.of(load("synth:events=2000,snapshots=60"))


def make_tgn(task: Task):  # noqa: ANN201
    torch.manual_seed(0)
    cls = model_class("tgn")
    model = create("tgn", GraphSpec(num_nodes=task.dataset.num_nodes), overridden(cls.Config(), cls.card.small))
    model.head.out.weight.data *= 100  # scores of untrained weights nearly tie: a last bit could move a rank
    for batch in task.split.train.batches(200):
        model.observe(batch, task.train_past)
    return model.eval()


def make_dsrd(task: Task, whole_moments: bool = False):  # noqa: ANN201
    torch.manual_seed(0)
    cls = model_class("dsrd")
    spec = GraphSpec(num_nodes=task.dataset.num_nodes, whole_moments=whole_moments)
    model = create("dsrd", spec, overridden(cls.Config(), cls.card.small))
    model.calibrate(task.split.train)
    return model.eval()


def results_of(
    model: TemporalModel,
    task: Task,
    protocol: Protocol,
    config: EvaluateConfig,
    trained: Snapshot,
    parts: tuple[str, ...] = ("test",),
) -> dict[str, Any]:
    """Results of the model's first head by part."""
    return evaluate(model, task, protocol, config, trained, parts=parts)[0][""]


def test_the_four_passes_start_from_the_published_states(task: Task) -> None:
    """As in DyGLib: both validation passes start after training, both test passes after validation."""
    model = make_tgn(task)
    config = EvaluateConfig(negatives=("random", "historical"))
    trained = model.state.snapshot()
    results = results_of(model, task, DYGLIB, config, trained, ("val", "test"))

    model.state.restore(trained)
    for batch in task.split.val.batches(200):
        model.observe(batch, task.full_past)
    validated = model.state.snapshot()
    for pass_ in task.passes.values():
        model.state.restore(trained if pass_.part == "val" else validated)
        queries = draw(pass_, DYGLIB, config)
        start, aps, aucs = 0, [], []
        for batch in pass_.events.batches(200):
            rows = slice(start, start + len(batch))
            with torch.no_grad():
                positive = torch.sigmoid(model.score(batch.query(), task.full_past))
                negative = torch.sigmoid(model.score(queries.negatives["historical"][rows], task.full_past))
            label = [1] * len(batch) + [0] * len(batch)
            aps.append(average_precision_score(label, torch.cat([positive, negative])))
            aucs.append(roc_auc_score(label, torch.cat([positive, negative])))
            model.observe(batch, task.full_past)
            start += len(batch)
        ours = results[pass_.part][pass_.setting]["historical"]
        assert ours["ap"] == pytest.approx(100 * sum(aps) / len(aps), abs=2e-2)
        assert ours["auc"] == pytest.approx(100 * sum(aucs) / len(aucs), abs=2e-2)


def test_a_state_too_large_to_copy_is_rebuilt(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    """The results are the same to the last digit, and no snapshot is made."""
    model = make_dsrd(task)
    copied = results_of(model, task, STRICT, EvaluateConfig(), None, ("val", "test"))
    monkeypatch.setattr("dsrd.evaluate.scoring.COPIED_BYTES", 0)
    monkeypatch.setattr(type(model.state), "snapshot", None)
    assert results_of(model, task, STRICT, EvaluateConfig(), None, ("val", "test")) == copied


def test_strict_results_do_not_depend_on_the_batch_size(task: Task) -> None:
    model = make_tgn(task)
    trained = model.state.snapshot()
    results = [
        results_of(model, task, STRICT, EvaluateConfig(batch_size=size, candidates=20), trained)
        for size in (7, 200)
    ]
    for setting, kinds in results[0]["test"].items():
        for kind, values in kinds.items():
            assert results[1]["test"][setting][kind] == pytest.approx(values, abs=1e-2)


def test_strict_flushes_never_split_a_timestamp() -> None:
    events = Events.from_numpy([1] * 9, [2] * 9, [0, 0, 0, 1, 2, 2, 3, 4, 4])
    assert [s.stop for s in aligned(events, 1)] == [3, 4, 6, 7, 9]
    assert [s.stop for s in aligned(events, 4)] == [4, 9]
    assert [s.stop for s in aligned(events, 100)] == [9]
    assert list(aligned(events[:0], 5)) == []
    assert [s.stop for s in DYGLIB.flushes(events, 4, exact=False)] == [4, 8, 9]
    assert [s.stop for s in STRICT.lagging().flushes(events, 4, exact=False)] == [4, 9]


def test_a_memory_does_not_see_its_own_timestamp(task: Task) -> None:
    """Under `strict` the last query of a timestamp is scored like the first one."""
    model = make_tgn(task)
    queries = draw(task.passes["val"], STRICT, EvaluateConfig(), strategies=("random",))
    scores = score_pass(model, queries, task.full_past, STRICT, 50).probabilities()
    model = make_tgn(task)
    events = task.split.val
    first = events[(events.time == events.time[0]).nonzero().squeeze(1)]
    with torch.no_grad():
        alone = torch.sigmoid(model.score(first.query(), task.full_past))
    assert torch.allclose(scores.positive["random"][: len(first)], alone, atol=1e-6)


def test_candidates_give_ranking_metrics(task: Task) -> None:
    model = create("edgebank", GraphSpec())
    results = results_of(model, task, DYGLIB, EvaluateConfig(candidates=9), model.state.snapshot())
    ranking = results["test"]["transductive"]["ranking"]
    assert ranking["candidates"] == 9
    assert 10 <= ranking["mrr"] <= 100
    assert ranking["hits@1"] <= ranking["hits@3"] <= ranking["hits@10"] == 100


def test_batch_means_differ_from_metrics_over_the_split(task: Task) -> None:
    queries = draw(task.passes["test"], DYGLIB, EvaluateConfig(negatives=("random",)))
    model = create("edgebank", GraphSpec())
    values = measure(queries, score_pass(model, queries, task.full_past, DYGLIB, 200))["random"]
    assert set(values) == {"ap", "auc", "ap_split", "auc_split"}
    assert values["ap"] != values["ap_split"]


def test_no_model_beats_the_ceiling() -> None:
    task = Task.of(load("synth:events=3000"))
    assert task.dataset.law is not None
    best = ceiling(task.dataset.law, task, DYGLIB, EvaluateConfig())
    bank = create("edgebank", GraphSpec())
    for batch in task.split.train.batches(200):
        bank.observe(batch, task.train_past)
    results = results_of(bank, task, DYGLIB, EvaluateConfig(), bank.state.snapshot())
    for setting in ("transductive", "inductive"):
        for kind in ("random", "historical", "inductive"):
            assert best[setting][kind]["ap"] > results["test"][setting][kind]["ap"] + 5
    assert best["transductive"]["random"]["ap"] > 90


def test_unknown_protocol_names_the_nearest() -> None:
    with pytest.raises(DsrdError, match="did you mean 'strict'"):
        protocol_named("strikt")
    with pytest.raises(DsrdError, match="did you mean 'strict'"):
        RunConfig(dataset="uci", model="edgebank", protocol="strikt")
    assert RunConfig(dataset="uci", model="edgebank", protocol="strict").protocol_rules is STRICT


def test_a_pass_without_events_has_no_results(task: Task) -> None:
    empty = replace(task.passes["test/new"], events=task.split.test_new[:0], pool=task.split.test_new[:0])
    bare = replace(task, passes={**task.passes, "test/new": empty})
    model = create("edgebank", GraphSpec())
    results = results_of(model, bare, DYGLIB, EvaluateConfig(), model.state.snapshot())
    assert results["test"]["inductive"] == {}


@pytest.mark.parametrize("protocol", [DYGLIB, STRICT])
@pytest.mark.parametrize("name", ["val/new", "test/new", "test"])
def test_every_earlier_event_is_observed_once_and_no_future_event(
    task: Task, protocol: Protocol, name: str
) -> None:
    pass_ = task.passes[name]
    seen: set[int] = set()
    for flush, observed in arriving(pass_.events, pass_.stream, protocol.flushes(pass_.events, 30, exact=True)):
        now, in_flush = float(pass_.events.time[flush.stop - 1]), set(pass_.events.id[flush].tolist())
        assert not seen & set(observed.id.tolist())
        assert all(observed.time.diff() >= 0)
        assert set(observed.id[observed.time >= now].tolist()) <= in_flush
        seen |= set(observed.id.tolist())
        assert in_flush | set(pass_.stream.id[pass_.stream.time < now].tolist()) <= seen


@pytest.mark.parametrize("name", ["val", "test/new"])
def test_an_exact_model_scores_as_in_a_stream_of_all_events(task: Task, name: str) -> None:
    """Training withholds the events of some nodes; in evaluation an exact model has observed them."""
    model = make_dsrd(task, whole_moments=True)
    pass_ = task.passes[name]
    catch_up(model, task, STRICT, EvaluateConfig())
    if pass_.part == "test":
        observe_all(model, task.split.val, task.full_past, STRICT, 200)
    queries = draw(pass_, STRICT, EvaluateConfig(negatives=("random",)))
    results = score_pass(model, queries, task.full_past, STRICT, 200).probabilities().positive["random"]

    model.state.reset()
    expected, row_of = [], {id: row for row, id in enumerate(pass_.events.id.tolist())}
    for moment in aligned(task.split.full, 1):
        now = task.split.full[moment]
        rows = [row_of[id] for id in now.id.tolist() if id in row_of]
        if rows:
            with torch.no_grad():
                expected.append(
                    torch.sigmoid(model.score(pass_.events[torch.tensor(rows)].query(), task.full_past))
                )
        model.observe(now, task.full_past)
    assert torch.allclose(results, torch.cat(expected), atol=1e-5)


def test_an_exact_model_can_observe_only_what_published_models_do(task: Task) -> None:
    """`known=trained`: the state after training, then the events of the pass, as for published models."""
    model = make_dsrd(task)
    for batch in task.split.train.batches(200):
        model.observe(batch, task.train_past)
    trained = model.state.snapshot()
    config = EvaluateConfig(negatives=("random",), known="trained")
    results = results_of(model, task, STRICT, config, trained, ("val",))["val"]["inductive"]["random"]
    model.state.restore(trained)
    pass_ = task.passes["val/new"]
    queries = draw(pass_, STRICT, config)
    positive, negative = [], []
    for moment in aligned(pass_.events, 1):
        with torch.no_grad():
            positive.append(torch.sigmoid(model.score(pass_.events[moment].query(), task.full_past)))
            negative.append(torch.sigmoid(model.score(queries.negatives["random"][moment], task.full_past)))
        model.observe(pass_.events[moment], task.full_past)
    label = [1] * len(pass_.events) + [0] * len(pass_.events)
    expected = 100 * roc_auc_score(label, torch.cat([*positive, *negative]))
    assert results["auc_split"] == pytest.approx(expected, abs=1e-2)
    more = results_of(model, task, STRICT, replace(config, known="all"), trained, ("val",))
    assert more["val"]["inductive"]["random"]["auc_split"] != results["auc_split"]


def two_nodes(events: int) -> Task:
    """Every batch has both pairs there are, so that only random negatives can be drawn."""
    source = [1 + row % 2 for row in range(events)]
    return Task.of(Dataset.from_arrays("pair", source, [3] * events, range(events)))


def test_kinds_of_negatives_that_a_stream_does_not_have_are_left_out():
    task = two_nodes(100)
    config = EvaluateConfig(negatives=("historical", "random"))
    queries = draw(task.passes["test"], DYGLIB, config)
    assert list(queries.negatives) == ["random"]
    with pytest.raises(NoNegativeError, match="holds every pair of the nodes"):
        draw_if_possible(task.passes["test"], DYGLIB, EvaluateConfig(negatives=("inductive", "historical")))
