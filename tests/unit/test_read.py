from __future__ import annotations

import gzip
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsrd.data.read import load
from dsrd.errors import DsrdError
from support.errors import error_of


def read(path: Path, **options):
    return load(path, cache=False, **options)


@pytest.fixture
def file(tmp_path: Path):
    def write(text: str | bytes, name: str = "events.csv") -> Path:
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


# --- Valid files ---


def test_names_are_numbered_as_they_appear(file):
    dataset = read(file("source,target,time\nbob,ann,1\nann,eve,2\nbob,eve,2\n"))
    assert dataset.events.src.tolist() == [1, 2, 1]
    assert dataset.events.dst.tolist() == [2, 3, 3]
    assert dataset.names.array.to_pylist() == ["", "bob", "ann", "eve"]
    assert (dataset.name, dataset.num_nodes, dataset.notes) == ("events", 4, ())


def test_bipartite_sources_and_targets_are_named_separately(file):
    dataset = read(file("source,target,time\n7,7,1\n8,7,2\n7,9,3\n"), bipartite=True)
    assert dataset.events.src.tolist() == [1, 2, 1]
    assert dataset.events.dst.tolist() == [3, 3, 4]
    assert (dataset.names.id("7"), dataset.names.id("7", target=True)) == (1, 3)
    assert dataset.names.array.to_pylist() == ["", "7", "8", "7", "9"]


def test_names_are_kept_letter_by_letter(file):
    dataset = read(file("source,target,time\n007,7,1\nNA,null,2\n1e3, x,3\n"), keep_spaces=True)
    assert dataset.names.array.to_pylist() == ["", "007", "7", "NA", "null", "1e3", " x"]


def test_unsorted_files_are_sorted_stably_with_a_note(file):
    dataset = read(
        file("source,target,time,x,y\na,b,5,1,0\nc,d,1,2,1\ne,f,5,3,0\ng,h,1,4,1\n"),
        features=["x"],
        label="y",
    )
    assert dataset.edge_x[:, 0].tolist() == [0, 2, 4, 1, 3]
    assert dataset.label.tolist() == [1, 1, 0, 0]
    assert dataset.names.array.to_pylist() == ["", "c", "d", "g", "h", "a", "b", "e", "f"]
    assert dataset.notes == ("sorted by time: 2 of 4 rows were earlier than the row before",)


def test_own_column_names_patterns_and_delimiters(file):
    text = "when;who;whom;f_b;note;f_a;is_spam\n1;a;b;0.5;x;2;1\n2;b;c;1.5;y;-3;0\n"
    dataset = read(file(text), source="who", target="whom", time="when", features=["f_*"], label="is_spam")
    assert dataset.edge_x.tolist() == [[0, 0], [0.5, 2], [1.5, -3]]
    assert dataset.label.tolist() == [1, 0]
    assert dataset.notes == ("ignored the column note; choose features with `features`, a label with `label`",)


@pytest.mark.parametrize(
    ("texts", "seconds"),
    [
        (["1", "2.5"], [1, 2.5]),
        (["1e3", " 2000 "], [1000, 2000]),
        (["1970-01-02", "1970-01-03"], [86400, 172800]),
        (["1970-01-01", "1970-01-01 00:01:00"], [0, 60]),
        (["1970-01-01T00:00:01.25Z", "1970-01-01T02:00:02+02:00"], [1.25, 2]),
        (["2024-05-01T12:30:00.123456", "2024-05-01T12:30:01"], [1714566600.123456, 1714566601]),
        (["1714566600123456789", "1714566600123456790"], [1714566600123456789.0, 1714566600123456790.0]),
    ],
)
def test_times_may_be_numbers_or_iso_dates(file, texts, seconds):
    rows = "".join(f"a,b,{text}\n" for text in texts)
    assert read(file("source,target,time\n" + rows)).events.time.tolist() == seconds
    frame = pa.table({"source": ["a", "a"], "target": ["b", "b"], "time": texts})
    assert load(frame).events.time.tolist() == seconds


def test_compression_blank_lines_and_byte_order_mark_are_accepted(file):
    path = file(gzip.compress("\ufeffsource,target,time\n\na,b,1\n\nb,c,2\n\n".encode()), "events.csv.gz")
    dataset = read(path)
    assert (dataset.name, len(dataset.events)) == ("events", 2)


def test_all_zero_features_have_width_zero(file):
    dataset = read(file("source,target,time,f\na,b,1,0\nb,c,2,0\n"), features=["f"])
    assert dataset.edge_x.shape == (3, 0)


