"""`dsrd sweep`: what it shows, writes and refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsrd.experiments import records
from support.program import done, dsrd, finish, refused, start
from support.sweeps import LEARNED, RULE, run_here

PLAN = f"""title = "tiny"
datasets = ["synth:events=800,seed=1"]
seeds = [0, 1]

[settings]
train.epochs = 1
evaluate.negatives = ["random"]

[[models]]
name = "{RULE}"
seeds = [0]

[[models]]
name = "{LEARNED}"
settings = {{ model.dim = 8, model.time_dim = 8 }}

[search]
trials = 2
models = ["{LEARNED}"]
space = {{ train.lr = {{ low = 1e-4, high = 1e-2, log = true }} }}
"""


@pytest.fixture
def plan() -> Path:
    path = Path("tiny.toml")
    path.write_text(PLAN)
    return path


def test_a_sweep_as_a_user_runs_it(plan: Path):
    """In processes of its own; the live table is a log here."""
    ended = finish(start("sweep", plan, "--jobs", 2, "--threads", 1))
    assert ended.code == 0, ended.err
    assert "test AP in percent, mean and deviation over seeds" in ended.out
    assert "±" in ended.out
    assert ended.err.splitlines()[-1] == "records: sweeps/tiny/records.jsonl (3 runs)"
    assert len([line for line in ended.err.splitlines() if line.startswith("done: ")]) == 3
    assert Path("sweeps/tiny/plan.toml").read_text() == PLAN
    found = list(records.read(Path("sweeps/tiny/records.jsonl")))
    assert {record["model"] for record in found} == {RULE, LEARNED}

    again = done("sweep", plan, "--json")
    assert again.json == {"records": "sweeps/tiny/records.jsonl", "done": 3, "failed": {}}
    shown = done("sweep", plan, "--dry-run")
    assert "3 runs, 3 done, 0 to run" in shown.err
    assert "last time" in shown.out

    reported = done("report", "sweeps/tiny", "--out", "page")
    assert "3 records" in reported.out
    page = Path("page/index.html").read_text()
    assert all(record["digests"]["config"] in page for record in found), "every record is in the page"
    rows = Path("page/tables/links.csv").read_text()
    ours = {str(each["results"]["transductive"]["random"]["ap"]) for each in found}
    assert ours <= {entry for row in rows.splitlines() for entry in row.split(",")}


def test_a_dry_run_writes_nothing_and_says_what_is_missing(plan: Path):
    plan.write_text(PLAN.replace('"synth:events=800,seed=1"', '"synth:events=800,seed=1", "uci"'))
    shown = done("sweep", plan, "--dry-run", "--json")
    assert [run["state"] for run in shown.json["runs"]].count("no data") == 3
    assert list(shown.json["missing"]) == ["uci"]
    assert "dsrd data fetch uci (https://" in " ".join(done("sweep", plan, "--dry-run").out.split())
    assert not Path("sweeps").exists()
    error = refused("sweep", plan)
    assert "data set uci not here; `dsrd data fetch uci` gets it" in error
    assert "--present leaves them out" in error


def test_a_failed_run_is_in_the_table_and_in_the_exit_code(plan: Path, monkeypatch: pytest.MonkeyPatch):
    run_here(monkeypatch)
    plan.write_text(PLAN.replace("model.time_dim = 8", 'model.time_dim = 8, train.device = "cuda:7"'))
    ended = dsrd("sweep", plan)
    assert ended.code == 1
    assert "reason" in ended.out
    assert "train.device=cuda:7" in ended.out
    assert "records: sweeps/tiny/records.jsonl (1 runs)" in ended.err
    assert "2 failed: train.device=cuda:7" in " ".join(done("sweep", plan, "--dry-run").out.split())


def test_a_search(plan: Path, monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("optuna")
    run_here(monkeypatch)
    ended = done("sweep", plan, "--search", "--out", "found")
    assert "best settings, by validation in percent" in ended.out
    assert "train.lr=" in ended.out
    assert "a plan with these settings: found/best.toml" in ended.err
    assert not Path("found/records.jsonl").exists()
    again = done("sweep", plan, "--search", "--out", "found", "--json").json
    assert again["best"][0]["trials"] == {"complete": 2, "pruned": 0, "failed": 0}
    assert "2 runs" in done("sweep", "found/best.toml", "--dry-run").err


def test_a_slurm_script(plan: Path):
    ended = done("sweep", plan, "--slurm", "--jobs", 2, "--out", "cluster")
    assert ended.out.strip() == "sbatch cluster/sweep.sh"
    assert "3 runs to submit, 0 done; their records will be in cluster/records.jsonl" in ended.err
    assert "#SBATCH --array=0-2%2" in Path("cluster/sweep.sh").read_text()
    assert len(list(Path("cluster/planned").iterdir())) == 3


def test_a_file_beside_the_plan_is_found(monkeypatch: pytest.MonkeyPatch, calls: Path):
    folder = Path("plans")
    folder.mkdir()
    calls.rename(folder / "calls.csv")
    table = '{ name = "calls.csv", source = "caller", target = "callee", time = "when" }'
    text = PLAN.replace('"synth:events=800,seed=1"', table).replace("seeds = [0, 1]", "seeds = [0]")
    (folder / "own.toml").write_text(text)
    run_here(monkeypatch)
    assert done("sweep", folder / "own.toml", "--json").json["done"] == 2
    assert {record["dataset"] for record in records.read(Path("sweeps/own/records.jsonl"))} == {"calls"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nothing.toml"], "nothing.toml: no such plan; give the path of a TOML file"),
        (["tiny.toml", "--jobs", "0"], "jobs=0: give 1 or more"),
        (["tiny.toml", "--slurm", "--ray", "local"], "--slurm and --ray: give one of them"),
        (["tiny.toml", "--slurm", "--search"], "--slurm and --search: give one of them"),
        (["tiny.toml", "--ray", "localhost:1"], "no Ray cluster can be reached at 'localhost:1'"),
    ],
)
def test_what_is_refused(plan: Path, words: list[str], message: str):
    outcome = dsrd("sweep", *words)
    assert outcome.code == 2
    assert outcome.out == ""
    if "Ray is not installed" not in outcome.error:
        assert message in outcome.error
    assert not list(Path().glob("sweeps/tiny/runs"))


def test_a_wrong_plan_is_refused_before_anything_is_written(plan: Path):
    plan.write_text(PLAN.replace(LEARNED, LEARNED[:-1], 1))
    assert f"tiny.toml: line 14: unknown model '{LEARNED[:-1]}'; did you mean '{LEARNED}'?" in refused(
        "sweep", plan
    )
