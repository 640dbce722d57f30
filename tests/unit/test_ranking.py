"""Choosing the best epoch by ranking; data sets that bring their own split, from their name to a run folder."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
import torch

from dsrd.config import EvaluateConfig, RunConfig, digest_of_json
from dsrd.data.arrow import read_dataset, write_dataset
from dsrd.data.dataset import Dataset
from dsrd.data.own_split import OtherTargets, OwnSplit
from dsrd.data.read import load
from dsrd.data.tgb import from_tgb
from dsrd.errors import DsrdError
from dsrd.estimator.link_predictor import LinkPredictor, open_run
from dsrd.evaluate.pass_queries import PassQueries, draw, ranked_among
from dsrd.evaluate.scoring import measure, score_pass
from dsrd.evaluate.task import Task
from dsrd.events import NULL, Events
from dsrd.models import GraphSpec, create
from dsrd.negatives.sampling import TrainingNegatives
from dsrd.protocol import DYGLIB
from dsrd.reporter import Reporter
from dsrd.train.stopping import TrainingProgress
from dsrd.train.trainer import Trainer, validation_queries
from support.tgb import small_wikipedia, tgb_like

RANDOM = EvaluateConfig(negatives=("random",))
SMALL = {"epochs": 2, "dim": 8, "time_dim": 4, "neighbors": 3, "negatives": "random"}


def no_py_tgb(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dsrd.data.tgb.find_spec", lambda _: None)


@pytest.fixture
def wiki(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Dataset:
    no_py_tgb(monkeypatch)
    return load("tgb:wiki", data_dir=small_wikipedia(tmp_path / "data"))


@pytest.fixture(scope="module")
def synth() -> Task:
    return Task.of(load("synth:events=600"))


# Candidates that are not written out


@pytest.mark.parametrize("rows", [slice(None), slice(3, 7), torch.tensor([1, 8])])
def test_other_targets_are_all_but_the_own_one(rows: slice | torch.Tensor) -> None:
    rng = np.random.default_rng(1)
    true, targets = torch.from_numpy(rng.integers(1, 6, 10)), torch.arange(1, 6).repeat(3)
    expected = [[target for target in range(1, 6) if target != own] for own in true[rows].tolist()]
    assert OtherTargets(true, targets)[rows].tolist() == expected


def test_an_event_whose_target_is_not_listed_has_one_candidate_more() -> None:
    candidates = OtherTargets(torch.tensor([2, 9]), torch.tensor([1, 2, 3]))
    assert candidates.shape == (2, 3)
    assert candidates[:].tolist() == [[1, 3, NULL], [1, 2, 3]]


def test_candidates_on_demand_give_the_same_ranks_as_a_matrix(wiki: Dataset) -> None:
    assert wiki.own_split is not None
    task, parts = Task.of(wiki), wiki.own_split.masks(len(wiki.events))
    written_out = {part: each[:] for part, each in wiki.own_split.candidates_of(wiki.events).items()}
    matrix = Task.of_parts(wiki, parts, written_out)
    model = create("localglobal", GraphSpec())
    model.calibrate(task.split.train)
    results = []
    for each in (task, matrix):
        queries = draw(each.passes["test"], DYGLIB, RANDOM)
        results.append(measure(queries, score_pass(model, queries, each.full_past, DYGLIB, 50))["ranking"])
    assert results[0] == results[1]
    assert results[0]["candidates"] == 7


# A sample of the events is ranked


def test_a_sample_is_evenly_spaced_and_ranked_as_in_the_whole(wiki: Dataset) -> None:
    task = Task.of(wiki)
    model = create("localglobal", GraphSpec())
    model.calibrate(task.split.train)
    whole = draw(task.passes["test"], DYGLIB, RANDOM)
    sample = draw(task.passes["test"], DYGLIB, replace(RANDOM, ranked_events=13))
    assert sample.ranked_rows is not None
    assert len(sample.ranked_rows) == 13
    assert set(sample.ranked_rows.diff().tolist()) <= {4, 5}  # 60 events, every 60 / 13th
    scores = [score_pass(model, queries, task.full_past, DYGLIB, 7) for queries in (whole, sample)]
    assert torch.allclose(scores[0].ranked[sample.ranked_rows], scores[1].ranked, atol=1e-6)  # type: ignore[index]
    assert torch.equal(scores[0].positive["random"], scores[1].positive["random"])
    ranking = measure(sample, scores[1])["ranking"]
    assert ranking["events"] == 13
    chosen = PassQueries(whole.pass_, whole.stream, whole.negatives, whole.metric_batch)
    again = ranked_among(chosen, task.passes["test"].candidates, 13)  # type: ignore[arg-type]
    assert measure(again, scores[1])["ranking"] == ranking


def test_more_events_than_there_are_means_all(wiki: Dataset) -> None:
    queries = draw(Task.of(wiki).passes["test"], DYGLIB, replace(RANDOM, ranked_events=1000))
    assert queries.ranked_rows is None
    assert queries.ranked is not None
    assert queries.ranked.shape == (60, 7)


# The best epoch by MRR


def test_an_epoch_may_be_judged_by_mrr_alone() -> None:
    progress = TrainingProgress()
    metrics = [(80, 80, 30), (70, 70, 31), (99, 99, 30), (1, 1, 31)]
    better = [progress.finish_epoch(ap=ap, auc=auc, mrr=mrr, keep="mrr") for ap, auc, mrr in metrics]
    assert better == [True, True, False, True]
    assert (progress.best_epoch, progress.best_ap, progress.best_mrr, progress.waited) == (4, 1, 31, 0)


def make_run(**settings: object) -> RunConfig:
    run = RunConfig(dataset="synth", model="graphmixer", evaluate=RANDOM)
    small = {"model.dim": 8, "model.time_dim": 4, "model.neighbors": 3, "train.epochs": 3, "train.lr": 1e-3}
    return run.with_overrides({**small, **{key.replace("_", ".", 1): value for key, value in settings.items()}})


def test_the_best_epoch_has_the_best_mrr_of_the_sample(synth: Task) -> None:
    run, seen = make_run(train_keep="mrr", train_ranked_events=20), []
    trainer = Trainer(run, synth, callbacks=[lambda epoch, metrics: seen.append(dict(metrics))])
    assert trainer.validation.ranked_rows is not None
    assert len(trainer.validation.ranked_rows) == 20
    before_test = synth.split.full[: -len(synth.split.test)]
    assert trainer.validation.ranked is not None
    assert trainer.validation.ranked.shape[1] in (len(before_test.dst.unique()) - k for k in (0, 1))
    progress = trainer.train()
    mrrs = [line["val_mrr"] for line in progress.history]
    assert [metrics["val_mrr"] for metrics in seen] == mrrs
    assert progress.best_mrr == max(mrrs) == mrrs[progress.best_epoch - 1]

    # the slow form: the kept weights, every sampled event among every other target, one at a time
    past, val, ranks = synth.full_past, synth.split.val, []
    known = sorted(set(before_test.dst.tolist()))
    for row in trainer.validation.ranked_rows.tolist():
        event = val[row : row + 1]
        # a model without state needs the past alone
        query = Events.cat(*[replace(event, dst=torch.tensor([node])) for node in known]).query()
        with torch.no_grad():
            score = torch.sigmoid(trainer.model.eval().score(query, past.during(event)))
        own = score[known.index(int(event.dst))]
        ranks.append(1 + int((score > own).sum()) + (int((score == own).sum()) - 1) / 2)
    assert progress.best_mrr == pytest.approx(100 * np.mean(1 / np.array(ranks)), abs=0.5)


def test_ranking_does_not_change_what_is_learned(synth: Task) -> None:
    """The other metrics and the weights of every epoch are the same, bit for bit."""
    lines = []
    for keep in ("both", "mrr"):
        trainer = Trainer(make_run(train_keep=keep, train_ranked_events=20), synth)
        history = trainer.train().history
        lines.append([[line[name] for name in ("loss", "val_ap", "val_auc")] for line in history])
        assert all(("val_mrr" in line) == (keep == "mrr") for line in history)
    assert lines[0] == lines[1]


def test_validation_ranks_among_the_candidates_asked_for(synth: Task, wiki: Dataset) -> None:
    drawn = validation_queries(make_run(train_keep="mrr", evaluate_candidates=11), synth)
    assert drawn.ranked is not None
    assert drawn.ranked.shape == (len(synth.split.val), 11)
    own = validation_queries(make_run(train_keep="mrr", evaluate_candidates=11), Task.of(wiki))
    assert own.ranked is not None
    assert own.ranked.shape == (60, 7)
    assert validation_queries(make_run(evaluate_candidates=11), synth).ranked is None


def test_new_settings_leave_the_digest_of_earlier_runs_alone() -> None:
    run = RunConfig(dataset="uci", model="edgebank")
    earlier = run.to_dict()
    for name in ("time_format", "keep_spaces"):
        del earlier["data"][name]
    for name in ("ranked_events", "decay_lr", "workers"):
        del earlier["train"][name]
    for name in ("ranked_events", "reading", "questions", "asked_events"):
        del earlier["evaluate"][name]
    assert run.digest == digest_of_json(earlier)
    assert run.with_overrides({"train.ranked_events": 50}).digest != run.digest
    assert run.with_overrides({"evaluate.ranked_events": 50}).digest != run.digest


def test_the_reporter_shows_the_mrr() -> None:
    report = Reporter()
    report.epoch(1, {"loss": 0.5, "val_ap": 90.0, "val_mrr": 40.0})
    report.epoch(2, {"loss": 0.4, "val_ap": 95.0, "val_mrr": 39.0})
    assert report.metrics == "epoch 2: loss 0.4000, val AP 95.00, val MRR 39.00, best epoch 1"


# Several negatives for an event


def test_many_negatives_are_uniform_over_the_targets_of_the_pool() -> None:
    pool = Events.from_numpy([1, 2, 1, 2, 1, 2], [3, 4, 4, 4, 5, 9], range(6))
    negatives = TrainingNegatives(pool, seed=0)
    saved = negatives.state()
    drawn = negatives.sample_many(pool, 2000)
    assert torch.equal(drawn.src, pool.src.repeat(2000))
    assert torch.equal(drawn.time, pool.time.repeat(2000))
    nodes, counts = drawn.dst.unique(return_counts=True)
    assert nodes.tolist() == [3, 4, 5, 9]
    assert all(abs(count - 3000) < 5 * np.sqrt(3000 * 0.75) for count in counts.tolist())
    following = negatives.sample(pool).dst
    negatives.restore(saved)
    assert torch.equal(negatives.sample_many(pool, 2000).dst, drawn.dst)
    assert torch.equal(negatives.sample(pool).dst, following), "from the same generator"


def test_the_law_of_the_noise_counts_all_uniform_targets() -> None:
    """With three uniform targets for an event, each pair's intensity is larger by two than with one."""
    pool = Events.from_numpy([1, 2, 1, 2, 1, 2], [3, 4, 4, 4, 5, 9], range(6))
    noise, src, dst = TrainingNegatives(pool, seed=0).noise, np.array([1, 1, 2]), np.array([3, 9, 4])
    one, three = (noise.target_intensity(src, dst, start=4, uniform=count) for count in (1, 3))
    assert one.tolist() == [1 + 0.5 * 4 / 2, 1, 1 + 0.5 * 4 / 1]
    assert (three - one).tolist() == [2, 2, 2]


