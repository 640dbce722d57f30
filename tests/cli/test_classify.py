"""`dsrd classify`: records of frozen and end-to-end training, the saved head, and errors."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from support.call_log import CALLS, write_calls
from support.program import QUICK, STATELESS, STREAM, TRAINED, UNTRAINED, done, dsrd, refused, tree

Trained = Callable[[str], Path]
FAST = ("--json", "--threads", "1", "--set", "head.epochs=2")


@pytest.fixture(scope="module")
def _originals(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    made: dict[str, Path] = {}

    def get(model: str) -> Path:
        if model not in made:
            made[model] = tmp_path_factory.mktemp("classified") / model
            done("train", "-m", model, *QUICK, "-d", STREAM, "-o", made[model], "--results", "none")
        return made[model]

    return get


@pytest.fixture
def trained_once(_originals: Trained) -> Trained:
    """`trained_once(model)`: a copy of a short run on STREAM in the working folder; tests save a head in it."""
    return lambda model: Path(shutil.copytree(_originals(model), model))


def test_classify_writes_the_record_it_prints(trained_once: Trained):
    folder = trained_once(TRAINED)
    record = done("classify", folder, *FAST, "--results", "all.jsonl").json
    assert (record["task"], record["model"], record["seed"]) == ("node", TRAINED, 0)
    assert (record["training"], record["asks"], record["visible"]) == ("frozen", "events", "target")
    assert record["timing"]["epochs"] == len(record["val_auc"]) == 2
    for part in ("test", "val"):
        result = record["results"][part]
        assert result["auc_low"] <= result["auc"] <= result["auc_high"]
        assert result["auprc_factor"] == pytest.approx(result["auprc"] / result["positive_ratio"], rel=1e-2)
        assert result["asked"] == sum(record["labels"][part].values())
        assert 0 < result["with_past"] <= 100
    assert set(record["digests"]) == {"data", "split", "config", "weights", "head"}
    assert [json.loads(line)["task"] for line in Path("all.jsonl").read_text().splitlines()] == ["node"]

    again = done("classify", folder, *FAST, "--results", "none").json
    assert again["results"] == record["results"]
    other = done("classify", folder, *FAST, "--seed", 1, "--results", "none").json
    assert (other["seed"], other["backbone_seed"]) == (1, 0)
    assert other["results"] != record["results"]
    shown = done("classify", folder, "--set", "head.epochs=1", "--results", "none").out
    assert "AUPRC" in shown
    assert "x chance" in shown


@pytest.mark.parametrize("model", [TRAINED, STATELESS])
def test_end_to_end_changes_the_weights_of_the_record_and_not_those_of_the_run(trained_once: Trained, model: str):
    folder = trained_once(model)
    kept = (folder / "best.safetensors").read_bytes()
    frozen = done("classify", folder, *FAST, "--results", "none").json
    joint = done("classify", folder, *FAST, "--end-to-end", "--results", "none").json
    again = done("classify", folder, *FAST, "--end-to-end", "--results", "none").json
    scratch = done("classify", folder, *FAST, "--from-scratch", "--results", "none").json
    assert [each["training"] for each in (frozen, joint, scratch)] == ["frozen", "end to end", "from scratch"]
    assert len({each["digests"]["weights"] for each in (frozen, joint, scratch)}) == 3
    assert len({each["digests"]["split"] for each in (frozen, joint, scratch)}) == 1
    assert (again["results"], again["digests"]["weights"]) == (joint["results"], joint["digests"]["weights"])
    assert (folder / "best.safetensors").read_bytes() == kept


def citations(folder: Path) -> None:
    """A folder in the benchmark layout: citations of papers by year, and a file with the class of every paper."""
    rng = np.random.default_rng(0)
    rows = [(60 + paper, cited, paper // 20) for paper in range(240) for cited in rng.integers(1, 60, 3)]
    folder.mkdir()
    lines = [f"{n},{u},{i},{t}.0,0.0,{n + 1}" for n, (u, i, t) in enumerate(rows)]
    (folder / f"ml_{folder.name}.csv").write_text("\n".join([",u,i,ts,label,idx", *lines]) + "\n")
    np.save(folder / f"ml_{folder.name}.npy", np.zeros((len(rows) + 1, 1)))
    np.save(folder / f"ml_{folder.name}_node.npy", np.zeros((300, 1)))
    np.save(folder / "node_labels.npy", np.append(-1, rng.integers(1, 4, 299)))


def test_a_labels_file_in_the_data_folder_classifies_nodes():
    citations(Path("papers"))
    done("train", "-m", TRAINED, *QUICK, "-d", "./papers", "-o", "run", "--results", "none")
    for how in ((), ("--end-to-end",)):
        record = done("classify", "run", *FAST, *how, "--results", "none").json
        assert (record["asks"], record["visible"]) == ("nodes", "same-time")
        result = record["results"]["test"]
        assert result["with_past"] == 100
        assert set(result["classes"]) == {"1", "2", "3"}
        for one in result["classes"].values():
            assert one["auprc_low"] <= one["auprc"] <= one["auprc_high"]
            assert one["auprc_factor"] == pytest.approx(one["auprc"] / one["positive_ratio"], rel=1e-2)
    outcome = dsrd("classify", "run", "--visible", "before", "--set", "head.epochs=1", "--results", "none")
    assert "only 0.0 % of the test nodes have earlier events" in outcome.err
    Path("few.csv").write_text("node,label\n" + "".join(f"{60 + n},{n % 2}\n" for n in range(240)))
    record = done("classify", "run", *FAST, "--labels", "few.csv", "--results", "none").json
    assert record["labels"]["train"] == {"0": 90, "1": 90}  # nine of twelve years
    assert "every label is 0" in refused("classify", "run", "--ask", "events", "--results", "none")
    assert "holds classes of nodes" in refused("classify", "run", "--ask", "events", "--labels", "few.csv")
    Path("away").mkdir()
    Path("papers").rename("away/papers")  # the run has its events, but not the classes of its nodes
    assert "every label is 0" in refused("classify", "run", "--results", "none")
    assert done("classify", "run", *FAST, "-d", "away/papers", "--results", "none").json["asks"] == "nodes"


def test_classify_refuses_invalid_options(trained_once: Trained):
    assert "not a run folder" in refused("classify", "nothing")
    folder = trained_once(TRAINED)
    for words, message in (
        (("--seed", "-1"), "--seed -1: give 0 or more"),
        (("--ask", "edges"), "unknown value of --ask 'edges'"),
        (("--visible", "later"), "unknown value of --visible 'later'"),
        (("--labels", "no.csv"), "no.csv: no such file"),
        (("--set", "head.epoch=1"), "did you mean 'head.epochs'?"),
        (("--set", "head.epochs=0"), "head.epochs=0: give 1 or more"),
        (("--set", "head.lr=0"), "head.lr=0.0: give a number above 0"),
        (("--set", "head.hidden=8"), "head.hidden=8: give two widths"),
        (("--set", "head.dropout=1"), "head.dropout=1.0: give 0 to below 1"),
    ):
        assert message in refused("classify", folder, "--results", "none", *words)


def test_classify_refuses_models_without_embeddings_and_data_without_labels():
    done("train", "-m", UNTRAINED, "-d", STREAM, "-o", "bank", "--results", "none")
    for how in ((), ("--end-to-end",), ("--from-scratch",)):
        assert f"{UNTRAINED} has no embeddings" in refused("classify", "bank", "--results", "none", *how)
    rows = [f"{row % 9},{row % 7 + 20},{row}" for row in range(200)]
    Path("plain.csv").write_text("\n".join(["source,target,time", *rows]) + "\n")
    done("train", "-m", STATELESS, *QUICK, "-d", "plain.csv", "-o", "plain", "--results", "none")
    assert "has no labels; name their column" in refused("classify", "plain", "--results", "none")
    rows = [f"{row % 9},{row % 7 + 20},{row},{int(row < 100)}" for row in range(200)]
    Path("early.csv").write_text("\n".join(["source,target,time,kind", *rows]) + "\n")
    done(
        "train", "-m", STATELESS, *QUICK, "-d", "early.csv", "--label", "kind", "-o", "early", "--results", "none"
    )
    assert "the val events have only the label 0" in refused("classify", "early", "--results", "none")


NEW = """caller,callee,when,cost,remark
Bob,Ann,2024-06-02T10:00:00Z,1.5,"later, first in the file"
Ann,Bob,2024-06-01T08:00:00Z,0.5,fine
Zoe,Ann,2024-06-01T09:00:00Z,0.0,never seen
Zoe,Ann,2024-06-03T09:00:00Z,0.0,seen in this file
"""


@pytest.mark.parametrize("how", [(), ("--end-to-end",), ("--from-scratch",)])
def test_a_saved_head_classifies_new_events(how: tuple[str, ...]):
    done("train", "-m", TRAINED, *QUICK, "-d", write_calls(Path("calls.csv")), *CALLS, "-o", "run")
    record = done("classify", "run", *FAST, *how, "--results", "none").json
    assert (Path("run") / "head.safetensors").is_file()
    assert len(record["digests"]["head"]) == len(record["digests"]["weights"])
    Path("new.csv").write_text(NEW)
    before = tree()
    shown = done("classify", "run", "--apply", "new.csv").out.splitlines()
    assert tree() == before
    assert shown[0] == "caller,callee,when,cost,remark,probability,known"
    assert [line.rpartition(",")[2] for line in shown[1:]] == ["true", "true", "false", "false"]
    assert [line.split(",")[0] for line in shown[1:]] == ["Bob", "Ann", "Zoe", "Zoe"]
    assert '"later, first in the file"' in shown[1]

    result = done("classify", "run", "--apply", "new.csv", "--json").json
    assert result["rows"] == 4
    assert all(0 < row["probability"] < 1 for row in result["predictions"])
    assert result["predictions"][2]["remark"] == "never seen"
    assert done("classify", "run", "--apply", "new.csv", "--out", "out.csv", "--json").json == {
        "rows": 4,
        "out": "out.csv",
    }
    assert Path("out.csv").read_text().splitlines() == shown
    shutil.copytree("run", "elsewhere")
    Path("calls.csv").unlink()
    assert done("classify", "elsewhere", "--apply", "new.csv").out.splitlines() == shown


def test_apply_refuses_unusable_events(trained_once: Trained):
    folder = trained_once(STATELESS)
    rows = [f"3,40,{1e9 + row}" for row in range(5)]
    Path("new.csv").write_text("\n".join(["source,target,time", *rows]) + "\n")
    assert f"{folder}: has no head; classify it first" in refused("classify", folder, "--apply", "new.csv")
    done("classify", folder, *FAST, "--results", "none")
    done("classify", folder, "--apply", "new.csv")
    Path("early.csv").write_text("source,target,time\n3,40,1\n")
    Path("bad.csv").write_text("source,time\n3,1e9\n")
    Path("none.csv").write_text("source,target,time\n")
    for words, message in (
        (("--apply", "no.csv"), "no.csv"),
        (("--apply", "bad.csv"), "bad.csv: there is no column"),
        (("--apply", "none.csv"), "none.csv: has a header but no events"),
        (("--apply", "early.csv"), "early.csv: row 2: time 1 is older than the newest known event"),
        (("--apply", "new.csv", "--ask", "nodes"), "--ask is for training a head"),
        (("--apply", "new.csv", "--seed", "0"), "--seed is for training a head"),
        (("--apply", "new.csv", "--end-to-end"), "--end-to-end is for training a head"),
        (("--out", "x.csv"), "--out is only for --apply"),
    ):
        assert message in refused("classify", folder, *words)


def test_a_head_of_other_weights_or_a_damaged_head_is_refused(trained_once: Trained):
    folder = trained_once(STATELESS)
    Path("new.csv").write_text("source,target,time\n3,40,1e9\n")
    done("classify", folder, *FAST, "--results", "none")
    other = ("train", "-m", STATELESS, *QUICK, "-d", STREAM, "--seed", "1", "-o", "other", "--results", "none")
    done(*other)
    head = folder / "head.safetensors"
    shutil.copy(head, Path("other"))
    message = refused("classify", "other", "--apply", "new.csv")
    assert "other: has changed since its head was trained; classify it again" in message
    content = head.read_bytes()
    for damaged in (b"", content[: len(content) // 2], (folder / "best.safetensors").read_bytes()):
        head.write_bytes(damaged)
        message = refused("classify", folder, "--apply", "new.csv")
        assert "head.safetensors: not a head, or a damaged one" in message
        assert message.endswith("classify the run again")


def test_apply_gives_node_classes_to_sources():
    citations(Path("papers"))
    done("train", "-m", TRAINED, *QUICK, "-d", "./papers", "-o", "run", "--results", "none")
    done("classify", "run", *FAST, "--results", "none")
    Path("new.csv").write_text("source,target,time\n300,7,40\n300,9,40\n61,8,41\n")
    rows = done("classify", "run", "--apply", "new.csv", "--json").json["predictions"]
    assert [row["known"] for row in rows] == [False, False, True]
    assert rows[0]["class"] == rows[1]["class"]  # one node, one time
    assert {row["class"] for row in rows} <= {"1", "2", "3"}
    assert all(1 / 3 <= row["probability"] <= 1 for row in rows)
