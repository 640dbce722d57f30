"""A small sample: a synthetic stream, written as a call log with names and dates."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from dsrd.data.dataset import Dataset
from dsrd.errors import DsrdError
from dsrd.files import write_text
from dsrd.synthetic.drawing import synth
from dsrd.synthetic.settings import SynthConfig

LOG, TOMORROW, ASK = "calls.csv", "tomorrow.csv", "ask.csv"
COLUMNS = ("caller", "callee", "date", "minutes")

BEGIN = np.datetime64("2024-03-01", "m")
LAST_DAY = np.datetime64("2024-05-20", "m")

SAMPLE = SynthConfig(events=1545, nodes=61, days=81.0, edge_dim=1, seed=5755)
"""With this seed exactly one node is new on the last day, as a caller: the last one in `PEOPLE`."""

_NAMES = (
    "ann bob eve carl dora emil finn gina hugo ivan jana karl lena milo nina oscar paula quinn rosa sam tina umar "
    "vera walt xenia yuri abel bea cleo dan elsa fred greta hana ian jill kim leo mara ned olga pia ralf sue tom "
    "uma vic wanda xaver yara alma ben cora dirk ella frank gwen hans ida jonas zoe"
)
PEOPLE = _NAMES.split()

QUESTIONS = (
    ("ann", "bob", "2024-05-20T09:00:00Z", "T-1041"),
    ("bob", "ann", "2024-05-20T12:30:00Z", "T-1042"),
    ("eve", "ann", "2024-05-20T18:00:00Z", "T-1043"),
    ("carl", "jonas", "2024-05-21T08:15:00Z", "T-1044"),
    ("zoe", "bob", "2024-05-21T08:15:00Z", "T-1045"),
    ("ann", "ida", "2024-05-22T10:00:00Z", "T-1046"),
)


def write_sample(folder: str | Path) -> tuple[Path, Path, Path]:
    """Write `calls.csv`, the calls of the following day to `tomorrow.csv`, and pairs to score to `ask.csv`.

    The files are the same on every machine. Existing files with these names are not overwritten.
    """
    log, tomorrow, ask = paths = tuple(Path(folder) / name for name in (LOG, TOMORROW, ASK))
    existing = next((path for path in paths if path.exists()), None)
    if existing is not None:
        raise DsrdError(f"{existing}: already exists; remove it, or choose another folder")
    calls = _calls(synth(SAMPLE))
    known = [call for call in calls if call[2] < str(LAST_DAY)]
    write_text(log, _csv(COLUMNS, known))
    write_text(tomorrow, _csv(COLUMNS, calls[len(known) :]))
    write_text(ask, _csv((*COLUMNS[:3], "ticket"), QUESTIONS))
    return log, tomorrow, ask


def _calls(stream: Dataset) -> list[tuple[str, ...]]:
    """(caller, callee, date, minutes) of every event, in time order."""
    src, dst, time, _ = stream.events.numpy()
    date = BEGIN + (time // 60).astype(np.int64)
    length = 1 + ((stream.edge_x[1:, 0].numpy() + 4) ** 2 / 2).astype(np.int64)  # features are between -4 and 4
    rows = zip(src.tolist(), dst.tolist(), date.astype(str).tolist(), length.tolist(), strict=True)
    return [(PEOPLE[u - 1], PEOPLE[v - 1], f"{when}:00Z", str(minutes)) for u, v, when, minutes in rows]


def _csv(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return "".join(",".join(row) + "\n" for row in (header, *rows))
