"""Files of pairs that are answered a piece at a time, here and on a Ray cluster."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

import dsrd
from dsrd.errors import DsrdError
from dsrd.estimator import ray_scoring, tables
from front.conftest import PEOPLE
from support.program import done, refused

try:
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    os.environ.setdefault("RAY_TRAIN_ENABLE_V2_MIGRATION_WARNINGS", "0")
    import ray
    import ray.data
except ImportError:
    ray = None

needs_ray = pytest.mark.skipif(ray is None, reason="Ray is not installed (extra `ray`)")
Opened = Callable[[str], dsrd.LinkPredictor]
LATER = {"caller": ["ann"], "callee": ["bob"], "date": ["2024-06-30"], "cost": [1.0]}


def many_pairs(count: int = 60) -> pa.Table:
    """Known and unknown names, in an order in which the unknown ones do not come first in every piece."""
    names = [*PEOPLE, "zoe", "yan", "xu"]
    return pa.table(
        {
            "caller": [names[row * 5 % 13] for row in range(count)],
            "callee": [names[(row * 3 + row // 7) % 13] for row in range(count)],
            "note": [f"row {row}" for row in range(count)],
        }
    )


def assert_same(found: pa.Table, expected: pa.Table) -> None:
    assert found.column_names == expected.column_names
    for name in expected.column_names:
        if pa.types.is_floating(expected[name].type):
            np.testing.assert_allclose(found[name].to_numpy(), expected[name].to_numpy(), rtol=1e-4, atol=1e-6)
        else:
            assert found[name].to_pylist() == expected[name].to_pylist(), name


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
@pytest.mark.parametrize("name", ["dsrd", "tgn"])
def test_a_long_file_is_answered_like_a_table(
    name: str, suffix: str, opened: Opened, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(tables, "PIECE_ROWS", 7)
    monkeypatch.setattr(tables, "PIECE_BYTES", 200)
    model, pairs = opened(name), many_pairs()
    pa.csv.write_csv(pairs, "pairs.csv")
    pa.parquet.write_table(pairs, "pairs.parquet")
    assert model.predict_file(f"pairs.{suffix}", f"out.{suffix}") == 60
    expected = model.predict(pairs)
    read = pa.parquet.read_table("out.parquet") if suffix == "parquet" else pa.csv.read_csv("out.csv")
    assert_same(read, expected)
    assert capsys.readouterr().err.count("never seen before: 'zoe' and 2 more") == 1


def test_unknown_names_are_answered_alike_in_any_company(opened: Opened):
    model = opened("dsrd")
    alone = model.predict([("ann", "zoe")])["probability"]
    among = model.predict([("yan", "xu"), ("zoe", "ann"), ("ann", "zoe")])["probability"]
    assert alone[0] == pytest.approx(among[2], abs=1e-6)


def test_errors_name_the_row_of_the_file(opened: Opened, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tables, "PIECE_ROWS", 7)
    monkeypatch.setattr(tables, "PIECE_BYTES", 100)
    model, pairs = opened("edgebank"), many_pairs(20).select(["caller", "callee"])
    broken = pairs.set_column(1, "callee", pa.array([*pairs["callee"].to_pylist()[:17], "", "ann", "bob"]))
    pa.parquet.write_table(broken, "pairs.parquet")
    with pytest.raises(DsrdError, match=r"pairs\.parquet: row 18: target is empty"):
        model.predict_file("pairs.parquet", "out.parquet")
    lines = ["caller,callee", *(f"{row['caller']},{row['callee']}" for row in broken.to_pylist())]
    Path("pairs.csv").write_text("\n".join(lines) + "\n")
    with pytest.raises(DsrdError, match=r"pairs\.csv: row 19: target is empty"):
        model.predict_file("pairs.csv", "out.csv")
    assert not [*Path().glob("*out*")], "nothing half-written is left"


def test_the_command_writes_parquet_by_the_name_of_the_file(saved: Callable[[str], Path]):
    pa.parquet.write_table(many_pairs(), "pairs.parquet")
    folder = saved("edgebank")
    assert done("predict", folder, "--pairs", "pairs.parquet", "--out", "o.parquet", "--json").json["rows"] == 60
    assert_same(pa.parquet.read_table("o.parquet"), dsrd.open(folder).predict(many_pairs()))
    assert "give --pairs and --out too" in refused("predict", folder, "--pairs", "pairs.parquet", "--ray", "local")


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    ray.init(address="local", num_cpus=2, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
    yield
    ray.shutdown()


@needs_ray
def test_ray_answers_as_one_process_does(
    saved: Callable[[str], Path], cluster: None, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(ray_scoring, "PIECE_ROWS", 200)
    pairs, folder = many_pairs(70), saved("dsrd")
    pa.parquet.write_table(pairs, "pairs.parquet", row_group_size=30)
    model = dsrd.open(folder)
    expected = model.predict(pairs)
    words = ("predict", folder, "--pairs", "pairs.parquet", "--ray", "local")
    done(*words, "--out", "file.parquet")
    assert_same(pa.parquet.read_table("file.parquet"), expected)
    assert done(*words, "--out", "many", "--json").json == {"rows": 70, "out": "many"}
    parts = pa.concat_tables([pa.parquet.read_table(file) for file in Path("many").glob("*.parquet")])
    order = np.argsort([int(note.split()[1]) for note in parts["note"].to_pylist()])
    assert_same(parts.take(order), expected)
    assert "is not an empty folder" in refused(*words, "--out", "many")
    assert "unknown node 'zoe'" in refused(*words, "--out", "strict.parquet", "--strict-names")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda model: model.observe(pa.table(LATER)), "does not hold all events of this model"),
        (lambda model: setattr(model.fitted, "folder", None), "save it first"),
    ],
)
def test_a_model_that_is_not_saved_is_not_sent_to_a_cluster(
    change: Callable[[dsrd.LinkPredictor], None], words: str, opened: Opened
):
    model = opened("edgebank")
    change(model)
    pa.parquet.write_table(many_pairs(), "pairs.parquet")
    with pytest.raises(DsrdError, match=words):
        model.predict_file("pairs.parquet", "out.parquet", ray="local")
