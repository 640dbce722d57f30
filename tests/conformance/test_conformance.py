"""What any model must keep to, run over every model that is found."""

from __future__ import annotations

import inspect
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

import dsrd.models
from conformance.conftest import build, make_stream, parted
from dsrd.config import EvaluateConfig, RunConfig
from dsrd.data.dataset import Dataset
from dsrd.errors import DsrdError
from dsrd.evaluate.pass_queries import draw
from dsrd.evaluate.scoring import evaluate, score_pass
from dsrd.evaluate.task import Task
from dsrd.events import Events, Query
from dsrd.history.live import Live
from dsrd.history.past import Past
from dsrd.models import TemporalModel, model_class, names
from dsrd.models.base import link_loss
from dsrd.models.state_size import declared_bytes, formulas, kept_bytes
from dsrd.negatives.sampling import TrainingNegatives
from dsrd.protocol import PROTOCOLS
from dsrd.train import checkpoint
from dsrd.train.loop import train_epoch
from dsrd.train.trainer import Trainer


def past_of(stream: Dataset, events: Events | None = None) -> Past:
    return Past(stream.events if events is None else events, edge_x=stream.edge_x, node_x=stream.node_x)


def observed(model: TemporalModel, stream: Dataset, upto: int, size: int = 20) -> TemporalModel:
    past = past_of(stream)
    for batch in stream.events[:upto].batches(size):
        model.observe(batch, past)
    return model.eval()


def ask(model: TemporalModel, query: Query, past: Past) -> Tensor:
    with torch.no_grad():
        return model.score(query, past)


def same_state(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[key], other[key]) for key in one)


def test_score_is_pure(model: TemporalModel, stream: Dataset) -> None:
    observed(model, stream, 200)
    before, query, past = model.state.snapshot(), stream.events[200:260].query(), past_of(stream)
    first, second = ask(model, query, past), ask(model, query, past)
    assert torch.equal(first, second)
    assert same_state(before, model.state.snapshot())


def test_one_source_with_many_targets_scores_as_its_pairs_do(model: TemporalModel, stream: Dataset) -> None:
    """Also targets that nobody has met, and the same one twice."""
    observed(model, stream, 200)
    before, past = model.state.snapshot(), past_of(stream).during(stream.events[200:260])
    targets = torch.cat([torch.arange(1, 30).repeat(2), torch.tensor([99_999])])
    for row, head in zip((200, 259, 230), (*model.heads, *model.heads, *model.heads), strict=False):
        source, time = int(stream.events.src[row]), float(stream.events.time[row])
        ends = torch.full_like(targets, source), targets, torch.full(targets.shape, time, dtype=torch.float64)
        with torch.no_grad():
            pairs = model.score(Query(*ends), past, head)
            assert torch.allclose(model.score_many(source, targets, time, past, head), pairs, atol=1e-5)
    assert model.score_many(1, targets[:0], time, past).shape == (0,)
    assert same_state(before, model.state.snapshot())


def test_first_features_do_not_depend_on_the_other_targets(model: TemporalModel, stream: Dataset) -> None:
    observed(model, stream, 200)
    before, past, targets = model.state.snapshot(), past_of(stream), stream.events.dst[:40].unique()
    if not model.has_first_features:
        with pytest.raises(DsrdError, match="has no cheap first score"):
            model.first_features(1, [targets], 1e6, past)
        return
    of_source, whole = model.first_features(3, [targets], 1e6, past)
    _, pieces = model.first_features(3, targets.split(7), 1e6, past)
    features = torch.cat(list(whole))
    assert torch.isfinite(features).all()
    assert torch.isfinite(of_source).all()
    assert len(features) == len(targets)
    assert torch.equal(features, torch.cat(list(pieces)))
    never_seen = torch.tensor([stream.num_nodes + 5, stream.num_nodes + 6])
    of_unknown, unknown = model.first_features(stream.num_nodes + 7, [never_seen], 1e6, past)
    assert torch.isfinite(torch.cat([of_unknown, *(each.flatten() for each in unknown)])).all()
    assert same_state(before, model.state.snapshot())


def test_score_is_one_finite_logit_per_pair(model: TemporalModel, stream: Dataset) -> None:
    scores = ask(observed(model, stream, 200), stream.events[200:260].query(), past_of(stream))
    assert scores.shape == (60,)
    assert torch.isfinite(scores).all()


