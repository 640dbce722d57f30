"""Hashes of 64-bit integers, and random numbers made from them.

A random number that is a hash of its question is the same in every process, in every batch and on every machine.
"""

from __future__ import annotations

import numpy as np

from dsrd.compiled import compiled

STEP = np.uint64(0x9E3779B97F4A7C15)
"""What splitmix64 adds to its state from one number to the next."""


@compiled
def mix_bits(word: np.uint64) -> np.uint64:
    """The output function of splitmix64 (Steele, Lea and Flood, 2014): similar inputs, unrelated outputs."""
    word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return word ^ (word >> np.uint64(31))


@compiled
def splitmix64(value: int | np.uint64) -> np.uint64:
    """A hash of a 64-bit integer: the number that splitmix64 gives next when its state is `value`."""
    return mix_bits(np.uint64(value) + STEP)


@compiled
def unit_interval(word: np.uint64) -> float:
    """A number in [0, 1) made of the upper 53 bits of a hash."""
    return float(word >> np.uint64(11)) * 2.0**-53


@compiled
def hashed_uniform(seed: int | np.uint64, first: int, second: int | np.uint64, third: int) -> float:
    """A uniform random number in [0, 1), fixed by the four arguments."""
    word = splitmix64(np.uint64(seed) ^ np.uint64(first))
    word = splitmix64(word ^ np.uint64(second))
    return unit_interval(splitmix64(word ^ np.uint64(third)))
