"""The evaluator against a loop that does one thing after the other."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from sklearn.metrics import average_precision_score, roc_auc_score

from dsrd.config import EvaluateConfig, overridden
from dsrd.data.read import load
from dsrd.errors import DsrdError
from dsrd.evaluate.ceiling import ceiling
from dsrd.evaluate.protocol import PROTOCOLS, Protocol, aligned, arriving, protocol
from dsrd.evaluate.scoring import catch_up, draw, evaluate, measure, observe_all, score_pass
from dsrd.evaluate.task import Task
from dsrd.events import Events
from dsrd.models import GraphSpec, Snapshot, TemporalModel, create, model_class

DYGLIB, STRICT = PROTOCOLS["dyglib"], PROTOCOLS["strict"]


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


def measured(
    model: TemporalModel,
    task: Task,
    rules: Protocol,
    config: EvaluateConfig,
    trained: Snapshot,
    parts: tuple[str, ...] = ("test",),
) -> dict[str, Any]:
    """Results of the model's first head by part."""
    return evaluate(model, task, rules, config, trained, parts=parts)[0][""]


def test_four_passes_hand_their_state_over(task: Task) -> None:
    """DyGLib's order, written out: val from S_train, new-node val from S_train, both tests from S_val."""
    model = make_tgn(task)
    config = EvaluateConfig(negatives=("random", "historical"))
    trained = model.state.snapshot()
    found = measured(model, task, DYGLIB, config, trained, ("val", "test"))

    model.state.restore(trained)
    for batch in task.split.val.batches(200):
        model.observe(batch, task.full_past)
    validated = model.state.snapshot()
    for each in task.passes.values():
        model.state.restore(trained if each.part == "val" else validated)
        drawn = draw(each, DYGLIB, config)
        start, aps, aucs = 0, [], []
        for batch in each.events.batches(200):
            rows = slice(start, start + len(batch))
            with torch.no_grad():
                positive = torch.sigmoid(model.score(batch.query(), task.full_past))
                negative = torch.sigmoid(model.score(drawn.against["historical"][rows], task.full_past))
            label = [1] * len(batch) + [0] * len(batch)
            aps.append(average_precision_score(label, torch.cat([positive, negative])))
            aucs.append(roc_auc_score(label, torch.cat([positive, negative])))
            model.observe(batch, task.full_past)
            start += len(batch)
        ours = found[each.part][each.setting]["historical"]
        assert ours["ap"] == pytest.approx(100 * sum(aps) / len(aps), abs=2e-2)
        assert ours["auc"] == pytest.approx(100 * sum(aucs) / len(aucs), abs=2e-2)


