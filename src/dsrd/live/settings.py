"""How an engine treats late events, and when it takes snapshots."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from dsrd.errors import DsrdError, unknown

LatePolicy = Literal["refuse", "drop", "reorder"]
"""An event older than the newest one: refuse its request, drop it, or put it in order within a window."""

DAY = 86_400.0


@dataclass(frozen=True, kw_only=True)
class LiveSettings:
    """Settings of an engine.

    >>> LiveSettings(late="reorder", window=60).window
    60
    >>> LiveSettings(late="reorder")
    Traceback (most recent call last):
    ...
    dsrd.errors.DsrdError: late events are put in order within a window; give one above 0, such as window=60
    """

    late: LatePolicy = "refuse"
    window: float = 0.0
    """With `reorder`: how long an event waits for older ones, in seconds or in units of a numeric time. The model
    sees an event when the newest one is later by this much; an event older than that is dropped."""
    ahead: float = DAY
    """Events of a stream with dates that lie further ahead of this machine's clock are refused: one wrong date in
    the far future would make all that follow late."""
    snapshot_events: int = 100_000
    """A snapshot of the state is taken after that many events at the latest; 0: only on request and at the end."""
    snapshot_minutes: float = 10.0
    """... and after that many minutes with new events; 0: never for that reason."""
    keep_snapshots: int = 3
    """Older snapshots are removed."""
    keep_ids: float = 30.0
    """Days for which event ids are kept, so that an event that comes again is known; 0: forever."""
    watch: float = 0.25
    """The share of its time that the engine may spend on measuring the surprise of events as it observes them.
    Under more load than that, some events are observed without being measured."""

    def __post_init__(self) -> None:
        if self.late not in get_args(LatePolicy):
            raise unknown("way to treat late events", self.late, get_args(LatePolicy))
        if self.late == "reorder" and not self.window > 0:
            raise DsrdError("late events are put in order within a window; give one above 0, such as window=60")
        if self.late != "reorder" and self.window:
            raise DsrdError(f"a window of {self.window} only has a meaning with late=reorder; leave it out")
        if not 0 <= self.watch <= 1:
            raise DsrdError(f"watch is {self.watch}; give a share of the time, 0 to 1")
        least = {"ahead": 0, "snapshot_events": 0, "snapshot_minutes": 0, "keep_ids": 0, "keep_snapshots": 1}
        for name, bound in least.items():
            if not getattr(self, name) >= bound:
                raise DsrdError(f"{name} is {getattr(self, name)}; give {bound} or more")
