"""Layers of the network for one source and many targets, compiled, without gradients.

The plain forms are `walk_body` and `walk_layer`. Large matrix products stay with torch; these loops do what lies
between them while the numbers are in the cache. A row of an array that all targets share stands for all of them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dsrd.compiled import compiled, row_function, vectorised
from dsrd.history.index import Ints
from dsrd.models.dsrd.one_source import dot
from dsrd.models.dsrd.row_functions import cos_, exp_, gelu_, log_, sigmoid_
from dsrd.models.dsrd.walk_state import Singles

F = np.float32


class Ages(NamedTuple):
    """How ages become features; see `walk_layer.AgeFeatures`."""

    tick: np.float32
    rate: Singles  # [cosines]
    phase: Singles  # [cosines]
    step: Singles  # [steps]: exp(-2 c) of a step at c


class Tokens(NamedTuple):
    """What the tokens of one side are made of: k of each of C targets, or of all targets together."""

    base: Singles  # [C or 1, k, dim]: of ages and features of events, with the bias
    of_read: Singles  # [rows, dim]: of the reads of partners
    row: Ints  # [C, k]: which row is that of an event
    counts: Singles  # [C, k, WINDOW]
    of_counts: Singles  # [WINDOW, dim]
    size: Ints  # [C]: events in the window; the others have no tokens


class Window(NamedTuple):
    """One side as a layer reads it."""

    token: Singles  # [C, k, dim]
    square: Singles  # [C, k]: squared length of each token
    decay: Singles  # [C or 1, H, k]: exp(-lambda x^alpha)
    size: Ints  # [C]


class Fading(NamedTuple):
    """The learned decays of one layer."""

    rate: Singles  # [H]: lambda
    power: Singles  # [H]: alpha
    spread: Singles  # [H]: depth times delta


class Norms(NamedTuple):
    """Scales and shifts of a block's two layer norms."""

    scale: Singles  # [2, dim]
    shift: Singles  # [2, dim]
    epsilon: np.float32


@vectorised
def log_ages(age: Singles, tick: np.float32, x: Singles) -> None:
    """x = log(1 + age / tick).  # [n] -> [n]"""
    for i in range(len(age)):
        x[i] = log_(F(1) + max(age[i], F(0)) / tick)


@row_function
def age_row(x: np.float32, ages: Ages, out: Singles) -> None:
    """Cosines and soft steps of one x.  # [time]"""
    cosines, growth = len(ages.rate), exp_(x + x)
    for i in range(cosines):
        out[i] = cos_(x * ages.rate[i] + ages.phase[i])
    for i in range(len(ages.step)):
        out[cosines + i] = F(1) - F(2) / (F(1) + growth * ages.step[i])


@compiled
def age_rows(x: Singles, ages: Ages, out: Singles) -> None:
    """Features of ages.  # [n] -> [n, time]"""
    for i in range(len(x)):
        age_row(x[i], ages, out[i])


@row_function
def token_row(base: Singles, of_read: Singles, counts: Singles, of_counts: Singles, out: Singles) -> np.float32:
    """One token; returns its squared length.  # [dim]"""
    square = F(0)
    for i in range(len(out)):
        total = base[i] + of_read[i]
        for n in range(7):  # WINDOW, as a constant: the loop is then unrolled
            total += counts[n] * of_counts[n, i]
        out[i] = gelu_(total)
        square += out[i] * out[i]
    return square


@row_function
def fill_window_tokens(made: Tokens, c: int, window: Window) -> None:
    base = made.base[c if len(made.base) > 1 else 0]
    for j in range(made.size[c]):
        window.square[c, j] = token_row(
            base[j], made.of_read[made.row[c, j]], made.counts[c, j], made.of_counts, window.token[c, j]
        )


@compiled
def fill_tokens(made: Tokens, window: Window) -> None:
    """Tokens and their squared lengths."""
    for c in range(len(window.token)):
        fill_window_tokens(made, c, window)


@row_function
def fade(x: Singles, fading: Fading, h: int, decay: Singles, psi: Singles) -> None:
    """Weights of a head: exp(-lambda x^alpha); exp(-depth delta x) over max(its sum, 1).  # [n] -> [n] twice"""
    total = F(0)
    for j in range(len(x)):
        power = exp_(fading.power[h] * log_(x[j] + F(1e-6))) if x[j] > 0 else F(0)
        decay[j] = exp_(-fading.rate[h] * power)
        psi[j] = exp_(-fading.spread[h] * x[j])
        total += psi[j]
    share = F(1) / max(total, F(1))
    for j in range(len(x)):
        psi[j] *= share


@row_function
def fade_window(x: Singles, fading: Fading, decay: Singles, psi: Singles) -> None:
    for h in range(len(decay)):
        fade(x, fading, h, decay[h], psi[h])


@compiled
def fade_all(x: Singles, size: Ints, fading: Fading, decay: Singles, psi: Singles) -> None:
    """Weights of all heads.  # [C, k], [C] -> [C, H, k] twice"""
    for c in range(len(x)):
        fade_window(x[c, : size[c]], fading, decay[c], psi[c])


