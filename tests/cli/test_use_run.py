"""Use of a trained run: `dsrd predict`, `embed` and `inspect`."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest

from dsrd.models import DEFAULT
from support.call_log import CALLS, write_calls
from support.program import QUICK, STATELESS, STREAM, TRAINED, UNTRAINED, done, refused


@pytest.fixture(scope="module")
def callers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run on a file with names and dates; not to be changed."""
    folder = tmp_path_factory.mktemp("callers")
    calls = write_calls(folder / "calls.csv")
    done("train", "-m", DEFAULT, *QUICK, "-d", calls, *CALLS, "-o", folder / "run", "--results", "none")
    return folder / "run"


def test_partners_of_a_node_by_name(callers: Path):
    rows = list(csv.DictReader(done("predict", callers, "--node", "Çelik", "--top", 3).out.splitlines()))
    assert len(rows) == 3
    assert list(rows[0]) == ["caller", "callee", "probability", "partner", "rate", "surprise", "known"]
    assert {row["caller"] for row in rows} == {"Çelik"}
    scores = [float(row["probability"]) for row in rows]
    assert scores == sorted(scores, reverse=True)

    people = ["Ann", "Bob", "Çelik", "Dé", "eve@example.org", '"Fay, Jr."', "007", "Hans"]
    Path("ask.csv").write_text("caller,callee\n" + "".join(f"Çelik,{name}\n" for name in people))
    pairs = done("predict", callers, "--pairs", "ask.csv", "--json").json["predictions"]
    best = sorted(pairs, key=lambda row: -row["probability"])[:3]
    assert [row["callee"] for row in best] == [row["callee"] for row in rows]
    assert [row["probability"] for row in best] == pytest.approx(scores, abs=1e-6)


def test_partners_of_several_nodes(callers: Path):
    result = done("predict", callers, "--node", "Ann", "--node", "zoe", "--top", 2, "--json").json["predictions"]
    assert [row["caller"] for row in result] == ["Ann", "Ann", "zoe", "zoe"]
    assert [row["known"] for row in result] == [True, True, False, False]
    assert "unknown node 'zoe'" in refused("predict", callers, "--node", "zoe", "--strict-names")
    Path("ask.csv").write_text("caller,callee\nAnn,zoe\n")
    assert "unknown node 'zoe'" in refused("predict", callers, "--pairs", "ask.csv", "--strict-names")


def test_predict_reads_its_own_output_and_keeps_columns(callers: Path):
    Path("ask.csv").write_text(
        "ticket,caller,callee,when\n007,Ann,Bob,2024-05-22T08:00:00Z\n8,Bob,Ann,2024-05-23T00:00:00Z\n"
    )
    done("predict", callers, "--pairs", "ask.csv", "--out", "first.csv")
    again = done("predict", callers, "--pairs", "first.csv", "--out", "second.csv")
    assert "first.csv: the answers replace its columns probability, partner, rate, surprise, known" in again.err
    assert Path("first.csv").read_text() == Path("second.csv").read_text()
    assert Path("first.csv").read_text().splitlines()[1].startswith("007,Ann,Bob,2024-05-22T08:00:00Z,0.")


def test_surprise_of_new_calls_has_two_parts(callers: Path):
    Path("new.csv").write_text("caller,callee,when,cost,kind\nAnn,Bob,2024-06-22T08:00:00Z,1,0\n")
    row = done("surprise", callers, "new.csv", "--json").json["events"][0]
    assert list(row)[5:] == ["surprise", "source_bits", "partner_bits", "percentile", "known"]
    assert row["surprise"] == pytest.approx(row["source_bits"] + row["partner_bits"], rel=1e-5)


def test_partners_with_time_head_and_out(callers: Path):
    words = ["predict", callers, "--node", "007", "--time", "2024-05-19T08:00:00Z"]
    result = done(*words, "--json").json
    assert result["rows"] == 8
    assert {row["when"] for row in result["predictions"]} == {"2024-05-19T08:00:00Z"}
    assert done(*words, "--head", "partner", "--json").json == result
    assert done(*words, "--head", "pair", "--json").json != result
    assert done(*words, "--top", 2, "--out", "best.csv", "--json").json == {"rows": 2, "out": "best.csv"}
    assert len(Path("best.csv").read_text().splitlines()) == 3


