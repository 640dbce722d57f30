"""Writing files so that they are complete or absent: under a temporary name, then renamed."""

from __future__ import annotations

import errno
import json
import math
import os
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from filelock import FileLock, SoftFileLock, Timeout

from dsrd import faults
from dsrd.decoding import kind_of_file
from dsrd.errors import DsrdError, MachineError

PART = ".part"
"""Suffix of a file that is still being written; its name starts with a dot."""
LOCK = ".lock"
"""Name of the lock file in a folder that a process works in."""
FULL = (errno.ENOSPC, errno.EDQUOT)
LEAST_FREE = 1 << 12  # bytes; with less, a failed write counts as a full disk, whatever error the library raised


@contextmanager
def replacing(path: Path, mode: int = 0o666) -> Iterator[Path]:
    """Yield a temporary path to write to; it replaces `path` if the block succeeds, and is removed if it fails.

    The file gets the permissions in `mode`, without those that the umask takes away.
    """
    temporary = _temporary(path)
    try:
        with full_disk(path):
            faults.point(f"before writing {path.name}")
            yield temporary
            faults.while_writing(path.name, temporary)
            _flush(temporary)
            os.chmod(temporary, mode & ~umask())
            faults.point(f"before renaming {path.name}")
            os.replace(temporary, path)
            faults.point(f"after renaming {path.name}")
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def full_disk(path: Path) -> Iterator[None]:
    """Turn whatever is raised in this block because the disk is full into an error that names the file."""
    try:
        yield
    except Exception as error:
        if _is_full(error, path.parent):
            raise _full(path) from error
        raise


@contextmanager
def replacing_folder(path: Path) -> Iterator[Path]:
    """Like `replacing`, for a folder. The old one is moved aside until the new one is in its place."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=f".{path.name}.", suffix=PART, dir=path.parent))
    except OSError as error:
        raise _unwritable(path, error) from error
    old = temporary.with_name(f"{temporary.name}.old")
    try:
        with full_disk(path):
            yield temporary
        temporary.chmod(0o777 & ~umask())
        if path.is_dir():
            path.rename(old)
        temporary.rename(path)
    finally:
        if old.exists() and not path.exists():
            old.rename(path)
        for folder in (temporary, old):
            shutil.rmtree(folder, ignore_errors=True)


def write_text(path: Path, text: str) -> None:
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Any) -> None:
    write_text(path, json_text(value, indent=1) + "\n")


def json_text(value: Any, indent: int | None = None) -> str:
    """Standard JSON, which has no NaN: numbers that are not finite become null.

    >>> json_text({"ap": float("nan"), "events": 3})
    '{"ap": null, "events": 3}'
    """
    return json.dumps(_with_nulls(value), indent=indent, allow_nan=False)


def append_line(path: Path, line: str) -> None:
    """Add one line in a single write: lines of concurrent runs do not mix, and a failed write leaves nothing."""
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
            with suppress(OSError):
                file.truncate(end)
            if _is_full(error, path.parent):
                raise _full(path) from error
            raise


def require_writable(path: Path) -> None:
    """Raise an error if the file cannot be written; called before long work rather than after it."""
    if path.is_dir():
        raise DsrdError(f"{path}: is a folder; give the name of a file")
    kind = kind_of_file(path.stat().st_mode) if path.exists() else ""
    if kind:
        raise DsrdError(f"{path}: is {kind}; give the name of a file")
    nearest = path if path.exists() else next(folder for folder in path.absolute().parents if folder.exists())
    if not path.exists() and not nearest.is_dir():
        raise MachineError(f"{path}: cannot be written, {nearest} is a file; choose another place")
    if not os.access(nearest, os.W_OK):
        raise MachineError(f"{path}: cannot be written, no permission to write to {nearest}; choose another place")


@contextmanager
def locked(folder: Path, message: str) -> Iterator[None]:
    """Create a folder and lock it; raises an error with `message` if another process holds the lock.

    The block runs without a lock where none is possible: a file system without locks, a read-only folder.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unwritable(folder, error) from error
    lock = FileLock(folder.absolute() / LOCK)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # filelock warns when it falls back to a SoftFileLock
            lock.acquire(blocking=False)
    except Timeout:
        raise DsrdError(message) from None
    except (OSError, NotImplementedError):
        yield
        return
    try:
        yield
    finally:
        _release(lock)


def _release(lock: FileLock) -> None:
    # Removed while the lock is still held: a process that has already opened the file then locks a deleted file,
    # which filelock (3.21 or later) detects. Windows cannot remove an open file; there, and with a SoftFileLock,
    # `release` removes it.
    if not isinstance(lock, SoftFileLock):
        with suppress(OSError):
            os.unlink(lock.lock_file)
    lock.release()


def is_empty(folder: Path) -> bool:
    """Whether a folder holds nothing; a lock file, of this process or a killed one, does not count."""
    return all(file.name == LOCK for file in folder.iterdir())


def leftovers(folder: Path) -> list[Path]:
    """Temporary files that a killed process has left."""
    return [file for file in folder.glob(f".*{PART}") if file.is_file()]


def _temporary(path: Path) -> Path:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=PART, dir=path.parent)
    except OSError as error:
        raise _unwritable(path, error) from error
    os.close(handle)
    return Path(name)


def _unwritable(path: Path, error: OSError) -> MachineError:
    if _is_full(error, path.parent):
        return _full(path)
    reason = (error.strerror or str(error)).lower()
    return MachineError(f"{path}: cannot be written ({reason}); choose another place")


def _full(path: Path) -> MachineError:
    return MachineError(f"{path}: the disk is full; free some space and try again")


def _is_full(error: Exception, folder: Path) -> bool:
    """Whether a write failed because the disk is full; some libraries do not pass the reason on."""
    if isinstance(error, DsrdError):
        return False
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno in FULL
    if not folder.is_dir():
        return False
    return any(os.strerror(code) in str(error) for code in FULL) or shutil.disk_usage(folder).free < LEAST_FREE


def _ends_a_line(file: Any, end: int) -> bool:
    """Whether the file ends with a complete line; a process killed while writing may have left half of one."""
    if not end:
        return True
    file.seek(end - 1)
    return bool(file.read(1) == b"\n")


def _with_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _with_nulls(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_with_nulls(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _flush(path: Path) -> None:
    with path.open("r+b") as file:  # Windows flushes only files opened for writing
        os.fsync(file.fileno())


def umask() -> int:
    """The permissions that new files of this process do not get."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
