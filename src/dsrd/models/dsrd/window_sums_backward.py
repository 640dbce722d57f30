"""The backward pass of `window_attention`, compiled."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dsrd.compiled import compiled, inlined_sums
from dsrd.models.dsrd.walk_state import Singles
from dsrd.models.dsrd.window_sums import (
    Inputs,
    Kept,
    Outputs,
    Rates,
    grown_age,
    room_for_shares,
    squared_length,
    write_shares,
)

SHORT_SUM = 4096  # events whose gradients are summed in float32


class Backward(NamedTuple):
    """Gradients of the inputs, all of which start at 0."""

    query: Singles  # [B, H, dim]
    token: Singles  # [T, dim]
    z: Singles  # [U, pair]
    rates: NDArray[np.float64]  # [3, H]: of fall, power, spread


class Room(NamedTuple):
    """Gradients per head and event."""

    product: Singles  # [H, T]
    log_omega: Singles  # [H, T]
    log_psi: Singles  # [H, T]
    size: Singles  # [H, T]


@inlined_sums
def omega_backward(inputs: Inputs, b: int, kept: Kept, grads: Outputs, room: Room) -> None:
    """From the sum of a window's tokens to their products and to omega."""
    heads, dim, zero = inputs.query.shape[1], inputs.token.shape[1], np.float32(0)
    start, stop, scale = inputs.first[b], inputs.first[b + 1], np.float32(1 / np.sqrt(dim))
    for t in range(start, stop):
        for h in range(heads):
            dot = zero
            for i in range(dim):
                dot += grads.injected[h, b, i] * inputs.token[t, i]
            room.product[h, t] = dot * np.divide(scale, kept.total_omega[h, b]) * kept.omega[h, t]
    for h in range(heads):
        total, divisor = zero, kept.total_omega[h, b]
        for t in range(start, stop):
            total += room.product[h, t] * kept.product[h, t]
        shared = np.divide(total, divisor) if divisor > 1 else zero
        for t in range(start, stop):
            room.log_omega[h, t] = room.product[h, t] * kept.product[h, t] - shared * kept.omega[h, t]


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
def rates_backward(x: Singles, h: int, rates: Rates, kept: Kept, room: Room, to: Backward) -> None:
    """From omega and psi of a head, of the events of all windows together, to the rates, products and sizes."""
    one, half, fall, power = np.float32(1), np.float32(-0.5), rates.fall[h], rates.power[h]
    for start in range(0, len(x), SHORT_SUM):
        to_fall, to_power, to_spread = np.float32(0), np.float32(0), np.float32(0)
        stop = min(start + SHORT_SUM, len(x))
        for t in range(start, stop):
            grown = grown_age(x[t], kept.log_age[t], power) * room.log_omega[h, t]
            to_fall -= grown
            to_power -= grown * kept.log_age[t]
        for t in range(start, stop):
            to_spread -= room.log_psi[h, t] * x[t]
        for t in range(start, stop):
            to_angle = room.log_omega[h, t] * (one - kept.gate[h, t])
            inverse = np.divide(one, np.sqrt(kept.size[h, t]))
            room.size[h, t] = half * to_angle * kept.product[h, t] * inverse * inverse * inverse
            room.product[h, t] += to_angle * inverse
        to.rates[0, h] += to_fall
        to.rates[1, h] += to_power * fall
        to.rates[2, h] += to_spread


@inlined_sums
def tokens_backward(inputs: Inputs, b: int, kept: Kept, grads: Outputs, room: Room, to: Backward) -> None:
    """From the sum of a window's tokens, and from products and sizes, to tokens and query."""
    heads, dim, two = inputs.query.shape[1], inputs.token.shape[1], np.float32(2)
    start, stop, scale = inputs.first[b], inputs.first[b + 1], np.float32(1 / np.sqrt(dim))
    for h in range(heads):
        length, to_length = squared_length(inputs.query, b, h), np.float32(0)
        part = np.divide(scale, kept.total_omega[h, b])
        for t in range(start, stop):
            to_length += room.size[h, t] * kept.square[t]
        for i in range(dim):
            to.query[b, h, i] += two * to_length * inputs.query[b, h, i]
        for t in range(start, stop):
            weight, product = kept.omega[h, t] * kept.product[h, t] * part, room.product[h, t]
            square = two * room.size[h, t] * length
            for i in range(dim):
                to.query[b, h, i] += product * inputs.token[t, i]
            for i in range(dim):
                own = product * inputs.query[b, h, i] + square * inputs.token[t, i]
                to.token[t, i] += weight * grads.injected[h, b, i] + own


@compiled
def attend_backward(inputs: Inputs, rates: Rates, kept: Kept, grads: Outputs, to: Backward) -> None:
    heads, count, shares = inputs.query.shape[1], len(inputs.x), room_for_shares(inputs)
    rows = np.empty((4, heads, count), np.float32)
    room = Room(rows[0], rows[1], rows[2], rows[3])
    room.log_psi[:] = 0
    for b in range(len(inputs.query)):
        omega_backward(inputs, b, kept, grads, room)
        if grads.diffused.shape[2]:
            psi_backward(inputs, b, kept, shares, grads, to)
            for h in range(heads):
                for t in range(inputs.first[b], inputs.first[b + 1]):
                    share = shares[h, inputs.partner[t] - inputs.partner[inputs.first[b]]]
                    room.log_psi[h, t] = share * kept.psi[h, t]
    for h in range(heads):
        rates_backward(inputs.x, h, rates, kept, room, to)
    for b in range(len(inputs.query)):
        tokens_backward(inputs, b, kept, grads, room, to)
