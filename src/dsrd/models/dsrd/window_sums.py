"""What a layer reads from the windows, compiled: weights of events, and weighted sums (see `window_attention`)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dsrd.compiled import compiled, inlined, inlined_sums
from dsrd.models.dsrd import vector_math
from dsrd.models.dsrd.lanes import LANES, dot, dots, element, filled, four, load, plus, store
from dsrd.models.dsrd.walk_state import Singles
from dsrd.models.dsrd.window_tokens import Rows

TINY = np.float32(1e-12)  # in a cosine
LEAST_AGE = np.float32(1e-6)  # whose power has a finite gradient
WINDOWS = 64  # whose numbers stay in the processor's cache between steps


class Inputs(NamedTuple):
    query: Singles  # [B, H, dim]
    token: Singles  # [T, dim]
    z: Singles  # [U, pair]
    partner: Rows  # [T]: partners of a window are neighbours in z, that of its newest event the first of them
    x: Singles  # [T]
    first: Rows  # [B + 1]


class Rates(NamedTuple):
    """One of each per head."""

    fall: Singles  # [H]: lambda
    power: Singles  # [H]: alpha
    spread: Singles  # [H]: l delta


class Kept(NamedTuple):
    """What the backward pass reads, per head and event. The rest it computes again, faster than from memory."""

    product: Singles  # [H, T]: q k
    omega: Singles  # [H, T]: not yet divided
    square: Singles  # [T]: squared length of the token
    total_omega: Singles  # [H, B]: sum of a window's omega, at least 1
    total_psi: Singles  # [H, B]


class Scratch(NamedTuple):
    """Room for the events of some windows, from the first of them on; and for those of one window."""

    size: Singles  # [H, n]: squared length of q times that of k
    psi: Singles  # [H, n]: not yet divided
    log_age: Singles  # [n]
    weight: Singles  # [H, k]: of each token of a window in the sum
    shares: Singles  # [H, k]: psi of each event of a window, divided


class Outputs(NamedTuple):
    """Or their gradients."""

    injected: Singles  # [B, H, dim]
    diffused: Singles  # [B, H, pair], or without columns


class Sizes(NamedTuple):
    """Loops whose length the compiler knows are twice as fast."""

    heads: int
    dim: int
    pair: int


class At(NamedTuple):
    """A window, and the first event of the scratch."""

    b: int
    shift: int


@inlined
def write_products(inputs: Inputs, b: int, sizes: Sizes, kept: Kept) -> None:
    """q k of each head and event of a window."""
    for t in range(inputs.first[b], inputs.first[b + 1]):
        kept.square[t] = dot(inputs.token, (t,), inputs.token, (t,), sizes.dim)
        for h in range(0, sizes.heads, 4):
            of = four(h, sizes.heads)
            products = dots(inputs.query, b, of, inputs.token, t, sizes.dim)
            kept.product[of[0], t], kept.product[of[1], t] = products[0], products[1]
            kept.product[of[2], t], kept.product[of[3], t] = products[2], products[3]


@inlined
def write_sizes(inputs: Inputs, at: At, sizes: Sizes, kept: Kept, scratch: Scratch) -> None:
    """What the cosines of a window divide by, squared."""
    start, place = max(inputs.first[at.b], 0), max(inputs.first[at.b] - at.shift, 0)
    for h in range(sizes.heads):
        length = dot(inputs.query, (at.b, h), inputs.query, (at.b, h), sizes.dim)
        for n in range(inputs.first[at.b + 1] - start):
            scratch.size[h, place + n] = length * kept.square[start + n] + TINY


@inlined
def grown_age(x: np.float32, log_age: np.float32, power: np.float32) -> np.float32:
    """x to that power."""
    return vector_math.exp(power * log_age) if x > 0 else np.float32(0)


@inlined
def write_ages(x: Singles, events: tuple[int, int], scratch: Scratch) -> None:
    """The logarithms of ages; a start known not to be negative needs no check of indices."""
    start, stop = max(events[0], 0), events[1]
    for n in range(stop - start):
        scratch.log_age[n] = vector_math.log(x[start + n] + LEAST_AGE)


@inlined
def write_psi(x: Singles, events: tuple[int, int], h: int, spread: np.float32, scratch: Scratch) -> None:
    """psi of a head, of the events of many windows together: vectors are then full."""
    start, stop = max(events[0], 0), events[1]
    for n in range(stop - start):
        scratch.psi[h, n] = vector_math.exp(-spread * x[start + n])


@inlined
def write_omega(x: Singles, events: tuple[int, int], h: int, rates: Rates, kept: Kept, scratch: Scratch) -> None:
    """The same of omega."""
    start, stop, fall, power = max(events[0], 0), events[1], rates.fall[h], rates.power[h]
    for n in range(stop - start):
        angle = np.divide(kept.product[h, start + n], np.sqrt(scratch.size[h, n]))
        kept.omega[h, start + n] = vector_math.sigmoid(angle)
    for n in range(stop - start):
        grown = grown_age(x[start + n], scratch.log_age[n], power)
        kept.omega[h, start + n] *= vector_math.exp(-fall * grown)


@inlined_sums
def write_totals(inputs: Inputs, at: At, sizes: Sizes, kept: Kept, scratch: Scratch) -> None:
    """max(sum, 1) of the weights of a window, by which they are divided."""
    start, place = max(inputs.first[at.b], 0), max(inputs.first[at.b] - at.shift, 0)
    for h in range(sizes.heads):
        omega, psi = np.float32(0), np.float32(0)
        for n in range(inputs.first[at.b + 1] - start):
            omega += kept.omega[h, start + n]
            psi += scratch.psi[h, place + n]
        kept.total_omega[h, at.b], kept.total_psi[h, at.b] = max(omega, np.float32(1)), max(psi, np.float32(1))


@inlined
def write_weights(inputs: Inputs, b: int, sizes: Sizes, kept: Kept, scratch: Scratch) -> None:
    """The weights of a window's tokens: omega q k / sqrt(d), divided."""
    start, scale = max(inputs.first[b], 0), np.float32(1 / np.sqrt(sizes.dim))
    for h in range(sizes.heads):
        part = np.divide(scale, kept.total_omega[h, b])
        for n in range(inputs.first[b + 1] - start):
            scratch.weight[h, n] = kept.omega[h, start + n] * kept.product[h, start + n] * part


