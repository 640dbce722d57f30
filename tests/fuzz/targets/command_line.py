"""The command line: words left out, doubled, exchanged, absurd."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

import dsrd
from dsrd.classify import NodeClassifier
from dsrd.experiments import records
from fuzz.targets import REFUSED, VALID, DifferentError, Target
from fuzz.targets.readers import calls, parquet
from fuzz.targets.runs import estimator
from support.program import Outcome
from support.program import dsrd as in_process

TRAIN = (
    *("train", "-d", "calls.csv", "-m", "edgebank", "-o", "out", "--threads", "1", "--results", "none"),
    *("--set", "train.epochs=1"),
)
COMMANDS: tuple[tuple[str, ...], ...] = (
    TRAIN,
    (*TRAIN[:4], "tgn", *TRAIN[5:], "--set", "model.dim=8", "--set", "model.time_dim=4"),
    ("evaluate", "run", "--results", "none", "--json"),
    ("evaluate", "run", "--events", "later.csv"),
    ("predict", "run", "--pairs", "pairs.csv"),
    ("predict", "run", "--node", "ann", "--top", "3"),
    ("surprise", "run", "later.csv"),
    ("update", "run", "later.csv"),
    ("embed", "vectors.run", "--out", "vectors.npy"),
    ("inspect", "run"),
    ("compare", "run", "vectors.run"),
    ("calibration", "run"),
    ("classify", "vectors.run", "--set", "head.epochs=1", "--results", "none", "--json"),
    ("classify", "vectors.run", "--apply", "later.csv", "--out", "classes.csv"),
    ("models",),
    ("models", "tgn"),
    ("data", "describe", "calls.csv"),
    ("data", "audit", "calls.csv"),
    ("data", "convert", "calls.csv", "converted"),
    ("data", "synth", "drawn.csv", "--set", "events=200"),
    ("data", "list"),
    ("report", "records.jsonl", "--out", "page"),
    ("sweep", "plan.toml", "--dry-run"),
    ("stream", "run", "--data", "live", "--from", "later.csv", "--to", "said.jsonl", "--batch", "2"),
    ("stream", "run", "--data", "live", "--from", "later.jsonl", "--alert", "50", "--skip-bad", "--late", "drop"),
)
WORDS = (
    *(
        "",
        "-",
        "--",
        "-x",
        "--help",
        "--json",
        "--version",
        "-d",
        "-m",
        "-o",
        "--set",
        "--out",
        "--seed",
    ),
    *(
        "0",
        "-1",
        "nan",
        "9" * 30,
        "1e400",
        "x" * 300,
        "ann",
        "nobody",
        "zoë",
        "\u202e",
        "a\tb",
        "a=b",
        "=",
        "train.lr=",
    ),
    *(
        "train.lr=nan",
        "train.lr=1e30",
        "model.dim=0",
        "model.dim=-5",
        "train.batch_size=0",
        "seed=1.5",
        "model.x=1",
    ),
    *(
        "calls.csv",
        "calls.parquet",
        "run",
        "run/best.safetensors",
        ".",
        "/",
        "/dev/null",
        "missing.csv",
        "empty.csv",
    ),
    *(
        "--source",
        "--target",
        "--time",
        "--features",
        "--label",
        "--labels",
        "labels.csv",
        "--time-format",
        "--protocol",
        "strict",
        "dyglib",
    ),
    *("--events", "--pairs", "--node", "--at", "--top", "--head", "--threads", "--strict-names", "--late", "now"),
)


class CommandLine(Target):
    """Commands in this process."""

    area, share = "command line", 2

    def prepare(self, folder: Path) -> None:
        place = folder / "place"
        place.mkdir()
        (place / "calls.csv").write_text(calls())
        (place / "calls.parquet").write_bytes(parquet())
        (place / "empty.csv").write_text("")
        (place / "later.csv").write_text("source,target,time,cost\nann,bob,2024-06-01T00:00:00Z,1\n")
        (place / "pairs.csv").write_text("source,target\nann,bob\nbob,nobody\n")
        (place / "labels.csv").write_text("node,label\nann,1\nbob,0\ncat,1\ndan,0\n")
        (place / "later.jsonl").write_text(
            '{"source": "ann", "target": "bob", "time": "2024-06-01T00:00:00Z", "cost": 1}\n{"source": 1}\n'
        )
        (place / "plan.toml").write_text(
            'datasets = ["calls.csv"]\nseeds = [0, 1]\n[[models]]\nname = "edgebank"\n'
        )
        stream = dsrd.load(place / "calls.csv", features=["cost"], label="late", cache=False)
        for name, model in (("run", "edgebank"), ("vectors.run", "tgn")):
            fitted = estimator(model).fit(stream, folder=place / name, progress=False)
            records.append(place / "records.jsonl", fitted.evaluate(progress=False).record)
        NodeClassifier.fit(fitted, epochs=1).save()
        self.files = {file.relative_to(place): file.read_bytes() for file in place.rglob("*") if file.is_file()}
        self._try_all(folder)

    def _try_all(self, folder: Path) -> None:
        """Every command as it stands works; its code is then compiled in every process that is forked."""
        before = Path.cwd()
        for number, words in enumerate(COMMANDS):
            tried = folder / str(number)
            tried.mkdir()
            os.chdir(tried)
            try:
                self._lay_out(tried)
                outcome = in_process(*words)
            finally:
                os.chdir(before)
            assert outcome.code == 0, (words, outcome.err)

    def draw(self, chance: Random, corpus: list[Any]) -> Any:
        words = list(chance.choice(COMMANDS))
        for _ in range(chance.choice((1, 1, 2, 3))):
            place, word = chance.randrange(len(words) + 1), chance.choice(WORDS)
            kind = chance.randrange(4)
            if kind == 0:
                words.insert(place, word)
            elif kind == 1 and place < len(words):
                words[place] = word
            elif kind == 2 and place < len(words):
                del words[place]
            elif words:
                words.insert(place, chance.choice(words))
        return words

    def attempt(self, case: Any, folder: Path) -> str:
        self._lay_out(folder)
        return proper(self.run([word for word in case if word != "--debug"]))  # which shows a traceback

    def _lay_out(self, folder: Path) -> None:
        for name, content in self.files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)

    def run(self, words: list[str]) -> Outcome:
        return in_process(*words)


class RealProcess(CommandLine):
    """A few of them in processes of their own."""

    share = 1

    def run(self, words: list[str]) -> Outcome:
        code = "from dsrd.cli import main; main()"
        command = [sys.executable, "-c", code, *(word.replace("\0", "") for word in words)]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL, env=os.environ
        )
        return Outcome(done.returncode, done.stdout, done.stderr)


def proper(outcome: Outcome) -> str:
    """Whether a command ended as its users expect."""
    if "Traceback" in outcome.err + outcome.out or "bug in dsrd" in outcome.err:
        raise DifferentError(outcome.err.strip().splitlines()[-1][:300])
    if outcome.code == 0:
        return VALID
    errors = [line for line in outcome.err.splitlines() if line.startswith("error:")]
    helped = outcome.code == 2 and "Usage:" in outcome.out + outcome.err  # no command at all: the help
    if outcome.code not in (1, 2) or (len(errors) != 1 and not helped):
        raise DifferentError(f"exit code {outcome.code} with {outcome.err[-300:]!r}")
    return REFUSED
