"""The backward pass of `window_sums`, compiled."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dsrd.compiled import compiled, inlined, inlined_sums
from dsrd.models.dsrd import vector_math
from dsrd.models.dsrd.lanes import LANES, added, dot, dots, element, four, load, plus, store, times
from dsrd.models.dsrd.walk_state import Singles
from dsrd.models.dsrd.window_sums import (
    WINDOWS,
    At,
    Inputs,
    Kept,
    Outputs,
    Rates,
    Scratch,
    Sizes,
    empty_scratch,
    grown_age,
    sizes_of,
    write_ages,
    write_psi,
    write_shares,
    write_sizes,
    write_weights,
)


class Backward(NamedTuple):
    """Gradients of the inputs; layers add to those of tokens and of z."""

    query: Singles  # [B, H, dim]
    token: Singles  # [T, dim]
    z: Singles  # [U, pair or more]: a multiple of `LANES`
    rates: NDArray[np.float64]  # [3, H]: of fall, power, spread


class Room(NamedTuple):
    """Gradients per head and event, of the events of some windows."""

    product: Singles  # [H, n]
    log_omega: Singles  # [H, n]
    log_psi: Singles  # [H, n]
    size: Singles  # [H, n]
    square: Singles  # [k]: of the squared length of each token of a window
    partner: Singles  # [H, k]: of the share of each distinct partner of a window
    length: Singles  # [H]: of the squared length of each query of a window, twice


class Gradients(NamedTuple):
    """Those of the outputs, of what is between, and of the inputs."""

    out: Outputs
    room: Room
    to: Backward


class Events(NamedTuple):
    """The events of some windows, for one head."""

    start: int
    stop: int
    head: int


@inlined_sums
def omega_backward(inputs: Inputs, at: At, sizes: Sizes, kept: Kept, both: Gradients) -> None:
    """From the sum of a window's tokens to their products and to omega."""
    b, room, zero, scale = at.b, both.room, np.float32(0), np.float32(1 / np.sqrt(sizes.dim))
    start, place = max(inputs.first[b], 0), max(inputs.first[b] - at.shift, 0)
    count = inputs.first[b + 1] - start
    for n in range(count):
        for h in range(0, sizes.heads, 4):
            of = four(h, sizes.heads)
            products = dots(both.out.injected, b, of, inputs.token, start + n, sizes.dim)
            room.product[of[0], place + n], room.product[of[1], place + n] = products[0], products[1]
            room.product[of[2], place + n], room.product[of[3], place + n] = products[2], products[3]
    for h in range(sizes.heads):
        total, divisor = zero, kept.total_omega[h, b]
        part = np.divide(scale, divisor)
        for n in range(count):
            room.product[h, place + n] *= part * kept.omega[h, start + n]
            total += room.product[h, place + n] * kept.product[h, start + n]
        shared = np.divide(total, divisor) if divisor > 1 else zero
        for n in range(count):
            own = room.product[h, place + n] * kept.product[h, start + n]
            room.log_omega[h, place + n] = own - shared * kept.omega[h, start + n]


@inlined
def partners_backward(inputs: Inputs, b: int, sizes: Sizes, shares: Singles, both: Gradients) -> None:
    """From the sum of a window's z to z, for four heads at a time."""
    start, stop, width, grads = inputs.first[b], inputs.first[b + 1], sizes.pair, both.out.diffused
    for h in range(0, sizes.heads, 4):
        h0, h1, h2, h3 = four(h, sizes.heads)
        for i in range(0, width, LANES):
            g0, g1 = load(grads, (b, h0, i), width - i), load(grads, (b, h1, i), width - i if h1 > h0 else 0)
            g2 = load(grads, (b, h2, i), width - i if h2 > h1 else 0)
            g3 = load(grads, (b, h3, i), width - i if h3 > h2 else 0)
            for n in range(stop - start):
                row = inputs.partner[start + n]
                sums = times(element(shares, (h0, n)), g0)
                sums = plus(sums, element(shares, (h1, n)), g1)
                sums = plus(sums, element(shares, (h2, n)), g2)
                sums = plus(sums, element(shares, (h3, n)), g3)
                # added last, as all of the row: it is often the row of the event before
                store(both.to.z, (row, i), added(sums, load(both.to.z, (row, i), LANES)), LANES)


