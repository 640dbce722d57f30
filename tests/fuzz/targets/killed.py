"""A run that is killed at a moment of training or of an update goes on to the same tensors."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from random import Random
from typing import Any

from fuzz.targets import EQUAL, DifferentError, Target
from hardening.test_killed import assert_same_run, exit_code_of, killed, moments_of, train, update, write_logs


class Killed(Target):
    """A process that dies at one of the moments of `dsrd.faults`, and another that continues its work."""

    area, share = "kill and resume", 1

    def prepare(self, folder: Path) -> None:
        self.folder, before = folder, Path.cwd()
        os.chdir(folder)
        try:
            write_logs()
            self.moments = {"train": len(moments_of(train, Path("trained")))}
            shutil.copytree("trained", "updated")
            self.moments["update"] = len(moments_of(update, Path("updated")))
        finally:
            os.chdir(before)

    def draw(self, chance: Random, corpus: list[Any]) -> Any:
        work = chance.choice(("train", "train", "update"))
        return {"work": work, "moment": 1 + chance.randrange(self.moments[work])}

    def attempt(self, case: Any, folder: Path) -> str:
        write_logs()
        work, whole = (train, "trained") if case["work"] == "train" else (update, "updated")
        if work is update:
            shutil.copytree(self.folder / "trained", "run")
        killed(work, Path("run"), 1 + (case["moment"] - 1) % self.moments[case["work"]])
        code = exit_code_of(lambda: work(Path("run")))
        if code:
            raise DifferentError(f"it did not go on: exit code {code}")
        assert_same_run(Path("run"), self.folder / whole)
        return EQUAL
