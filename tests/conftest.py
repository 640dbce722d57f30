"""Fixtures for all tests: an empty cache, and real data where they are present."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from dsrd.data.dataset import Dataset
from dsrd.data.read import load


@pytest.fixture(autouse=True, scope="session")
def _private_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Tests use their own cache, not the user's."""
    os.environ["DSRD_CACHE"] = str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="session")
def real_data(_private_cache: None) -> Callable[[str], Dataset]:
    """`real_data("uci")`: the data set; the test is skipped if $DSRD_DATA does not have it."""

    def get(name: str) -> Dataset:
        folder = os.environ.get("DSRD_DATA")
        if not folder:
            pytest.skip("set DSRD_DATA to a folder with benchmark data to run this test")
        if not (Path(folder) / name).is_dir():
            pytest.skip(f"{folder} has no {name}")
        return load(name, data_dir=folder)

    return get
