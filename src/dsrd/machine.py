"""Facts about this machine and process, kept beside measured figures: versions, memory, load."""

from __future__ import annotations

import platform
import sys
from importlib.metadata import version


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


def load_average() -> float:
    """The load average of the last minute: timings under a high load mean little. On Windows 0 at first."""
    import psutil

    return round(float(psutil.getloadavg()[0]), 2)
