"""Files that are either whole or not there: written under a temporary name, then renamed."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dsrd.errors import DsrdError, MachineError

PART = ".part"
"""Suffix of a file that is being written; its name starts with a dot."""
FULL = (errno.ENOSPC, errno.EDQUOT)
LEAST_FREE = 1 << 12  # bytes; with less a disk is full, whatever the library that wrote to it said


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary name beside `path`; rename it to `path` when the block ends well, remove it otherwise."""
    temporary = _temporary(path)
    try:
        yield temporary
        _flush(temporary)
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except Exception as error:
        if _is_full(error, path.parent):
            raise _full(path) from error
        raise
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Any) -> None:
    write_text(path, json.dumps(value, indent=1) + "\n")


def append_line(path: Path, line: str) -> None:
    """Add one line in a single write, so that lines of concurrent runs do not mix; all of it or nothing."""
    require_writable(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+b", buffering=0) as file:
        end = file.seek(0, os.SEEK_END)
        data = (b"" if _ends_a_line(file, end) else b"\n") + line.encode() + b"\n"
        try:
            if file.write(data) != len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(file.fileno())
        except OSError as error:
            file.truncate(end)
            if _is_full(error, path.parent):
                raise _full(path) from error
            raise


def require_writable(path: Path) -> None:
    """Raise an error if a file of that name cannot be made: found out before hours of work rather than after."""
    if path.is_dir():
        raise DsrdError(f"{path}: is a folder; give the name of a file")
    there = path if path.exists() else next(folder for folder in path.absolute().parents if folder.exists())
    if not path.exists() and not there.is_dir():
        raise MachineError(f"{path}: cannot be written, {there} is a file; choose another place")
    if not os.access(there, os.W_OK):
        raise MachineError(f"{path}: cannot be written, no right to write in {there}; choose another place")


@contextmanager
def locked(path: Path, otherwise: str) -> Iterator[None]:
    """Hold a file that exists against other processes; `otherwise` is the error if one of them has it."""
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DsrdError(otherwise) from None
        except OSError:  # a file system without locks: nothing to hold
            pass
        yield


def leftovers(folder: Path) -> list[Path]:
    """Temporary files that a killed process left behind."""
    return [file for file in folder.glob(f".*{PART}") if file.is_file()]


def _temporary(path: Path) -> Path:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=PART, dir=path.parent)
    except OSError as error:
        if _is_full(error, path.parent):
            raise _full(path) from error
        reason = (error.strerror or str(error)).lower()
        raise MachineError(f"{path}: cannot be written ({reason}); choose another place") from error
    os.close(handle)
    return Path(name)


def _full(path: Path) -> MachineError:
    return MachineError(f"{path}: the disk is full; free some space and run the same command again")


def _is_full(error: Exception, folder: Path) -> bool:
    """Whether a write failed for want of space; libraries that write by themselves hide the reason."""
    if isinstance(error, DsrdError):
        return False
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno in FULL
    if not folder.is_dir():
        return False
    disk = os.statvfs(folder)
    return any(os.strerror(code) in str(error) for code in FULL) or disk.f_bavail * disk.f_frsize < LEAST_FREE


def _ends_a_line(file: Any, end: int) -> bool:
    """Whether what is there is whole; a process killed while writing may have left half a line."""
    if not end:
        return True
    file.seek(end - 1)
    return bool(file.read(1) == b"\n")


def _flush(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