@pytest.mark.parametrize("model", [DEFAULT, TRAINED, STATELESS])
def test_partners_of_a_numbered_node(trained_once: Callable[[str], Path], model: str):
    outcome = done("predict", trained_once(model), "--node", 3, "--json")
    assert outcome.json["rows"] == 10
    assert outcome.err == ""
    early = done("predict", trained_once(model), "--node", 3, "--time", 10, "--top", 1)
    assert "1 questions lie in the time of training" in early.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("", "give either --pairs or --node"),
        ("--node Ann --pairs ask.csv", "give either --pairs or --node"),
        ("--pairs ask.csv --top 3", "--top is only for --node"),
        ("--node Ann --time 3 --time 4", "--time is given twice; keep one"),
        ("--node Anm --strict-names", "unknown node 'Anm'; did you mean 'Ann'?"),
        ("--node Ann --top 0", "--top 0: give 1 or more"),
        ("--node Ann --time soon", "time soon: give a number, 0 or later, or a date"),
        ("--node Ann --time=-3", "time -3: give a number, 0 or later, or a date"),
        ("--node Ann --time nan", "time nan: give a number, 0 or later, or a date"),
        ("--node Ann --head pairs", "unknown head 'pairs'; did you mean 'pair'?"),
    ],
)
def test_predict_refuses_invalid_options(callers: Path, words: str, message: str):
    Path("ask.csv").write_text("caller,callee\nAnn,Bob\n")
    assert message in refused("predict", callers, *words.split())


@pytest.mark.parametrize("name", ["config.json", "events.arrow", "../run/now.safetensors", "record.json"])
def test_results_do_not_replace_files_of_the_run(callers: Path, name: str):
    before = (callers / name).read_bytes()
    text = refused("predict", callers, "--node", "Ann", "--out", callers / name)
    assert "is a file of the run itself; give another name" in text
    assert (callers / name).read_bytes() == before


def test_an_empty_node_name_is_refused(callers: Path):
    assert "a node without a name" in refused("predict", callers, "--node=")


@pytest.mark.parametrize("name", ["0", "999", "-1", "Ann"])
def test_a_number_that_is_not_a_node_id_is_refused(trained_once: Callable[[str], Path], name: str):
    assert not done("predict", trained_once(TRAINED), f"--node={name}", "--json").json["predictions"][0]["known"]
    error = refused("predict", trained_once(TRAINED), f"--node={name}", "--strict-names")
    assert f"unknown node '{name}'; the nodes of this stream are numbered from 1 to" in error


def test_partners_of_a_bipartite_target_are_refused():
    words = ["-d", "synth:events=1000,bipartite=true", "-m", UNTRAINED, "-o", "run", "--results", "none"]
    done("train", *words)
    targets = [row["target"] for row in done("predict", "run", "--node", 1, "--json").json["predictions"]]
    assert "is only ever a target" in refused("predict", "run", "--node", targets[0])


def test_embeddings_of_named_nodes(callers: Path):
    message = done("embed", callers, "--out", "some/nodes.parquet", "--json").json
    width = message.pop("dim")
    assert message == {"nodes": 8, "out": "some/nodes.parquet"}
    table = pyarrow.parquet.read_table("some/nodes.parquet")
    assert table.column_names == ["node", *(f"e{i}" for i in range(width))]
    assert {"Çelik", "Fay, Jr.", "007"} < {*table["node"].to_pylist()}
    shown = done("embed", callers, "--out", "nodes.npy")
    assert shown.err == f"nodes.npy: 8 nodes, {width} numbers each\n"
    matrix = np.load("nodes.npy")
    assert matrix.shape == (9, width)
    assert not matrix[0].any()
    assert np.array_equal(matrix[1:, 4], table["e4"].to_numpy())