# Data sets by name


def test_tgb_wiki_is_made_from_a_copy_of_wikipedia(wiki: Dataset) -> None:
    task = Task.of(wiki)
    assert (wiki.name, wiki.own_split) == ("tgb:wiki", OwnSplit(280, 340))
    assert [len(part) for part in (task.split.train, task.split.val, task.split.test)] == [280, 60, 60]
    assert len(task.split.withheld) == 0
    assert list(task.passes) == ["val", "test"]


def fake_py_tgb(monkeypatch: pytest.MonkeyPatch, source: SimpleNamespace) -> list[str]:
    """A py-tgb that has downloaded `tgbl-tiny`; returns the negatives it was asked to load."""
    loaded: list[str] = []
    source.load_val_ns, source.load_test_ns = (lambda part=part: loaded.append(part) for part in ("val", "test"))

    def dataset(name: str, download: bool) -> SimpleNamespace:
        assert not download
        if name != "tgbl-tiny":
            raise FileNotFoundError(name)
        print("py-tgb prints")
        return source

    for name in ("tgb", "tgb.linkproppred", "tgb.linkproppred.dataset"):
        module = ModuleType(name)
        module.__spec__ = SimpleNamespace(name=name)  # type: ignore[assignment]
        monkeypatch.setitem(sys.modules, name, module)
    sys.modules["tgb.linkproppred.dataset"].LinkPropPredDataset = dataset  # type: ignore[attr-defined]
    return loaded


