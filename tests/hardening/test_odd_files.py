"""Files that dsrd or a user wrote, in every place: nested without end, pipes, devices, folders, no text at all."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

import dsrd
from dsrd import faults, files
from dsrd.errors import DsrdError, MachineError
from dsrd.experiments import plan as plans
from dsrd.experiments import records
from dsrd.live.data_folder import DataFolder
from dsrd.live.server.serving import read_token
from dsrd.live.streams.address import Address
from dsrd.live.streams.bookmarks import Bookmarks
from dsrd.live.streams.files import FileSource
from dsrd.live.streams.sinks import FileSink
from dsrd.processes import launched
from dsrd.report.records import read as read_records
from dsrd.train.run_folder import RunFolder
from support.forked import exit_code_of

PLAN = 'datasets = ["synth:events=500"]\nseeds = [0]\n[[models]]\nname = "edgebank"\n'
LAUNCHER = {"MASTER_ADDR": "localhost", "MASTER_PORT": "29500"}


def bookmark(path: Path) -> None:
    bookmarks = Bookmarks(path.parent)
    shutil.move(path, bookmarks._path("source", "calls"))
    bookmarks.read("source", "calls")


READERS: dict[str, Callable[[Path], object]] = {
    "plan.toml": plans.load_plan,
    "results.jsonl": lambda path: list(records.read(path)),
    "record.json": lambda path: read_records([path]),
    "config.json": lambda path: RunFolder(path.parent).config(),
    "engine.json": lambda path: DataFolder(path.parent).base(),
    "bookmark.json": bookmark,
    "token": read_token,
}
NESTED = {"plan.toml": "a = " + "[" * 100_000, "token": "[ " * 100_000}
ODD: dict[str, Callable[[Path], object]] = {
    "nested": lambda path: path.write_text(NESTED.get(path.name, "[" * 100_000)),
    "bytes": lambda path: path.write_bytes(bytes(range(256))),
    "pipe": os.mkfifo,
    "device": lambda path: path.symlink_to("/dev/zero"),
    "folder": Path.mkdir,
}


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes and devices as on Unix")
@pytest.mark.parametrize("kind", ODD)
@pytest.mark.parametrize("name", READERS)
def test_an_odd_file_is_refused_in_one_line(tmp_path: Path, name: str, kind: str):
    path = tmp_path / (DataFolder(tmp_path).settings.name if name == "engine.json" else name)
    ODD[kind](path)
    with pytest.raises((DsrdError, IsADirectoryError)) as raised:
        READERS[name](path)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("kind", ["nested", "bytes", "pipe", "device", "folder"])
def test_a_damaged_record_of_a_run_is_refused(tmp_path: Path, kind: str):
    stream = dsrd.load("synth:events=300")
    dsrd.LinkPredictor("edgebank").fit(stream, folder=tmp_path / "run", progress=False).evaluate(progress=False)
    record = tmp_path / "run" / "record.json"
    record.unlink()
    ODD[kind](record)
    with pytest.raises(DsrdError, match=r"record\.json: damaged"):
        RunFolder(tmp_path / "run").stored_record()


def test_a_mark_of_the_encoding_and_windows_lines_are_understood(tmp_path: Path):
    file = tmp_path / "plan.toml"
    file.write_bytes(b"\xef\xbb\xbf" + PLAN.replace("\n", "\r\n").encode())
    assert len(plans.load_plan(file).runs) == 1


def test_a_plan_of_too_many_runs_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(plans, "MOST_RUNS", 3)
    plan = {"datasets": ["synth:events=500"], "seeds": [0, 1, 2], "models": [{"name": "edgebank"}]}
    assert len(plans.load_plan(plan).runs) == 3
    with pytest.raises(DsrdError, match="plan: more than 3 runs; give fewer seeds"):
        plans.load_plan({**plan, "seeds": [0, 1, 2, 3]})


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="devices as on Unix")
def test_nothing_is_written_to_a_device():
    with pytest.raises(DsrdError, match="/dev/zero: is a device; give the name of a file"):
        files.append_line(Path("/dev/zero"), "{}")


FOREIGN = ('{"mine": 1}', '{\n "mine": 1\n}', "a note", '{"mine": 1}\n{"mine": ')


@pytest.mark.parametrize("text", FOREIGN)
def test_lines_of_a_stream_do_not_cut_a_file_of_others(tmp_path: Path, text: str):
    file = tmp_path / "notes.json"
    file.write_text(text)
    sink = FileSink(file)
    with pytest.raises(DsrdError, match="it was written by others; choose another file"):
        sink.last()
    sink.close()
    assert file.read_text() == text


def test_half_a_line_of_a_stream_is_cut_off(tmp_path: Path):
    for text, last in (('{"seq": 4}\n{"se', 4), ('{"se', None), ("", None)):
        file = tmp_path / "said.jsonl"
        file.write_text(text)
        sink = FileSink(file)
        assert sink.last() == last
        sink.close()
        assert file.read_text() == text[: text.rfind("\n") + 1]


@pytest.mark.parametrize(
    ("rank", "count"), [("x", "2"), ("0", "x"), ("2", "2"), ("0", "0"), ("-1", "2"), ("1.5", "2"), ("", "")]
)
def test_nonsense_of_a_launcher_is_refused(rank: str, count: str):
    with pytest.raises(DsrdError, match=r"RANK=.*, WORLD_SIZE=.*; start with torchrun, or unset them"):
        launched({"RANK": rank, "WORLD_SIZE": count, **LAUNCHER})


@pytest.mark.parametrize("setting", ["foo", "die:x", "die:", "list:", ":"])
def test_a_fault_point_that_is_none_is_refused_where_it_would_be_used(setting: str):
    faults.arm(setting)
    try:
        with pytest.raises(DsrdError, match="give die:N or list:FILE, or unset it"):
            faults.point("a moment")
    finally:
        faults.arm("")


def test_a_results_file_that_is_no_text_keeps_its_bytes(tmp_path: Path):
    file = tmp_path / "results.jsonl"
    file.write_bytes(b"\xff\xfe\n")
    records.append(file, {"model": "edgebank"})
    records.append(file, {"model": "edgebank"})
    assert file.read_bytes() == b"\xff\xfe\n" + json.dumps({"model": "edgebank"}).encode() + b"\n"


@pytest.mark.parametrize("text", ["x" * 200_000, '"' + "y" * 200_000, "source,target,time," + "z" * 200_000])
def test_a_stream_whose_header_is_none_is_refused(tmp_path: Path, text: str):
    file = tmp_path / "calls.csv"
    file.write_text(text + "\nann,bob,1\n")
    source = FileSource(file, Bookmarks(tmp_path), follow=False, batch=10)
    source.start(lambda name: None)
    with pytest.raises(DsrdError, match="line 1: is not CSV"):
        list(source.batches())
    source.close()


def test_an_address_that_is_none_is_refused():
    with pytest.raises(DsrdError, match=r"kafka://: is no address \(Invalid IPv6 URL\); give -, a file"):
        Address.of("kafka://[::1/calls")


@pytest.mark.skipif(os.name == "nt", reason="permissions as on Unix")
@pytest.mark.parametrize("name", ["config.json", "best.safetensors", "events.arrow", "nodes.arrow"])
def test_a_run_that_may_not_be_read_is_not_called_damaged(
    tmp_path: Path, name: str, capfd: pytest.CaptureFixture[str]
):
    stream = dsrd.load("synth:events=300")
    dsrd.LinkPredictor("edgebank").fit(stream, folder=tmp_path / "run", progress=False)
    (tmp_path / "run" / name).chmod(0)

    def as_another_user() -> None:
        if os.getuid() == 0:
            for folder in (tmp_path, *tmp_path.parents[:3]):
                folder.chmod(folder.stat().st_mode | 0o055)
            os.setuid(65534)
        with pytest.raises((DsrdError, PermissionError)) as raised:
            dsrd.open(tmp_path / "run")
        assert name in str(raised.value)
        assert "ermission denied" in str(raised.value)
        assert "damaged" not in str(raised.value)

    code = exit_code_of(as_another_user)
    assert code == 0, capfd.readouterr().err


def test_a_full_disk_is_named_by_a_folder_and_by_a_sink(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def refuse(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    sink = FileSink(tmp_path / "said.jsonl")
    monkeypatch.setattr(sink, "_file", SimpleNamespace(write=refuse))
    with pytest.raises(MachineError, match=r"said\.jsonl: the disk is full; free some space"):
        sink.write([1], ["{}"])
    with (
        pytest.raises(MachineError, match="report: the disk is full"),
        files.replacing_folder(tmp_path / "report"),
    ):
        refuse()
    monkeypatch.setattr("dsrd.files.LEAST_FREE", 1 << 62)  # a library hides why it failed
    with (
        pytest.raises(MachineError, match="report: the disk is full"),
        files.replacing_folder(tmp_path / "report"),
    ):
        raise AttributeError("'Stream' object has no attribute 'pos'")
    assert not (tmp_path / "report").exists()
