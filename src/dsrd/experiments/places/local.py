"""Runs in processes of this machine. A process a run: memory is measured, and freed, for each."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from dsrd.experiments.folder import SweepFolder
from dsrd.machine import processors


class LocalProcesses:
    """At most `jobs` processes at a time, each with `threads` threads."""

    def __init__(
        self, folder: SweepFolder, jobs: int, threads: int = 0, data_dir: str | Path | None = None
    ) -> None:
        """Without `threads` the processors are divided among the jobs."""
        self.folder, self.jobs, self.data_dir = folder, jobs, data_dir
        self.threads = threads or max(1, processors() // jobs)
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def has_room(self) -> bool:
        return len(self.processes) < self.jobs

    def start(self, key: str) -> None:
        log = self.folder.log(key)
        log.parent.mkdir(parents=True, exist_ok=True)
        count = str(self.threads)
        command = [sys.executable, "-m", "dsrd.experiments.worker", str(self.folder.path), key, "--attached"]
        command += ["--threads", count, *(["--data-dir", str(self.data_dir)] if self.data_dir else [])]
        # new_session: Ctrl-C goes to the sweep alone, which then ends its runs
        with log.open("ab") as output:
            self.processes[key] = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                env={**os.environ, "OMP_NUM_THREADS": count, "NUMBA_NUM_THREADS": count},
                start_new_session=True,
            )

    def ended(self) -> dict[str, str | None]:
        over = {key: process for key, process in self.processes.items() if process.poll() is not None}
        for key in over:
            self._forget(key)
        return {key: self._reason(key, process.returncode) for key, process in over.items()}

    def stop(self, key: str) -> None:
        process = self.processes[key]
        process.kill()
        process.wait()
        self._forget(key)

    def close(self) -> None:
        for process in self.processes.values():
            process.kill()
        for key in list(self.processes):
            self.stop(key)

    def _forget(self, key: str) -> None:
        pipe = self.processes.pop(key).stdin
        if pipe is not None:
            pipe.close()

    def _reason(self, key: str, code: int) -> str | None:
        """Why a run failed: what it wrote itself, or how its process ended."""
        if code == 0:
            return None
        reason = self.folder.failure(key)
        if reason is None:
            kill = getattr(signal, "SIGKILL", None)
            killed = "its process was killed; often the memory was full, and fewer jobs at a time help"
            reason = killed if code == -(kill or 0) else f"its process ended with code {code}"
            reason = f"{reason} (see {self.folder.log(key)})"
            self.folder.fail(key, reason)
        return reason
