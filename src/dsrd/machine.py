"""Facts about this machine and process, kept beside measured figures: versions, memory, load."""

from __future__ import annotations

import os
import platform
import sys
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that results depend on."""
    return {
        "python": platform.python_version(),
        **{name: version(name) for name in ("dsrd", "torch", "numpy", "numba")},
    }


def peak_rss_mb() -> float:
    """The largest resident memory of this process so far, in megabytes."""
    try:
        import resource
    except ImportError:  # Windows has no `resource`; psutil knows the peak there
        import psutil

        return round(float(psutil.Process().memory_info().peak_wset) / (1 << 20), 1)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(peak / (1 << 20 if sys.platform == "darwin" else 1 << 10), 1)


def available_bytes() -> int:
    """Memory that this process may still take: of the machine, of its container, by its own limit."""
    import psutil

    limits = [int(psutil.virtual_memory().available)]
    used = int(psutil.Process().memory_info().rss)
    for file in (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes")):
        with suppress(OSError, ValueError):
            limits.append(int(file.read_text()) - used)
    with suppress(ImportError):
        import resource

        soft, _ = resource.getrlimit(resource.RLIMIT_AS)
        if soft != resource.RLIM_INFINITY:
            limits.append(soft - int(psutil.Process().memory_info().vms))
    return max(0, min(limits))


def load_average() -> float:
    """The load average of the last minute: timings under a high load mean little. On Windows 0 at first."""
    import psutil

    return round(float(psutil.getloadavg()[0]), 2)


def processors() -> int:
    """Processors that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # macOS and Windows
        return os.cpu_count() or 1
