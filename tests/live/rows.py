"""Events to observe, and everything an engine says, for comparisons."""

from __future__ import annotations

from typing import Any

import numpy as np

from dsrd.live import Engine, LiveSettings, Replica

START = 3e7  # after the last event of the runs
NODES = 40  # of the runs
PAIRS = [(source, target) for source in range(1, 9) for target in (3, 7, 41, 44, 999)]
QUIET = LiveSettings(watch=0.0, snapshot_events=0, snapshot_minutes=0)


def rows(count: int, first: int = 0, **more: Any) -> list[dict[str, Any]]:
    """Events with a few new nodes, and with equal times, which batches may split."""
    draw = np.random.default_rng(5)
    source, target = draw.integers(1, NODES + 8, (2, 5000)).tolist()
    time = (START + np.cumsum(draw.integers(0, 3, 5000))).tolist()
    return [
        {"source": source[row], "target": target[row], "time": time[row], **more}
        for row in range(first, first + count)
    ]


def in_batches(engine: Engine, count: int, first: int = 0, size: int = 7) -> None:
    """Observe rows in batches."""
    for start in range(first, first + count, size):
        engine.observe(rows(min(size, first + count - start), start))


def answers(engine: Engine | Replica) -> dict[str, Any]:
    """Everything an engine says, to the last bit."""
    scored, partners = engine.score(PAIRS), engine.partners(3, k=20)
    return {
        "state": engine.state(),
        "score": {name: None if bits is None else bits.tolist() for name, bits in vars(scored.answer).items()},
        "known": scored.known,
        "partners": (partners.target, partners.answer.partner.tolist()),
    }


def abandon(engine: Engine) -> None:
    """Leave an engine as a kill would: nothing more is written."""
    engine._stopping.set()
    engine._snapshots.join()
    engine._writer.close()
    engine._answering.close()
    engine._closing.close()
