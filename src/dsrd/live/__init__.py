"""A trained run in production: events come in, questions are answered, and nothing is lost.

>>> from dsrd.live import Engine, LiveSettings

`Engine` observes events behind a durable log and answers from all of them; `dsrd serve` and `dsrd stream` are built
on it.
"""

from __future__ import annotations

from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dsrd.live.engine import Engine
    from dsrd.live.incoming import Position
    from dsrd.live.settings import LiveSettings
    from dsrd.live.writer import Observed

__all__ = ["Engine", "LiveSettings", "Observed", "Position"]

_WHERE = {
    "Engine": "dsrd.live.engine:Engine",
    "LiveSettings": "dsrd.live.settings:LiveSettings",
    "Observed": "dsrd.live.writer:Observed",
    "Position": "dsrd.live.incoming:Position",
}


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        return resolve_name(_WHERE[name])
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
