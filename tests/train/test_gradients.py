"""Gradients of several processes that share a batch, for every model that learns."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor

from dsrd.processes import ALONE
from dsrd.train import checkpoint
from support.two_processes import learned_variants, trained

Found = dict[str, dict[str, Tensor]]


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[Found, Found]:
    """What two processes have computed, one pair of them for all models."""
    folder = tmp_path_factory.mktemp("pair")
    path = os.pathsep.join([str(Path(__file__).parent.parent), *sys.path])
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "support.two_processes", str(folder), str(rank), "2"],
            env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        )
        for rank in range(2)
    ]
    assert [process.wait(timeout=300) for process in processes] == [0, 0]
    first, second = (checkpoint.load(folder / f"gradients-{rank}.safetensors")[0] for rank in range(2))
    return first, second


@pytest.mark.parametrize("name", learned_variants())
def test_two_processes_compute_the_gradient_of_one(name: str, both: tuple[Found, Found]):
    alone, shared = trained(name, ALONE), both[0][name]
    assert alone.keys() == shared.keys()
    for entry, expected in alone.items():
        # A small gradient is what is left of terms that cancel: rounding is relative to those.
        error = (shared[entry] - expected).float().norm() / expected.float().norm().clamp(min=1e-2)
        assert error < (1e-4 if entry[0] in "01" or entry == "losses" else 1e-2), (entry, float(error))


@pytest.mark.parametrize("name", learned_variants())
def test_both_processes_have_the_same_weights_to_the_last_bit(name: str, both: tuple[Found, Found]):
    first, second = (found[name] for found in both)
    assert all(torch.equal(first[entry], second[entry]) for entry in first)
