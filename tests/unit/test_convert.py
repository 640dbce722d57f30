from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.data import TemporalData

from dsrd.config import DataConfig
from dsrd.data.convert import from_frame, from_pyg, to_pandas, to_polars, to_pyg, to_table, write
from dsrd.data.dataset import Dataset, Names
from dsrd.data.read import load, load_with
from dsrd.errors import DsrdError
from support.datasets import assert_same_events

COLUMNS = DataConfig(features=("f_*",), label="label")


def stream(*, names: bool = False, node_x: bool = False) -> Dataset:
    rng = np.random.default_rng(3)
    src, dst = rng.integers(1, 7, 30), rng.integers(3, 9, 30)
    src[:4], dst[:4] = [1, 3, 5, 7], [2, 4, 6, 8]  # every node, in order of appearance
    return Dataset.from_arrays(
        "stream",
        src,
        dst,
        np.cumsum(rng.random(30) * 1e9 / 3),
        edge_x=np.concatenate([np.zeros((1, 2)), rng.normal(size=(30, 2))]),
        node_x=rng.normal(size=(9, 3)) if node_x else None,
        label=rng.integers(0, 3, 30),
        names=Names(["", "ann", "b,ob", 'e"ve', "d d", "5", "006", "é", "8"]) if names else None,
    )


@pytest.mark.parametrize("names", [False, True])
@pytest.mark.parametrize("tool", [to_table, to_pandas, to_polars])
def test_frames_round_trip(tool, names):
    dataset = stream(names=names)
    again = from_frame(tool(dataset), COLUMNS)
    assert_same_events(dataset, again)
    if names:
        assert again.names.array.equals(dataset.names.array)


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ""])
@pytest.mark.parametrize("names", [False, True])
def test_files_round_trip(tmp_path, suffix, names):
    dataset = stream(names=names)
    assert write(dataset, tmp_path / f"out{suffix}") == ()
    again = load_with(tmp_path / f"out{suffix}", COLUMNS if suffix == ".csv" else DataConfig(), cache=False)
    assert_same_events(dataset, again)
    if names:
        assert again.names.array.equals(dataset.names.array)
    assert again.name == "out"


def test_ids_of_unnamed_streams_survive_tables_and_parquet(tmp_path):
    dataset = Dataset.from_arrays("gaps", [9, 4], [4, 2], [0.0, 1.0], label=[0, 1], bipartite=False)
    write(dataset, tmp_path / "gaps.parquet")
    for again in (from_frame(to_table(dataset)), load(tmp_path / "gaps.parquet", cache=False)):
        assert_same_events(dataset, again)
        assert again.names is None


def test_bipartite_streams_stay_bipartite(tmp_path):
    frame = pd.DataFrame({"source": [7, 8, 7], "target": [7, 7, 9], "time": [1, 2, 3]})
    dataset = load(frame, bipartite=True)
    write(dataset, tmp_path / "two.parquet")
    write(dataset, tmp_path / "two")
    for again in (load(tmp_path / "two.parquet", cache=False), load(tmp_path / "two", cache=False)):
        assert again.bipartite
        assert again.names.id("7", target=True) == 3
        assert again.names.array.to_pylist() == ["", "7", "8", "7", "9"]


def test_folders_keep_node_features_and_tables_note_their_loss(tmp_path):
    dataset = stream(node_x=True)
    write(dataset, tmp_path / "out")
    torch.testing.assert_close(load(tmp_path / "out", cache=False).node_x, dataset.node_x)
    assert "node features" in write(dataset, tmp_path / "out.csv")[0]


