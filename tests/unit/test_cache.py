from __future__ import annotations

import errno
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch

from dsrd.config import DataConfig
from dsrd.data.arrow import read_dataset, write_dataset
from dsrd.data.dataset import Dataset, Names
from dsrd.data.read import load, load_with
from support.datasets import assert_same_events

FIELDS = ("name", "bipartite", "digest", "notes", "num_nodes", "edge_dim", "node_dim")


def assert_same(one: Dataset, other: Dataset) -> None:
    assert [getattr(one, field) for field in FIELDS] == [getattr(other, field) for field in FIELDS]
    assert_same_events(one, other)
    torch.testing.assert_close(one.node_x, other.node_x, rtol=0, atol=0)
    assert (one.names is None) == (other.names is None)
    if one.names is not None and other.names is not None:
        assert one.names.array.equals(other.names.array)
        np.testing.assert_array_equal(one.names.is_target, other.names.is_target)


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """An empty cache folder."""
    monkeypatch.setenv("DSRD_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def source(tmp_path) -> Path:
    path = tmp_path / "events.csv"
    path.write_text("source,target,time,label,f_0\nann,bob,5,0,1.5\nbob,eve,1,1,-2\n")
    return path


COLUMNS = DataConfig(features=("f_*",), label="label")


def entries(folder: Path) -> list[Path]:
    return sorted(folder.iterdir())


def test_a_cached_data_set_equals_the_parsed_one(folder, source):
    first = load_with(source, replace(COLUMNS, bipartite=True))
    (entry,) = entries(folder)
    assert sorted(file.name for file in entry.iterdir()) == ["events.arrow", "nodes.arrow"]
    source_text = source.read_bytes()
    again = load_with(source, replace(COLUMNS, bipartite=True))
    assert_same(first, again)
    assert again.notes == ("sorted by time: 1 of 2 rows were earlier than the row before",)
    assert source.read_bytes() == source_text


def test_a_second_read_does_not_parse(folder, source, monkeypatch):
    load(source)
    monkeypatch.setattr("dsrd.data.parse.read_csv", lambda *_, **__: pytest.fail("parsed again"))
    load(source)


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("widths", [(0, 0), (3, 2)])
def test_every_shape_of_data_set_survives_writing_and_reading(tmp_path, named, widths):
    rng = np.random.default_rng(0)
    src, dst = rng.integers(1, 6, (2, 20))
    dataset = Dataset.from_arrays(
        "shape",
        src,
        dst,
        np.sort(rng.random(20)),
        edge_x=rng.normal(size=(21, widths[0])) if widths[0] else None,
        node_x=rng.normal(size=(9, widths[1])) if widths[1] else None,
        label=rng.integers(0, 2, 20) if named else None,
        names=Names(["", *"abcdefgh"][: 9 if widths[1] else max(*src, *dst) + 1]) if named else None,
        notes=("made up",),
    )
    write_dataset(dataset, tmp_path)
    assert_same(dataset, read_dataset(tmp_path, mapped=True))


def test_an_edited_file_is_parsed_again_and_its_old_copy_removed(folder, source):
    load(source)
    old = entries(folder)
    source.write_text("source,target,time\nann,bob,5\nbob,eve,1\nbob,eve,7\n")
    assert len(load(source).events) == 3
    assert len(entries(folder)) == 1
    assert entries(folder) != old


def test_other_options_get_their_own_copy(folder, source):
    assert load(source).edge_dim == 0
    assert load_with(source, COLUMNS).edge_dim == 1
    assert len(entries(folder)) == 2


@pytest.mark.parametrize("file", ["events.arrow", "nodes.arrow"])
@pytest.mark.parametrize("damage", ["cut", "garbage", "empty", "missing"])
def test_a_damaged_copy_is_rebuilt(folder, source, file, damage):
    expected = load_with(source, COLUMNS)
    (entry,) = entries(folder)
    victim = entry / file
    content = victim.read_bytes()
    victim.unlink()
    if damage != "missing":
        victim.write_bytes({"cut": content[: len(content) // 2], "garbage": b"x" * 500, "empty": b""}[damage])
    rebuilt = load_with(source, COLUMNS)
    assert rebuilt.notes[-1].startswith("its cached copy was damaged (")
    assert_same(expected, replace(rebuilt, notes=rebuilt.notes[:-1]))
    assert victim.read_bytes() == content
    assert_same(expected, load_with(source, COLUMNS))


def test_a_cache_that_cannot_be_written_gives_a_note(tmp_path, source, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("DSRD_CACHE", str(tmp_path / "file"))
    dataset = load(source)
    assert len(dataset.events) == 2
    assert dataset.notes[-1].startswith(f"not cached in {tmp_path / 'file'}: ")


def test_a_full_disk_gives_a_note(folder, source, monkeypatch):
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    dataset = load(source)
    assert "No space left on device" in dataset.notes[-1]
    assert entries(folder) == []


def test_concurrent_writers_leave_one_whole_copy(folder, source):
    with ThreadPoolExecutor(4) as pool:
        digests = {dataset.digest for dataset in pool.map(load, [source] * 8)}
    assert len(digests) == 1
    (entry,) = entries(folder)
    assert read_dataset(entry, mapped=True).digest in digests


@pytest.mark.parametrize(("mapped", "copied"), [(True, False), (False, True)])
def test_only_reading_without_mapping_copies_the_events(tmp_path, mapped, copied):
    events = 100_000
    src = np.arange(events) % 9_991 + 1
    write_dataset(Dataset.from_arrays("big", src, src[::-1], np.arange(events, dtype=float)), tmp_path)
    before = pa.total_allocated_bytes()
    dataset = read_dataset(tmp_path, mapped=mapped)
    column_bytes = 8 * events
    assert (pa.total_allocated_bytes() - before > column_bytes) == copied
    assert (len(dataset.events), int(dataset.events.dst[-1])) == (events, int(src[0]))
