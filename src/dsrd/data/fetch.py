"""Downloads that resume after an interruption; a file gets its final name once its checksum is right."""

from __future__ import annotations

import errno
import hashlib
import http.client
import os
import re
import shutil
import ssl
import subprocess
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import IO
from urllib.parse import urlsplit

from dsrd.data.catalog import DatasetSpec
from dsrd.data.dyglib import PREFIX
from dsrd.decoding import expansion_limit, first_line, regular_file, too_large
from dsrd.errors import DsrdError, MachineError
from dsrd.files import PART, replacing

Progress = Callable[[int, int | None], None]
"""Called with the number of bytes received and of bytes expected (None if the server does not say)."""

ATTEMPTS = 4
PAUSE = 1.0  # seconds before the second attempt; doubled each time
TIMEOUT = 30.0
BLOCK = 1 << 18


class _TransferError(Exception):
    """The transfer failed in a way that may pass; the bytes received so far are kept."""


def fetch(
    source: DatasetSpec | str,
    folder: str | Path,
    *,
    sha256: str | None = None,
    md5: str | None = None,
    progress: Progress | None = None,
) -> Path:
    """Download a URL to a file in `folder`, or a data set of the catalogue to `folder/NAME`, ready for `load`.

    An interrupted download continues where it stopped. Files that exist are not downloaded again.
    """
    folder = Path(folder)
    if isinstance(source, str):
        target = folder / (PurePosixPath(urlsplit(source).path).name or "download")
        return _download(source, target, sha256, md5, progress)
    if source.url is None:
        raise DsrdError(
            f"{source.title}: no download address is known; see {source.home} and put the files in "
            f"{folder / source.name}"
        )
    place = folder / source.name
    if (place / f"{PREFIX}{source.name}.csv").exists() or (place / f"{source.name}.csv").exists():
        return place
    had = set(place.iterdir()) if place.is_dir() else set()
    file = fetch(source.url, place, sha256=sha256 or source.sha256, md5=md5 or source.md5, progress=progress)
    if file.suffix == ".zip":
        _unpack(file, source.name, ours=file not in had)
        if file not in had:
            file.unlink()
    return place


def _download(url: str, target: Path, sha256: str | None, md5: str | None, progress: Progress | None) -> Path:
    if urlsplit(url).scheme not in ("http", "https"):
        raise DsrdError(f"{url}: only http and https addresses can be fetched")
    expected = {kind: value.lower() for kind, value in (("sha256", sha256), ("md5", md5)) if value}
    if target.is_symlink() or target.exists():
        # It may be a file of the user's: it is never removed.
        for kind, value in expected.items():
            checksum = _checksum(regular_file(target), kind)
            if checksum != value:
                raise DsrdError(
                    f"{target}: exists, and its {kind} is {checksum}, expected {value}; move it away and fetch "
                    "again"
                )
        return target
    part = target.with_name(f"{target.name}{PART}")
    _refuse_foreign(part)
    _download_with_retries(url, part, progress)
    for kind, value in expected.items():
        checksum = _checksum(part, kind)
        if checksum != value:
            part.unlink()
            raise DsrdError(f"{url}: {kind} is {checksum}, expected {value}; the file was removed, fetch it again")
    return part.replace(target)


def _refuse_foreign(part: Path) -> None:
    """Refuse to append to what is not a partial download of this user: a link would lead to another file."""
    if part.is_symlink() or (part.exists() and not part.is_file()):
        raise DsrdError(f"{part}: is a link or no file; remove it and fetch again")


def _download_with_retries(url: str, part: Path, progress: Progress | None) -> None:
    """Download; after a failure that may pass, try again a few times, with pauses."""
    for attempt in range(ATTEMPTS):
        if attempt:
            time.sleep(PAUSE * 2 ** (attempt - 1))
        try:
            part.parent.mkdir(parents=True, exist_ok=True)
            return _resume(url, part, progress)
        except _TransferError as error:
            reason = str(error)
        except DsrdError:
            raise
        except OSError as error:
            full = error.errno == errno.ENOSPC
            problem = "the disk is full; free some space" if full else f"{error.strerror}; choose another folder"
            raise MachineError(f"{part}: {problem} and try again") from error
    raise MachineError(f"{url}: {reason} ({ATTEMPTS} attempts); check the network and try again")


