"""`Bookmarks`: small notes in the data folder about the sources and sinks of streams."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from dsrd.decoding import own_json
from dsrd.errors import DsrdError
from dsrd.files import write_json


class Bookmarks:
    """A file for every source and sink. The position of a source is not here: the log has it.

    >>> import tempfile
    >>> bookmarks = Bookmarks(Path(tempfile.mkdtemp()))
    >>> bookmarks.write("sink", "-", {"seq": 7})
    >>> bookmarks.read("sink", "-"), bookmarks.read("sink", "other")
    ({'name': '-', 'seq': 7}, None)
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def read(self, kind: str, name: str) -> dict[str, Any] | None:
        path = self._path(kind, name)
        try:
            noted: dict[str, Any] = own_json(path)
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise DsrdError(f"{path}: is damaged ({error}); remove it to start '{name}' anew") from None
        return noted

    def write(self, kind: str, name: str, noted: dict[str, Any]) -> None:
        write_json(self._path(kind, name), {"name": name, **noted})

    def _path(self, kind: str, name: str) -> Path:
        return self._folder / f"{kind}-{hashlib.blake2b(name.encode(), digest_size=8).hexdigest()}.json"
