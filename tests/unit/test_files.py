"""Locks on folders, empty folders, and figures about the machine."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from dsrd import machine
from dsrd.errors import DsrdError
from dsrd.files import LOCK, is_empty, locked, write_text

HOLD = (
    "import sys; from pathlib import Path; from dsrd.files import locked\nwith locked(Path(sys.argv[1]), 'busy'): "
)


def lock_elsewhere(folder: Path, then: str = "print('locked', flush=True); input()") -> subprocess.Popen[str]:
    """Start a process that locks the folder, and wait until it has."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD + then, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "locked\n"
    return process


def test_a_folder_is_locked_for_other_processes_and_then_free(tmp_path: Path):
    process = lock_elsewhere(tmp_path / "run")
    assert is_empty(tmp_path / "run")
    with pytest.raises(DsrdError, match="busy"), locked(tmp_path / "run", "busy"):
        pass
    process.communicate("\n", timeout=30)
    with locked(tmp_path / "run", "busy"):
        assert (tmp_path / "run" / LOCK).exists()


def test_a_second_lock_in_the_same_process_is_refused(tmp_path: Path):
    with locked(tmp_path, "busy"), pytest.raises(DsrdError, match="busy"), locked(tmp_path, "busy"):
        pass


def test_the_lock_of_a_killed_process_is_taken_over_and_removed(tmp_path: Path):
    process = lock_elsewhere(tmp_path / "run")
    process.kill()
    process.communicate(timeout=30)
    assert [file.name for file in (tmp_path / "run").iterdir()] == [LOCK]
    assert is_empty(tmp_path / "run")
    with locked(tmp_path / "run", "busy"):
        pass
    assert list((tmp_path / "run").iterdir()) == []


def test_a_lock_is_released_after_an_error(tmp_path: Path):
    with pytest.raises(ZeroDivisionError), locked(tmp_path, "busy"):
        raise ZeroDivisionError
    with locked(tmp_path, "busy"):
        pass
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EROFS])
def test_a_file_system_without_locks_still_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int):
    fcntl = pytest.importorskip("fcntl")

    def refuse(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with locked(tmp_path, "busy"):
        write_text(tmp_path / "log", "written")
    assert (tmp_path / "log").read_text() == "written"
    (tmp_path / "log").unlink()
    assert is_empty(tmp_path)


def test_a_folder_with_only_a_lock_is_empty(tmp_path: Path):
    assert is_empty(tmp_path)
    (tmp_path / LOCK).touch()
    assert is_empty(tmp_path)
    (tmp_path / ".hidden").touch()
    assert not is_empty(tmp_path)


def test_peak_memory_without_the_resource_module(monkeypatch: pytest.MonkeyPatch):
    """As on Windows, where psutil reports the peak of the working set."""
    assert 10 < machine.peak_rss_mb() < 1e5

    class Process:
        def memory_info(self) -> object:
            return type("Info", (), {"peak_wset": 300 << 20})

    monkeypatch.setitem(sys.modules, "resource", None)
    monkeypatch.setattr(psutil, "Process", Process)
    assert machine.peak_rss_mb() == 300


def test_the_load_of_the_machine_is_a_number():
    assert machine.load_average() >= 0