@pytest.mark.parametrize("model", [DEFAULT, TRAINED, STATELESS])
def test_embeddings_at_a_time(trained_once: Callable[[str], Path], model: str):
    done("embed", trained_once(model), "--out", "last.npy")
    early = done("embed", trained_once(model), "--out", "early.npy", "--time", 1000)
    assert "1 questions lie in the time of training" in early.err
    last, first = np.load("last.npy"), np.load("early.npy")
    assert last.shape == first.shape
    assert np.isfinite(last).all()
    assert not np.allclose(last, first)
    done("embed", trained_once(model), "--out", "numbered.parquet")
    assert pyarrow.parquet.read_table("numbered.parquet")["node"].to_pylist() == [
        str(node) for node in range(1, len(last))
    ]


def test_embed_refuses_models_without_embeddings_and_other_suffixes(callers: Path):
    for name, suffix in (("nodes.csv", ".csv"), ("nodes", "")):
        assert f"{name}: cannot write '{suffix}'; use a name" in refused("embed", callers, "--out", name)
    assert "missing option '--out'" in refused("embed", callers)
    assert "time later: give a number" in refused("embed", callers, "--out", "a.npy", "--time", "later")
    assert "no-run: not a run folder" in refused("embed", "no-run", "--out", "a.npy")
    done("train", "-m", UNTRAINED, "-d", STREAM, "-o", "run", "--results", "none")
    assert f"{UNTRAINED} has no embeddings" in refused("embed", "run", "--out", "a.npy")


def test_inspect_gives_learned_constants_sizes_and_curve(callers: Path):
    result = done("inspect", callers, "--json").json
    log = [json.loads(line) for line in (callers / "log.jsonl").read_text().splitlines()]
    assert (result["model"], result["dataset"], result["complete"]) == (DEFAULT, "calls", True)
    assert (result["epochs"], result["best_epoch"], result["curve"]) == (1, 1, log)
    assert result["learned"] == log[0]["learned"]
    assert set(result["learned"]) == {"layer_1", "layer_2", "retention", "memory"}
    assert result["state"]["bytes"] == sum(field["bytes"] for field in result["state"]["fields"].values()) > 0
    assert result["parameters"] == json.loads((callers / "record.json").read_text())["parameters"]


@pytest.mark.parametrize("model", [DEFAULT, TRAINED, STATELESS])
def test_inspect_prints_tables_that_fit_80_columns(trained_once: Callable[[str], Path], model: str):
    Path("run").symlink_to(trained_once(model))
    shown = done("inspect", "run").out
    assert all(len(line.rstrip()) <= 80 for line in shown.splitlines())
    constants = (
        "learned: layer 1",
        "half life in events: layer 2",
        "learned: memory",
        "repeat: half life in events",
    )
    assert all((constant in shown) == (model == DEFAULT) for constant in constants)
    assert "[" not in shown
    assert ("state after training" in shown) == (model != STATELESS)
    assert "val AUC" in shown
    assert "best" in shown


def test_inspect_of_a_rule_and_of_a_folder_that_is_not_a_run():
    done("train", "-m", UNTRAINED, "-d", STREAM, "-o", "run", "--results", "none")
    result = done("inspect", "run", "--json").json
    assert (result["parameters"], result["learned"]) == (0, {})
    assert done("inspect", "run").err == ""
    assert "no-run: not a run folder" in refused("inspect", "no-run")


def test_calibration_prints_tables_and_writes_the_record(trained_once: Callable[[str], Path]):
    run = trained_once(STATELESS)
    printed = done("calibration", run, "--sample", 20, "--out", "record.json").out
    assert "log loss" in printed
    assert "expected" in printed
    record = json.loads(Path("record.json").read_text())
    assert record["calibration"]["sample"] == 20
    assert record["calibration"]["partner"]["excess"] > 0
    assert done("calibration", run, "--sample", 20, "--json").json == record
    strict, published = (
        done("calibration", run, "--sample", 5, "--protocol", name, "--json").json for name in ("strict", "dyglib")
    )
    assert (strict["protocol"], published["protocol"]) == ("strict", "dyglib")


def test_calibration_says_why_a_rule_is_skipped():
    done("train", "-m", UNTRAINED, "-d", STREAM, "-o", "rule", "--results", "none")
    assert "not log ratios" in done("calibration", "rule").out
    assert "--sample 0: give 1 or more" in refused("calibration", "rule", "--sample", 0)