@pytest.mark.parametrize("name", ["tgb:tiny", "tgb:tgbl-tiny"])
def test_other_names_go_through_py_tgb(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    loaded = fake_py_tgb(monkeypatch, tgb_like())
    data, benchmark = load(name), from_tgb(tgb_like())
    assert (data.name, data.digest, loaded) == ("tgb:tiny", benchmark.dataset.digest, ["val", "test"])
    named, given = Task.of(data), Task.of_parts(*benchmark)
    assert named.split.digest == given.split.digest
    assert all(
        torch.equal(named.passes[part].candidates, given.passes[part].candidates)  # type: ignore[arg-type]
        for part in ("val", "test")
    )
    assert capsys.readouterr().out == "", "standard output is for results"


def test_candidates_that_are_all_other_targets_are_kept_in_short(monkeypatch: pytest.MonkeyPatch) -> None:
    source = tgb_like()
    pages = np.unique(source.full_data["destinations"])
    for part, events in source.negative_sampler.eval_set.items():
        source.negative_sampler.eval_set[part] = {key: pages[pages != key[1]][::-1] for key in events}
    fake_py_tgb(monkeypatch, source)
    data = load("tgb:tiny")
    assert data.own_split is not None
    assert data.own_split.candidates is None
    one = next(iter(source.negative_sampler.eval_set["test"]))
    source.negative_sampler.eval_set["test"][one] = np.append(pages[pages != one[1]][1:], pages[-1])
    listed = load("tgb:tiny").own_split
    assert listed is not None
    assert listed.candidates is not None


def test_errors_about_names_say_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_py_tgb(monkeypatch, tgb_like())
    with pytest.raises(DsrdError, match=r"^tgb:review: py-tgb has no such data; .*LinkPropPredDataset\('tgbl-rev"):
        load("tgb:review")
    no_py_tgb(monkeypatch)
    with pytest.raises(DsrdError, match=r"^tgb:review: only py-tgb .*`pip install dsrd\[tgb\]`"):
        load("tgb:review")
    monkeypatch.delenv("DSRD_DATA", raising=False)
    with pytest.raises(DsrdError, match=r"^tgb:wiki: neither py-tgb nor .*fetch it, or set DSRD_DATA"):
        load("tgb:wiki", data_dir=tmp_path)


@pytest.mark.parametrize("short_form", [True, False])
def test_a_written_data_set_keeps_its_split(
    short_form: bool, wiki: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not short_form:
        fake_py_tgb(monkeypatch, tgb_like())
        monkeypatch.setattr("dsrd.data.tgb.find_spec", lambda _: object())
    data = wiki if short_form else load("tgb:tiny")
    write_dataset(data, tmp_path, compressed=True)
    again = read_dataset(tmp_path, mapped=False)
    assert again.own_split is not None
    assert data.own_split is not None
    assert again.own_split.borders == data.own_split.borders
    assert (again.own_split.candidates is None) == short_form
    for part, given in data.own_split.candidates_of(data.events).items():
        assert torch.equal(again.own_split.candidates_of(again.events)[part][:], given[:])


def test_a_run_knows_its_split_from_fit_to_folder(wiki: Dataset, tmp_path: Path) -> None:
    model = LinkPredictor("graphmixer", keep="mrr", train__ranked_events=20, **SMALL)
    model.fit(wiki, folder=tmp_path / "run", progress=False)
    results = model.evaluate(progress=False)
    assert results.record["dataset"] == "tgb:wiki"
    assert results.record["protocol"] == "dyglib"
    assert list(results.record["results"]) == ["transductive"]
    assert results["transductive"]["ranking"]["candidates"] == 7
    assert len(results.record["curve"]["val_mrr"]) == 2
    assert "val_mrr" in json.loads((tmp_path / "run" / "log.jsonl").read_text().splitlines()[0])

    again = open_run(tmp_path / "run")
    assert again.run.dataset == "tgb:wiki"
    measured = again.evaluate(progress=False, evaluate__batch_size=100)  # other settings: measured again, not read
    assert measured.record["digests"]["split"] == results.record["digests"]["split"]
    assert measured["transductive"]["ranking"]["mrr"] == pytest.approx(
        results["transductive"]["ranking"]["mrr"], abs=1e-2
    )
    later = {"source": ["1", "2"], "target": ["3", "4"], "time": [1000.0, 1001.0]}
    again.observe(pa.table({**later, "f_0": [0.5, 0.5], "f_1": [0.0, 1.0]}))
    assert again.fitted.task.split.digest == Task.of(wiki).split.digest, "later events do not move the split"


def test_a_folder_of_the_same_events_with_another_split_is_refused(
    wiki: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = load("wikipedia", data_dir=tmp_path / "data")
    assert plain.digest == wiki.digest
    settings = {**SMALL, "protocol": "dyglib", "order": "fast"}
    LinkPredictor("graphmixer", **settings).fit(plain, folder=tmp_path / "run", progress=False)
    with pytest.raises(DsrdError, match=r"was trained on 'wikipedia', with another split than 'tgb:wiki'"):
        LinkPredictor("graphmixer", **settings).fit(wiki, folder=tmp_path / "run", progress=False)