def test_a_state_too_large_to_copy_is_made_again(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    """The figures are the same to the last digit, and nothing is copied."""
    model = make_dsrd(task)
    copied = measured(model, task, STRICT, EvaluateConfig(), None, ("val", "test"))
    monkeypatch.setattr("dsrd.evaluate.scoring.COPIED_BYTES", 0)
    monkeypatch.setattr(type(model.state), "snapshot", None)
    assert measured(model, task, STRICT, EvaluateConfig(), None, ("val", "test")) == copied


def test_strict_results_do_not_depend_on_the_batch_size(task: Task) -> None:
    model = make_tgn(task)
    trained = model.state.snapshot()
    found = [
        measured(model, task, STRICT, EvaluateConfig(batch_size=size, candidates=20), trained) for size in (7, 200)
    ]
    for setting, kinds in found[0]["test"].items():
        for kind, values in kinds.items():
            assert found[1]["test"][setting][kind] == pytest.approx(values, abs=1e-2)


def test_strict_flushes_never_cut_a_timestamp() -> None:
    events = Events.from_numpy([1] * 9, [2] * 9, [0, 0, 0, 1, 2, 2, 3, 4, 4])
    assert [s.stop for s in aligned(events, 1)] == [3, 4, 6, 7, 9]
    assert [s.stop for s in aligned(events, 4)] == [4, 9]
    assert [s.stop for s in aligned(events, 100)] == [9]
    assert list(aligned(events[:0], 5)) == []
    assert [s.stop for s in DYGLIB.flushes(events, 4, exact=False)] == [4, 8, 9]
    assert [s.stop for s in STRICT.lagging().flushes(events, 4, exact=False)] == [4, 9]


def test_a_memory_does_not_see_its_own_timestamp(task: Task) -> None:
    """Under `strict` the last query of a snapshot is answered as if it were the first."""
    model = make_tgn(task)
    drawn = draw(task.passes["val"], STRICT, EvaluateConfig(), strategies=("random",))
    scores = score_pass(model, drawn, task.full_past, STRICT, 50)
    model = make_tgn(task)
    events = task.split.val
    first = events[(events.time == events.time[0]).nonzero().squeeze(1)]
    with torch.no_grad():
        alone = torch.sigmoid(model.score(first.query(), task.full_past))
    assert torch.allclose(scores.positive["random"][: len(first)], alone, atol=1e-6)


def test_ranking_is_measured_when_asked_for(task: Task) -> None:
    model = create("edgebank", GraphSpec())
    found = measured(model, task, DYGLIB, EvaluateConfig(candidates=9), model.state.snapshot())
    ranking = found["test"]["transductive"]["ranking"]
    assert ranking["candidates"] == 9
    assert 10 <= ranking["mrr"] <= 100
    assert ranking["hits@1"] <= ranking["hits@3"] <= ranking["hits@10"] == 100


def test_metrics_average_batches_and_splits_differ(task: Task) -> None:
    drawn = draw(task.passes["test"], DYGLIB, EvaluateConfig(negatives=("random",)))
    model = create("edgebank", GraphSpec())
    values = measure(drawn, score_pass(model, drawn, task.full_past, DYGLIB, 200))["random"]
    assert set(values) == {"ap", "auc", "ap_split", "auc_split"}
    assert values["ap"] != values["ap_split"]


def test_nobody_beats_the_ceiling() -> None:
    task = Task.of(load("synth:events=3000"))
    assert task.dataset.law is not None
    best = ceiling(task.dataset.law, task, DYGLIB, EvaluateConfig())
    bank = create("edgebank", GraphSpec())
    for batch in task.split.train.batches(200):
        bank.observe(batch, task.train_past)
    found = measured(bank, task, DYGLIB, EvaluateConfig(), bank.state.snapshot())
    for setting in ("transductive", "inductive"):
        for kind in ("random", "historical", "inductive"):
            assert best[setting][kind]["ap"] > found["test"][setting][kind]["ap"] + 5
    assert best["transductive"]["random"]["ap"] > 90


def test_unknown_protocol_names_the_nearest() -> None:
    with pytest.raises(DsrdError, match="did you mean 'strict'"):
        protocol("strikt")


def test_an_empty_new_node_set_gives_no_figures(task: Task) -> None:
    nothing = replace(task.passes["test/new"], events=task.split.test_new[:0], pool=task.split.test_new[:0])
    bare = replace(task, passes={**task.passes, "test/new": nothing})
    model = create("edgebank", GraphSpec())
    found = measured(model, bare, DYGLIB, EvaluateConfig(), model.state.snapshot())
    assert found["test"]["inductive"] == {}


@pytest.mark.parametrize("rules", [DYGLIB, STRICT])
@pytest.mark.parametrize("name", ["val/new", "test/new", "test"])
def test_every_earlier_event_arrives_once_and_nothing_of_the_future(
    task: Task, rules: Protocol, name: str
) -> None:
    each = task.passes[name]
    seen: set[int] = set()
    for flush, arrived in arriving(each.events, each.meanwhile, rules.flushes(each.events, 30, exact=True)):
        now, own = float(each.events.time[flush.stop - 1]), set(each.events.id[flush].tolist())
        assert not seen & set(arrived.id.tolist())
        assert all(arrived.time.diff() >= 0)
        assert set(arrived.id[arrived.time >= now].tolist()) <= own
        seen |= set(arrived.id.tolist())
        assert own | set(each.meanwhile.id[each.meanwhile.time < now].tolist()) <= seen


@pytest.mark.parametrize("name", ["val", "test/new"])
def test_an_exact_model_scores_as_in_a_stream_of_all_events(task: Task, name: str) -> None:
    """Training withholds the events of some nodes; the state of an exact model holds them in evaluation."""
    model = make_dsrd(task, whole_moments=True)
    each = task.passes[name]
    catch_up(model, task, STRICT, EvaluateConfig())
    if each.part == "test":
        observe_all(model, task.split.val, task.full_past, STRICT, 200)
    drawn = draw(each, STRICT, EvaluateConfig(negatives=("random",)))
    found = score_pass(model, drawn, task.full_past, STRICT, 200).positive["random"]

    model.state.reset()
    expected, asked = [], {id: row for row, id in enumerate(each.events.id.tolist())}
    for moment in aligned(task.split.full, 1):
        now = task.split.full[moment]
        rows = [asked[id] for id in now.id.tolist() if id in asked]
        if rows:
            with torch.no_grad():
                expected.append(
                    torch.sigmoid(model.score(each.events[torch.tensor(rows)].query(), task.full_past))
                )
        model.observe(now, task.full_past)
    assert torch.allclose(found, torch.cat(expected), atol=1e-5)


def test_an_exact_model_can_be_held_to_what_published_states_know(task: Task) -> None:
    """`known=trained`: the state after training, then the pass's own events, as every published model has it."""
    model = make_dsrd(task)
    for batch in task.split.train.batches(200):
        model.observe(batch, task.train_past)
    trained = model.state.snapshot()
    config = EvaluateConfig(negatives=("random",), known="trained")
    found = measured(model, task, STRICT, config, trained, ("val",))["val"]["inductive"]["random"]
    model.state.restore(trained)
    each = task.passes["val/new"]
    drawn = draw(each, STRICT, config)
    positive, negative = [], []
    for moment in aligned(each.events, 1):
        with torch.no_grad():
            positive.append(torch.sigmoid(model.score(each.events[moment].query(), task.full_past)))
            negative.append(torch.sigmoid(model.score(drawn.against["random"][moment], task.full_past)))
        model.observe(each.events[moment], task.full_past)
    label = [1] * len(each.events) + [0] * len(each.events)
    expected = 100 * roc_auc_score(label, torch.cat([*positive, *negative]))
    assert found["auc_split"] == pytest.approx(expected, abs=1e-2)
    more = measured(model, task, STRICT, replace(config, known="all"), trained, ("val",))
    assert more["val"]["inductive"]["random"]["auc_split"] != found["auc_split"]
