"""A cache of parsed streams: a file is parsed once, and later memory-mapped from Arrow files.

Each cached stream is a folder written by `data.arrow`. The folder's name is a hash of the file paths and reader
options, followed by a hash of the files' sizes and dates: an edited file gets a new folder. What is in a folder is
compared with its checksums whenever it is opened.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import platformdirs
import pyarrow as pa

from dsrd.data.arrow import DAMAGED, read_dataset, write_dataset
from dsrd.data.dataset import Dataset
from dsrd.errors import DsrdError
from dsrd.files import umask

VERSION = 4
"""Increased when the layout or a reader changes, so that old folders are ignored."""


def cache_dir() -> Path:
    """The folder of parsed streams: $DSRD_CACHE, or the user's cache folder."""
    return Path(os.environ.get("DSRD_CACHE") or platformdirs.user_cache_dir("dsrd"))


def cached(files: Sequence[Path], options: str, read: Callable[[], Dataset]) -> Dataset:
    """The data set that `read` returns; it is called only if the cache has no valid copy for these arguments.

    A cache that cannot be written is not an error: the data set then has a note about it.
    """
    folder, notes = cache_dir() / _key(files, options), tuple[str, ...]()
    if folder.exists():
        try:
            _restrict(folder, mode_of(files))
            return read_dataset(folder, mapped=True)
        except DAMAGED as error:
            shutil.rmtree(folder, ignore_errors=True)
            notes = (f"its cached copy was damaged ({error}) and has been made again",)
    dataset = replace(read(), mode=mode_of(files))
    try:
        _save(dataset, folder)
    except (pa.ArrowException, OSError, DsrdError) as error:
        reason = getattr(error.__cause__ or error, "strerror", None) or str(error)
        return replace(dataset, notes=(*dataset.notes, *notes, f"not cached in {folder.parent}: {reason}"))
    for outdated in folder.parent.glob(f"{folder.name.split('-')[0]}-*"):
        if outdated != folder:
            shutil.rmtree(outdated, ignore_errors=True)
    return replace(dataset, notes=(*dataset.notes, *notes)) if notes else dataset


def mode_of(files: Sequence[Path]) -> int:
    """Who may read and write all of these files; their owner always may."""
    mode = 0o666
    for file in files:
        mode &= file.stat().st_mode | 0o600
    return mode


def _restrict(folder: Path, mode: int) -> None:
    """Take permissions from a cached copy that its files have lost since."""
    for file in folder.iterdir():
        had = file.stat().st_mode & 0o666
        if had & ~mode:
            file.chmod(had & mode)


def _save(dataset: Dataset, folder: Path) -> None:
    """Write under a temporary name and rename, so that a folder is complete or absent."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=".writing-", dir=folder.parent))
    try:
        write_dataset(dataset, temporary)
        temporary.chmod(0o777 & ~umask())
        if not folder.exists():  # another process may have written the same copy meanwhile
            temporary.rename(folder)
    except OSError:
        if not folder.exists():
            raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _key(files: Sequence[Path], options: str) -> str:
    resolved = [file.resolve() for file in files]
    which = json.dumps([[str(file) for file in resolved], options])
    state = json.dumps([VERSION, *((file.stat().st_size, file.stat().st_mtime_ns) for file in resolved)])
    return "-".join(hashlib.blake2b(text.encode(), digest_size=10).hexdigest() for text in (which, state))