@inlined
def write_shares(inputs: Inputs, at: At, sizes: Sizes, kept: Kept, scratch: Scratch) -> None:
    """psi of a window's events, divided."""
    start, place = max(inputs.first[at.b], 0), max(inputs.first[at.b] - at.shift, 0)
    for h in range(sizes.heads):
        part = np.divide(np.float32(1), kept.total_psi[h, at.b])
        for n in range(inputs.first[at.b + 1] - start):
            scratch.shares[h, n] = scratch.psi[h, place + n] * part


@compiled
def sizes_of(inputs: Inputs) -> Sizes:
    return Sizes(inputs.query.shape[1], inputs.query.shape[2], inputs.z.shape[1])


@compiled
def empty_scratch(inputs: Inputs) -> Scratch:
    longest, heads = 1, inputs.query.shape[1]
    for b in range(len(inputs.query)):
        longest = max(longest, inputs.first[b + 1] - inputs.first[b])
    count = longest * min(WINDOWS, len(inputs.query))
    rows, of_window = np.empty((2, heads, count), np.float32), np.empty((2, heads, longest), np.float32)
    return Scratch(rows[0], rows[1], np.empty(count, np.float32), of_window[0], of_window[1])


@inlined
def write_tokens(inputs: Inputs, b: int, sizes: Sizes, weight: Singles, out: Singles) -> None:
    """The weighted sum of a window's tokens, for four heads at a time."""
    start, width, zero = inputs.first[b], sizes.dim, filled(0.0)
    for h in range(0, sizes.heads, 4):
        h0, h1, h2, h3 = four(h, sizes.heads)
        for i in range(0, width, LANES):
            s0, s1, s2, s3 = zero, zero, zero, zero
            for n in range(inputs.first[b + 1] - start):
                row = load(inputs.token, (start + n, i), width - i)
                s0 = plus(s0, element(weight, (h0, n)), row)
                s1 = plus(s1, element(weight, (h1, n)), row)
                s2 = plus(s2, element(weight, (h2, n)), row)
                s3 = plus(s3, element(weight, (h3, n)), row)
            store(out, (b, h0, i), s0, width - i)
            store(out, (b, h1, i), s1, width - i)
            store(out, (b, h2, i), s2, width - i)
            store(out, (b, h3, i), s3, width - i)


@inlined
def write_partners(inputs: Inputs, b: int, sizes: Sizes, shares: Singles, out: Singles) -> None:
    """The weighted sum of the z of a window's partners, likewise."""
    start, width, zero = inputs.first[b], sizes.pair, filled(0.0)
    for h in range(0, sizes.heads, 4):
        h0, h1, h2, h3 = four(h, sizes.heads)
        for i in range(0, width, LANES):
            s0, s1, s2, s3 = zero, zero, zero, zero
            for n in range(inputs.first[b + 1] - start):
                row = load(inputs.z, (inputs.partner[start + n], i), width - i)
                s0 = plus(s0, element(shares, (h0, n)), row)
                s1 = plus(s1, element(shares, (h1, n)), row)
                s2 = plus(s2, element(shares, (h2, n)), row)
                s3 = plus(s3, element(shares, (h3, n)), row)
            store(out, (b, h0, i), s0, width - i)
            store(out, (b, h1, i), s1, width - i)
            store(out, (b, h2, i), s2, width - i)
            store(out, (b, h3, i), s3, width - i)


@inlined
def attend_sized(inputs: Inputs, rates: Rates, sizes: Sizes, kept: Kept, scratch: Scratch, out: Outputs) -> None:
    count = len(inputs.query)
    for begin in range(0, count, WINDOWS):
        end = min(begin + WINDOWS, count)
        events = (inputs.first[begin], inputs.first[end])
        write_ages(inputs.x, events, scratch)
        for b in range(begin, end):
            write_products(inputs, b, sizes, kept)
            write_sizes(inputs, At(b, events[0]), sizes, kept, scratch)
        for h in range(sizes.heads):
            write_psi(inputs.x, events, h, rates.spread[h], scratch)
            write_omega(inputs.x, events, h, rates, kept, scratch)
        for b in range(begin, end):
            write_totals(inputs, At(b, events[0]), sizes, kept, scratch)
            write_weights(inputs, b, sizes, kept, scratch)
            write_tokens(inputs, b, sizes, scratch.weight, out.injected)
            if out.diffused.shape[2]:
                write_shares(inputs, At(b, events[0]), sizes, kept, scratch)
                write_partners(inputs, b, sizes, scratch.shares, out.diffused)


@compiled
def attend(inputs: Inputs, rates: Rates, kept: Kept, out: Outputs) -> None:
    """Fills outputs."""
    scratch, sizes = empty_scratch(inputs), sizes_of(inputs)
    if sizes.heads == 4 and sizes.dim == 32 and sizes.pair == 42:
        attend_sized(inputs, rates, Sizes(4, 32, 42), kept, scratch, out)
    else:
        attend_sized(inputs, rates, sizes, kept, scratch, out)