@settings(deadline=None, max_examples=40)
@given(
    st.lists(
        st.tuples(
            st.floats(0, 1e19, allow_nan=False),
            st.floats(-(2.0**120), 2.0**120, allow_nan=False, width=32),
        ),
        min_size=1,
        max_size=20,
    )
)
def test_numbers_survive_a_csv_file_exactly(tmp_path_factory, rows):
    time, feature = map(list, zip(*sorted(rows), strict=True))
    ends = [1] * len(rows)
    dataset = Dataset.from_arrays("exact", ends, ends, time, edge_x=np.array([[0.0], *([x] for x in feature)]))
    path = tmp_path_factory.mktemp("exact") / "exact.csv"
    write(dataset, path)
    again = load(path, features=["f_*"] if dataset.edge_dim else [], cache=False)
    assert again.events.time.tolist() == time
    assert torch.equal(again.edge_x, dataset.edge_x)


def test_frames_with_categories_datetimes_and_odd_types():
    when = pd.to_datetime(["1970-01-01 00:00:02", "1970-01-01 00:00:01"]).tz_localize("UTC")
    source = pd.Categorical(["b", "a"], categories=["unused", "a", "b"])
    dataset = from_frame(pd.DataFrame({"source": source, "target": [1.0, 2.0], "time": when}))
    assert dataset.events.time.tolist() == [1, 2]
    assert dataset.names.array.to_pylist() == ["", "a", "2", "b", "1"]
    days = pl.DataFrame({"source": ["a"], "target": ["b"], "time": ["1970-01-02"]})
    assert from_frame(days.with_columns(pl.col("time").str.to_date())).events.time.tolist() == [86400]
    assert from_frame(days).events.time.tolist() == [86400]


@pytest.mark.parametrize(
    ("frame", "match"),
    [
        (pa.table({"source": ["a"], "target": ["b"]}), "frame: there is no column 'time'"),
        (pd.DataFrame({"source": ["a", None], "target": ["b", "c"], "time": [1, 2]}), "row 1: source is empty"),
        (pd.DataFrame({"source": ["a"], "target": ["b"], "time": [np.nan]}), "row 0: time is empty"),
        (pd.DataFrame({"source": ["a", 1], "target": ["b", "c"], "time": [1, 2]}), "cannot be read as a table"),
        (pa.table({"source": pa.array([], pa.string())}), "no events"),
        (17, "cannot be read as a table"),
    ],
)
def test_bad_frames_are_refused(frame, match):
    with pytest.raises(DsrdError, match=match):
        from_frame(frame)


def test_pyg_round_trip():
    dataset = stream()
    data = to_pyg(dataset)
    assert isinstance(data, TemporalData)
    assert (data.num_events, int(data.src.min())) == (30, 0)
    assert data[:10].msg.shape == (10, 2)
    assert_same_events(dataset, from_pyg(data))
    whole = replace(dataset, events=replace(dataset.events, time=dataset.events.time.floor()))
    assert to_pyg(whole).t.dtype == torch.int64
    assert_same_events(whole, from_pyg(to_pyg(whole)))


def test_pyg_without_messages_and_out_of_order():
    data = TemporalData(src=torch.tensor([0, 3]), dst=torch.tensor([1, 2]), t=torch.tensor([5, 2]))
    dataset = from_pyg(data)
    assert dataset.events.src.tolist() == [4, 1]
    assert (dataset.edge_dim, dataset.label) == (0, None)


def test_a_missing_package_is_named():
    code = (
        "import sys; sys.modules['torch_geometric'] = sys.modules['polars'] = None\n"
        "from dsrd.data import convert\nfrom dsrd.data.dataset import Dataset\n"
        "data = Dataset.from_arrays('x', [1], [2], [0.0])\n"
        "for tool in (convert.to_pyg, convert.to_polars):\n"
        "    try: tool(data)\n"
        "    except convert.DsrdError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "torch-geometric is not installed; run `pip install dsrd[pyg]`",
        "polars is not installed; run `pip install dsrd[frames]`",
    ]


def test_unknown_suffixes_are_refused(tmp_path):
    with pytest.raises(DsrdError, match=r"cannot write \.xlsx"):
        write(stream(), tmp_path / "out.xlsx")
