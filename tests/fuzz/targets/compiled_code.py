"""The cache of compiled code: whatever lies there, functions work and give the same numbers."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

from fuzz.mutate import applied, bytes_case
from fuzz.targets import DifferentError, Target, same

CODE = "from dsrd.hashing import hashed_uniform as h; print(h(1, 2, 3, 4), h(7, 8, 9, 10))"


class CompiledCode(Target):
    """Damaged, emptied and removed files of compiled code, read by a process of its own."""

    area, share = "compiled-code cache", 1

    def prepare(self, folder: Path) -> None:
        self.expected = self._run(folder / "cache")
        files = [path for path in (folder / "cache").rglob("*") if path.is_file()]
        assert files
        self.seeds = {str(path.relative_to(folder / "cache")): path.read_bytes() for path in files}

    def draw(self, chance: Random, corpus: list[Any]) -> Any:
        number = chance.randrange(len(self.seeds))  # names of files differ from machine to machine
        name = list(self.seeds)[number]
        return {**bytes_case(chance, name, self.seeds[name], []), "seed": number, "gone": chance.random() < 0.1}

    def attempt(self, case: Any, folder: Path) -> str:
        victim = list(self.seeds)[case["seed"] % len(self.seeds)]
        for name, content in self.seeds.items():
            (folder / "cache" / name).parent.mkdir(parents=True, exist_ok=True)
            if name != victim:
                (folder / "cache" / name).write_bytes(content)
            elif not case["gone"]:
                (folder / "cache" / name).write_bytes(applied(content, case["edits"]))
        found = self._run(folder / "cache")
        shutil.rmtree(folder / "cache")
        return same(found, self.expected)

    def _run(self, cache: Path) -> str:
        done = subprocess.run(
            [sys.executable, "-c", CODE],
            env={**os.environ, "NUMBA_CACHE_DIR": str(cache)},
            capture_output=True,
            text=True,
            timeout=60,
        )
        if done.returncode:
            raise DifferentError(f"exit code {done.returncode}: {done.stderr[-300:]}")
        return done.stdout
