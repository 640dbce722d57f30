"""exp, log(1 + x), cosine, sigmoid and gelu of single floats, written so that loops over rows become vector code.

The compiler cannot vectorise calls into the mathematics library. These polynomials are within 3e-7 of it, relative
to max(1, result), which is the rounding of float32 itself. Accurate for finite arguments; cosine up to 1e4.
"""

from __future__ import annotations

import numpy as np

from dsrd.compiled import float_function, vectorised
from dsrd.models.dsrd.walk_state import Singles

F = np.float32
LOG2_E, LN2_HIGH, LN2_LOW = F(1.44269504), F(0.693359375), F(-2.12194440e-4)
INVERSE_PI = F(1 / np.pi)
PI_HIGH, PI_MIDDLE, PI_LOW = F(3.140625), F(9.67502593994140625e-4), F(1.509957990978376e-7)
ROUND = F(12582912.0)  # 1.5 * 2^23: adding and subtracting it rounds to whole numbers
LOWEST, HIGHEST = F(-87.0), F(88.0)  # arguments between which exp is a normal float32
SQRT_HALF = F(0.70710678)


@float_function
def exp_(x: np.float32) -> np.float32:
    """exp(x); below -87 it is exp(-87), which is 1e-38."""
    x = min(max(x, LOWEST), HIGHEST)
    power = (x * LOG2_E + ROUND) - ROUND
    r = (x - power * LN2_HIGH) - power * LN2_LOW
    y = F(1.9875691500e-4)
    y = y * r + F(1.3981999507e-3)
    y = y * r + F(8.3334519073e-3)
    y = y * r + F(4.1665795894e-2)
    y = y * r + F(1.6666665459e-1)
    y = y * r + F(5.0000001201e-1)
    y = y * r * r + r + F(1)
    scale = np.int32((np.int32(power) + np.int32(127)) << np.int32(23)).view(np.float32)
    return F(y * scale)


@float_function
def log_(x: np.float32) -> np.float32:
    """The logarithm of a normal float32 above 0."""
    bits = np.int32(F(x).view(np.int32))
    exponent = np.int32(bits >> np.int32(23)) - np.int32(126)
    m = np.int32((bits & np.int32(0x007FFFFF)) | np.int32(0x3F000000)).view(np.float32)  # in [0.5, 1)
    low = m < SQRT_HALF
    e = F(exponent) - (F(1) if low else F(0))
    m = (m + m if low else m) - F(1)
    y = F(7.0376836292e-2)
    y = y * m + F(-1.1514610310e-1)
    y = y * m + F(1.1676998740e-1)
    y = y * m + F(-1.2420140846e-1)
    y = y * m + F(1.4249322787e-1)
    y = y * m + F(-1.6668057665e-1)
    y = y * m + F(2.0000714765e-1)
    y = y * m + F(-2.4999993993e-1)
    y = y * m + F(3.3333331174e-1)
    square = m * m
    y = y * m * square + e * LN2_LOW - F(0.5) * square
    return F(m + y + e * LN2_HIGH)


@float_function
def cos_(x: np.float32) -> np.float32:
    halves = (x * INVERSE_PI + ROUND) - ROUND
    r = ((x - halves * PI_HIGH) - halves * PI_MIDDLE) - halves * PI_LOW  # in [-pi / 2, pi / 2]
    s = r * r
    y = F(2.087558e-9)
    y = y * s + F(-2.7557314e-7)
    y = y * s + F(2.4801587e-5)
    y = y * s + F(-1.3888889e-3)
    y = y * s + F(4.16666667e-2)
    y = y * s + F(-0.5)
    y = y * s + F(1)
    return F(y * F(1 - 2 * (np.int32(halves) & np.int32(1))))


@float_function
def sigmoid_(x: np.float32) -> np.float32:
    return F(F(1) / (F(1) + exp_(-x)))


@float_function
def gelu_(x: np.float32) -> np.float32:
    """x times the normal distribution function, as `torch.nn.functional.gelu`."""
    a = min(max(x * SQRT_HALF, F(-3.8)), F(3.8))
    s = a * a
    p = F(-2.72614225801306e-10)
    p = p * s + F(2.77068142495902e-08)
    p = p * s + F(-2.10102402082508e-06)
    p = p * s + F(-5.69250639462346e-05)
    p = p * s + F(-7.34990630326855e-04)
    p = p * s + F(-2.95459980854025e-03)
    p = p * s + F(-1.60960333262415e-02)
    q = F(-1.45660718464996e-05)
    q = q * s + F(-2.13374055278905e-04)
    q = q * s + F(-1.68282697438203e-03)
    q = q * s + F(-7.37332916720468e-03)
    q = q * s + F(-1.42647390514189e-02)
    return F(F(0.5) * x * (F(1) + a * p / q))


@vectorised
def gelu_row(x: Singles) -> None:
    """gelu of every number, in place.  # [n]"""
    for i in range(len(x)):
        x[i] = gelu_(x[i])


@vectorised
def log1p_row(x: Singles) -> None:
    """log(1 + max(0, x)) of every number, in place.  # [n]"""
    for i in range(len(x)):
        x[i] = log_(F(1) + max(x[i], F(0)))