@inlined
def shares_backward(inputs: Inputs, b: int, sizes: Sizes, both: Gradients) -> None:
    """From the sum of a window's z to the share of each distinct partner."""
    start, stop, partners, room = inputs.first[b], inputs.first[b + 1], 0, both.room
    for t in range(start, stop):
        partners = max(partners, inputs.partner[t] - inputs.partner[start] + 1)
    for u in range(partners):
        for h in range(0, sizes.heads, 4):
            of = four(h, sizes.heads)
            products = dots(both.out.diffused, b, of, inputs.z, inputs.partner[start] + u, sizes.pair)
            room.partner[of[0], u], room.partner[of[1], u] = products[0], products[1]
            room.partner[of[2], u], room.partner[of[3], u] = products[2], products[3]


@inlined_sums
def psi_backward(inputs: Inputs, at: At, sizes: Sizes, kept: Kept, scratch: Scratch, both: Gradients) -> None:
    """From the sum of a window's z to z and to the logarithms of psi."""
    b, room, shares = at.b, both.room, scratch.shares
    start, place = max(inputs.first[b], 0), max(inputs.first[b] - at.shift, 0)
    count = inputs.first[b + 1] - start
    write_shares(inputs, at, sizes, kept, scratch)
    partners_backward(inputs, b, sizes, shares, both)
    shares_backward(inputs, b, sizes, both)
    for h in range(sizes.heads):
        total = np.float32(0)
        for n in range(count):
            room.log_psi[h, place + n] = room.partner[h, max(inputs.partner[start + n] - inputs.partner[start], 0)]
            total += room.log_psi[h, place + n] * shares[h, n]
        # where their sum is the divisor, all psi share its gradient
        shared = total if kept.total_psi[h, b] > 1 else np.float32(0)
        for n in range(count):
            room.log_psi[h, place + n] = (room.log_psi[h, place + n] - shared) * shares[h, n]


@inlined_sums
def rates_backward(x: Singles, at: Events, rates: Rates, kept: Kept, scratch: Scratch, both: Gradients) -> None:
    """From omega and psi of a head, of the events of many windows, to the rates, products and sizes."""
    one, half, h, start = np.float32(1), np.float32(-0.5), at.head, max(at.start, 0)
    room, fall, power, count = both.room, rates.fall[h], rates.power[h], at.stop - max(at.start, 0)
    to_fall, to_power, to_spread = np.float32(0), np.float32(0), np.float32(0)
    for n in range(count):
        grown = grown_age(x[start + n], scratch.log_age[n], power)
        to_fall -= grown * room.log_omega[h, n]
        to_power -= grown * room.log_omega[h, n] * scratch.log_age[n]
        gate = np.divide(kept.omega[h, start + n], vector_math.exp(-fall * grown))
        room.log_omega[h, n] *= one - gate  # that of the angle
    for n in range(count):
        to_spread -= room.log_psi[h, n] * x[start + n]
    for n in range(count):
        inverse = np.divide(one, np.sqrt(scratch.size[h, n]))
        to_product = room.log_omega[h, n] * inverse
        room.size[h, n] = half * to_product * kept.product[h, start + n] * inverse * inverse
        room.product[h, n] += to_product
    both.to.rates[0, h] += to_fall
    both.to.rates[1, h] += to_power * fall
    both.to.rates[2, h] += to_spread


@inlined_sums
def query_backward(inputs: Inputs, at: At, sizes: Sizes, kept: Kept, both: Gradients) -> None:
    """From products and sizes of a window to its queries."""
    b, room, dim = at.b, both.room, sizes.dim
    start, place = max(inputs.first[b], 0), max(inputs.first[b] - at.shift, 0)
    count = inputs.first[b + 1] - start
    for h in range(sizes.heads):
        to_length = np.float32(0)
        for n in range(count):
            to_length += room.size[h, place + n] * kept.square[start + n]
        room.length[h] = np.float32(2) * to_length
    for h in range(0, sizes.heads, 4):
        h0, h1, h2, h3 = four(h, sizes.heads)
        for i in range(0, dim, LANES):
            s0 = times(element(room.length, (h0,)), load(inputs.query, (b, h0, i), dim - i))
            s1 = times(element(room.length, (h1,)), load(inputs.query, (b, h1, i), dim - i))
            s2 = times(element(room.length, (h2,)), load(inputs.query, (b, h2, i), dim - i))
            s3 = times(element(room.length, (h3,)), load(inputs.query, (b, h3, i), dim - i))
            for n in range(count):
                token = load(inputs.token, (start + n, i), dim - i)
                s0 = plus(s0, element(room.product, (h0, place + n)), token)
                s1 = plus(s1, element(room.product, (h1, place + n)), token)
                s2 = plus(s2, element(room.product, (h2, place + n)), token)
                s3 = plus(s3, element(room.product, (h3, place + n)), token)
            store(both.to.query, (b, h0, i), s0, dim - i)
            store(both.to.query, (b, h1, i), s1, dim - i)
            store(both.to.query, (b, h2, i), s2, dim - i)
            store(both.to.query, (b, h3, i), s3, dim - i)


