"""A trained run in production: events come in, questions are answered, and nothing is lost.

>>> from dsrd.live import Engine, LiveSettings

`Engine` observes events behind a durable log and answers from all of them. `dsrd serve` and `dsrd stream` use it.
"""

from __future__ import annotations

from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dsrd.live.engine import Engine
    from dsrd.live.incoming import Position
    from dsrd.live.replica import Replica
    from dsrd.live.settings import LiveSettings
    from dsrd.live.writer import Observed

__all__ = ["Engine", "LiveSettings", "Observed", "Position", "Replica"]

_HOME = {
    "Engine": "engine",
    "LiveSettings": "settings",
    "Observed": "writer",
    "Position": "incoming",
    "Replica": "replica",
}

if not TYPE_CHECKING:  # loaded at first use

    def __getattr__(name: str) -> Any:
        if name not in _HOME:
            raise AttributeError(f"module 'dsrd.live' has no attribute '{name}'")
        value = globals()[name] = resolve_name(f"dsrd.live.{_HOME[name]}:{name}")
        return value
