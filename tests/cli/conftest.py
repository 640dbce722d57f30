"""Fixtures for tests of the command line: an empty folder, a file to read, runs trained once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from support.call_log import write_calls
from support.program import QUICK, STREAM, done


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run commands in an empty folder, 80 columns wide, without the user's data."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    monkeypatch.setenv("DSRD_DATA", str(tmp_path / "no-data"))


@pytest.fixture
def calls() -> Path:
    """A CSV file with names, ISO dates out of order, features and an unused column."""
    return write_calls(Path("calls.csv"))


@pytest.fixture(scope="session")
def trained_once(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """`trained_once(model)`: the folder of a short run on STREAM, shared by tests, which must not change it."""
    made: dict[str, Path] = {}

    def get(model: str) -> Path:
        if model not in made:
            folder = tmp_path_factory.mktemp("trained") / model
            done("train", *QUICK, "-m", model, "-d", STREAM, "-o", folder)
            made[model] = folder
        return made[model]

    return get
