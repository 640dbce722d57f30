"""`dsrd train`, `evaluate`, `predict`, `bench`, `demo`: their output and the files they write."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from dsrd.checksums import verified
from dsrd.models import DEFAULT, DEMO
from support.call_log import CALLS, COLUMNS, write_calls
from support.program import QUICK, STATELESS, STREAM, TRAIN, TRAINED, UNTRAINED, done, refused
from support.tgb import small_wikipedia

KEYS = {
    "dataset",
    "model",
    "preset",
    "seed",
    "protocol",
    "results",
    "config",
    "versions",
    "digests",
    "timing",
    "peak_rss_mb",
    "parameters",
}
FIGURES = {"ap", "auc", "ap_split", "auc_split"}


def train(*words: object, data: object = STREAM, out: str = "run") -> tuple[object, ...]:
    return (*TRAIN, "--dataset", data, "--out", out, *words)


def assert_is_record(record: dict) -> None:
    assert set(record) >= KEYS
    for setting in ("transductive", "inductive"):
        for figures in record["results"][setting].values():
            assert set(figures) == FIGURES
            assert all(0 <= value <= 100 for value in figures.values())
    assert [len(values) for values in record["curve"].values()] == [record["timing"]["epochs"]] * 3
    if record["protocol"] == "dyglib":  # under strict, states lag while it trains
        assert max(record["curve"]["val_ap"]) >= record["validation"]["transductive"]["random"]["ap"] - 1e-3
    assert record["timing"]["seconds_per_epoch"] > 0
    assert record["timing"]["events_per_second"] > 0
    assert {"data", "split", "config", "negatives"} <= set(record["digests"])


@pytest.mark.parametrize("model", [TRAINED, STATELESS, UNTRAINED])
def test_train_prints_the_record_it_writes(model: str):
    settings = [] if model == UNTRAINED else QUICK[2:]
    words = ["train", "-d", STREAM, "-m", model, "--seed", 3, "-o", "some/run", "--threads", 1, *settings]
    outcome = done(*words, "--json")
    assert len(outcome.out.splitlines()) == 1
    record = outcome.json
    assert_is_record(record)
    assert (record["dataset"], record["model"], record["seed"]) == (STREAM, model, 3)
    assert set(record["results"]["transductive"]) == {"random", "historical", "inductive"}
    assert (record["parameters"] > 0) == (model != UNTRAINED)
    lines = Path("some/results.jsonl").read_text().splitlines()
    assert lines == outcome.out.splitlines()
    assert verified(json.loads(Path("some/run/record.json").read_text())) == record


def test_train_prints_a_table_that_fits_80_columns():
    outcome = done(*train())
    assert "transductive" in outcome.out
    assert "best possible" in outcome.out
    table, _, remarks = outcome.out.partition("\n\n")
    assert all(len(line.rstrip()) <= 80 for line in table.splitlines())
    assert "best rule, chosen on validation: " in remarks
    assert "the best rule that learns nothing" in remarks
    assert outcome.err.splitlines()[-1] == "run: run (best epoch: 1 of 1)"


def test_train_without_out_names_the_folder_after_the_settings():
    for seed in (0, 1):
        done(*TRAIN, "-d", STREAM, "--seed", seed)
    folders = sorted(path.name for path in Path("runs").iterdir() if path.is_dir())
    assert [folder.rpartition("-")[0] for folder in folders] == [
        f"synth-events-1000-{TRAINED}-0",
        f"synth-events-1000-{TRAINED}-1",
    ]
    assert len(Path("runs/results.jsonl").read_text().splitlines()) == 2


def test_a_finished_run_is_not_trained_again():
    first = done(*train("--json"))
    written = {path: path.stat().st_mtime_ns for path in Path("run").iterdir() if path.name[0] != "."}
    again = done(*train("--json"))
    assert again.out == first.out
    assert "this run is complete" in again.err
    assert {path: path.stat().st_mtime_ns for path in Path("run").iterdir()} == written
    assert len(Path("results.jsonl").read_text().splitlines()) == 1


def test_more_epochs_continue_a_complete_run():
    done(*train("--json"))
    more = [str(word).replace("train.epochs=1", "train.epochs=3") for word in train("--json")]
    longer = done(*more)
    assert "run: continues after epoch" in longer.err
    assert json.loads(longer.out.splitlines()[-1])["timing"]["epochs"] == 3
    assert len(Path("results.jsonl").read_text().splitlines()) == 2
    assert "this run is complete" in done(*more).err


def test_a_record_missing_from_the_results_file_is_added_later():
    first = done(*train("--json", "--results", "none"))
    assert not Path("results.jsonl").exists()
    for _ in range(2):
        done(*train("--results", "kept/all.jsonl"))
    assert Path("kept/all.jsonl").read_text() == first.out


def test_half_a_line_in_the_results_file_does_not_damage_new_records():
    Path("results.jsonl").write_text('{"dataset": "synth", "mo')
    done(*train())
    damaged, record = Path("results.jsonl").read_text().splitlines()
    assert damaged == '{"dataset": "synth", "mo'
    assert_is_record(json.loads(record))


@pytest.mark.parametrize(
    ("words", "difference"),
    [
        ("--seed 1", "seed (0, not 1)"),
        (f"--model {STATELESS}", f"model ({TRAINED}, not {STATELESS})"),
        ("--protocol dyglib", "protocol (strict, not dyglib)"),
        ("--preset default", "preset (published, not default)"),
        ("--set train.lr=0.5", "train.lr (0.0001, not 0.5)"),
        ("--set model.dropout=0.5", "model.dropout (None, not 0.5)"),
        ("--set evaluate.candidates=9", "evaluate.candidates (0, not 9)"),
    ],
)
def test_the_folder_of_another_run_is_refused(trained_once: Callable[[str], Path], words: str, difference: str):
    shutil.copytree(trained_once(TRAINED), "run")
    command = ["train", *QUICK, "--dataset", STREAM, "--out", "run", *words.split()]
    command += [] if "--model" in command else ["--model", TRAINED]
    assert f"run: holds a run with another {difference}; choose another folder" in refused(*command)


def test_a_folder_of_a_run_with_an_extra_setting_is_refused(trained_once: Callable[[str], Path]):
    shutil.copytree(trained_once(TRAINED), "run")
    words = ["train", "--dataset", STREAM, "--model", TRAINED, "--out", "run", "--set", "train.epochs=1"]
    assert "another model.dim (16, not None)" in refused(*words)


def test_out_that_is_another_folder_or_a_file_is_refused():
    Path("full").mkdir()
    Path("full/thesis.txt").write_text("years of work")
    Path("file").write_text("also work")
    assert "full: is not empty and not a run" in refused(*train(out="full"))
    assert "file: is a file; choose another folder" in refused(*train(out="file"))


@pytest.mark.parametrize("model", [TRAINED, STATELESS])
def test_evaluate_gives_the_results_of_training(trained_once: Callable[[str], Path], model: str):
    folder = trained_once(model)
    trained = json.loads((folder / "record.json").read_text())
    before = sorted(path.name for path in folder.iterdir())
    result = done("evaluate", folder, "--threads", 1, "--results", "own.jsonl", "--json")
    assert_is_record(result.json)
    assert result.json["results"] == trained["results"]
    assert result.json["digests"] == trained["digests"]
    assert result.json["timing"]["seconds_per_epoch"] == trained["timing"]["seconds_per_epoch"]
    assert sorted(path.name for path in folder.iterdir()) == before
    assert Path("own.jsonl").read_text() == result.out


def test_evaluate_options_change_the_measurement(trained_once: Callable[[str], Path]):
    words = ["--protocol", "strict", "--negatives", "random,inductive", "--batch-size", 50, "--candidates", 20]
    result = done("evaluate", trained_once(TRAINED), *words, "--order", "fast", "--results", "none", "--json").json
    assert result["protocol"] == "strict"
    assert set(result["results"]["transductive"]) == {"random", "inductive", "ranking"}
    assert result["results"]["transductive"]["ranking"]["candidates"] == 20
    evaluate = result["config"]["evaluate"]
    assert (evaluate["batch_size"], evaluate["order"]) == (50, "fast")
    shown = done(
        "evaluate", trained_once(TRAINED), "--negatives", "random", "--candidates", 20, "--results", "none"
    )
    assert "MRR / Hits@10" in shown.out
    assert "historical" not in shown.out


def test_evaluate_asks_the_questions(trained_once: Callable[[str], Path]):
    words = [
        "evaluate",
        trained_once(TRAINED),
        "--questions",
        "--set",
        "evaluate.asked_events=9",
        "--results",
        "none",
    ]
    result = done(*words, "--json").json
    assert set(result["questions"]) == {"protocol", "partner", "pairs", "awake", "first"}
    assert result["questions"]["partner"]["ranked_events"] == 9
    assert all("questions" in rule for rule in result["rules"].values())
    shown = done(*words).out
    assert "P(random pair)" in shown
    assert "MRR and Hits@10 of 9 events among" in shown
    assert "has no intensity; leave it at plain" in refused("evaluate", trained_once(TRAINED), "--reading", "law")


def test_evaluate_measures_an_untrained_rule():
    result = done("evaluate", "--model", UNTRAINED, "--dataset", STREAM, "--json").json
    assert_is_record(result)
    assert result["parameters"] == 0
    assert len(Path("runs/results.jsonl").read_text().splitlines()) == 1
    again = done("evaluate", "-m", UNTRAINED, "-d", STREAM, "--set", "model.variant=threshold", "--json").json
    assert again["config"]["model_args"]["variant"] == "threshold"
    assert len(Path("runs/results.jsonl").read_text().splitlines()) == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (f"--model {STATELESS}", f"holds a {TRAINED}, not a {STATELESS}"),
        ("--set train.epochs=2", "train.epochs: a trained run keeps its settings"),
        ("--set model.dim=8", "model.dim: a trained run keeps its settings"),
        ("--source who", "the run stores how its data are read"),
        ("--negatives histori", "did you mean 'historical'?"),
        ("--set evaluate.ordr=fast", "did you mean 'evaluate.order'?"),
    ],
)
def test_evaluate_refuses_options_that_contradict_the_run(
    trained_once: Callable[[str], Path], words: str, message: str
):
    assert message in refused("evaluate", trained_once(TRAINED), *words.split())


def test_own_csv_file_from_training_to_prediction(calls: Path):
    record = done(*train(*CALLS, "--json", data=calls)).json
    assert record["dataset"] == "calls"
    assert record["config"]["model_args"]["dim"] == 16
    result = done("evaluate", "run", "--json").json
    assert result["results"] == record["results"]

    Path("ask.csv").write_text(
        "callee,caller,when\nBob,Ann,2024-05-19T08:00:00Z\n"
        '"Fay, Jr.",007,2024-05-20T00:00Z\nnobody,Dé,2024-06-01T00:00Z\n'
    )
    rows = list(csv.DictReader(done("predict", "run", "--pairs", "ask.csv").out.splitlines()))
    assert list(rows[0]) == ["callee", "caller", "when", "probability", "partner", "surprise", "known"]
    assert [(row["caller"], row["callee"], row["when"]) for row in rows] == [
        ("Ann", "Bob", "2024-05-19T08:00:00Z"),
        ("007", "Fay, Jr.", "2024-05-20T00:00Z"),
        ("Dé", "nobody", "2024-06-01T00:00Z"),
    ]
    assert all(0 < float(row["probability"]) < 1 for row in rows)
    assert [row["known"] for row in rows] == ["true", "true", "false"]

    message = done("predict", "run", "--pairs", "ask.csv", "--out", "scores/all.csv", "--json")
    assert message.json == {"rows": 3, "out": "scores/all.csv"}
    assert list(csv.DictReader(Path("scores/all.csv").read_text().splitlines())) == rows
    listed = done("predict", "run", "--pairs", "ask.csv", "--json").json["predictions"]
    assert [f"{row['probability']:.6g}" for row in listed] == [row["probability"] for row in rows]


def test_predict_on_numbered_nodes_without_times(trained_once: Callable[[str], Path]):
    Path("ask.csv").write_text("source,target\n1,2\n3,999\n")
    outcome = done("predict", trained_once(TRAINED), "--pairs", "ask.csv", "--json")
    assert [row["target"] for row in outcome.json["predictions"]] == ["2", "999"]
    assert [row["known"] for row in outcome.json["predictions"]] == [True, False]
    assert "never seen before: '999'; the nodes of this stream are numbered from 1 to" in outcome.err


def test_predict_before_the_end_of_the_state_gives_a_note(trained_once: Callable[[str], Path]):
    Path("ask.csv").write_text("source,target,time\n1,2,10\n1,2,99999999\n")
    assert (
        "1 questions lie in the time of training"
        in done("predict", trained_once(TRAINED), "--pairs", "ask.csv").err
    )


def test_a_run_without_events_needs_the_data_again(calls: Path):
    message = done(*train(*CALLS, "--no-history", data=calls)).err
    assert "run: without its events a run cannot be asked anything until the stream is given again" in message
    calls.rename("moved.csv")
    assert "run: was saved without its events; give the stream too" in refused("evaluate", "run")
    assert done("evaluate", "run", "--dataset", "moved.csv", "--results", "none", "--json").json["parameters"]
    Path("ask.csv").write_text("caller,callee\nAnn,Bob\n")
    assert done("predict", "run", "--pairs", "ask.csv", "--dataset", "moved.csv", "--json").json["rows"] == 1


def test_a_moved_run_folder_works_without_its_data(calls: Path):
    done(*train(*CALLS, data=calls))
    Path("ask.csv").write_text("caller,callee\nAnn,Bob\n")
    before = done("predict", "run", "--pairs", "ask.csv").out
    calls.unlink()
    Path("run").rename("moved")
    assert done("predict", "moved", "--pairs", "ask.csv").out == before
    assert done("evaluate", "moved", "--results", "none", "--json").json["parameters"]


@pytest.mark.parametrize("words", ["--set preset=paper", "--preset paper"])
def test_train_with_a_preset_of_the_model(words: str):
    """A preset changes equations, recipe and name in tables; --set still overrides its settings."""
    command = ["train", "-m", DEFAULT, "-d", STREAM, "-o", "run", "--threads", 1, *words.split()]
    command += ["--set", "train.epochs=1", "--set", "model.dim=8"]
    record = done(*command, "--json").json
    assert_is_record(record)
    assert (record["preset"], record["config"]["preset"], record["head"]) == ("paper", "paper", "partner")
    assert "heads" not in record
    config = record["config"]
    assert (config["model_args"]["state"], config["model_args"]["dim"]) == ("dense", 8)
    assert (config["train"]["lr"], config["train"]["patience"], config["train"]["average"]) == (1e-4, 10, 0.0)
    assert config["train"]["epochs"] == 1
    assert f"{DEFAULT}-paper" in done(*command).out
    result = done("inspect", "run", "--json").json
    assert (result["preset"], result["heads"]) == ("paper", ["partner"])
    assert set(result["learned"]) == {"layer_1", "layer_2"}
    first, second = done("inspect", "run").out.split("learned: layer 2")
    assert "delta" in second
    assert "delta" not in first  # the first layer has no diffusion
    assert done("evaluate", "run", "--results", "none", "--json").json["preset"] == "paper"
    assert "unknown head 'pair'" in refused("evaluate", "run", "--head", "pair")


def test_models_lists_all_models():
    rows = {row["name"]: row for row in done("models", "--json").json["models"]}
    assert {TRAINED, STATELESS, UNTRAINED} <= set(rows)
    assert [name for name, row in rows.items() if row["default"]] == [DEFAULT]
    assert rows[TRAINED]["settings"]["dropout"] == 0.1
    paper = rows[DEFAULT]["presets"]["paper"]
    assert paper["settings"]["model.dim"] == 64
    assert paper["state_bytes_per_node"] == 4 * 2 * 4 * 16 * 16  # float32; layers, heads, a head's matrix
    assert rows[TRAINED]["presets"] == {}
    assert rows[TRAINED]["state_bytes_per_node"] > 0 == rows[STATELESS]["state_bytes_per_node"]
    shown = done("models").out
    assert "trained when none is named" in shown
    assert all(len(line.rstrip()) <= 80 for line in shown.splitlines())


def test_bench_speed_prints_timings():
    words = ["bench", "speed", "--model", STATELESS, "--dataset", STREAM, "--batches", 1, *QUICK[2:]]
    result = done(*words, "--json").json
    assert (result["dataset"], result["model"], result["machine"]["threads"]) == (STREAM, STATELESS, 1)
    assert result["timing"]["seconds_per_epoch"] > 0
    assert result["timing"]["extrapolated"]
    assert set(result) >= KEYS - {"results"}
    assert "events per second" in done(*words, "--repeats", 2).out


def test_demo_compares_its_models():
    words = ["demo", "--events", 600, "--epochs", 1, "--threads", 1]
    result = done(*words, "--json").json
    assert set(result["results"]) == set(DEMO)
    shown = done(*words)
    assert "best possible" in shown.out
    assert "dsrd train --dataset YOUR.csv" in shown.err


def test_progress_bars_appear_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch):
    write_calls(Path("calls.csv"))
    assert done("data", "describe", "calls.csv", *COLUMNS).err.startswith("sorted by time"), "a bar in a log"
    monkeypatch.setattr("dsrd.reporter.LINE_EVERY", 0.0)  # as if every step took as long as a line waits
    seen = done(*train("--json")).err
    for stage in (
        "reading synth",
        "epoch 1/1 train",
        "epoch 1/1 val: scoring",
        "test: inductive negatives",
        "scoring",
    ):
        assert stage in seen
    assert "reading calls.csv" in done("data", "describe", "calls.csv", *COLUMNS).err
    assert "test: historical negatives" in done("data", "audit", STREAM).err
    assert "drawing 500 events" in done("data", "synth", "drawn.csv", "--set", "events=500").err


def test_a_benchmark_with_its_own_split_goes_all_the_way() -> None:
    small_wikipedia(Path("data"))
    quick = ("--threads", "1", "--set", "model.dim=16", "--set", "model.time_dim=8", "--set", "train.keep=mrr")
    words = ("-m", STATELESS, "-d", "tgb:wiki", "--data-dir", "data", "--set", "evaluate.negatives=random")
    command = ("train", *words, *quick, "-o", "run", "--json")
    first = done(*command, "--set", "train.epochs=1").json
    assert (first["dataset"], first["protocol"], list(first["results"])) == (
        "tgb:wiki",
        "dyglib",
        ["transductive"],
    )
    longer = done(*command, "--set", "train.epochs=2").json
    assert longer["timing"]["epochs"] == 2
    assert longer["curve"]["val_mrr"][0] == first["curve"]["val_mrr"][0]
    shutil.move("run", "moved")
    shutil.rmtree("data")
    sample = done("evaluate", "moved", "--set", "evaluate.ranked_events=10", "--json").json
    assert sample["results"]["transductive"]["ranking"]["events"] == 10
    assert sample["digests"]["split"] == first["digests"]["split"]
    assert "val MRR" in done("inspect", "moved").out
    assert len(done("predict", "moved", "--node", "3").out.splitlines()) == 9  # all eight pages
    message = refused("train", "-d", "tgb:review", "-m", STATELESS)
    assert "py-tgb" in message
