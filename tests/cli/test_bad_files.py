"""Bad input files: one line names the file, the row and the remedy, and nothing is written."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from support.program import STREAM, TRAIN, TRAINED, done, dsrd, refused

HEADER = "source,target,time\n"
GOOD = "".join(f"{row % 5},{5 + row % 7},{row}\n" for row in range(100))


def with_row(number: int, row: str) -> str:
    """A valid file with one row replaced; rows are lines of the file, with the header as line 1."""
    lines = (HEADER + GOOD).splitlines()
    lines[number - 1] = row
    return "\n".join(lines) + "\n"


CSV = {
    "missing column": ("from,to,when\n1,2,3\n", "there is no column 'source', only the columns from, to, when"),
    "missing time": ("source,target\n1,2\n", "there is no column 'time'", "`time`"),
    "nan time": (with_row(51, "1,2,nan"), "row 51: time is empty or not a number; fill it in or drop the row"),
    "infinite time": (with_row(51, "1,2,inf"), "row 51: time is inf; use finite numbers"),
    "no time": (with_row(51, "1,2,"), "row 51: time is empty"),
    "negative time": (with_row(51, "1,2,-3"), "row 51: time '-3' is negative; times must be 0 or later"),
    "time in words": (with_row(51, "1,2,noon"), "row 51: time is 'noon', neither a number nor a date"),
    "times in two ways": (
        HEADER + "1,2,2024-05-01T08:00Z\n1,3,2024-05-02\n",
        "row 3: time is '2024-05-02', written differently from the rows before; write all times in the same way",
    ),
    "no name": (with_row(51, ",2,50"), "row 51: source is empty; name both ends"),
    "empty": ("", "the file is empty; it needs a header line and one line per event"),
    "header only": (HEADER, "has a header but no events; give one line per event"),
    "cut in the middle": (
        (HEADER + GOOD)[:-5],
        "row 101",
        "the file is truncated; get it again or delete the line",
    ),
    "one field too many": (with_row(51, "1,2,3,4"), "row 51: 4 fields where 3 are expected; repair the line"),
    "too few events": (HEADER + GOOD[:36], "events are too few; give at least 10"),
    "one time only": (HEADER + "1,2,0\n2,3,0\n" * 50, "no part may be empty: give a longer stream"),
}


@pytest.mark.parametrize("case", CSV)
def test_bad_csv_files_are_refused(case: str):
    content, *message = CSV[case]
    Path("calls.csv").write_text(content)
    error = refused(*TRAIN, "--dataset", "calls.csv", "--out", "run")
    assert error.startswith(("error: calls.csv: ", "error: calls: "))
    for words in message:
        assert words in error


def test_text_in_a_feature_column_is_refused():
    Path("calls.csv").write_text("source,target,time,cost\n1,2,3,4.5\n1,2,4,cheap\n")
    error = refused("data", "describe", "calls.csv", "--features", "cost")
    assert error == "error: calls.csv: row 3: feature 'cost' is 'cheap', not a number; repair the entry"
    assert "no column matches 'f_*'" in refused("data", "describe", "calls.csv", "--features", "f_*")
    assert "no column 'kind'" in refused("data", "describe", "calls.csv", "--label", "kind")


def test_a_csv_file_with_binary_content_is_refused():
    Path("calls.csv").write_bytes(b"source,target,time\nJos\xe9,2,3\n")
    assert "calls.csv: row 2: not UTF-8 text; save the file as UTF-8" in refused("data", "describe", "calls.csv")


def test_a_truncated_compressed_csv_file_is_refused():
    whole = gzip.compress((HEADER + GOOD).encode())
    Path("calls.csv.gz").write_bytes(whole)
    assert done("data", "describe", "calls.csv.gz", "--json").json["events"] == 100
    Path("calls.csv.gz").write_bytes(whole[: len(whole) // 2])
    assert "calls.csv.gz: cannot be read as CSV" in refused("data", "describe", "calls.csv.gz")


@pytest.mark.parametrize("command", ["data describe", "data audit", "train -d"])
def test_bad_parquet_files_are_refused(command: str):
    columns = {"source": ["a"] * 50, "target": ["b"] * 50, "time": np.arange(50.0)}
    pa.parquet.write_table(pa.table(columns), "calls.parquet")
    whole = Path("calls.parquet").read_bytes()
    bad = {
        "cut.parquet": whole[: len(whole) // 2],
        "empty.parquet": b"",
        "words.parquet": b"source,target,time\n1,2,3\n",
    }
    for name, content in bad.items():
        Path(name).write_bytes(content)
        error = refused(*command.split(), name)
        assert f"{name}: cannot be read as a complete Parquet file" in error
        assert error.endswith("get the file again")
    pa.parquet.write_table(pa.table(columns).slice(0, 0), "none.parquet")
    assert "none.parquet: has no events" in refused(*command.split(), "none.parquet")
    columns["time"][20] = np.nan
    pa.parquet.write_table(pa.table(columns), "nan.parquet")
    assert "nan.parquet: row 21: time is nan" in refused(*command.split(), "nan.parquet")


@pytest.fixture
def processed() -> Path:
    """A stream with edge features, in the processed benchmark layout."""
    done("data", "synth", "toy", "--set", "events=200", "--set", "edge_dim=2")
    return Path("toy")


def damaged(array: np.ndarray) -> np.ndarray:
    array = array.copy()
    array[7, 0] = np.nan
    return array


@pytest.mark.parametrize(
    ("file", "change", "message"),
    [
        (
            "ml_toy.npy",
            lambda x: x[:-1],
            "ml_toy.npy: 200 rows for 200 events; expected 201, with row 0 as padding",
        ),
        ("ml_toy.npy", lambda x: np.append(x, x[:1], 0), "ml_toy.npy: 202 rows for 200 events; expected 201"),
        ("ml_toy.npy", damaged, "row 7 has a value that is not a number; repair the row"),
        ("ml_toy.npy", lambda x: x.astype(str), "ml_toy.npy: cannot be read as a complete .npy file of numbers"),
        ("ml_toy_node.npy", lambda x: x[:5], "but ml_toy_node.npy ends at row 4; get both again"),
    ],
)
def test_feature_files_of_the_wrong_shape_are_refused(processed: Path, file: str, change: Callable, message: str):
    np.save(processed / file, change(np.load(processed / file)))
    error = refused(*TRAIN, "-d", processed, "-o", "run")
    assert error.startswith("error: toy")
    assert message in error


@pytest.mark.parametrize("file", ["ml_toy.npy", "ml_toy_node.npy"])
def test_a_truncated_or_missing_feature_file_is_refused(processed: Path, file: str):
    content = (processed / file).read_bytes()
    (processed / file).write_bytes(content[: len(content) // 2])
    assert f"toy/{file}: cannot be read as a complete .npy file" in refused("data", "describe", processed)
    (processed / file).unlink()
    assert f"toy/{file}: no such file" in refused("data", "describe", processed)


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ("0,3", "row 8: u is 0; ids start at 1 here"),
        ("-4,3", "row 8: u is -4; ids start at 1 here"),
        ("3,99999", "row 8: i is 99999, but ml_toy_node.npy ends at row"),
        ("3,x", "row 8: i is 'x', not a whole number"),
    ],
)
def test_ids_out_of_range_are_refused(processed: Path, ids: str, message: str):
    file = processed / "ml_toy.csv"
    lines = file.read_text().splitlines()
    number, _, _, *rest = lines[7].split(",")
    lines[7] = ",".join([number, ids, *rest])
    file.write_text("\n".join(lines) + "\n")
    assert f"toy/ml_toy.csv: {message}" in refused("data", "describe", processed)


def test_a_truncated_events_file_is_refused(processed: Path):
    file = processed / "ml_toy.csv"
    content = file.read_text().splitlines(keepends=True)
    file.write_text("".join(content[:100]) + content[100][:6])
    assert "toy/ml_toy.csv: row 101: the last line has" in refused("data", "describe", processed)


def test_a_folder_without_events_is_refused():
    Path("toy").mkdir()
    assert "toy: the folder has no ml_toy.csv or toy.csv" in refused("data", "describe", "./toy")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("who,whom\n1,2\n", "there is no column 'source'; it has who, whom: call it as in the stream"),
        ("", "the file is empty"),
        ("source,target\n", "has no rows; give one pair per row"),
        ("source,target\n1,2\n3\n", "row 3: the last line has 1 of 2 fields"),
        ("source,target\n1,\n", "row 2: target is empty"),
        ("source,target,time\n1,2,-5\n", "row 2: time '-5.0' is negative"),
        ("source,target,time\n1,2,\n", "row 2: time is"),
    ],
)
def test_bad_files_of_pairs_are_refused(trained_once: Callable[[str], Path], content: str, message: str):
    Path("ask.csv").write_text(content)
    error = refused("predict", trained_once(TRAINED), "--pairs", "ask.csv", "--out", "scores.csv")
    assert error.startswith("error: ask.csv: ")
    assert message in error


def test_a_missing_file_of_pairs_is_refused(trained_once: Callable[[str], Path]):
    assert "no.csv: no such file" in refused("predict", trained_once(TRAINED), "--pairs", "no.csv")
    assert "no.parquet: no such file" in refused("predict", trained_once(TRAINED), "--pairs", "no.parquet")


def test_diverging_training_is_refused_with_a_remedy():
    words = [*TRAIN, "-d", STREAM, "-o", "run", "--set", "train.lr=1e20", "--set", "train.batch_size=20"]
    outcome = dsrd(*words)
    assert outcome.code == 2
    assert "epoch 1: training diverged, the loss is nan; lower train.lr" in outcome.error
    assert not Path("results.jsonl").exists()
