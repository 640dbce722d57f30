"""Plans: what they become, and what is refused before anything runs, with the line."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import pytest

from dsrd.data.read import load
from dsrd.errors import DsrdError
from dsrd.estimator.link_predictor import LinkPredictor
from dsrd.experiments import load_plan
from dsrd.models.dsrd.settings import Ablation
from support.call_log import write_calls
from support.sweeps import PLAN, STREAM

PLANS = Path(__file__).parent.parent.parent / "plans"

TOML = """title = "a plan"
datasets = ["synth:events=500", "memory:taus=10/1000,events=900"]
seeds = [0, 1]
minutes = 5

[settings]
train.epochs = 3

[[models]]
name = "edgebank"
seeds = [7]

[[models]]
name = "dsrd"
settings = { model.dim = 16 }

[[ablations]]
of = "dsrd"
label = "no state"
datasets = ["synth:events=500"]
settings = { model.ablate = "no_state" }

[search]
trials = 3
space = { train.lr = { low = 1e-4, high = 1e-2, log = true } }
"""


def written(text: str) -> Path:
    path = Path("plan.toml")
    path.write_text(text)
    return path


def refusal(text: str) -> str:
    with pytest.raises(DsrdError) as error:
        load_plan(written(text))
    return str(error.value)


def test_a_plan_becomes_runs():
    plan = load_plan(written(TOML))
    assert plan.title == "a plan"
    cells = [(run.label, run.stream.name, run.run.seed) for run in plan.runs]
    first, second = "synth:events=500", "memory:taus=10/1000,events=900"
    assert cells == [
        ("edgebank", first, 7),
        ("edgebank", second, 7),
        *(("dsrd", stream, seed) for stream in (first, second) for seed in (0, 1)),
        ("no state", first, 0),
        ("no state", first, 1),
    ]
    ablated = plan.runs[-1].run
    assert ablated.model_args == {"dim": 16, "ablate": "no_state"}
    assert (ablated.train.epochs, ablated.train.minutes, ablated.protocol) == (3, 5, "strict")


def test_every_run_has_a_name_of_its_own():
    runs = load_plan(written(TOML)).runs
    assert len({run.key for run in runs}) == len({run.digest for run in runs}) == len(runs)


def test_equal_runs_are_planned_once():
    twice = {**PLAN, "models": [*PLAN["models"], {**PLAN["models"][1], "label": "again"}]}
    assert [run.digest for run in load_plan(twice).runs] == [run.digest for run in load_plan(PLAN).runs]


def test_a_plan_from_python_equals_the_file():
    mapping = {
        "datasets": ["synth:events=500"],
        "models": [{"name": "dsrd", "settings": {"train": {"epochs": 3}, "model.dim": 16}}],
    }
    text = 'datasets = ["synth:events=500"]\n[[models]]\nname = "dsrd"\n[models.settings]\ntrain.epochs = 3\n'
    assert load_plan(mapping).runs[0].digest == load_plan(written(text + "model.dim = 16\n")).runs[0].digest


@pytest.mark.parametrize("name", [STREAM, "memory:taus=10,events=900", "calls.csv"])
def test_the_digest_is_that_of_the_run(name: str):
    """It is known before the data are read, and the record of the run will have it."""
    write_calls(Path("calls.csv"))
    columns = {"source": "caller", "target": "callee", "time": "when"} if name == "calls.csv" else {}
    plan = load_plan({"datasets": [{"name": name, **columns}], "models": PLAN["models"][1:], "seeds": [4]})
    model = LinkPredictor("jodie", seed=4, dim=8, model__time_dim=8)
    assert plan.runs[0].digest == model.run_for(load(name, **columns)).digest


def test_the_digest_of_a_benchmark_is_known_without_it(real_data: Any, monkeypatch: pytest.MonkeyPatch):
    stream = real_data("uci")
    plan = load_plan({"datasets": ["uci"], "models": [{"name": "tgn"}]})
    assert plan.missing
    assert plan.runs[0].digest == LinkPredictor("tgn").run_for(stream).digest


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ('"edgebank"', '"edgebnk"', 10, "unknown model 'edgebnk'; did you mean 'edgebank'?"),
        ("seeds = [7]", "sedes = [7]", 11, "unknown key 'sedes'; did you mean 'seeds'?"),
        ("train.epochs", "train.epoch", 7, "unknown setting 'train.epoch'; did you mean 'train.epochs'?"),
        ("model.dim", "model.dims", 15, "unknown setting 'model.dims'; did you mean"),
        ("model.dim = 16", 'model.dim = "wide"', 15, "model.dim=wide: expected a whole number"),
        ('"no_state"', '"no_stat"', 21, "did you mean 'no_state'?"),
        ('of = "dsrd"', 'of = "dsr"', 18, "no such model in this plan"),
        ('"synth:events=500", "m', '"synth:event=500", "m', 2, "did you mean 'synth:events'?"),
        (
            '"synth:events=500", "m',
            '"wikipedai", "m',
            2,
            "unknown data set 'wikipedai'; did you mean 'wikipedia'?",
        ),
        ('["synth:events=500"]', '["here.csv"]', 20, "no such file"),
        ("seeds = [0, 1]", 'protocols = ["strikt"]', 3, "unknown protocol 'strikt'; did you mean 'strict'?"),
        ("seeds = [0, 1]", 'seeds = ["0"]', 3, "seeds: give a list of whole numbers"),
        ('name = "edgebank"', 'preset = "paper"', 9, "a model needs a name"),
        ("seeds = [7]", 'preset = "papre"', 11, "unknown preset 'papre'"),
        ("train.epochs = 3", "data.time = 'when'", 7, "unknown setting 'data.time'"),
        ("settings = { model.dim = 16 }", "settings = 16", 15, "settings: write a table"),
        ("[settings]\ntrain.epochs", "[settings.train]\nepoch", 7, "unknown setting 'train.epoch'"),
        ("train.epochs = 3", "seed = 3", 7, "unknown setting 'seed'"),
        ('label = "no state"', 'label = "edgebank"', 19, "two models are called 'edgebank'"),
        ("trials = 3", "trials = 0", 24, "trials = 0: give 1 or more"),
        ("trials = 3", "trails = 3", 24, "unknown key 'trails'; did you mean 'trials'?"),
        ("space = { train.lr", "space = { train.rl", 25, "unknown setting 'train.rl'"),
        ("low = 1e-4", "low = 1", 25, "give low and high, low first"),
        ("minutes = 5", "minutes = -5", 4, "train.minutes"),
    ],
)
def test_what_a_plan_cannot_say(old: str, new: str, line: int, words: str):
    assert old in TOML
    message = refusal(TOML.replace(old, new, 1))
    assert message.startswith(f"plan.toml: line {line}: "), message
    assert words in message
    assert "\n" not in message


def test_what_is_no_plan():
    assert "not TOML" in refusal("models = [")
    assert "no models" in refusal('datasets = ["uci"]')
    assert "datasets: give a list" in refusal('[[models]]\nname = "dsrd"')
    with pytest.raises(DsrdError, match="no such plan"):
        load_plan("nothing.toml")


def test_data_that_are_not_here_are_named_with_their_address():
    plan = load_plan({"datasets": ["uci", STREAM], "models": [{"name": "edgebank"}]})
    assert list(plan.missing) == ["uci"]
    assert plan.missing["uci"].startswith("https://")
    assert [run.stream.name for run in plan.present().runs] == [STREAM]


def test_the_plan_of_the_paper_is_its_table():
    plan = load_plan(PLANS / "paper.toml")
    tables = {run.label for run in plan.runs if "without" not in run.label}
    assert len({run.stream.name for run in plan.runs}) == 14
    assert len({run.run.model for run in plan.runs}) == 13
    assert len(tables) == 14  # DSRD twice: its default settings, and as the paper writes it
    assert {run.run.seed for run in plan.runs} == set(range(5))
    assert len({run.label for run in plan.runs} - tables) == 4


def test_the_small_plan_needs_no_data():
    plan = load_plan(PLANS / "small.toml")
    assert not plan.missing
    assert len(plan.runs) == 2 * 3 * 2
    assert plan.space is not None


def test_the_plan_of_dsrd_has_every_ablation():
    plan = load_plan(PLANS / "dsrd.toml")
    whole = [run for run in plan.runs if run.label == "dsrd"]
    assert len(whole) == 6 * 2 * 3
    ablated = {run.run.model_args["ablate"] for run in plan.runs if "ablate" in run.run.model_args}
    assert ablated == set(get_args(Ablation)) - {"none"}