def _resume(url: str, part: Path, progress: Progress | None) -> None:
    """Append the missing bytes to `part`; start from the beginning if the server cannot resume."""
    have = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(url, headers={"User-Agent": "dsrd"})
    if have:
        request.add_header("Range", f"bytes={have}-")
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT) as response:
            resumed = response.status == 206 and _range_start(response) == have
            if response.status == 206 and not resumed:
                part.unlink()
                raise _TransferError("the server sent a different range of bytes than requested")
            _append(response, part, have if resumed else 0, progress)
    except urllib.error.HTTPError as error:
        if error.code == 416 and error.headers.get("Content-Range") == f"bytes */{have}":
            return  # the partial file is complete
        if error.code == 416:
            part.unlink()
            raise _TransferError("the partial file does not match the one on the server") from error
        if error.code in (408, 429) or error.code >= 500:
            raise _TransferError(f"the server answered {error.code} {error.reason}") from error
        raise DsrdError(f"{url}: the server answered {error.code} {error.reason}; check the address") from error
    except urllib.error.URLError as error:
        raise _TransferError(f"no connection ({error.reason})") from error
    except (http.client.HTTPException, ConnectionError, TimeoutError, ssl.SSLError) as error:
        raise _TransferError(f"the connection was cut ({type(error).__name__})") from error


def _append(response: http.client.HTTPResponse, part: Path, have: int, progress: Progress | None) -> None:
    length = response.headers.get("Content-Length", "")
    total = have + int(length) if length.isascii() and length.isdigit() else None  # some servers send nonsense
    flags = os.O_WRONLY | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
    flags |= os.O_APPEND if have else os.O_TRUNC
    with os.fdopen(os.open(part, flags, 0o666), "ab" if have else "wb") as file:
        while block := response.read(BLOCK):
            file.write(block)
            have += len(block)
            if progress:
                progress(have, total)
    if total is not None and have < total:
        raise _TransferError(f"the connection was cut after {have:,} of {total:,} bytes")


def _range_start(response: http.client.HTTPResponse) -> int | None:
    match = re.match(r"bytes (\d+)-", response.headers.get("Content-Range", ""))
    return int(match[1]) if match else None


def _checksum(path: Path, kind: str) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, kind).hexdigest()


def _unpack(archive: Path, name: str, ours: bool) -> None:
    """Extract the files of one data set next to the archive. Members are chosen by file name, in any folder.

    A damaged archive is removed if it is `ours`: one that was there before belongs to the user.
    """
    processed = [f"{PREFIX}{name}.npy", f"{PREFIX}{name}_node.npy", f"{PREFIX}{name}.csv"]
    try:
        with zipfile.ZipFile(archive) as bundle:
            members = {
                PurePosixPath(member.filename).name: member
                for member in bundle.infolist()
                if not {"..", "__MACOSX"} & set(PurePosixPath(member.filename).parts)
            }
            wanted = processed if set(processed) <= set(members) else [f"{name}.csv"]
            for file in wanted:
                if file not in members:
                    raise DsrdError(
                        f"{archive}: the archive has no {processed[-1]} and no {file}; get another copy"
                    )
                _extract(bundle, members[file], archive, archive.with_name(file))
    except DsrdError:
        raise
    except MemoryError:
        raise
    except Exception as error:  # zipfile, zlib, lzma and bz2 have a type for every fault
        if isinstance(error, OSError) and error.errno not in (
            None,
            errno.EINVAL,
        ):  # a place before the file's start
            raise
        remedy = "it was removed, fetch it again" if ours else "move it away and fetch it again"
        if ours:
            archive.unlink()
        raise DsrdError(f"{archive}: not a complete zip archive ({first_line(error)}); {remedy}") from error


def _extract(bundle: zipfile.ZipFile, member: zipfile.ZipInfo, archive: Path, target: Path) -> None:
    limit = expansion_limit(archive.stat().st_size)
    if member.file_size > limit:
        raise too_large(f"{archive}: {member.filename}", limit)
    with replacing(target) as temporary, temporary.open("wb") as file:
        try:
            with bundle.open(member) as content:
                shutil.copyfileobj(content, file, BLOCK)
        except NotImplementedError as error:  # Deflate64, as in the published archive of Reddit
            if not shutil.which("unzip"):
                raise DsrdError(
                    f"{archive}: its compression is unknown to Python; install the program `unzip` and fetch again"
                ) from error
            _unzip(archive, member, file, limit, error)


def _unzip(archive: Path, member: zipfile.ZipInfo, file: IO[bytes], limit: int, reason: Exception) -> None:
    """Extract with the program `unzip`; a member that is longer than it says is not written to the end."""
    command = ["unzip", "-p", str(archive), member.filename]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as program:
        assert program.stdout is not None
        while block := program.stdout.read(BLOCK):
            file.write(block)
            if file.tell() > limit:
                program.kill()
                raise too_large(f"{archive}: {member.filename}", limit) from reason
    if program.returncode:
        raise DsrdError(f"{archive}: `unzip` cannot read {member.filename}; fetch it again") from reason
