"""`PairSet` against real Python sets."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from py37_pairs import pairs

from dsrd.errors import DsrdError
from dsrd.negatives.python_set import PairSet, pair_hashes

PYTHONS = ("py37", "py38")


def distinct_pairs(rng, count, nodes):
    """Up to `count` distinct pairs of ids from 1 to `nodes`, in random order."""
    codes = np.unique(rng.integers(0, nodes * nodes, count))
    rng.shuffle(codes)
    return codes // nodes + 1, codes % nodes + 1


def check_differences(python, nodes, count, added, removals, seed):
    """Add pairs, then subtract one set after another; the orders are equal after each step."""
    rng = np.random.default_rng(seed)
    src, dst = distinct_pairs(rng, count, nodes)
    real_pairs = pairs(src, dst, python)
    ids = rng.integers(0, len(src), added)
    emulated, real = PairSet(pair_hashes(src, dst, python)), set()
    for part in np.array_split(ids, 3):
        emulated.add(part)
        real.update(real_pairs[id] for id in part)
        assert [real_pairs[id] for id in emulated.order()] == list(real)
    assert [real_pairs[id] for id in emulated.copy().order()] == list(real.copy())

    for share in removals:
        removed = rng.random(len(src)) < share
        other = {real_pairs[id] for id in np.flatnonzero(removed)}
        emulated, real = emulated.difference(removed, len(other)), real - other
        assert len(emulated) == len(real)
        assert [real_pairs[id] for id in emulated.order()] == list(real)


@settings(max_examples=200, deadline=None)
@given(
    python=st.sampled_from(PYTHONS),
    nodes=st.sampled_from([2, 5, 30, 10_000, 2**31 - 2]),
    count=st.integers(1, 400),
    added=st.integers(0, 800),
    removals=st.lists(st.sampled_from([0.0, 0.02, 0.1, 0.3, 0.9, 1.0]), max_size=4),
    seed=st.integers(0, 10**6),
)
def test_small_sets_have_the_order_of_real_ones(python, nodes, count, added, removals, seed):
    check_differences(python, nodes, count, added, removals, seed)


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("removals", [(0.01, 0.01), (0.5, 0.01), (0.01, 0.5), (0.9, 0.9, 0.05)])
def test_large_sets_have_the_order_of_real_ones(python, removals):
    check_differences(python, nodes=1000, count=120_000, added=200_000, removals=removals, seed=5)


@pytest.mark.parametrize("python", PYTHONS)
def test_hashes_broadcast_and_equal_those_of_real_pairs(python):
    src, dst = np.array([1, 7, 2**31 - 1, 123_456])[:, None], np.array([1, 9227, 2**31 - 1])[None, :]
    hashes = pair_hashes(src, dst, python)
    real = [hash(pair) for pair in pairs(*(nodes.ravel() for nodes in np.broadcast_arrays(src, dst)), python)]
    assert hashes.astype(np.int64).ravel().tolist() == real


def test_a_set_that_lost_elements_does_not_grow():
    whole = PairSet(pair_hashes(np.arange(1, 11), np.arange(1, 11), "py38"))
    whole.add(np.arange(10))
    rest = whole.difference(np.arange(10) == 3, size=1)
    with pytest.raises(ValueError, match="cannot grow"):
        rest.add(np.array([3]))


def test_an_unknown_python_is_refused():
    with pytest.raises(DsrdError, match="did you mean 'py38'"):
        pair_hashes(np.array([1]), np.array([1]), "py39")
