"""The engine: what it remembers, how it recovers, and that recovery equals never having stopped."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dsrd.errors import DsrdError, MachineError
from dsrd.live.engine import Engine
from dsrd.live.incoming import Position
from dsrd.live.log import Log
from dsrd.live.settings import LiveSettings

START = 3e6  # after the last event of the run
NODES = 40
PAIRS = [(source, target) for source in range(1, 9) for target in (3, 7, 41, 44, 999)]
QUIET = LiveSettings(watch=0.0, snapshot_events=0, snapshot_minutes=0)


def events(count: int, first: int = 0, **more: Any) -> list[dict[str, Any]]:
    """Events with a few new nodes and equal times, which batches may split."""
    draw = np.random.default_rng(5)
    source, target = draw.integers(1, NODES + 8, (2, 2000)).tolist()
    time = (START + np.cumsum(draw.integers(0, 3, 2000))).tolist()
    rows = range(first, first + count)
    return [{"source": source[row], "target": target[row], "time": time[row], **more} for row in rows]


def in_batches(engine: Engine, count: int, first: int = 0, size: int = 7) -> None:
    for start in range(first, first + count, size):
        engine.observe(events(min(size, first + count - start), start))


def answers(engine: Engine) -> dict[str, Any]:
    """Everything the engine says, exactly."""
    scored = engine.score(PAIRS)
    partners = engine.partners(3, k=20)
    return {
        "state": engine.state(),
        "score": [None if each is None else each.tolist() for each in vars(scored.answer).values()],
        "known": scored.known,
        "partners": (partners.target, partners.answer.partner.tolist()),
    }


def fields(engine: Engine) -> dict[str, bytes]:
    """The model's state; tables of pairs have more or less room, depending on the sizes of batches."""
    state = engine.live.timeline.present.state()
    return {name: bytes(value.float().numpy().tobytes()) for name, value in sorted(state.items())}


@pytest.mark.parametrize("model", ["run", "tgn"])
@pytest.mark.parametrize("snapshot_at", [None, 60])
def test_recovery_equals_never_having_stopped(
    model: str, snapshot_at: int | None, tmp_path: Path, request: pytest.FixtureRequest
):
    folder = request.getfixturevalue(model)
    with Engine(tmp_path / "twin", folder, QUIET) as twin:
        in_batches(twin, 100)
        expected, expected_fields = answers(twin), fields(twin)
    stopped = Engine(tmp_path / "data", folder, QUIET)
    in_batches(stopped, snapshot_at or 0)
    if snapshot_at:
        stopped.snapshot()
    in_batches(stopped, 100 - (snapshot_at or 0), snapshot_at or 0)
    abandon(stopped)
    with Engine(tmp_path / "data", settings=QUIET) as engine:
        assert engine.live.last_snapshot == (snapshot_at or 0)
        found = answers(engine)
    if snapshot_at is None:
        assert found == expected
    else:  # 60 is no multiple of 7, so TGN saw other batches than its twin
        with Engine(tmp_path / "same", folder, QUIET) as twin:
            in_batches(twin, 60)
            in_batches(twin, 40, 60)
            assert found == answers(twin)
    assert expected_fields


def abandon(engine: Engine) -> None:
    """Leave an engine as a kill would: nothing is written any more."""
    engine._stopping.set()
    engine._snapshots.join()
    engine._writer.close()
    engine._answering.close()
    engine._closing.close()
