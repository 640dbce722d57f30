"""Where compiled code is kept, and how damage to it is noticed. Used by `dsrd.compiled` alone.

numba keeps machine code beside the source file, or in the user's cache folder. Here that also works where neither
can be written (a read-only installation, an account without a home): the code then goes to a private folder among
the temporary files. A file that is damaged, or that two processes wrote at once, is compiled again: numba itself
raises, or runs what it finds.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import stat
import tempfile
import time
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

from numba.core import caching

from dsrd import __version__
from dsrd.errors import DsrdWarning

DIGEST = hashlib.blake2b
DIGEST_SIZE = 16
ABANDONED = 600.0  # seconds after which a file that no index names is removed


class Temporary(caching.UserWideCacheLocator):  # type: ignore[misc]
    """A folder of this user's among the temporary files."""

    def __init__(self, py_func: Any, py_file: str) -> None:
        super().__init__(py_func, py_file)
        self._cache_path = str(temporary_folder() / self.get_suitable_cache_subpath(py_file))

    @classmethod
    def from_function(cls, py_func: Any, py_file: str) -> Any:
        locator = super().from_function(py_func, py_file)
        if locator is not None:
            _note_once(locator.get_cache_path())
        return locator


class Implementation(caching.CompileResultCacheImpl):  # type: ignore[misc]
    """numba's places for compiled code, and one more."""

    _locator_classes = [*caching.CompileResultCacheImpl._locator_classes, Temporary]  # noqa: RUF012, as numba has it


class Files(caching.IndexDataCacheFile):  # type: ignore[misc]
    """numba's index and code files, each with a digest in front. A damaged file counts as missing."""

    def _load_index(self) -> dict[Any, str]:
        try:
            content = _verified(Path(self._index_path))
            version, stamp, overloads = pickle.loads(content)
        except Exception:  # unpickling damaged or foreign files raises anything
            return {}
        fresh = version == self._version and stamp == self._source_stamp
        return dict(overloads) if fresh else {}

    def _save_index(self, overloads: dict[Any, str]) -> None:
        with self._open_for_write(self._index_path) as file:
            file.write(_signed(self._dump((self._version, self._source_stamp, overloads))))

    def _load_data(self, name: str) -> Any:
        try:
            return pickle.loads(_verified(Path(self._data_path(name))))
        except Exception as error:
            raise OSError(f"{name}: damaged") from error  # which counts as missing

    def _save_data(self, name: str, data: Any) -> None:
        with self._open_for_write(self._data_path(name)) as file:
            file.write(_signed(self._dump(data)))

    def save(self, key: Any, data: Any) -> None:
        """Write the code first and then the index: under a name of its own, so that processes never mix files."""
        name = f"{Path(self._index_name).stem}.{uuid4().hex[:12]}.nbc"
        self._save_data(name, data)
        overloads = self._load_index()
        overloads[key] = name
        self._save_index(overloads)
        self._remove_abandoned(set(overloads.values()))

    def _remove_abandoned(self, named: set[str]) -> None:
        now = time.time()
        for file in Path(self._cache_path).glob(f"{Path(self._index_name).stem}.*.nbc"):
            with suppress(OSError):
                if file.name not in named and now - file.stat().st_mtime > ABANDONED:
                    file.unlink()


class Cache(caching.FunctionCache):  # type: ignore[misc]
    """The compiled code of one function. Whatever is wrong with it, the function is compiled."""

    _impl_class = Implementation

    def __init__(self, py_func: Any) -> None:
        super().__init__(py_func)
        impl = self._impl
        # With the version: an installer that replaces the sources leaves old code beside them, and the stamp of
        # one file says nothing about the functions that were copied into it.
        stamp = (__version__, impl.locator.get_source_stamp())
        self._cache_file = Files(self._cache_path, impl.filename_base, stamp)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        try:
            return super().load_overload(sig, target_context)
        except Exception:  # code of another version of a library, for another processor
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        with suppress(OSError):  # a full disk, a folder that was removed: the code works without being kept
            super().save_overload(sig, data)


def kept(dispatcher: Any) -> Any:
    """A numba function whose machine code is kept on disk."""
    try:
        dispatcher._cache = Cache(dispatcher.py_func)
    except RuntimeError:  # no place at all: the function is compiled in every process
        _note_once("no folder")
    return dispatcher


_folder: Path | None = None
_noted = False


def temporary_folder() -> Path:
    """A folder that only this user can write to; a folder of that name that belongs to others is not used."""
    global _folder
    if _folder is None:
        user = getattr(os, "getuid", lambda: "user")()
        folder = Path(tempfile.gettempdir()) / f"dsrd-compiled-{user}"
        with suppress(OSError):
            folder.mkdir(mode=0o700, exist_ok=True)
        _folder = folder if _is_private(folder) else Path(tempfile.mkdtemp(prefix="dsrd-compiled-"))
    return _folder


def _is_private(folder: Path) -> bool:
    try:
        facts = folder.lstat()
    except OSError:
        return False
    if not stat.S_ISDIR(facts.st_mode):
        return False
    return not hasattr(os, "getuid") or (facts.st_uid == os.getuid() and not facts.st_mode & 0o022)


def _note_once(place: str) -> None:
    global _noted
    if not _noted:
        _noted = True
        where = str(Path(place).parent) if os.sep in place else place
        warnings.warn(
            f"compiled code is kept in {where}, because neither the installation nor a home folder can be "
            "written; set NUMBA_CACHE_DIR to a folder that stays, and the next start is quick",
            DsrdWarning,
            stacklevel=2,
        )


def _signed(content: bytes) -> bytes:
    return DIGEST(content, digest_size=DIGEST_SIZE).digest() + content


def _verified(path: Path) -> bytes:
    content = path.read_bytes()
    if DIGEST(content[DIGEST_SIZE:], digest_size=DIGEST_SIZE).digest() != content[:DIGEST_SIZE]:
        raise ValueError(f"{path}: damaged")
    return content[DIGEST_SIZE:]
