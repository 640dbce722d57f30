"""The `dsrd` program as its users see it: words in; an exit code, standard output and standard error out."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from dsrd.cli import main

TRAINED, STATELESS, UNTRAINED = "tgn", "graphmixer", "edgebank"
STREAM = "synth:events=1000"
QUICK = ("--threads", "1", "--set", "train.epochs=1", "--set", "model.dim=16", "--set", "model.time_dim=8")
TRAIN = ("train", "--model", TRAINED, *QUICK)


@dataclass(frozen=True)
class Outcome:
    """The exit code and output of a command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The object that `--json` prints on the last line of standard output."""
        return json.loads(self.out.splitlines()[-1])

    @property
    def error(self) -> str:
        """The only line that starts with `error:`; nothing may look like a bug in the program."""
        lines = [line for line in self.err.splitlines() if line.startswith("error:")]
        assert len(lines) == 1, self.err
        assert "Traceback" not in self.err
        assert "bug in dsrd" not in self.err
        return lines[0]


def dsrd(*words: object) -> Outcome:
    """Run a command in this process."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err), pytest.raises(SystemExit) as left:
        main([str(word) for word in words])
    code = left.value.code
    assert isinstance(code, int)
    return Outcome(code, out.getvalue(), err.getvalue())


def done(*words: object) -> Outcome:
    """Run a command that must succeed."""
    outcome = dsrd(*words)
    assert outcome.code == 0, outcome.err
    return outcome


def refused(*words: object, code: int = 2) -> str:
    """Run a command that must fail and change no file; returns its error line."""
    before = tree()
    outcome = dsrd(*words)
    assert outcome.code == code, outcome.err
    assert outcome.out == ""
    assert tree() == before
    return outcome.error


def tree() -> dict[Path, bytes]:
    """Path and content of every file below the working directory."""
    return {path: path.read_bytes() if path.is_file() else b"" for path in Path().rglob("*")}


def start(*words: object, code: str = "from dsrd.cli import main; main()", **more: str) -> subprocess.Popen[str]:
    """Start a command in its own process."""
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", **more},
    )


def finish(process: subprocess.Popen[str], timeout: float = 60) -> Outcome:
    out, err = process.communicate(timeout=timeout)
    return Outcome(process.returncode, out, err)


def assert_options_are_short(shown: str) -> None:
    """The help of every option takes three lines or fewer at the usual width."""
    options = shown.split("Options:")[1].split("Examples:")[0].split("Commands:")[0]
    lengths = [len(text.strip().splitlines()) for text in ("\n" + options).split("\n  -")[1:]]
    assert lengths
    assert max(lengths) <= 3, shown
