"""Runs as tasks of a Ray cluster. A task whose node is lost starts again elsewhere, and its run continues."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

from dsrd.experiments.folder import SweepFolder
from dsrd.experiments.worker import work
from dsrd.ray_cluster import connected

RETRIES = 5  # of a task whose node or process is lost; a run that fails by itself is not started again


class RayTasks:
    """Every run is a task; Ray decides where and when. All nodes must see the folder of the sweep."""

    def __init__(
        self, folder: SweepFolder, address: str, threads: int = 0, data_dir: str | Path | None = None
    ) -> None:
        """`address` is that of a cluster (`HOST:PORT`, `ray://HOST:PORT`, `auto`), or `local` for this machine."""
        self.folder, self.threads = SweepFolder(folder.path.absolute()), threads or 1
        self.data_dir = None if data_dir is None else str(Path(data_dir).absolute())
        self.ray, self.was_connected = connected(address)
        remote = self.ray.remote(num_cpus=self.threads, max_retries=RETRIES, max_calls=1, retry_exceptions=False)
        self.task = remote(work)  # max_calls=1: a process a run, so that its memory is measured and freed
        self.tasks: dict[str, Any] = {}

    @property
    def has_room(self) -> bool:
        return True  # Ray keeps the queue

    def start(self, key: str) -> None:
        self.tasks[key] = self.task.remote(str(self.folder.path), key, self.threads, self.data_dir)

    def ended(self) -> dict[str, str | None]:
        if not self.tasks:
            return {}
        by_task = {task: key for key, task in self.tasks.items()}
        over, _ = self.ray.wait(list(by_task), num_returns=len(by_task), timeout=0)
        return {by_task[task]: self._outcome(by_task[task], self.tasks.pop(by_task[task])) for task in over}

    def stop(self, key: str) -> None:
        self.ray.cancel(self.tasks.pop(key), force=True)

    def close(self) -> None:
        for key in list(self.tasks):
            with suppress(Exception):
                self.stop(key)
        if not self.was_connected:
            self.ray.shutdown()

    def _outcome(self, key: str, task: Any) -> str | None:
        try:
            reason: str | None = self.ray.get(task)
        except self.ray.exceptions.RayError as error:
            lines = [line.strip() for line in str(error).splitlines() if line.strip()]
            reason = f"Ray gave up after {RETRIES} retries: {lines[0] if lines else type(error).__name__}"
            self.folder.fail(key, reason, str(error))
        return reason
