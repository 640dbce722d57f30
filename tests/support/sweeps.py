"""Tiny sweeps for tests: a plan whose runs take a second, and a place that runs them in this process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from dsrd.experiments.folder import SweepFolder
from dsrd.experiments.worker import work

STREAM, OTHER_STREAM = "synth:events=800,seed=1", "memory:taus=50,events=1000"
LEARNED, RULE = "jodie", "edgebank"
PLAN = {
    "datasets": [STREAM],
    "seeds": [0, 1],
    "settings": {"train.epochs": 2, "evaluate.negatives": ["random"]},
    "models": [
        {"name": RULE, "seeds": [0]},
        {"name": LEARNED, "settings": {"model.dim": 8, "model.time_dim": 8}},
    ],
}
"""Three runs."""


class Here:
    """A place that finishes a run in this process as soon as it is started."""

    has_room = True

    def __init__(self, folder: SweepFolder) -> None:
        self.folder, self.over, self.started = folder, dict[str, str | None](), list[str]()

    def start(self, key: str) -> None:
        self.started.append(key)
        self.over[key] = work(str(self.folder.path), key)

    def ended(self) -> dict[str, str | None]:
        over, self.over = self.over, {}
        return over

    def stop(self, key: str) -> None:
        raise AssertionError("a run that has ended cannot be stopped")

    def close(self) -> None:
        pass


def run_here(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """From now on sweeps run in this process; returns the list that the names of started runs go to."""
    started: list[str] = []

    @contextmanager
    def opened(folder: SweepFolder, *_: Any) -> Iterator[Here]:
        place = Here(folder)
        place.started = started
        yield place

    for module in ("sweeping", "searching"):
        monkeypatch.setattr(f"dsrd.experiments.{module}.opened", opened)
    return started


def without_timing(record: dict[str, Any]) -> dict[str, Any]:
    """What must be equal wherever a run took place."""
    kept = ("dataset", "model", "preset", "seed", "protocol", "results", "validation", "config", "digests")
    return {key: record[key] for key in kept}


def comparable(records: Any) -> list[dict[str, Any]]:
    """Records in an order of their own, without times."""
    return sorted(map(without_timing, records), key=lambda record: str(record["digests"]["config"]))


def lines(file: Path) -> list[str]:
    return file.read_text().splitlines()
