"""Where the runs of a sweep take place: processes of this machine, a Ray cluster, or a SLURM array."""

from __future__ import annotations

from typing import Protocol


class Place(Protocol):
    """Starts runs and says which have ended. Runs share nothing but the folder of the sweep."""

    @property
    def has_room(self) -> bool:
        """Whether another run may start."""

    def start(self, key: str) -> None:
        """Start a run of the sweep's folder."""

    def ended(self) -> dict[str, str | None]:
        """Runs that have ended since the last call, with the reason of those that failed."""

    def stop(self, key: str) -> None:
        """End a run without waiting for it; it can continue later."""

    def close(self) -> None:
        """End all runs."""