def test_rows_do_not_depend_on_their_neighbours(model: TemporalModel, stream: Dataset) -> None:
    observed(model, stream, 200)
    query, past = stream.events[200:260].query(), past_of(stream)
    together = ask(model, query, past)
    alone = torch.cat([ask(model, query[row : row + 1], past) for row in range(len(query))])
    shuffled = torch.randperm(len(query))
    assert torch.allclose(together, alone, atol=1e-5)
    assert torch.allclose(together[shuffled], ask(model, query[shuffled], past), atol=1e-5)


def test_future_events_change_no_score(name: str, stream: Dataset) -> None:
    """Every event at or after t is replaced by another one: scores at t stay."""
    other = make_stream(seed=1)
    cut = 300
    t = float(stream.events.time[cut])
    keep = int((stream.events.time < t).sum())
    changed = Events.from_numpy(
        *(torch.cat([getattr(stream.events, f)[:keep], getattr(other.events, f)[keep:]]) for f in ("src", "dst")),
        torch.cat([stream.events.time[:keep], other.events.time[keep:].clamp(min=t)]),
    )
    moment = stream.events.time == t
    query = stream.events[moment.nonzero().squeeze(1)].query()
    model = build(name, stream, whole_moments=True)
    rules = PROTOCOLS["strict"]
    scores = []
    for events in (stream.events, changed):
        model.state.reset()
        model.eval()
        past = past_of(stream, events)
        for flush in rules.flushes(events[:keep], 20, exact=model.exact):
            model.observe(events[flush], past)
        scores.append(ask(model, query, past.during(events[keep:])))
    assert torch.equal(scores[0], scores[1])


def test_strict_scores_do_not_depend_on_the_batch_size(name: str, stream: Dataset, task: Task) -> None:
    found = []
    for size in (1, 7, 200):
        model = build(name, stream, whole_moments=True)
        config = EvaluateConfig(batch_size=size)
        drawn = draw(task.passes["val"], PROTOCOLS["strict"], config, strategies=("random",))
        train_state = observed(model, stream, 0)
        scores = score_pass(train_state, drawn, task.full_past, PROTOCOLS["strict"], size).probabilities()
        found.append(torch.cat([scores.positive["random"], scores.negative["random"]]))
    assert torch.allclose(found[0], found[1], atol=1e-5)
    assert torch.allclose(found[0], found[2], atol=1e-5)


def test_snapshot_and_restore_repeat_a_run(model: TemporalModel, stream: Dataset) -> None:
    observed(model, stream, 150)
    start, past = model.state.snapshot(), past_of(stream)
    runs = []
    for _ in range(2):
        model.state.restore(start)
        scores = []
        for batch in stream.events[150:250].batches(20):
            scores.append(ask(model, batch.query(), past))
            model.observe(batch, past)
        runs.append((torch.cat(scores), model.state.snapshot()))
    assert torch.equal(runs[0][0], runs[1][0])
    assert same_state(runs[0][1], runs[1][1])


def test_reset_is_a_fresh_start(name: str, stream: Dataset) -> None:
    used = observed(build(name, stream), stream, 300)
    used.state.reset()
    assert same_state(used.state.snapshot(), build(name, stream).state.snapshot())


def test_state_that_compiled_loops_work_on_stays_in_main_memory(model: TemporalModel, stream: Dataset) -> None:
    """Sent to another device, weights go, and so does the state that tensors are computed from."""
    observed(model, stream, 100)
    before = model.state.snapshot()
    model.to("meta")
    staying = [name for name in model.state.fields if model.state[name].device.type == "cpu"]
    assert all(torch.equal(before[name], model.state[name]) for name in staying)
    assert set(staying) == model.state._compiled
    assert all(weight.device.type == "meta" for weight in model.parameters())
    for name in staying:
        model.state[name].numpy()


def test_mode_switches_leave_state_alone(model: TemporalModel, stream: Dataset) -> None:
    before = observed(model, stream, 100).state.snapshot()
    model.train()
    model.eval()
    assert same_state(before, model.state.snapshot())


def test_weights_and_state_are_kept_apart(model: TemporalModel) -> None:
    assert not {key for key in model.state_dict() if key.startswith("state.")}


