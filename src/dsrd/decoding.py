"""Reading what others wrote: any fault of a decoder becomes one error that names the file, place and remedy.

Decoders (zlib, zipfile, Arrow, numpy, json) raise dozens of types for damaged input. All readers call them inside
`decoding`; nothing else belongs into its block.
"""

from __future__ import annotations

import json
import math
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dsrd.errors import DsrdError, MachineError

EXPANSION_VARIABLE = "DSRD_MAX_EXPANSION"
EXPANSION = 100.0
"""A compressed file may expand to this many times its size, unless $DSRD_MAX_EXPANSION says otherwise."""
ALWAYS_EXPANDED = 1 << 28  # bytes: so much is expanded whatever the size of the file
KINDS_OF_FILES = (
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


@contextmanager
def decoding(place: object, kind: str, remedy: str = "get the file again") -> Iterator[None]:
    """Turn every fault of a decoder in this block into an error about `place`, which should have been `kind`.

    >>> with decoding("calls.json", "JSON"):
    ...     json.loads("{")
    Traceback (most recent call last):
    ...
    dsrd.errors.DsrdError: calls.json: cannot be read as JSON (Expecting property name ...); get the file again
    """
    try:
        yield
    except DsrdError:
        raise
    except FileNotFoundError:
        raise DsrdError(f"{place}: no such file; check the path") from None
    except PermissionError as error:
        raise unreadable(place) from error
    except MemoryError as error:
        raise MachineError(
            f"{place}: does not fit in memory; give a smaller file, or use a larger machine"
        ) from error
    except Exception as error:
        raise DsrdError(f"{place}: cannot be read as {kind} ({first_line(error)}); {remedy}") from error


def unreadable(place: object) -> MachineError:
    """The error for a file that may not be read."""
    return MachineError(f"{place}: cannot be read, permission denied; check its permissions")


def kind_of_file(mode: int) -> str:
    """What a file is that is neither a regular file nor a folder, in words; empty for those."""
    return next((kind for is_kind, kind in KINDS_OF_FILES if is_kind(mode)), "")


def regular_file(path: Path) -> Path:
    """The path of a file that exists. Pipes and devices are refused: reading one may never end.

    >>> regular_file(Path("/dev/null"))
    Traceback (most recent call last):
    ...
    dsrd.errors.DsrdError: /dev/null: is a device, not a file; save its content to a file and give that
    """
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        raise DsrdError(f"{path}: no such file; check the path") from None
    except (OSError, ValueError) as error:  # a name that is too long, a zero byte, no permission for its folder
        raise DsrdError(f"{shortened(str(path))}: not a usable path ({first_line(error)}); check it") from error
    if stat.S_ISDIR(mode):
        raise DsrdError(f"{path}: is a folder, not a file; give the path of a file")
    if kind := kind_of_file(mode):
        raise DsrdError(f"{path}: is {kind}, not a file; save its content to a file and give that")
    return path


def parsed_json(text: str | bytes) -> Any:
    """What JSON says; a ValueError for everything that is wrong with it.

    >>> parsed_json("[" * 100_000)
    Traceback (most recent call last):
    ...
    ValueError: nested too deeply
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def own_json(path: Path) -> Any:
    """The content of a JSON file that dsrd wrote: FileNotFoundError without it, a ValueError for all faults."""
    if path.exists() and not path.is_file():  # reading a pipe or a device may never end
        raise ValueError("is not a file")
    return parsed_json(path.read_text(encoding="utf-8"))


def read_text(path: Path) -> str:
    """The text of a file that a user wrote, without the mark of the encoding that some editors put in front."""
    with decoding(path, "text in UTF-8", "save it as UTF-8"):
        return regular_file(path).read_text(encoding="utf-8-sig")


def read_json(path: Path, remedy: str = "get the file again") -> Any:
    """The content of a JSON file."""
    with decoding(path, "JSON", remedy):
        return json.loads(regular_file(path).read_text(encoding="utf-8"))


def expansion_limit(compressed: int) -> int:
    """To how many bytes a file of `compressed` bytes may expand.

    >>> expansion_limit(1 << 10), expansion_limit(1 << 30)
    (268435456, 107374182400)
    """
    text = os.environ.get(EXPANSION_VARIABLE, "")
    try:
        times = float(text) if text else EXPANSION
    except ValueError:
        times = math.nan
    if not times > 0:
        raise DsrdError(f"{EXPANSION_VARIABLE}={text}: give a number above 0, such as 1000")
    return max(ALWAYS_EXPANDED, int(min(times * compressed, 1 << 62)))


def too_large(path: object, limit: int) -> DsrdError:
    """The error for a file that expands beyond its limit."""
    return DsrdError(
        f"{path}: expands to more than {limit / 1e6:,.0f} MB, far more than its size suggests; if you trust it, "
        f"raise {EXPANSION_VARIABLE} above {EXPANSION:.0f}"
    )


def first_line(error: BaseException) -> str:
    """The first line of an error of another library, in at most 200 characters.

    >>> first_line(ValueError("not a number" + chr(10) + "in line 3"))
    'not a number'
    """
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    parts = [part for part in error.args if isinstance(part, str)]
    text = "; ".join(parts) if len(parts) > 1 else str(error)
    lines = text.splitlines()
    return shortened(lines[0] if lines and lines[0].strip() else type(error).__name__)


def shortened(text: str, most: int = 200) -> str:
    """Text of at most so many characters.

    >>> shortened("abcdefgh", 6)
    'abc...'
    """
    return text if len(text) <= most else f"{text[: most - 3]}..."
