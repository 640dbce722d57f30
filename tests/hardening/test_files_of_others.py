"""Files that are no usual files, that expand, that belong to the user, or that others may not read."""

from __future__ import annotations

import gzip
import os
import shutil
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest
import torch

import dsrd
from dsrd import decoding
from dsrd.data import fetch as fetching
from dsrd.errors import DsrdError
from dsrd.train import checkpoint

CALLS = "source,target,time\n" + "".join(f"ann,bob,{row}\n" for row in range(3000))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes in folders as on Unix")
@pytest.mark.parametrize("name", ["calls.csv", "calls.csv.gz", "calls.parquet"])
def test_a_pipe_is_refused_at_once(tmp_path: Path, name: str):
    os.mkfifo(tmp_path / name)
    with pytest.raises(DsrdError, match="is a pipe, not a file; save its content to a file"):
        dsrd.load(tmp_path / name)


def test_a_file_that_expands_far_beyond_its_size_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(decoding, "ALWAYS_EXPANDED", 1000)
    monkeypatch.setenv("DSRD_MAX_EXPANSION", "5")
    file = tmp_path / "calls.csv.gz"
    file.write_bytes(gzip.compress(CALLS.encode()))
    with pytest.raises(DsrdError, match=r"far more than its size suggests; if you trust it, raise DSRD_MAX_EXP"):
        dsrd.load(file, cache=False)
    archive = tmp_path / "uci.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as bundle:
        bundle.writestr("uci.csv", CALLS)
    with pytest.raises(DsrdError, match=r"far more than its size suggests"):
        fetching._unpack(archive, "uci", ours=False)
    assert archive.exists()
    assert not (tmp_path / "uci.csv").exists()
    monkeypatch.setenv("DSRD_MAX_EXPANSION", "1000")
    assert len(dsrd.load(file, cache=False).events) == 3000


@pytest.mark.skipif(os.name == "nt", reason="permissions as on Unix")
def test_a_cached_copy_is_as_private_as_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DSRD_CACHE", str(tmp_path / "cache"))
    file = tmp_path / "calls.csv"
    file.write_text(CALLS)

    def modes() -> set[int]:
        dsrd.load(file)
        return {path.stat().st_mode & 0o777 for path in (tmp_path / "cache").rglob("*.arrow")}

    file.chmod(0o644)
    assert all(mode & 0o133 == 0 for mode in modes())
    file.chmod(0o600)  # the copy that is there loses what its file has lost
    assert modes() == {0o600}


def test_a_file_of_the_user_with_another_checksum_is_kept(tmp_path: Path):
    (tmp_path / "a.csv").write_text("mine")
    with pytest.raises(DsrdError, match=r"a\.csv: exists, and its sha256 is .* move it away and fetch again"):
        fetching.fetch("http://127.0.0.1:9/a.csv", tmp_path, sha256="0" * 64)
    assert (tmp_path / "a.csv").read_text() == "mine"


def test_a_link_in_place_of_a_partial_download_is_not_followed(tmp_path: Path):
    (tmp_path / "precious").write_text("mine")
    (tmp_path / "a.csv.part").symlink_to(tmp_path / "precious")
    with pytest.raises(DsrdError, match=r"a\.csv\.part: is a link or no file; remove it"):
        fetching.fetch("http://127.0.0.1:9/a.csv", tmp_path)
    assert (tmp_path / "precious").read_text() == "mine"


@pytest.mark.parametrize("unit", ["ms", "us"])
def test_timestamps_that_do_not_fit_are_refused_with_their_row(tmp_path: Path, unit: str):
    times = pa.array([0, 1 << 62]).cast(pa.timestamp(unit))
    table = pa.table({"source": ["a", "b"], "target": ["c", "c"], "time": times})
    pyarrow.parquet.write_table(table, tmp_path / "calls.parquet")
    with pytest.raises(DsrdError, match=r"row 2: time .* lies outside the years 1 to 9999"):
        dsrd.load(tmp_path / "calls.parquet", cache=False)


def test_a_checkpoint_under_the_name_of_another_is_refused(tmp_path: Path):
    """Except for the one that an error offers in place of a damaged one."""
    best, last, now = (tmp_path / f"{name}.safetensors" for name in ("best", "last", "now"))
    checkpoint.save(best, {"state": {"rows": torch.ones(3)}}, {"events": 3})
    shutil.copy(best, now)
    with pytest.raises(DsrdError, match=r"now\.safetensors: .*it was written as best\.safetensors"):
        checkpoint.load(now)
    checkpoint.save(last, {"state": {"rows": torch.zeros(3)}}, {"events": 3})
    shutil.copy(last, best)
    groups, note = checkpoint.load(best)
    assert (groups["state"]["rows"].tolist(), note) == ([0, 0, 0], {"events": 3})


def test_equal_checkpoints_are_equal_files(tmp_path: Path):
    for folder in ("one", "other"):
        (tmp_path / folder).mkdir()
        checkpoint.save(tmp_path / folder / "best.safetensors", {"a": {"b": torch.ones(3)}}, {"x": 1, "y": 2})
    assert len({file.read_bytes() for file in tmp_path.rglob("*.safetensors")}) == 1


def test_more_processes_than_fit_in_memory_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("dsrd.train.launch.available_bytes", lambda: 1 << 30)
    (tmp_path / "calls.csv").write_text(CALLS.replace("bob,1", "eve,1"))
    model = dsrd.LinkPredictor("graphmixer", epochs=1, train__workers=64)
    with pytest.raises(
        DsrdError, match=r"train\.workers=64: so many processes need at least 13\.4 GB, of which 1\.1"
    ):
        model.fit(dsrd.load(tmp_path / "calls.csv", cache=False), folder=tmp_path / "run", progress=False)
    assert not (tmp_path / "run").exists()