def test_checkpoint_round_trip(model: TemporalModel, name: str, stream: Dataset, tmp_path: Path) -> None:
    observed(model, stream, 200)
    path = tmp_path / "model.safetensors"
    checkpoint.save(path, {"weights": model.state_dict(), "state": model.state.snapshot()}, {"model": name})
    groups, note = checkpoint.load(path)
    other = build(name, stream, seed=1).eval()
    other.load_state_dict(groups.get("weights", {}))
    other.state.restore(groups.get("state", {}))
    query, past = stream.events[200:260].query(), past_of(stream)
    assert note == {"model": name}
    assert torch.equal(ask(model, query, past), ask(other, query, past))


def test_every_parameter_gets_gradient(model: TemporalModel, stream: Dataset) -> None:
    past, negatives = past_of(stream), TrainingNegatives(stream.events, 0)
    model.train()
    reached: set[str] = set()
    for batch in stream.events[:200].batches(50):
        model.zero_grad()
        if model.num_parameters:
            model.loss(batch, negatives, past.during(batch)).backward()
        reached |= {n for n, p in model.named_parameters() if p.grad is not None and bool(p.grad.any())}
        model.observe(batch, past)
        model.state.detach_()
    assert reached == {n for n, p in model.named_parameters() if p.requires_grad}


def test_loss_falls_on_a_learnable_stream(model: TemporalModel, stream: Dataset) -> None:
    """Two targets in twenty get nine events in ten: anyone who looks at a target's past can tell."""
    if not model.num_parameters:
        pytest.skip("nothing to learn")
    generator = torch.Generator().manual_seed(0)
    famous = torch.rand(400, generator=generator) < 0.9
    dst = torch.where(famous, 10 + stream.events.dst % 2, 10 + stream.events.dst % 20)
    events = replace(stream.events, src=1 + stream.events.src % 9, dst=dst)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    past, negatives = past_of(stream, events), TrainingNegatives(events, 0)
    rules = PROTOCOLS["dyglib"]
    losses = [train_epoch(model, events, past, negatives, optimizer, rules, 50) for _ in range(10)]
    if not model.has_intensity:
        assert losses[-1] < 0.8 * losses[0]
        return
    assert losses[-1] < 0.98 * losses[0]  # what tells sources from noise cannot be learned here
    assert surprise(model, events, past, negatives) < 0.8 * math.log(2)  # log(2): of somebody who knows nothing


def surprise(model: TemporalModel, events: Events, past: Past, negatives: TrainingNegatives) -> float:
    """The mean loss of a trained model's first head, events against random targets."""
    losses = []
    model.eval()
    model.state.reset()
    for batch in events.batches(50):
        query = Query.cat(batch.query(), negatives.sample(batch))
        with torch.no_grad():
            losses.append(link_loss(model.score(query, past.during(batch)), len(batch)).item())
        model.observe(batch, past)
    return sum(losses) / len(losses)


def test_streaming_equals_batches_of_one(name: str, stream: Dataset) -> None:
    """An engine that appends to a `Live` past one event at a time scores what the frozen `Past` does."""
    frozen, live = build(name, stream).eval(), build(name, stream).eval()
    past, growing = past_of(stream), Live(edge_x=stream.edge_x[:1], node_x=stream.node_x)
    for row in range(120):
        event = stream.events[row : row + 1]
        assert torch.equal(ask(frozen, event.query(), past), ask(live, event.query(), growing))
        growing.append(event, stream.edge_x[event.id])
        frozen.observe(event, past)
        live.observe(event, growing)
    assert same_state(frozen.state.snapshot(), live.state.snapshot())


def test_unknown_nodes_first_events_and_repeated_times(name: str, stream: Dataset) -> None:
    model = build(name, replace(stream, node_x=stream.node_x[:2])).eval()  # knows of one node only
    past = Past(stream.events[:0], edge_x=stream.edge_x, node_x=stream.node_x)
    nobody_met = Query(torch.tensor([1, 99_999]), torch.tensor([2, 1]), torch.tensor([0.0, 0.0]).double())
    assert torch.isfinite(ask(model, nobody_met, past)).all()
    far = Events.from_numpy([1, 5000, 7], [5000, 5000, 1], [3.0, 3.0, 3.0])  # beyond every table; a self-loop
    model.observe(far, past)
    model.observe(far[:0], past)
    later = Query(torch.tensor([5000, 1]), torch.tensor([1, 7]), torch.tensor([4.0, 4.0]).double())
    assert torch.isfinite(ask(model, later, past)).all()


