"""What a figure was measured on: versions, memory, load."""

from __future__ import annotations

import platform
import sys
from importlib.metadata import version


def versions() -> dict[str, str]:
    """What the figures were made with."""
    return {
        "python": platform.python_version(),
        **{name: version(name) for name in ("dsrd", "torch", "numpy", "numba")},
    }


def peak_rss_mb() -> float:
    """The most memory this process has held, in megabytes."""
    try:
        import resource
    except ImportError:  # Windows, where psutil tells the peak instead
        import psutil

        return round(float(psutil.Process().memory_info().peak_wset) / (1 << 20), 1)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(peak / (1 << 20 if sys.platform == "darwin" else 1 << 10), 1)


def load_average() -> float:
    """How busy the machine is: timings beside a high load mean little. On Windows 0 for the first seconds."""
    import psutil

    return round(float(psutil.getloadavg()[0]), 2)
