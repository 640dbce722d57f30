"""The connection to a Ray cluster, or to one that is started on this machine."""

from __future__ import annotations

import os
import socket
from importlib.util import find_spec
from typing import Any

from dsrd.errors import DsrdError

LOCAL = "local"
TIMEOUT = 5.0  # seconds to reach the head node
INHERITED = ("DSRD_DATA", "DSRD_CACHE", "DSRD_MODELS", "PYTHONPATH")


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
