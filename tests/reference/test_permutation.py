"""The first entries of a permutation against numpy's own `choice`."""

from __future__ import annotations

import numpy as np
import pytest

from dsrd.negatives import permutation
from dsrd.negatives.permutation import first_of_permutation


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 255, 256, 257, 2**16, 2**18 - 1, 2**18, 2**18 + 1, 1_000_003])
@pytest.mark.parametrize("size", [0, 1, 200])
@pytest.mark.parametrize("never_numpy", [True, False])
def test_equals_choice_and_leaves_the_same_generator(count, size, never_numpy, monkeypatch):
    if never_numpy:
        monkeypatch.setattr(permutation, "SMALLEST_COUNT", 0)
    size = min(size, count)
    rng, twin_rng = np.random.RandomState(count), np.random.RandomState(count)
    for _ in range(2):
        positions = first_of_permutation(rng, count, size)
        assert positions.tolist() == twin_rng.choice(count, size, replace=False).tolist()
    assert rng.randint(2**31) == twin_rng.randint(2**31)
