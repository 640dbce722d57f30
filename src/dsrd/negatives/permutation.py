"""The first entries of a numpy permutation, for less than the whole.

The published negatives come from `RandomState.choice(count, size, replace=False)`, which shuffles `count`
numbers to keep a few. The random numbers have to be drawn all the same, since later draws follow them; moving
millions of entries around need not be.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dsrd.compiled import compiled

FEWEST = 2**18
"""Below this numpy's own shuffle is as quick."""
MOST_AT_ONCE = 2**16
"""Random words drawn in one go: few enough to stay in the cache."""


def first_of_permutation(rng: np.random.RandomState, count: int, size: int) -> NDArray[np.int64]:
    """`rng.choice(count, size, replace=False)`, that is `rng.permutation(count)[:size]`; `rng` ends up the same.

    >>> fast, slow = np.random.RandomState(3), np.random.RandomState(3)
    >>> first_of_permutation(fast, 300_000, 3).tolist() == slow.permutation(300_000)[:3].tolist()
    True
    >>> fast.randint(1000) == slow.randint(1000)
    True
    """
    if count < FEWEST:
        return rng.choice(count, size, replace=False)
    partner = np.empty(count, dtype=np.uint32)  # [count] the shuffle swaps entry i with entry partner[i] <= i
    last = count - 1
    while last > 0:
        before = rng.get_state()
        words = _words(rng, min(MOST_AT_ONCE, 2 * last + 8))
        last, spent = _partners(words, partner, last)
        if last == 0:
            rng.set_state(before)
            _words(rng, spent)
    token = np.full(count, -1, dtype=np.int32)  # [count] which of the wanted entries is at this place, or -1
    return _trace_back(partner, token, size)


def _words(rng: np.random.RandomState, count: int) -> NDArray[np.uint32]:
    return rng.randint(0, 2**32, size=count, dtype=np.uint32)


@compiled
def _partners(words: NDArray[np.uint32], partner: NDArray[np.uint32], last: int) -> tuple[int, int]:
    """Partners of the entries `last`, `last` - 1, ... 1: a word cut to the bits of i counts if it is at most i.

    Returns the first entry still without a partner (0: none) and the number of words used.
    """
    mask = 1
    while mask < last:
        mask = 2 * mask + 1
    spent = 0
    while last > 0 and spent < len(words):
        word = np.int64(words[spent]) & mask
        spent += 1
        partner[last] = word  # overwritten by the next word if this one is too large: quicker than a branch
        if word <= last:
            last -= 1
        if last == mask >> 1:
            mask >>= 1
    return last, spent


@compiled
def _trace_back(partner: NDArray[np.uint32], token: NDArray[np.int32], size: int) -> NDArray[np.int64]:
    """Where the first `size` entries stood before the swaps, undone from the last one (entry 1) to the first."""
    token[:size] = np.arange(size, dtype=np.int32)
    for i in range(1, len(partner)):
        j = partner[i]
        if token[i] >= 0 or token[j] >= 0:
            token[i], token[j] = token[j], token[i]
    origin = np.empty(size, dtype=np.int64)
    for place in range(len(token)):
        if token[place] >= 0:
            origin[token[place]] = place
    return origin
