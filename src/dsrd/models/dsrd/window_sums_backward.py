"""The backward pass of `window_attention`, compiled."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dsrd.compiled import compiled, inlined, inlined_sums
from dsrd.models.dsrd import vector_math
from dsrd.models.dsrd.walk_state import Singles
from dsrd.models.dsrd.window_sums import (
    WINDOWS,
    Inputs,
    Kept,
    Outputs,
    Rates,
    Scratch,
    empty_scratch,
    grown_age,
    squared_length,
    write_ages,
    write_psi,
    write_shares,
    write_sizes,
)


class Backward(NamedTuple):
    """Gradients of the inputs; layers add to those of tokens and of z."""

    query: Singles  # [B, H, dim]
    token: Singles  # [T, dim]
    z: Singles  # [U, pair]
    rates: NDArray[np.float64]  # [3, H]: of fall, power, spread


class Room(NamedTuple):
    """Gradients per head and event, of the events of some windows."""

    product: Singles  # [H, n]
    log_omega: Singles  # [H, n]
    log_psi: Singles  # [H, n]
    size: Singles  # [H, n]


class Gradients(NamedTuple):
    room: Room
    to: Backward


class Part(NamedTuple):
    """The events of some windows, for one head."""

    start: int
    stop: int
    head: int


@inlined_sums
def omega_backward(inputs: Inputs, b: int, shift: int, kept: Kept, grads: Outputs, room: Room) -> None:
    """From the sum of a window's tokens to their products and to omega."""
    heads, dim, zero = inputs.query.shape[1], inputs.token.shape[1], np.float32(0)
    start, stop, scale = max(inputs.first[b], 0), inputs.first[b + 1], np.float32(1 / np.sqrt(dim))
    place = max(start - shift, 0)
    for t in range(start, stop):
        for h in range(heads):
            dot = zero
            for i in range(dim):
                dot += grads.injected[h, b, i] * inputs.token[t, i]
            room.product[h, t - shift] = dot * np.divide(scale, kept.total_omega[h, b]) * kept.omega[h, t]
    for h in range(heads):
        total, divisor = zero, kept.total_omega[h, b]
        for n in range(stop - start):
            total += room.product[h, place + n] * kept.product[h, start + n]
        shared = np.divide(total, divisor) if divisor > 1 else zero
        for n in range(stop - start):
            own = room.product[h, place + n] * kept.product[h, start + n]
            room.log_omega[h, place + n] = own - shared * kept.omega[h, start + n]


@inlined_sums
def psi_backward(
    inputs: Inputs, at: tuple[int, int], kept: Kept, scratch: Scratch, grads: Outputs, to: Backward
) -> None:
    """From the sum of a window's z to z; then the scratch holds the gradients of the shares of its partners."""
    b, shift = at
    start, partners = inputs.first[b], write_shares(inputs, b, shift, kept, scratch)
    for h in range(inputs.query.shape[1]):
        total, divisor = np.float32(0), kept.total_psi[h, b]
        for u in range(partners):
            row, dot, share = inputs.partner[start] + u, np.float32(0), scratch.shares[h, u]
            for i in range(inputs.z.shape[1]):
                dot += grads.diffused[h, b, i] * inputs.z[row, i]
            for i in range(inputs.z.shape[1]):
                to.z[row, i] += share * grads.diffused[h, b, i]
            total += dot * share
            scratch.shares[h, u] = dot
        shared = (
            total if divisor > 1 else np.float32(0)
        )  # where their sum is the divisor, all psi share its gradient
        for u in range(partners):
            scratch.shares[h, u] = np.divide(scratch.shares[h, u] - shared, divisor)


@inlined
def log_psi_backward(inputs: Inputs, b: int, shift: int, scratch: Scratch, room: Room) -> None:
    """From the shares of partners to the logarithms of psi."""
    for h in range(inputs.query.shape[1]):
        for t in range(inputs.first[b], inputs.first[b + 1]):
            share = scratch.shares[h, inputs.partner[t] - inputs.partner[inputs.first[b]]]
            room.log_psi[h, t - shift] = share * scratch.psi[h, t - shift]


@inlined_sums
def rates_backward(inputs: Inputs, at: Part, rates: Rates, kept: Kept, scratch: Scratch, both: Gradients) -> None:
    """From omega and psi of a head, of the events of many windows, to the rates, products and sizes."""
    one, half, h, x, start = np.float32(1), np.float32(-0.5), at.head, inputs.x, max(at.start, 0)
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
def query_backward(inputs: Inputs, at: tuple[int, int], kept: Kept, room: Room, to: Backward) -> None:
    """From products and sizes of a window to its queries; the window's events start at `shift` in all."""
    b, shift = at
    dim, two = inputs.token.shape[1], np.float32(2)
    for h in range(inputs.query.shape[1]):
        to_length = np.float32(0)
        for t in range(inputs.first[b], inputs.first[b + 1]):
            to_length += room.size[h, t - shift] * kept.square[t]
        for i in range(dim):
            to.query[b, h, i] = two * to_length * inputs.query[b, h, i]
        for t in range(inputs.first[b], inputs.first[b + 1]):
            for i in range(dim):
                to.query[b, h, i] += room.product[h, t - shift] * inputs.token[t, i]


@inlined_sums
def tokens_backward(
    inputs: Inputs, at: tuple[int, int], kept: Kept, grads: Outputs, room: Room, to: Backward
) -> None:
    """From the sum of a window's tokens, and from products and sizes, to tokens."""
    b, shift = at
    dim, two, scale = inputs.token.shape[1], np.float32(2), np.float32(1 / np.sqrt(inputs.token.shape[1]))
    for h in range(inputs.query.shape[1]):
        length = two * squared_length(inputs.query, b, h)
        part = np.divide(scale, kept.total_omega[h, b])
        for t in range(inputs.first[b], inputs.first[b + 1]):
            weight, product = kept.omega[h, t] * kept.product[h, t] * part, room.product[h, t - shift]
            square = room.size[h, t - shift] * length
            for i in range(dim):
                own = product * inputs.query[b, h, i] + square * inputs.token[t, i]
                to.token[t, i] += weight * grads.injected[h, b, i] + own


@compiled
def attend_backward(inputs: Inputs, rates: Rates, kept: Kept, grads: Outputs, to: Backward) -> None:
    """Adds to the gradients of tokens, of z and of the rates; writes that of the query."""
    heads, count, scratch = inputs.query.shape[1], len(inputs.query), empty_scratch(inputs)
    rows = np.zeros((4, heads, scratch.psi.shape[1]), np.float32)
    room = Room(rows[0], rows[1], rows[2], rows[3])
    both = Gradients(room, to)
    for begin in range(0, count, WINDOWS):
        end = min(begin + WINDOWS, count)
        events = (inputs.first[begin], inputs.first[end])
        write_ages(inputs.x, events, scratch)
        for h in range(heads):
            write_psi(inputs.x, events, h, rates.spread[h], scratch)
        for b in range(begin, end):
            write_sizes(inputs, b, events[0], kept, scratch)
            omega_backward(inputs, b, events[0], kept, grads, room)
            if grads.diffused.shape[2]:
                psi_backward(inputs, (b, events[0]), kept, scratch, grads, to)
                log_psi_backward(inputs, b, events[0], scratch, room)
        for h in range(heads):
            rates_backward(inputs, Part(events[0], events[1], h), rates, kept, scratch, both)
        for b in range(begin, end):
            query_backward(inputs, (b, events[0]), kept, room, to)
            tokens_backward(inputs, (b, events[0]), kept, grads, room, to)