def test_parquet_files_are_read(tmp_path):
    path = tmp_path / "events.parquet"
    days = pa.array([1, 0], pa.date32())
    pyarrow.parquet.write_table(pa.table({"source": [5, 6], "target": ["x", "y"], "time": days}), path)
    dataset = read(path)
    assert dataset.events.time.tolist() == [0, 86400]
    assert dataset.names.array.to_pylist() == ["", "6", "y", "5", "x"]


@settings(deadline=None, max_examples=60)
@given(
    st.lists(
        st.tuples(st.integers(0, 5), st.integers(0, 5), st.integers(0, 9)),
        min_size=1,
        max_size=30,
    ),
    st.booleans(),
)
def test_numbering_agrees_with_a_loop(rows, bipartite):
    frame = pa.table(dict(zip(("source", "target", "time"), map(list, zip(*rows, strict=True)), strict=True)))
    dataset = load(frame, bipartite=bipartite)
    src, dst = dataset.events.src.tolist(), dataset.events.dst.tolist()
    ordered = sorted(rows, key=lambda row: row[2])
    if bipartite:
        users = list(dict.fromkeys(row[0] for row in ordered))
        items = list(dict.fromkeys(row[1] for row in ordered))
        expected = [(users.index(u) + 1, items.index(i) + 1 + len(users)) for u, i, _ in ordered]
    else:
        nodes = list(dict.fromkeys(node for row in ordered for node in row[:2]))
        expected = [(nodes.index(u) + 1, nodes.index(i) + 1) for u, i, _ in ordered]
    assert list(zip(src, dst, strict=True)) == expected


@pytest.mark.parametrize("prefix", ["", "user-"])
def test_a_file_of_several_parser_blocks_has_one_id_per_name(tmp_path, prefix):
    """The parser reads a file in blocks of about 1 MB, each with its own dictionary."""
    ends = np.random.default_rng(0).integers(0, 500, (2, 100_000))
    path = tmp_path / "blocks.csv"
    rows = zip(*ends.tolist(), range(100_000), strict=True)
    path.write_text("source,target,time\n" + "".join(f"{prefix}{s},{prefix}{d},{t}.5\n" for s, d, t in rows))
    assert path.stat().st_size > 1.2e6
    dataset = read(path)
    names = np.array(dataset.names.array.to_pylist())
    assert len(set(names)) == len(names) == 501
    for ids, numbers in zip((dataset.events.src, dataset.events.dst), ends, strict=True):
        assert (names[ids.numpy()] == np.char.add(prefix, numbers.astype(str))).all()


# --- Errors: one line that names the file and the row ---


def refused(match: str, path: Path, **options) -> None:
    message = error_of(read, path, **options)
    assert re.search(match, message), message
    assert path.name in message


H = "source,target,time\n"


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("", "the file is empty"),
        ("\n", "the file is empty"),
        (H, "a header but no events"),
        ("a,b,c\nx,y,1\n", r"no column 'source', only the columns a, b, c; set `source` to the right one"),
        ("source,target,ts\nx,y,1\n", r"no column 'time'.*`time`"),
        (H + "a,b,1\na,b,\n", "row 3: time is empty"),
        (H + "a,b,1\na,b,nan\n", "row 3: time is empty or not a number"),
        (H + "a,b,inf\n", "row 2: time is inf"),
        (H + "a,b,1\n\na,b,-3\n", "row 4: time '-3' is negative; times must be 0 or later"),
        (H + "a,b,1\na,b,soon\n", "row 3: time is 'soon', neither a number nor a date"),
        (H + "a,b,2024-05-01\na,b,2024-05-32\n", "row 3: time is '2024-05-32', neither"),
        (H + "a,b,2024-05-01\na,b,17\n", "row 3: time is '17', written differently from the rows before"),
        (H + "a,b,1967-05-01\n", "row 2: time '1967-05-01' lies before 1970"),
        (H + "a,b,10:30\n", "row 2: time is '10:30:00', which has no date"),
        (H + "a,b,1\n,b,2\n", "row 3: source is empty"),
        (H + 'a,b,1\na,"",2\n', "row 3: target is empty"),
        (H + "a,b,1\nb,c,2\nc,d\n", "row 4: the last line has 2 of 3 fields: the file is truncated"),
        (H + "a,b,1\nb\nc,d,2\n", "row 3: 1 fields where 3 are expected"),
        (H + "a,b,1\nc,d,2,9\nc,d,2\n", "row 3: 4 fields where 3 are expected"),
        (H + "a,b,1,9\nc,d,2,9\n", "row 2: 4 fields where 3 are expected"),
    ],
)
def test_bad_csv_files_are_refused(file, text, match):
    refused(match, file(text))


