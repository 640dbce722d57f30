"""One small trained run of each kind for all tests of this folder."""

from __future__ import annotations

from pathlib import Path

import pytest

import dsrd

STREAM = "synth:events=600,nodes=40"


def trained(folder: Path, model: str) -> Path:
    small = {"dim": 8} if model == "dsrd" else {"dim": 8, "time_dim": 4}
    dsrd.LinkPredictor(model, epochs=1, **small).fit(dsrd.load(STREAM), folder=folder, progress=False)
    return folder


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A DSRD run: its state follows from the events alone."""
    return trained(tmp_path_factory.mktemp("runs") / "dsrd", "dsrd")


@pytest.fixture(scope="session")
def tgn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A TGN run: its state depends on how events are cut into batches."""
    return trained(tmp_path_factory.mktemp("runs") / "tgn", "tgn")
