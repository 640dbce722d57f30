"""Elementary functions of one float32 without branches: compiled loops over them use vector instructions.

A loop over numpy's or the C library's functions computes one number at a time, torch's vector library a few. These
polynomials (those of Cephes, and formula 7.1.26 of Abramowitz and Stegun) take a fifth of a nanosecond per number,
and are right to a few units in the seventh digit. NaN stays NaN where the argument is also a factor of the result.
`np.divide` does not ask for a divisor of 0, as `/` does in compiled code.
"""

from __future__ import annotations

import numpy as np

from dsrd.compiled import inlined

SINGLE = np.float32
ROUNDER = SINGLE(12582912.0)  # 1.5 * 2^23: adding it rounds to an integer, which the lowest bits then hold
ROUNDER_BITS = np.int32(0x4B400000)
MOST = SINGLE(80)  # larger arguments of `exp`, of either sign, count as this one
LOG2_E = SINGLE(1.44269504)
LN2_HIGH, LN2_LOW = SINGLE(0.693359375), SINGLE(-2.12194440e-4)
SQRT2, SQRT_HALF = SINGLE(2**0.5), SINGLE(2**-0.5)
QUARTERS = SINGLE(2 / np.pi)
PI_HALF_1, PI_HALF_2, PI_HALF_3 = SINGLE(1.5703125), SINGLE(4.837512969970703e-4), SINGLE(7.549789954891882e-8)
DENSITY = SINGLE((2 * np.pi) ** -0.5)
EXPONENT, MANTISSA, BIAS = np.int32(23), np.int32(0x7FFFFF), np.int32(127)


@inlined
def exp(x: np.float32) -> np.float32:
    x = min(max(x, -MOST), MOST)
    shifted = np.float32(x * LOG2_E + ROUNDER)
    whole = shifted - ROUNDER
    power = np.int32(shifted.view(np.int32) - ROUNDER_BITS)
    r = x - whole * LN2_HIGH - whole * LN2_LOW
    p = SINGLE(1.9875691500e-4) * r + SINGLE(1.3981999507e-3)
    p = p * r + SINGLE(8.3334519073e-3)
    p = p * r + SINGLE(4.1665795894e-2)
    p = p * r + SINGLE(1.6666665459e-1)
    p = p * r + SINGLE(5.0000001201e-1)
    return (p * r * r + r + SINGLE(1)) * np.int32((power + BIAS) << EXPONENT).view(np.float32)


@inlined
def log(x: np.float32) -> np.float32:
    """Of a normal number above 0."""
    bits = np.float32(x).view(np.int32)
    power = np.float32((bits >> EXPONENT) - BIAS)
    m = np.int32((bits & MANTISSA) | (BIAS << EXPONENT)).view(np.float32)  # [1, 2)
    large = m > SQRT2
    power, m = power + SINGLE(large), (m * SINGLE(0.5) if large else m) - SINGLE(1)
    square = m * m
    p = SINGLE(7.0376836292e-2) * m - SINGLE(1.1514610310e-1)
    p = p * m + SINGLE(1.1676998740e-1)
    p = p * m - SINGLE(1.2420140846e-1)
    p = p * m + SINGLE(1.4249322787e-1)
    p = p * m - SINGLE(1.6668057665e-1)
    p = p * m + SINGLE(2.0000714765e-1)
    p = p * m - SINGLE(2.4999993993e-1)
    p = p * m + SINGLE(3.3333331174e-1)
    return m + (p * m * square + power * LN2_LOW - SINGLE(0.5) * square) + power * LN2_HIGH


@inlined
def divided(x: np.float32, y: np.float32) -> np.float32:
    quotient: np.float32 = np.divide(x, y)
    return quotient


@inlined
def log1p(x: np.float32) -> np.float32:
    """Of a number that is not negative."""
    total = SINGLE(1) + x
    return log(total) + divided(x - (total - SINGLE(1)), total)


@inlined
def sine_and_cosine(x: np.float32) -> tuple[np.float32, np.float32]:
    """Of an angle up to some thousands."""
    shifted = np.float32(x * QUARTERS + ROUNDER)
    whole = shifted - ROUNDER
    quarter = np.int32(shifted.view(np.int32) - ROUNDER_BITS)
    r = ((x - whole * PI_HALF_1) - whole * PI_HALF_2) - whole * PI_HALF_3
    square = r * r
    p = SINGLE(-1.9515295891e-4) * square + SINGLE(8.3321608736e-3)
    sine = (p * square - SINGLE(1.6666654611e-1)) * square * r + r
    p = SINGLE(2.443315711809948e-5) * square - SINGLE(1.388731625493765e-3)
    cosine = (p * square + SINGLE(4.166664568298827e-2)) * square * square - SINGLE(0.5) * square + SINGLE(1)
    odd = (quarter & np.int32(1)) != 0
    first, second = (cosine, sine) if odd else (sine, cosine)
    first = -first if quarter & np.int32(2) else first
    return first, -second if (quarter + np.int32(1)) & np.int32(2) else second


@inlined
def sigmoid(x: np.float32) -> np.float32:
    return divided(SINGLE(1), SINGLE(1) + exp(-x))


@inlined
def gelu_and_slope(x: np.float32) -> tuple[np.float32, np.float32]:
    """x times the normal distribution function, and its derivative."""
    size = max(x, -x) * SQRT_HALF
    t = divided(SINGLE(1), SINGLE(1) + SINGLE(0.3275911) * size)
    bell = exp(-size * size)
    p = SINGLE(1.061405429) * t - SINGLE(1.453152027)
    p = p * t + SINGLE(1.421413741)
    p = p * t - SINGLE(0.284496736)
    tail = SINGLE(0.5) * bell * t * (p * t + SINGLE(0.254829592))
    below = tail if x < 0 else SINGLE(1) - tail
    return x * below, below + x * bell * DENSITY
