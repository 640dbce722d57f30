"""Column names, time formats, suggestions for mistyped names, and every kind of table that `load` accepts."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch
from torch_geometric.data import TemporalData

from dsrd.config import DataConfig
from dsrd.data import dataset as dataset_module
from dsrd.data.arrow import held_extent, is_dataset, read_dataset, write_dataset
from dsrd.data.dataset import Dataset, Names
from dsrd.data.read import load, load_with
from dsrd.errors import DsrdError
from dsrd.synthetic.drawing import synth
from dsrd.synthetic.settings import SynthConfig
from support.errors import error_of


@pytest.fixture
def file(tmp_path: Path):
    def write(text: str) -> Path:
        path = tmp_path / "events.csv"
        path.write_text(text)
        return path

    return write


def refused(data, **options) -> str:
    return error_of(load, data, cache=False, **options)


# --- Columns ---

PLAIN = "source,target,time,f_0,note\na,b,1,2,fine\nb,c,2,3,good\n"


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        (
            "source,source,target,time\na,x,b,1\n",
            {},
            "events.csv: the column 'source' occurs 2 times; rename all but one",
        ),
        (
            "source,target,time,f,f,f\na,b,1,2,3,4\n",
            {"features": "f"},
            "events.csv: the column 'f' occurs 3 times; rename all but one",
        ),
        (
            PLAIN,
            {"target": "source"},
            "events.csv: 'source' is both the source and the target column; name another one with `target`",
        ),
        (
            PLAIN,
            {"label": "time"},
            "events.csv: 'time' is both the time and the label column; name another one with `label`",
        ),
        (
            PLAIN,
            {"features": ["x_*"]},
            "events.csv: no column matches 'x_*', only the columns source, target, time, f_0, note; "
            "correct `features`",
        ),
        (PLAIN, {"features": ["target"]}, "events.csv: 'target' is the target column; take it out of `features`"),
        (PLAIN, {"features": ["[st]*e"]}, "events.csv: 'source' is the source column; take it out of `features`"),
        (
            PLAIN,
            {"features": ["note"]},
            "events.csv: row 2: feature 'note' is not a column of numbers ('fine'); choose a column of numbers",
        ),
    ],
)
def test_wrong_column_names_are_refused(file, text, options, message):
    path = file(text)
    assert refused(path, **options).replace(str(path), path.name) == message


def test_frames_with_wrong_columns_are_refused_like_files():
    frame = pd.DataFrame([["a", "b", 1, 2, 3]], columns=["source", "target", "time", "f", "f"])
    assert refused(frame, features=["f"]) == "frame: the column 'f' occurs 2 times; rename all but one"
    table = pa.table([pa.array(["a"])] * 3, names=["source", "source", "target"])
    assert refused(table, time="target", target="source", name="calls").startswith("calls: 'source' is both")
    twice = pa.table(
        [pa.array(["a"]), pa.array(["b"]), *[pa.array([1])] * 2], names=["source", "target", *["time"] * 2]
    )
    assert refused(twice) == "frame: the column 'time' occurs 2 times; rename all but one"


def test_unused_columns_may_occur_twice(file):
    assert len(load(file("source,x,target,x,time\na,1,b,2,3\n"), cache=False).events) == 1
    frame = pd.DataFrame([["a", "b", 1, 2, 3]], columns=["source", "target", "time", "f", "f"])
    assert len(load(frame).events) == 1


def test_feature_patterns_skip_columns_with_other_roles(file):
    dataset = load(
        file("t_s,t_d,t_t,t_0,t_1\na,b,1,2,3\n"), source="t_s", target="t_d", time="t_t", features="t_*"
    )
    assert dataset.edge_x.tolist() == [[0, 0], [2, 3]]
    assert dataset.features == ("t_0", "t_1")
    assert dataset.columns.features == ("t_*",)


# --- Times ---


@pytest.mark.parametrize(
    ("format", "texts", "seconds"),
    [
        ("%d/%m/%Y", ["01/02/1970", "03/02/1970"], [31 * 86400, 33 * 86400]),
        ("%d/%m/%Y %H:%M", ["02/01/1970 00:01", "02/01/1970 01:00"], [86460, 90000]),
        ("%Y%m%d", ["19700102", "19700103"], [86400, 172800]),
        ("%H%M%d%m%Y", ["000102011970", "010002011970"], [86460, 90000]),
        ("%d %b %Y %I:%M %p", ["02 Jan 1970 01:00 AM", "02 Jan 1970 01:00 PM"], [90000, 133200]),
        ("%Y-%m-%dT%H:%M:%S%z", ["1970-01-01T02:00:00+0100", "1970-01-01T02:00:00+0000"], [3600, 7200]),
    ],
)
def test_dates_are_read_in_every_time_format(file, format, texts, seconds):
    dataset = load(file("source,target,time\n" + "".join(f"a,b,{text}\n" for text in texts)), time_format=format)
    assert dataset.events.time.tolist() == seconds
    assert dataset.dates
    assert dataset.columns.time_format == format
    frame = pd.DataFrame({"source": ["a"] * 2, "target": ["b"] * 2, "time": texts})
    assert load(frame, time_format=format).digest == dataset.digest
    assert dataset.written_time(seconds[-1]) == texts[-1]


@pytest.mark.parametrize("wrong", ["31/04/2024", "2024-04-01", "", "00/04/2024"])
def test_a_date_in_another_format_is_named_by_its_row(file, wrong):
    path = file(f"source,target,time\na,b,01/04/2024\nb,c,{wrong}\n")
    message = refused(path, time_format="%d/%m/%Y")
    assert "events.csv: row 3: time is " in message
    assert (
        not wrong
        or f"'{wrong}', which does not fit the time format %d/%m/%Y; repair the entry or correct" in message
    )


@pytest.mark.parametrize("format", ["%d/%m", "%Q", "day"])
def test_invalid_time_formats_are_refused(file, format):
    message = refused(file("source,target,time\na,b,01/04/2024\n"), time_format=format)
    assert f"time format {format}: " in message
    assert "write it as for strptime: %d/%m/%Y %H:%M" in message


def test_days_written_as_numbers_give_a_note(file):
    path = file("source,target,time\na,b,20240401\nb,c,20240430\n")
    assert load(path, cache=False).notes == (
        "times such as 20240401 look like dates and are read as numbers; if they are dates, "
        "give the `time_format` %Y%m%d",
    )
    told = load(path, cache=False, time_format="%Y%m%d")
    assert told.notes == ()
    assert float(told.events.time.diff()) == 29 * 86400
    assert load(file("source,target,time\na,b,20240401\nb,c,20240431\n"), cache=False).notes == ()


@pytest.mark.parametrize(
    ("moments", "unit"),
    [
        ([1.7e9, 1.8e9], None),
        ([1.7e12, 1.8e12], "milliseconds"),
        ([1.7e15, 1.8e15], "microseconds"),
        ([1.7e18, 1.8e18], "nanoseconds"),
        ([0.0, 1.8e12], None),
    ],
)
def test_clock_unit_is_recognised(moments, unit):
    dataset = Dataset.from_arrays("clock", [1, 2], [2, 1], moments)
    assert dataset.clock_unit == unit
    assert replace(dataset, dates=True).clock_unit is None


def test_written_time_uses_the_format_of_the_data(file):
    dated = load(file("source,target,time\na,b,2024-05-01\na,b,2024-05-01T12:30:00.5\n"), cache=False)
    first, last = dated.events.time.tolist()
    assert dated.written_time(first) == "2024-05-01T00:00:00Z"
    assert dated.written_time(last) == "2024-05-01T12:30:00.5Z"
    plain = Dataset.from_arrays("plain", [1], [2], [2.5])
    assert (plain.written_time(2.5), plain.written_time(3.0)) == ("2.5", "3")


# --- Names ---


def test_suggestions_are_few_and_compare_few_names(monkeypatch):
    names = Names(["", *(f"person-{number:06}" for number in range(200_000))])
    compared = []

    def counting(word: str, possibilities: Collection[str], n: int) -> list[str]:
        compared.append(len(possibilities))
        return get_close_matches(word, possibilities, n=n)

    monkeypatch.setattr(dataset_module, "get_close_matches", counting)
    assert len(names.suggestions("person-")) == 5
    assert "person-001234" in names.suggestions("person-00123")
    close = names.suggestions("persno-001234")
    assert 0 < len(close) <= 5
    assert names.suggestions("") == []
    with pytest.raises(DsrdError, match="unknown node 'qqq'; none of the 200,000 nodes has a similar name"):
        names.id("qqq")
    assert 0 < max(compared) <= dataset_module.MOST_COMPARED


def test_suggestions_separate_sources_and_targets():
    names = Names.two_kinds(["", "anna", "anton", "anvil", "antenna"], first_target=3)
    assert set(names.suggestions("an")) == {"anna", "anton"}
    with pytest.raises(DsrdError, match=r"unknown target 'anvi'; did you mean 'anvil'\?"):
        names.id("anvi", target=True)


# --- Every kind of table ---


def test_every_kind_of_table_gives_the_same_events(tmp_path):
    rng = np.random.default_rng(0)
    columns = {
        "source": rng.integers(0, 9, 200),
        "target": rng.integers(0, 9, 200),
        "time": rng.integers(0, 50, 200),
    }
    columns |= {"x": rng.normal(size=200).astype(np.float32), "y": rng.integers(0, 2, 200)}
    ends = np.stack([columns["source"], columns["target"]], 1)[np.argsort(columns["time"], kind="stable")]
    _, first = np.unique(ends.reshape(-1), return_index=True)
    as_they_appear = {old: new for new, old in enumerate(ends.reshape(-1)[np.sort(first)].tolist())}
    for end in ("source", "target"):
        columns[end] = np.array([as_they_appear[node] for node in columns[end].tolist()])
    pd.DataFrame(columns).to_csv(tmp_path / "events.csv", index=False)
    pd.DataFrame(columns).to_parquet(tmp_path / "events.parquet")
    temporal = TemporalData(
        src=torch.from_numpy(columns["source"]),
        dst=torch.from_numpy(columns["target"]),
        t=torch.from_numpy(columns["time"]),
        msg=torch.from_numpy(columns["x"])[:, None],
        y=torch.from_numpy(columns["y"]),
    )
    whole = load(pd.DataFrame(columns), features=["x"], label="y")
    assert whole.edge_dim == 1
    for same in (
        pl.DataFrame(columns),
        pa.table(columns),
        tmp_path / "events.csv",
        str(tmp_path / "events.parquet"),
    ):
        again = load(same, features=["x"], label="y", cache=False)
        assert again.digest == whole.digest
        assert again.names is not None
        assert again.names.array.equals(whole.names.array)
    assert load(temporal).digest == whole.digest
    assert load(temporal).names.array.to_pylist() == ["", *map(str, range(9))]
    assert load(whole) is whole
    assert load(whole, name="other").name == "other"


def test_objects_that_are_not_tables_are_refused():
    for data in (17, [("a", "b", 1)], None):
        assert "frame: cannot be read as a table" in refused(data)


# --- Arrow files ---


@pytest.mark.parametrize("compressed", [False, True])
def test_arrow_files_keep_every_field(tmp_path, compressed):
    columns = DataConfig(source="who", features=("f_*", "g"), label="y", time_format="%Y", bipartite=True)
    plain = Dataset.from_arrays(
        "kept",
        [1, 2],
        [3, 4],
        [0.0, 5.0],
        edge_x=np.eye(3, 2),
        label=[1.0, np.nan],
        names=Names.two_kinds(["", "a", "b", "a", "c"], first_target=3),
        bipartite=True,
        notes=("sorted", "seen"),
        columns=columns,
        features=("f_1", "g"),
        dates=True,
    )
    drawn = synth(SynthConfig(events=200, edge_dim=2, seed=3))
    for number, dataset in enumerate((replace(plain, catalogued=True), drawn)):
        folder = tmp_path / str(number)
        folder.mkdir()
        assert not is_dataset(folder)
        write_dataset(dataset, folder, compressed)
        assert is_dataset(folder)
        assert held_extent(folder) == (len(dataset.events), dataset.num_nodes, dataset.digest)
        again = read_dataset(folder, mapped=not compressed)
        for field in ("name", "bipartite", "digest", "notes", "columns", "features", "dates", "catalogued", "law"):
            assert getattr(again, field) == getattr(dataset, field), field
        np.testing.assert_array_equal(again.label.numpy(), dataset.label.numpy())
        assert again.head(len(again.events), again.num_nodes) is again
        assert replace(again, digest="").head(100, 100) is not again
    assert again.law == SynthConfig(events=200, edge_dim=2, seed=3)
    assert (plain.names.is_target == read_dataset(tmp_path / "0", mapped=False).names.is_target).all()


def test_columns_of_a_data_set_are_those_it_was_read_with(file):
    path = file("who,whom,when\na,b,2024\n")
    config = DataConfig(source="who", target="whom", time="when", time_format="%Y")
    assert load_with(path, config, cache=False).columns == replace(config, bipartite=False)
