"""The first entries of a numpy permutation, without shuffling all of it.

The published negatives come from `RandomState.choice(count, size, replace=False)`, which shuffles `count` numbers
and keeps a few. All random numbers must still be drawn, because later draws depend on them, but the millions of
other entries need not be moved.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dsrd.compiled import compiled

SMALLEST_COUNT = 2**18
"""For smaller counts numpy's own shuffle is as fast."""
WORDS_AT_ONCE = 2**16
"""Random words drawn in one call: few enough to stay in the processor's cache."""


def first_of_permutation(rng: np.random.RandomState, count: int, size: int) -> NDArray[np.int64]:
    """Equals `rng.choice(count, size, replace=False)`, that is `rng.permutation(count)[:size]`.

    It leaves `rng` in the same state.

    >>> fast, slow = np.random.RandomState(3), np.random.RandomState(3)
    >>> first_of_permutation(fast, 300_000, 3).tolist() == slow.permutation(300_000)[:3].tolist()
    True
    >>> fast.randint(1000) == slow.randint(1000)
    True
    """
    if count < SMALLEST_COUNT:
        return rng.choice(count, size, replace=False)
    partner = np.empty(count, dtype=np.uint32)  # [count] the shuffle swaps entry i with entry partner[i] <= i
    last = count - 1
    while last > 0:
        before = rng.get_state()
        words = _words(rng, min(WORDS_AT_ONCE, 2 * last + 8))
        last, used = _draw_partners(words, partner, last)
        if last == 0:  # draw only the words that were used, so that `rng` ends in the right state
            rng.set_state(before)
            _words(rng, used)
    wanted = np.full(count, -1, dtype=np.int32)  # [count] which of the first `size` entries is here, or -1
    return _trace_back(partner, wanted, size)


def _words(rng: np.random.RandomState, count: int) -> NDArray[np.uint32]:
    return rng.randint(0, 2**32, size=count, dtype=np.uint32)


@compiled
def _draw_partners(words: NDArray[np.uint32], partner: NDArray[np.uint32], last: int) -> tuple[int, int]:
    """Draw the partners of the entries `last`, `last` - 1, ..., 1 by rejection.

    A random word is cut to as many bits as i has, and is the partner of entry i if it is at most i. Returns the
    next entry without a partner (0: none) and the number of words used.
    """
    mask = 1
    while mask < last:
        mask = 2 * mask + 1
    used = 0
    while last > 0 and used < len(words):
        word = np.int64(words[used]) & mask
        used += 1
        partner[last] = word  # the next word overwrites it if this one is too large: faster than a branch
        if word <= last:
            last -= 1
        if last == mask >> 1:
            mask >>= 1
    return last, used


@compiled
def _trace_back(partner: NDArray[np.uint32], wanted: NDArray[np.int32], size: int) -> NDArray[np.int64]:
    """Where the first `size` entries were before the swaps: undo the swaps, starting with the last (entry 1)."""
    wanted[:size] = np.arange(size, dtype=np.int32)
    for i in range(1, len(partner)):
        j = partner[i]
        if wanted[i] >= 0 or wanted[j] >= 0:
            wanted[i], wanted[j] = wanted[j], wanted[i]
    origin = np.empty(size, dtype=np.int64)
    for place in range(len(wanted)):
        if wanted[place] >= 0:
            origin[wanted[place]] = place
    return origin