def test_embeddings_are_pure_vectors_of_nodes(model: TemporalModel, stream: Dataset) -> None:
    """Embeddings are optional: a model without `embed` says so in one plain line."""
    observed(model, stream, 200)
    before, past, asked = model.state.snapshot(), past_of(stream), stream.events[200:230]
    if not embeds(type(model)):
        with pytest.raises(DsrdError, match="has no embeddings"):
            model.embed(asked.src, asked.time, past)
        return
    with torch.no_grad():
        together = model.embed(asked.src, asked.time, past)
        alone = [model.embed(asked.src[row : row + 1], asked.time[row : row + 1], past) for row in range(30)]
    assert together.shape == (30, together.shape[1])
    assert torch.isfinite(together).all()
    assert torch.allclose(together, torch.cat(alone), atol=1e-5)
    assert len(together.unique(dim=0)) > 5, "nodes with different pasts look different"
    assert same_state(before, model.state.snapshot())


def embeds(cls: type[TemporalModel]) -> bool:
    return cls.embed is not TemporalModel.embed


def test_built_in_models_that_learn_have_embeddings() -> None:
    """Nodes can be classified by any of them; a model from another folder need not offer that."""
    home = Path(dsrd.models.__file__).parent
    built_in = [cls for cls in map(model_class, names()) if home in Path(inspect.getfile(cls)).parents]
    assert {cls.__name__ for cls in built_in if not embeds(cls)} == {
        cls.__name__ for cls in built_in if cls.card.rule
    }


def test_rules_have_nothing_to_learn(model: TemporalModel) -> None:
    assert not (model.card.rule and model.num_parameters)


def test_the_unit_of_time_does_not_matter(name: str, stream: Dataset) -> None:
    """Milliseconds instead of seconds, from calibration on: the same scores."""
    scores = []
    for factor in (1.0, 1000.0):
        clocked = replace(stream, events=replace(stream.events, time=stream.events.time * factor))
        model = build(name, clocked)
        if not model.any_clock:
            pytest.skip(f"{name}: does not claim to (any_clock is False)")
        scores.append(ask(observed(model, clocked, 200), clocked.events[200:260].query(), past_of(clocked)))
    assert torch.allclose(*scores, atol=1e-4)


def test_state_grows_linearly_with_nodes(name: str, stream: Dataset) -> None:
    sizes = []
    for rows in (1_000, 2_000, 3_000):
        wide = replace(stream, node_x=torch.zeros(rows, stream.node_dim))
        model = build(name, wide)
        model.observe(Events.from_numpy([rows - 1], [1], [1.0]), past_of(wide))  # rows are made at first use
        sizes.append(model.state.nbytes())
    assert sizes[2] - sizes[1] == sizes[1] - sizes[0]


def test_state_bytes_match_the_declared_formula(name: str, model: TemporalModel, stream: Dataset) -> None:
    """`card.keeps`, over the settings; a model from another folder may leave it out."""
    declared = formulas(model.card, parted(name)[1])
    home = Path(dsrd.models.__file__).parent
    if not declared and home not in Path(inspect.getfile(type(model))).parents:
        pytest.skip(f"{name}: declares no sizes")
    observed(model, stream, 200)
    sizes = declared_bytes(declared, model.config, model.graph)
    assert kept_bytes(model) == {part: size for part, size in sizes.items() if size}


def test_same_seed_same_run(name: str, stream: Dataset, task: Task) -> None:
    model, preset = parted(name)
    run = RunConfig(dataset="toy", model=model, preset=preset)
    run = run.with_overrides({"train.epochs": 2, "train.batch_size": 50})
    run = replace(run, model_args=_small_with_dropout(model))
    found = []
    for seed in (0, 0, 1):
        fit = Trainer(replace(run, seed=seed), task)
        fit.train()
        results, _ = evaluate(fit.model, task, PROTOCOLS["dyglib"], EvaluateConfig(), fit.model.state.snapshot())
        found.append((results, fit.progress.history[-1]["loss"]))
    assert found[0] == found[1]
    if fit.model.num_parameters:
        assert found[0] != found[2]


def _small_with_dropout(name: str) -> dict[str, object]:
    cls = model_class(name)
    return {**cls.card.small, **({"dropout": 0.3} if hasattr(cls.Config(), "dropout") else {})}