@row_function
def weigh(product: Singles, square: Singles, decay: Singles, length: np.float32, weight: Singles) -> None:
    """omega, over max(its sum, 1), times the product it is made of.  # [n]"""
    total = F(0)
    for j in range(len(product)):
        cosine = product[j] / np.sqrt(length * square[j] + F(1e-12))
        weight[j] = sigmoid_(cosine) * decay[j]
        total += weight[j]
    share = F(1) / max(total, F(1))
    for j in range(len(product)):
        weight[j] *= product[j] * share


@row_function
def add_tokens(weight: Singles, token: Singles, out: Singles) -> None:
    """out = sum_j weight_j token_j.  # [n], [k, dim] -> [dim]"""
    fours = len(weight) // 4 * 4
    for i in range(len(out)):
        out[i] = 0
    for j in range(0, fours, 4):  # four at a time: a quarter of the reads and writes of `out`
        a, b, c, d = weight[j], weight[j + 1], weight[j + 2], weight[j + 3]
        one, two, three, four = token[j], token[j + 1], token[j + 2], token[j + 3]
        for i in range(len(out)):
            out[i] += (a * one[i] + b * two[i]) + (c * three[i] + d * four[i])
    for j in range(fours, len(weight)):
        w, one = weight[j], token[j]
        for i in range(len(out)):
            out[i] += w * one[i]


@row_function
def inject_head(query: Singles, window: Window, at: tuple[int, int], room: Singles, out: Singles) -> None:
    """sum_i omega_i (q k_i) token_i of one target and head.  # [dim] -> [dim]"""
    c, h = at
    n, token, product = window.size[c], window.token[c], room[0]
    for j in range(n):
        product[j] = dot(query, token[j])
    decay = window.decay[c if len(window.decay) > 1 else 0]
    weigh(product[:n], window.square[c], decay[h], dot(query, query), room[1])
    add_tokens(room[1, :n], token, out)


@compiled
def inject(query: Singles, window: Window, out: Singles) -> None:
    """sum_i omega_i (q k_i) token_i of each head.  # [C, H, dim] -> [H, C, dim]"""
    room = np.empty((2, window.token.shape[1]), np.float32)
    for c in range(len(query)):
        for h in range(query.shape[1]):
            inject_head(query[c, h], window, (c, h), room, out[h, c])


@row_function
def add_spread(psi: Singles, spread: Singles, j: int, out: Singles) -> None:
    """out += psi_h,j times each head's part of a row.  # [H, k], [dim] -> [dim]"""
    size = len(out) // len(psi)
    for h in range(len(psi)):
        for i in range(h * size, (h + 1) * size):
            out[i] += psi[h, j] * spread[i]


@row_function
def diffuse_one(psi: Singles, row: Ints, spread: Singles, out: Singles) -> None:
    for j in range(len(row)):
        add_spread(psi, spread[row[j]], j, out)


@compiled
def diffuse(psi: Singles, size: Ints, row: Ints, spread: Singles, out: Singles) -> None:
    """out += sum_i psi_i times the row of event i, head by head.

    # [C, H, k], [C], [C, k], [rows, dim] -> [C, dim]
    """
    for c in range(len(out)):
        diffuse_one(psi[c], row[c, : size[c]], spread, out[c])


@row_function
def normalise(x: Singles, scale: Singles, shift: Singles, epsilon: np.float32, out: Singles) -> None:
    """Layer norm.  # [dim] -> [dim]"""
    mean, variance = F(0), F(0)
    for i in range(len(x)):
        mean += x[i]
    mean /= F(len(x))
    for i in range(len(x)):
        variance += (x[i] - mean) * (x[i] - mean)
    factor = F(1) / np.sqrt(variance / F(len(x)) + epsilon)
    for i in range(len(x)):
        out[i] = (x[i] - mean) * factor * scale[i] + shift[i]


@compiled
def residual(h: Singles, out: Singles, norms: Norms) -> None:
    """h += LN(out), then out = LN(h).  # [R, dim] twice"""
    for row in range(len(h)):
        normalise(out[row], norms.scale[0], norms.shift[0], norms.epsilon, out[row])
        h[row] += out[row]
        normalise(h[row], norms.scale[1], norms.shift[1], norms.epsilon, out[row])


@row_function
def read_row(values: Singles, low: Ints, high: Ints, weight: Singles, out: Singles) -> None:
    """log(1 + a mixture of two numbers each, those below 0 taken as 0).  # [in] -> [out]"""
    for j in range(len(out)):
        mixed = weight[0, j] * max(values[low[j]], F(0)) + weight[1, j] * max(values[high[j]], F(0))
        out[j] = log_(F(1) + mixed)


@compiled
def read_rows(values: Singles, low: Ints, high: Ints, weight: Singles, out: Singles) -> None:
    """`mixed_reads` of rows.  # [n, in] -> [n, out]"""
    for row in range(len(values)):
        read_row(values[row], low, high, weight, out[row])
