"""A log of calls as a CSV file, and models fitted to it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import dsrd
from dsrd.models import model_class

HEADER = "caller,callee,date,cost\n"
COLUMNS = {"source": "caller", "target": "callee", "time": "date"}
PEOPLE = ["ann", "bob", "cat", "dan", "eve", "fay", "gil", "hal", "ida", "jon"]


def rows(first: int, last: int) -> str:
    """Calls number `first` to `last`; from the 250th on there are new nodes."""
    lines = []
    for row in range(first, last):
        caller = f"new{row // 50}" if row > 250 and row % 9 == 0 else PEOPLE[(row * 7 + row // 5) % 10]
        callee = PEOPLE[(row * 3 + row // 8 + 1) % 10]
        lines.append(f"{caller},{callee},2024-05-{1 + row // 12:02}T{row % 12 * 2:02}:30:00Z,{row % 7 / 2}\n")
    return "".join(lines)


def write_log(folder: Path) -> None:
    (folder / "calls.csv").write_text(HEADER + rows(0, 240))
    (folder / "day.csv").write_text(HEADER + rows(240, 300))
    (folder / "grown.csv").write_text(HEADER + rows(0, 300))


def estimator(name: str, **more: object) -> dsrd.LinkPredictor:
    """A model small enough for a test."""
    small = {} if model_class(name).card.rule else {"epochs": 1}
    model_settings = {f"model__{key}": value for key, value in model_class(name).card.small.items()}
    return dsrd.LinkPredictor(name, **{**small, **model_settings, **more})


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test runs on one thread, in a folder of its own that contains the log."""
    write_log(tmp_path)
    monkeypatch.chdir(tmp_path)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    monkeypatch.setattr(os, "environ", {**os.environ, "DSRD_CACHE": str(tmp_path / "cache")})
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """`saved(model)`: the folder of a model fitted to calls.csv, shared by all tests; do not change it."""
    folders: dict[str, Path] = {}

    def get(name: str) -> Path:
        if name not in folders:
            folder = tmp_path_factory.mktemp("saved")
            write_log(folder)
            stream = dsrd.load(folder / "calls.csv", **COLUMNS, features=["cost"], cache=False)
            folders[name] = estimator(name).fit(stream, progress=False).save(folder / name)
        return folders[name]

    return get


@pytest.fixture
def opened(saved: Callable[[str], Path]) -> Callable[[str], dsrd.LinkPredictor]:
    """`opened(model)`: a fitted model in a folder that the test may change."""

    def get(name: str) -> dsrd.LinkPredictor:
        shutil.copytree(saved(name), f"{name}.run")
        return dsrd.open(f"{name}.run")

    return get