@inlined
def tokens_backward(inputs: Inputs, at: At, sizes: Sizes, kept: Kept, scratch: Scratch, both: Gradients) -> None:
    """From the sum of a window's tokens, and from products and sizes, to tokens."""
    b, room, dim = at.b, both.room, sizes.dim
    start, place = max(inputs.first[b], 0), max(inputs.first[b] - at.shift, 0)
    count = inputs.first[b + 1] - start
    write_weights(inputs, b, sizes, kept, scratch)
    for n in range(count):
        room.square[n] = 0
    for h in range(sizes.heads):
        length = np.float32(2) * dot(inputs.query, (b, h), inputs.query, (b, h), dim)
        for n in range(count):
            room.square[n] += length * room.size[h, place + n]
    for h in range(0, sizes.heads, 2):
        h1 = min(h + 1, sizes.heads - 1)
        for i in range(0, dim, LANES):
            g0, q0 = load(both.out.injected, (b, h, i), dim - i), load(inputs.query, (b, h, i), dim - i)
            some = dim - i if h1 > h else 0
            g1, q1 = load(both.out.injected, (b, h1, i), some), load(inputs.query, (b, h1, i), some)
            for n in range(count):
                sums = load(both.to.token, (start + n, i), dim - i)
                if h == 0:
                    sums = plus(sums, element(room.square, (n,)), load(inputs.token, (start + n, i), dim - i))
                sums = plus(sums, element(scratch.weight, (h, n)), g0)
                sums = plus(sums, element(room.product, (h, place + n)), q0)
                sums = plus(sums, element(scratch.weight, (h1, n)), g1)
                sums = plus(sums, element(room.product, (h1, place + n)), q1)
                store(both.to.token, (start + n, i), sums, dim - i)


@inlined
def attend_backward_sized(
    inputs: Inputs, rates: Rates, sizes: Sizes, kept: Kept, scratch: Scratch, both: Gradients
) -> None:
    count = len(inputs.query)
    for begin in range(0, count, WINDOWS):
        end = min(begin + WINDOWS, count)
        events = (inputs.first[begin], inputs.first[end])
        write_ages(inputs.x, events, scratch)
        for h in range(sizes.heads):
            write_psi(inputs.x, events, h, rates.spread[h], scratch)
        for b in range(begin, end):
            write_sizes(inputs, At(b, events[0]), sizes, kept, scratch)
            omega_backward(inputs, At(b, events[0]), sizes, kept, both)
            if both.out.diffused.shape[2]:
                psi_backward(inputs, At(b, events[0]), sizes, kept, scratch, both)
        for h in range(sizes.heads):
            rates_backward(inputs.x, Events(events[0], events[1], h), rates, kept, scratch, both)
        for b in range(begin, end):
            query_backward(inputs, At(b, events[0]), sizes, kept, both)
            tokens_backward(inputs, At(b, events[0]), sizes, kept, scratch, both)


@compiled
def attend_backward(inputs: Inputs, rates: Rates, kept: Kept, grads: Outputs, to: Backward) -> None:
    """Adds to the gradients of tokens, of z and of the rates; writes that of the query."""
    scratch, sizes = empty_scratch(inputs), sizes_of(inputs)
    heads = sizes.heads
    rows = np.zeros((4, heads, scratch.psi.shape[1]), np.float32)
    of_window = np.empty((1 + heads, scratch.weight.shape[1]), np.float32)
    room = Room(rows[0], rows[1], rows[2], rows[3], of_window[0], of_window[1:], np.empty(heads, np.float32))
    both = Gradients(grads, room, to)
    if heads == 4 and sizes.dim == 32 and sizes.pair == 42:
        attend_backward_sized(inputs, rates, Sizes(4, 32, 42), kept, scratch, both)
    else:
        attend_backward_sized(inputs, rates, sizes, kept, scratch, both)
