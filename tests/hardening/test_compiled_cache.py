"""Compiled code on other machines: nowhere to write, damaged files, folders of strangers, two cold processes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import dsrd
from dsrd import compiled_cache

CODE = "from dsrd.hashing import hashed_uniform as h; print(h(1, 2, 3, 4))"


def started(**environment: str) -> subprocess.Popen[str]:
    known = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    return subprocess.Popen(
        [sys.executable, "-B", "-c", CODE],
        env={**known, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finished(process: subprocess.Popen[str]) -> tuple[str, str]:
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return out, err


def test_two_cold_processes_at_once_and_damaged_files_give_the_same_number(tmp_path: Path):
    cache = tmp_path / "cache"
    pair = [started(NUMBA_CACHE_DIR=str(cache)) for _ in range(2)]
    (first, _), (second, _) = map(finished, pair)
    assert first == second
    files = list(cache.rglob("*.nb?"))
    assert files
    for number, file in enumerate(files):
        content = file.read_bytes()
        file.write_bytes((b"", content[: len(content) // 2], content[:-1] + b"\0", b"x" * 100)[number % 4])
    assert finished(started(NUMBA_CACHE_DIR=str(cache)))[0] == first


def test_an_installation_that_cannot_be_written_without_a_home_works_with_one_note(tmp_path: Path):
    """A file where numba wants its folder stands for a folder without permission, which root would have."""
    source = Path(dsrd.__file__).parent
    shutil.copytree(source, tmp_path / "site" / "dsrd", ignore=shutil.ignore_patterns("__pycache__", "page"))
    for folder in [path for path in (tmp_path / "site").rglob("*") if path.is_dir()]:
        (folder / "__pycache__").write_text("in the way")
    (tmp_path / "temporary").mkdir()
    places = {"HOME": os.devnull, "XDG_CACHE_HOME": os.devnull, "TMPDIR": str(tmp_path / "temporary")}
    out, err = finished(started(PYTHONPATH=str(tmp_path / "site"), **places))
    assert 0 <= float(out) < 1
    assert err.count("compiled code is kept in") == 1
    (kept,) = (tmp_path / "temporary").iterdir()
    assert list(kept.rglob("*.nbc"))
    assert kept.stat().st_mode & 0o777 == 0o700


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="permissions as on Unix")
def test_a_temporary_folder_that_others_can_write_to_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(compiled_cache, "_folder", None)
    usual = tmp_path / f"dsrd-compiled-{os.getuid()}"
    usual.mkdir()
    usual.chmod(0o777)
    assert compiled_cache.temporary_folder() != usual
    monkeypatch.setattr(compiled_cache, "_folder", None)
    usual.chmod(0o700)
    assert compiled_cache.temporary_folder() == usual
    monkeypatch.setattr(compiled_cache, "_folder", None)
    usual.rmdir()
    usual.symlink_to(tmp_path)
    assert compiled_cache.temporary_folder() != usual
