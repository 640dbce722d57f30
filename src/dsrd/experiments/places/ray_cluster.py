"""Runs as tasks of a Ray cluster. A task whose node is lost starts again elsewhere, and its run continues."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from dsrd.errors import DsrdError
from dsrd.experiments.folder import SweepFolder
from dsrd.experiments.worker import work

LOCAL = "local"
RETRIES = 5  # of a task whose node or process is lost; a run that fails by itself is not started again
TIMEOUT = 5.0  # seconds to reach the head node
INHERITED = ("DSRD_DATA", "DSRD_CACHE", "DSRD_MODELS", "PYTHONPATH")


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


def connected(address: str) -> tuple[Any, bool]:
    """The module `ray`, connected to a cluster or to a new one on this machine; and whether it was before."""
    if find_spec("ray") is None:
        raise DsrdError("Ray is not installed; run `pip install dsrd[ray]`, or run in local processes instead")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    import ray

    if ray.is_initialized():
        return ray, True
    if address != LOCAL:
        _check_reachable(address)
    variables = {name: _absolute(os.environ[name]) for name in INHERITED if name in os.environ}
    options: dict[str, Any] = {"logging_level": "ERROR", "log_to_driver": False}
    try:
        if address == LOCAL:
            ray.init(include_dashboard=False, runtime_env={"env_vars": variables}, address=LOCAL, **options)
        else:
            ray.init(address=address, runtime_env={"env_vars": variables}, **options)
    except (ConnectionError, RuntimeError, ValueError, OSError, TimeoutError) as error:
        raise _unreachable(address, " ".join(str(error).split())[:200]) from error
    return ray, False


def _absolute(paths: str) -> str:
    """Folders as they are called from elsewhere: tasks do not start in this folder."""
    return os.pathsep.join(os.path.abspath(path) for path in paths.split(os.pathsep) if path)


def _check_reachable(address: str) -> None:
    """Fail at once where nobody listens: Ray itself tries for a minute."""
    host, colon, port = address.rpartition("//")[2].partition(":")
    if address == "auto":
        return
    if not host or not colon or not port.isdigit():
        raise DsrdError(f"'{address}' is no address of a Ray cluster; give HOST:PORT, auto, or local")
    try:
        socket.create_connection((host, int(port)), timeout=TIMEOUT).close()
    except (OSError, OverflowError) as error:
        raise _unreachable(address, str(error)) from error


def _unreachable(address: str, reason: str) -> DsrdError:
    return DsrdError(
        f"no Ray cluster can be reached at '{address}' ({reason}); start one with `ray start`, correct the "
        "address, or use local for this machine alone"
    )
