"""The backward pass of `window_attention`, compiled."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dsrd.compiled import compiled, inlined, inlined_sums
from dsrd.models.dsrd.walk_state import Singles
from dsrd.models.dsrd.window_sums import (
    Inputs,
    Kept,
    Outputs,
    Rates,
    grown_age,
    WINDOWS,
    room_for_shares,
    squared_length,
    write_shares,
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
def psi_backward(inputs: Inputs, b: int, kept: Kept, shares: Singles, grads: Outputs, to: Backward) -> None:
    """From the sum of a window's z to z; then `shares` hold the gradients of the shares of its partners."""
    start, partners = inputs.first[b], write_shares(inputs, b, kept, shares)
    for h in range(inputs.query.shape[1]):
        total = np.float32(0)
        for u in range(partners):
            row, dot, share = inputs.partner[start] + u, np.float32(0), shares[h, u]
            for i in range(inputs.z.shape[1]):
                dot += grads.diffused[h, b, i] * inputs.z[row, i]
            for i in range(inputs.z.shape[1]):
                to.z[row, i] += share * grads.diffused[h, b, i]
            total += dot * share
            shares[h, u] = dot
        for u in range(partners):  # where the sum of psi is the divisor, all psi share its gradient
            shares[h, u] = np.divide(shares[h, u] - (total if kept.total_psi[h, b] > 1 else np.float32(0)), kept.total_psi[h, b])

@inlined_sums
def rates_backward(inputs: Inputs, at: Part, rates: Rates, kept: Kept, room: Room, to: Backward) -> None:
    """From omega and psi of a head, of the events of many windows, to the rates, products and sizes."""
    one, half, h, x, start = np.float32(1), np.float32(-0.5), at.head, inputs.x, max(at.start, 0)
    fall, power = rates.fall[h], rates.power[h]
    to_fall, to_power, to_spread = np.float32(0), np.float32(0), np.float32(0)
    for n in range(at.stop - start):
        t = start + n
        grown = grown_age(x[t], kept.log_age[t], power) * room.log_omega[h, n]
        to_fall -= grown
        to_power -= grown * kept.log_age[t]
    for n in range(at.stop - start):
        t = start + n
        to_spread -= room.log_psi[h, n] * x[t]
    for n in range(at.stop - start):
        t = start + n
        to_angle = room.log_omega[h, n] * (one - kept.gate[h, t])
        inverse = np.divide(one, np.sqrt(kept.size[h, t]))
        room.size[h, n] = half * to_angle * kept.product[h, t] * inverse * inverse * inverse
        room.product[h, n] += to_angle * inverse
    to.rates[0, h] += to_fall
    to.rates[1, h] += to_power * fall
    to.rates[2, h] += to_spread


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
def tokens_backward(inputs: Inputs, at: tuple[int, int], kept: Kept, grads: Outputs, room: Room, to: Backward) -> None:
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


@inlined
def log_psi_backward(inputs: Inputs, b: int, shift: int, kept: Kept, shares: Singles, room: Room) -> None:
    """From the shares of partners to the logarithms of psi."""
    base = inputs.partner[inputs.first[b]] if inputs.first[b] < inputs.first[b + 1] else 0
    for h in range(inputs.query.shape[1]):
        for t in range(inputs.first[b], inputs.first[b + 1]):
            room.log_psi[h, t - shift] = shares[h, inputs.partner[t] - base] * kept.psi[h, t]


@compiled
def attend_backward(inputs: Inputs, rates: Rates, kept: Kept, grads: Outputs, to: Backward) -> None:
    """Adds to the gradients of tokens, of z and of the rates; writes that of the query."""
    heads, count, shares = inputs.query.shape[1], len(inputs.query), room_for_shares(inputs)
    rows = np.zeros((4, heads, WINDOWS * shares.shape[1]), np.float32)
    room = Room(rows[0], rows[1], rows[2], rows[3])
    for begin in range(0, count, WINDOWS):
        end = min(begin + WINDOWS, count)
        start, stop = inputs.first[begin], inputs.first[end]
        for b in range(begin, end):
            omega_backward(inputs, b, start, kept, grads, room)
            if grads.diffused.shape[2]:
                psi_backward(inputs, b, kept, shares, grads, to)
                log_psi_backward(inputs, b, start, kept, shares, room)
        for h in range(heads):
            rates_backward(inputs, Part(start, stop, h), rates, kept, room, to)
        for b in range(begin, end):
            query_backward(inputs, (b, start), kept, room, to)
            tokens_backward(inputs, (b, start), kept, grads, room, to)
