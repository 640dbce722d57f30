"""Hashes against the published numbers of splitmix64, and the hash table of pairs against a dict."""

from __future__ import annotations

import numpy as np

from dsrd.hashing import STEP, hashed_uniform, splitmix64, unit_interval
from dsrd.history import pair_table

PUBLISHED = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431]
"""What splitmix64 gives first for the seed 1234567."""


def test_splitmix64_gives_the_published_numbers():
    states = np.uint64(1234567) + STEP * np.arange(4, dtype=np.uint64)
    assert [int(splitmix64(state)) for state in states] == PUBLISHED


def test_signed_and_unsigned_integers_have_the_same_hash():
    assert splitmix64(-1) == splitmix64(np.uint64(2**64 - 1))


def test_the_unit_interval_excludes_one():
    assert unit_interval(np.uint64(0)) == 0.0
    assert unit_interval(np.uint64(2**64 - 1)) == 1 - 2.0**-53


def test_hashed_numbers_are_uniform_and_depend_on_every_argument():
    numbers = np.array([hashed_uniform(1, 2, 3, draw) for draw in range(20_000)])
    assert np.abs(np.histogram(numbers, bins=10, range=(0, 1))[0] - 2000).max() < 5 * np.sqrt(2000)
    arguments = [(1, 2, 3, 4), (0, 2, 3, 4), (1, 0, 3, 4), (1, 2, 0, 4), (1, 2, 3, 0)]
    assert len({hashed_uniform(*each) for each in arguments}) == 5


def test_a_growing_pair_table_equals_a_dict():
    rng = np.random.default_rng(0)
    src, dst = rng.integers(1, 60, (2, 5000))
    time = np.sort(rng.random(5000))
    table, num_pairs, gap_sum = pair_table.empty(slots=4), 0, 0.0
    meetings: dict[tuple[int, int], list[float]] = {}
    for start in range(0, 5000, 1000):
        rows = slice(start, start + 1000)
        table, num_pairs, gap_sum = pair_table.add(table, num_pairs, gap_sum, src[rows], dst[rows], time[rows])
        for a, b, t in zip(src[rows].tolist(), dst[rows].tolist(), time[rows].tolist(), strict=True):
            meetings.setdefault((a, b), []).append(t)
        pairs = [(a, b) for a in range(1, 62) for b in range(1, 62)]  # some never meet
        last, count = pair_table.find(table, *np.array(pairs).T.copy())
        assert last.tolist() == [meetings.get(pair, [-np.inf])[-1] for pair in pairs]
        assert count.tolist() == [len(meetings.get(pair, [])) for pair in pairs]
        assert num_pairs == len(meetings) <= len(table.key) / 2
        np.testing.assert_allclose(gap_sum, sum(np.diff(t).mean() for t in meetings.values() if len(t) > 1))


def test_rehashing_moves_every_key():
    keys = pair_table.empty(slots=64).key
    for number in range(30):
        keys[pair_table.slot_of(keys, number + 1, 5)] = (number + 1) << 32 | 5
    larger, new_slot = pair_table.rehashed(keys, 256)
    taken = keys != pair_table.EMPTY
    assert (new_slot[~taken] == -1).all()
    assert (larger[new_slot[taken]] == keys[taken]).all()
    assert (larger != pair_table.EMPTY).sum() == 30
