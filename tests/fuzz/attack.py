"""Runs cases in forked processes that are timed and limited in memory."""

from __future__ import annotations

import faulthandler
import json
import os
import resource
import select
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any

from fuzz.targets import DifferentError, Target

SECONDS = 20.0  # a case that takes longer hangs
MOST_MEMORY = 4 << 30
ROUND = 200  # cases of one process
KEPT = Path(__file__).parent / "kept.jsonl"
GOOD = ("refused", "equal", "valid")


@dataclass
class Found:
    """What came out of all cases of a target."""

    area: str
    outcomes: Counter[str] = field(default_factory=Counter)
    failures: list[dict[str, Any]] = field(default_factory=list)
    corpus: list[Any] = field(default_factory=list)
    lines: set[str] = field(default_factory=set)
    slowest: float = 0.0  # seconds of a case
    peak_mb: int = 0  # of memory
    shown: int = 0  # failures that were shown


def attack(target: Target, found: Found, chance: Random, until: float, most: int) -> None:
    """Attack a target until a moment (of `time.monotonic`), or with so many cases."""
    left = most
    while left > 0 and time.monotonic() < until:
        cases = [target.draw(chance, found.corpus) for _ in range(min(ROUND, left))]
        left -= len(cases)
        for verdict, case in zip(verdicts(target, cases, found.lines, until), cases, strict=False):
            found.outcomes[verdict["outcome"]] += 1
            found.slowest = max(found.slowest, verdict.get("seconds", SECONDS))
            found.peak_mb = max(found.peak_mb, verdict.get("peak_mb", 0))
            if verdict["outcome"] not in GOOD:
                found.failures.append({"target": target.name, "case": case, **verdict})
            new = set(verdict.get("lines", ())) - found.lines
            if new and len(found.corpus) < 500:
                found.lines |= new
                found.corpus.append(case)


def verdicts(target: Target, cases: list[Any], known: set[str], until: float) -> Iterator[dict[str, Any]]:
    """The verdict on each case; stops early at the moment `until`."""
    done = 0
    while done < len(cases) and time.monotonic() < until:
        read, write = os.pipe()
        child = os.fork()
        if not child:
            os.close(read)
            _work(target, cases[done:], known, write)
        os.close(write)
        with os.fdopen(read, "rb", buffering=0) as pipe:
            for line in _lines(pipe):
                yield json.loads(line)
                done += 1
                if time.monotonic() > until:
                    break
        ended = _end(child)
        if done < len(cases) and time.monotonic() < until:  # the process did not come to the end of its cases
            outcome = "hang" if ended == -signal.SIGKILL else "crash"
            yield {"outcome": outcome, "detail": f"the process ended with {ended}"}
            done += 1


def _end(child: int) -> int:
    """End a child that may have ended already; its exit code."""
    for _ in range(20):
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _lines(pipe: Any) -> Iterator[bytes]:
    """Lines of a pipe; ends when it is closed, or when none came for too long."""
    rest = b""
    while select.select([pipe], [], [], SECONDS)[0]:
        block = pipe.read(1 << 16)
        if not block:
            return
        *lines, rest = (rest + block).split(b"\n")
        yield from lines


def _work(target: Target, cases: list[Any], known: set[str], write: int) -> None:
    """In the child: attempt every case, write a line about each, and end."""
    faulthandler.disable()  # what a case does to its process is reported once, by the parent
    try:
        null = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(null, stream)
        size = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        resource.setrlimit(resource.RLIMIT_AS, (size + 2 * MOST_MEMORY, size + 2 * MOST_MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        for case in cases:
            os.write(write, json.dumps(judged(target, case, known)).encode() + b"\n")
    finally:
        os._exit(0)  # never back to what the parent was doing, whatever happens


def judged(target: Target, case: Any, known: set[str] = frozenset()) -> dict[str, Any]:  # type: ignore[assignment]
    """Attempt a case in this process, in an empty folder."""
    before, folder = Path.cwd(), Path(tempfile.mkdtemp(prefix="fuzz-"))
    os.chdir(folder)
    lines: set[str] = set()
    began = time.monotonic()
    try:
        with _traced(target.traced, lines):
            outcome = {"outcome": target.attempt(case, folder)}
    except DifferentError as error:
        outcome = {"outcome": "different", "detail": str(error).replace(f"{folder}{os.sep}", "")}
    except BaseException as error:  # whatever it is: the user would see it
        where = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{Path(where.filename).name}:{where.lineno}"
        text = str(error).replace(f"{folder}{os.sep}", "")[:300]
        outcome = {"outcome": "traceback", "detail": f"{type(error).__name__}: {text} ({place})"}
    finally:
        os.chdir(before)
        shutil.rmtree(folder, ignore_errors=True)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    if peak > MOST_MEMORY:
        outcome = {"outcome": "memory", "detail": "more than 4 GB"}
    seconds = round(time.monotonic() - began, 2)
    return {**outcome, "lines": sorted(lines - known), "seconds": seconds, "peak_mb": peak >> 20}


@contextmanager
def _traced(part: str, lines: set[str]) -> Iterator[None]:
    """Note the lines that are run of files whose path contains `part`."""
    if not part:
        yield
        return

    def enter(frame: FrameType, event: str, _: Any) -> Any:
        return note if part in frame.f_code.co_filename else None

    def note(frame: FrameType, event: str, _: Any) -> Any:
        if event == "line":
            lines.add(f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}")
        return note

    sys.settrace(enter)
    try:
        yield
    finally:
        sys.settrace(None)


def kept_cases() -> list[dict[str, Any]]:
    """Every case that ever failed."""
    return [json.loads(line) for line in KEPT.read_text().splitlines()] if KEPT.exists() else []


def keep(failures: list[dict[str, Any]]) -> None:
    """Add cases to those that are kept; one of each kind of failure, the smallest."""
    known = {(each["target"], each["detail"]) for each in kept_cases()}
    smallest: dict[Any, dict[str, Any]] = {}
    for failure in sorted(failures, key=lambda each: len(json.dumps(each["case"]))):
        smallest.setdefault((failure["target"], failure["detail"]), failure)
    new = [
        {name: failure[name] for name in ("target", "case", "outcome", "detail")}
        for key, failure in smallest.items()
        if key not in known and len(json.dumps(failure["case"])) < 4000
    ]
    with KEPT.open("a") as file:
        file.writelines(json.dumps(each) + "\n" for each in new)
