from __future__ import annotations

import numpy as np
import pytest

from dsrd.negatives import permutation
from dsrd.negatives.permutation import first_of_permutation


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 255, 256, 257, 2**16, 2**18 - 1, 2**18, 2**18 + 1, 1_000_003])
@pytest.mark.parametrize("size", [0, 1, 200])
@pytest.mark.parametrize("always", [True, False])
def test_equals_choice_and_leaves_the_same_generator(count, size, always, monkeypatch):
    if always:
        monkeypatch.setattr(permutation, "FEWEST", 0)
    size = min(size, count)
    ours, numpys = np.random.RandomState(count), np.random.RandomState(count)
    for _ in range(2):
        found = first_of_permutation(ours, count, size)
        assert found.tolist() == numpys.choice(count, size, replace=False).tolist()
    assert ours.randint(2**31) == numpys.randint(2**31)