def test_a_bad_value_late_in_a_large_file_is_named_by_its_row(file):
    rows = ["a,b,1\n"] * 300_000
    rows[250_000] = "a,b,one\n"
    refused("row 250002: time is 'one'", file(H + "".join(rows)))


def test_a_truncated_compressed_file_is_refused(file):
    whole = gzip.compress((H + "a,b,1\n" * 100_000).encode())
    refused("cannot be read as CSV", file(whole[: len(whole) // 2], "events.csv.gz"))


def test_text_that_is_not_utf8_is_refused(file):
    refused("row 3: not UTF-8", file(b"source,target,time\na,b,1\nj\xf6rg,b,2\n"))
    refused("row 1: not UTF-8", file((H + "a,b,1\n").encode("utf-16")))


@pytest.mark.parametrize(
    ("cell", "match"),
    [
        ("red", r"row 3: feature 'f_1' is 'red', not a number"),
        ("", r"row 3: feature 'f_1' is empty"),
        ("inf", r"row 3: feature 'f_1' is inf"),
    ],
)
def test_bad_features_are_refused(file, cell, match):
    path = file(f"source,target,time,f_0,f_1\na,b,1,2,3\na,b,2,4,{cell}\n")
    refused(match, path, features=["f_*"])


def test_missing_feature_and_label_columns_are_refused(file):
    path = file(H + "a,b,1\n")
    refused(r"no column matches 'f_\*'", path, features=["f_*"])
    refused("no column 'y'.*`label`", path, label="y")


def test_bad_parquet_files_are_refused(tmp_path, file):
    path = tmp_path / "events.parquet"
    table = pa.table({"source": ["a", "b"], "target": ["b", "c"], "time": [1.0, None]})
    pyarrow.parquet.write_table(table, path)
    refused("row 2: time is empty", path)
    refused("no column 'when'", path, time="when")
    refused("complete Parquet file", file(path.read_bytes()[:-20], "cut.parquet"))
    pyarrow.parquet.write_table(table.slice(0, 0), path)
    refused("no events", path)


def test_missing_files_are_refused(tmp_path, monkeypatch):
    refused("no such file", tmp_path / "none.csv")
    monkeypatch.setenv("DSRD_DATA", str(tmp_path / "elsewhere"))
    with pytest.raises(
        DsrdError, match=r"'UNvote' is in none of .*elsewhere.*fetch it, or set DSRD_DATA .*UNvote"
    ):
        load("un vote", data_dir=tmp_path)
    with pytest.raises(DsrdError, match="unknown data set 'wikipeda'; did you mean 'wikipedia'"):
        load("wikipeda")
    with pytest.raises(DsrdError, match="unknown value of format 'cvs'; did you mean 'csv'"):
        load(tmp_path, format="cvs")
    (tmp_path / "empty").mkdir()
    refused(r"the folder has no ml_empty.csv or empty.csv", tmp_path / "empty")


# --- Benchmark layouts ---


@pytest.fixture
def processed(tmp_path: Path) -> Path:
    """Three events of two users and two items, in the processed layout."""
    folder = tmp_path / "toy"
    folder.mkdir()
    (folder / "ml_toy.csv").write_text(",u,i,ts,label,idx\n0,1,3,0.0,0,1\n1,2,4,5.0,1,2\n2,1,4,5.0,0,3\n")
    np.save(folder / "ml_toy.npy", np.array([[0.0, 0], [1, 2], [3, 4], [5, 6]]))
    np.save(folder / "ml_toy_node.npy", np.zeros((5, 172)))
    return folder


def test_processed_layout_by_folder_file_and_name(processed):
    for dataset in (read(processed), read(processed / "ml_toy.csv"), load("toy", data_dir=processed.parent)):
        assert dataset.events.dst.tolist() == [3, 4, 4]
        assert dataset.edge_x.tolist() == [[0, 0], [1, 2], [3, 4], [5, 6]]
        assert dataset.label.tolist() == [0, 1, 0]
        assert (dataset.name, dataset.num_nodes, dataset.node_dim, dataset.bipartite) == ("toy", 5, 0, True)


def test_processed_features_follow_idx(processed):
    (processed / "ml_toy.csv").write_text(",u,i,ts,label,idx\n0,1,3,0,0,2\n1,2,4,5,1,1\n2,1,4,5,0,3\n")
    assert read(processed).edge_x[:, 0].tolist() == [0, 3, 1, 5]


@pytest.mark.parametrize(
    ("old", "new", "match"),
    [
        ("0,1,3,0.0,0,1", "0,0,3,0.0,0,1", "row 2: u is 0; ids start at 1"),
        ("0,1,3,0.0,0,1", "0,-4,3,0.0,0,1", "row 2: u is -4; ids start at 1"),
        ("1,2,4,5.0,1,2", "1,2,9,5.0,1,2", "row 3: i is 9, but ml_toy_node.npy ends at row 4"),
        ("1,2,4,5.0,1,2", "1,2,4.5,5.0,1,2", "row 3: i is '4.5', not a whole number"),
        ("1,2,4,5.0,1,2", "1,2,4,9.0,1,2", "row 4: time 5.0 is earlier than the row before"),
        ("1,2,4,5.0,1,2", "1,2,4,5.0,yes,2", "row 3: label is 'yes', not a number"),
        ("2,1,4,5.0,0,3\n", "2,1,4", "row 4: the last line has 3 of 6 fields"),
        ("2,1,4,5.0,0,3\n", "", "ml_toy.npy: 4 rows for 2 events; expected 3"),
        (",u,i,ts", ",user,i,ts", "no column 'u'; processed files have u, i, ts, label, idx"),
    ],
)
def test_bad_processed_files_are_refused(processed, old, new, match):
    path = processed / "ml_toy.csv"
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(DsrdError, match=match):
        read(processed)


def test_bad_feature_files_are_refused(processed):
    path = processed / "ml_toy.npy"
    whole = path.read_bytes()
    for damaged in (whole[:-8], whole[:20], b"", b"not an array"):
        path.write_bytes(damaged)
        with pytest.raises(DsrdError, match=r"ml_toy.npy: cannot be read as a complete .npy file"):
            read(processed)
    np.save(path, np.array([{}, {}, {}, {}]), allow_pickle=True)
    with pytest.raises(DsrdError, match=r"ml_toy.npy: cannot be read as a complete .npy file of numbers"):
        read(processed)
    np.save(path, np.array([[0.0], [1], [np.nan], [1]]))
    with pytest.raises(DsrdError, match="toy: edge features: row 2"):
        read(processed)
    path.unlink()
    with pytest.raises(DsrdError, match=r"ml_toy.npy: no such file"):
        read(processed)


RAW = "user_id,item_id,timestamp,state_label,comma_separated_list_of_features\n"


def test_raw_layout_is_recognised(file):
    dataset = read(file(RAW + "0,0,0.0,0,1.5,2\n2,1,3.5,1,0,4\n"))
    assert dataset.events.src.tolist() == [1, 3]
    assert dataset.events.dst.tolist() == [4, 5]
    assert dataset.edge_x.tolist() == [[0, 0], [1.5, 2], [0, 4]]
    assert dataset.label.tolist() == [0, 1]
    assert dataset.bipartite
    assert dataset.names is None


def test_raw_layout_with_one_set_of_nodes(file):
    dataset = read(file("u,i,ts\n0,1,0,0,2\n1,2,3,0,4\n"))
    assert (dataset.events.src.tolist(), dataset.events.dst.tolist()) == ([1, 2], [2, 3])
    assert not dataset.bipartite


@pytest.mark.parametrize(
    ("rows", "match"),
    [
        ("0,0,1,0,1,2\n0,0,0.5,0,1,2\n", "row 3: time 0.5 is earlier than the row before"),
        ("0,0,1,0,1,2\n0,-1,1,0,1,2\n", r"row 3: item \(field 2\) is -1; ids start at 0"),
        ("0,0,1,0,1,2\n0,0,1,0,1,x\n", r"row 3: feature 1 \(field 6\) is 'x', not a number"),
        ("0,0,1,0,1,2\n0,0,1,0,1\n", "row 3: the last line has 5 of 6 fields"),
        ("0,0,-1,0,1,2\n", "row 2: time '-1' is negative"),
        ("0,0,1\n", "rows have 3 fields; raw files have at least user, item, time and label"),
        ("", "a header but no events"),
    ],
)
def test_bad_raw_files_are_refused(file, rows, match):
    refused(match, file(RAW + rows))


def test_whole_numbers_that_would_become_equal_times_are_refused_with_the_row():
    late = 2**63
    table = {"source": ["a", "b", "a"], "target": ["c", "c", "d"]}
    with pytest.raises(DsrdError, match=r"row 2: time '9223372036854775809' has more digits than are kept"):
        load(pa.table({**table, "time": pa.array([late, late + 4096, late + 1], pa.uint64())}))
    nanoseconds = 1_716_200_000_000_000_000
    seconds = pa.array([nanoseconds + row * 10**9 for row in range(3)])
    assert len(load(pa.table({**table, "time": seconds})).events) == 3


def test_an_entry_with_a_line_break_is_quoted_in_one_line():
    table = pa.table({"source": ["a"], "target": ["b"], "time": ["2024\n05"]})
    with pytest.raises(DsrdError, match="time is '2024 05'"):
        load(table)
