"""The committed records, and one report of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import dsrd
from dsrd.report import report
from dsrd.report.build import Report
from dsrd.report.records import read

RESULTS = Path(__file__).parents[2] / "results"


@pytest.fixture(scope="session")
def records() -> list[Any]:
    """All records that are committed."""
    return read([RESULTS])


@pytest.fixture(scope="session")
def made(records: list[Any], tmp_path_factory: pytest.TempPathFactory) -> Report:
    """A report of them, saved."""
    return report(records, tmp_path_factory.mktemp("report") / "out", progress=False)


@pytest.fixture(scope="session")
def own_record() -> dict[str, Any]:
    """The record of a short run on a stream of one's own."""
    model = dsrd.LinkPredictor(epochs=1, dim=8).fit("synth:events=800", progress=False)
    record: dict[str, Any] = json.loads(json.dumps(model.evaluate(progress=False).record))
    return record


@pytest.fixture(scope="session")
def paper() -> Any:
    """Tables and figures as papers print them."""
    return json.loads((Path(__file__).parent / "paper.json").read_text())
