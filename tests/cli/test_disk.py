"""A full disk or a path that cannot be written: exit code 1, one line, and existing files are kept."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.call_log import COLUMNS
from support.program import STREAM, TRAIN, TRAINED, done, dsrd, refused

FULL = "the disk is full; free some space and try again"
MakeDisk = Callable[[int], Path]


@pytest.fixture
def disk() -> Iterator[MakeDisk]:
    """`disk(kilobytes)`: a folder on a disk of that size; skips the test without permission to mount one."""
    made: list[Path] = []

    def make(kilobytes: int) -> Path:
        folder = Path("disk")
        folder.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", str(folder)]
        if not shutil.which("mount") or subprocess.run(command, capture_output=True).returncode:
            pytest.skip("mounting a small disk needs root")
        made.append(folder.absolute())
        return folder

    yield make
    for folder in made:
        subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.parametrize("out", ["drawn.csv", "drawn.parquet", "drawn"])
def test_data_synth_on_a_full_disk_leaves_no_file(disk: MakeDisk, out: str):
    target = disk(64) / out
    outcome = dsrd("data", "synth", target, "--set", "events=20000", "--set", "edge_dim=4")
    assert outcome.code == 1
    assert outcome.error.startswith(f"error: {target}")
    assert outcome.error.endswith(FULL)
    assert [path for path in Path("disk").rglob("*") if path.is_file()] == []


def test_data_convert_on_a_full_disk_keeps_the_old_file(disk: MakeDisk):
    target = disk(64) / "copy.csv"
    done("data", "synth", target, "--set", "events=500")
    before = target.read_bytes()
    assert refused("data", "convert", "synth:events=20000", target, code=1).endswith(FULL)
    assert target.read_bytes() == before


def test_a_run_stopped_by_a_full_disk_can_be_continued(disk: MakeDisk):
    folder = disk(80) / "run"
    words = [*TRAIN, "-d", STREAM, "-o", folder, "--results", "results.jsonl"]
    outcome = dsrd(*words)
    assert outcome.code == 1
    assert outcome.error == f"error: {folder}/last.safetensors: {FULL}"
    assert sorted(path.name for path in folder.iterdir()) == [
        "best.safetensors",
        "config.json",
        "events.arrow",
        "nodes.arrow",
    ]
    assert not Path("results.jsonl").exists()
    subprocess.run(["mount", "-o", "remount,size=4M", "disk"], check=True)
    done(*words)
    assert (folder / "record.json").exists()
    assert len(Path("results.jsonl").read_text().splitlines()) == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full on this system")
def test_a_full_disk_for_the_results_file_keeps_the_trained_run(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("dsrd.files.kind_of_file", lambda mode: "")  # the device stands for a full disk
    words = [*TRAIN, "-d", STREAM, "-o", "run", "--json"]
    outcome = dsrd(*words, "--results", "/dev/full")
    assert outcome.code == 1
    assert outcome.error == f"error: /dev/full: {FULL}"
    again = done(*words, "--results", "results.jsonl")
    assert "this run is complete" in again.err
    assert Path("results.jsonl").read_text() == again.out


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_disk_that_becomes_full_while_writing_keeps_the_old_file(monkeypatch: pytest.MonkeyPatch, code: int):
    """A simulated full disk, for machines where none can be mounted."""

    def full(handle: int) -> None:
        raise OSError(code, os.strerror(code))

    Path("drawn.csv").write_text("old content")
    monkeypatch.setattr("os.fsync", full)
    error = refused("data", "synth", "drawn.csv", "--set", "events=500", code=1)
    assert error == f"error: drawn.csv: {FULL}"


def test_a_path_below_a_file_is_refused(trained_once: Callable[[str], Path]):
    Path("file").write_text("no folder")
    Path("ask.csv").write_text("source,target\n1,2\n")
    train = [*TRAIN, "-d", STREAM]
    for words in (
        [*train, "-o", "file/run", "--results", "none"],
        [*train, "-o", "file/run"],
        [*train, "-o", "run", "--results", "file/results.jsonl"],
        ["data", "synth", "file/drawn.csv", "--set", "events=500"],
        ["data", "convert", STREAM, "file/drawn"],
        ["predict", trained_once(TRAINED), "--pairs", "ask.csv", "--out", "file/scores.csv"],
        ["data", "fetch", "http://127.0.0.1:9/calls.csv", "--to", "file/data"],
    ):
        error = refused(*words, code=1)
        assert error.startswith("error: file")
        assert "choose another" in error


def test_a_folder_in_place_of_an_output_file_is_refused():
    Path("results").mkdir()
    words = [*TRAIN, "-d", STREAM, "-o", "run", "--results", "results"]
    assert "results: is a folder; give the name of a file" in refused(*words)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_write_permission_is_refused():
    Path("locked").mkdir(mode=0o555)
    for words in (["data", "synth", "locked/a.csv"], [*TRAIN, "-d", STREAM, "-o", "locked/run"]):
        assert "no permission to write" in refused(*words, code=1)


def test_a_read_only_disk_is_refused(disk: MakeDisk):
    folder = disk(64)
    subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
    error = refused("data", "synth", folder / "drawn.csv", "--set", "events=500", code=1)
    assert error.startswith("error: disk/drawn.csv: cannot be written")
    error = refused(*TRAIN, "-d", STREAM, "-o", folder / "run", "--results", "none", code=1)
    assert error.startswith("error: disk/run: cannot be written (read-only file system)")


def test_a_cache_that_cannot_be_written_gives_a_note(monkeypatch: pytest.MonkeyPatch, calls: Path):
    Path("file").write_text("no folder")
    monkeypatch.setenv("DSRD_CACHE", "file/cache")
    outcome = done("data", "describe", calls, *COLUMNS)
    assert "not cached in file/cache" in outcome.err
