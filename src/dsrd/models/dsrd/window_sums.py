"""What a layer reads from the windows, compiled: weights of events, and weighted sums (see `window_attention`)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dsrd.compiled import compiled, inlined, inlined_sums
from dsrd.models.dsrd import vector_math
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
    """What the backward pass reads, per head and event; weights are not yet divided."""

    product: Singles  # [H, T]: q k
    size: Singles  # [H, T]: squared length of q times that of k
    gate: Singles  # [H, T]: sigmoid of the cosine
    omega: Singles  # [H, T]
    psi: Singles  # [H, T]
    log_age: Singles  # [T]
    square: Singles  # [T]: squared length of the token
    total_omega: Singles  # [H, B]: sum of a window's omega, at least 1
    total_psi: Singles  # [H, B]


class Outputs(NamedTuple):
    """Or their gradients."""

    injected: Singles  # [H, B, dim]
    diffused: Singles  # [H, B, pair], or without columns


@inlined_sums
def write_products(inputs: Inputs, b: int, kept: Kept) -> None:
    """q k of each head and event of a window, and what its cosine divides by."""
    query, token = inputs.query, inputs.token
    for t in range(max(inputs.first[b], 0), inputs.first[b + 1]):
        square = np.float32(0)
        for i in range(token.shape[1]):
            square += token[t, i] * token[t, i]
        kept.square[t] = square
        for h in range(query.shape[1]):
            product = np.float32(0)
            for i in range(token.shape[1]):
                product += query[b, h, i] * token[t, i]
            kept.product[h, t] = product
    for h in range(query.shape[1]):
        length = squared_length(query, b, h)
        for t in range(max(inputs.first[b], 0), inputs.first[b + 1]):
            kept.size[h, t] = length * kept.square[t] + TINY


@inlined_sums
def squared_length(query: Singles, b: int, h: int) -> np.float32:
    length = np.float32(0)
    for i in range(query.shape[2]):
        length += query[b, h, i] * query[b, h, i]
    return length


@inlined
def grown_age(x: np.float32, log_age: np.float32, power: np.float32) -> np.float32:
    """x to that power."""
    return vector_math.exp(power * log_age) if x > 0 else np.float32(0)


@inlined
def write_weights(x: Singles, events: tuple[int, int], h: int, rates: Rates, kept: Kept) -> None:
    """omega and psi of a head, of the events of many windows together: vectors are then full."""
    start, stop = max(events[0], 0), events[1]  # known not to be negative, indices need no check
    fall, power, spread = rates.fall[h], rates.power[h], rates.spread[h]
    for t in range(start, stop):
        angle = np.divide(kept.product[h, t], np.sqrt(kept.size[h, t]))
        kept.gate[h, t] = vector_math.sigmoid(angle)
    for t in range(start, stop):
        faded = vector_math.exp(-fall * grown_age(x[t], kept.log_age[t], power))
        kept.omega[h, t] = kept.gate[h, t] * faded
    for t in range(start, stop):
        kept.psi[h, t] = vector_math.exp(-spread * x[t])


@inlined_sums
def write_totals(inputs: Inputs, b: int, kept: Kept) -> None:
    """max(sum, 1) of the weights of a window, by which they are divided."""
    for h in range(inputs.query.shape[1]):
        omega, psi = np.float32(0), np.float32(0)
        for t in range(max(inputs.first[b], 0), inputs.first[b + 1]):
            omega += kept.omega[h, t]
            psi += kept.psi[h, t]
        kept.total_omega[h, b], kept.total_psi[h, b] = max(omega, np.float32(1)), max(psi, np.float32(1))


@inlined_sums
def write_shares(inputs: Inputs, b: int, kept: Kept, shares: Singles) -> int:
    """psi of each distinct partner of a window, divided; returns their number.  # [H, k]"""
    start, stop, partners = max(inputs.first[b], 0), inputs.first[b + 1], 0
    for t in range(start, stop):
        partners = max(partners, inputs.partner[t] - inputs.partner[start] + 1)
    for h in range(inputs.query.shape[1]):
        for u in range(partners):
            shares[h, u] = 0
        part = np.divide(np.float32(1), kept.total_psi[h, b])
        for t in range(start, stop):
            shares[h, inputs.partner[t] - inputs.partner[start]] += kept.psi[h, t] * part
    return partners


@compiled
def room_for_shares(inputs: Inputs) -> Singles:
    longest = 1
    for b in range(len(inputs.query)):
        longest = max(longest, inputs.first[b + 1] - inputs.first[b])
    return np.empty((inputs.query.shape[1], longest), np.float32)


@inlined_sums
def add_tokens(inputs: Inputs, b: int, kept: Kept, out: Outputs) -> None:
    """The weighted sum of a window's tokens."""
    heads, dim = inputs.query.shape[1], inputs.token.shape[1]
    scale = np.float32(1 / np.sqrt(dim))
    for t in range(max(inputs.first[b], 0), inputs.first[b + 1]):
        for h in range(heads):
            weight = kept.omega[h, t] * kept.product[h, t] * np.divide(scale, kept.total_omega[h, b])
            for i in range(dim):
                out.injected[h, b, i] += weight * inputs.token[t, i]


@inlined_sums
def add_partners(inputs: Inputs, b: int, kept: Kept, shares: Singles, out: Outputs) -> None:
    """The weighted sum of a window's z."""
    for u in range(write_shares(inputs, b, kept, shares)):
        row = inputs.partner[inputs.first[b]] + u
        for h in range(inputs.query.shape[1]):
            for i in range(inputs.z.shape[1]):
                out.diffused[h, b, i] += shares[h, u] * inputs.z[row, i]


@compiled
def attend(inputs: Inputs, rates: Rates, kept: Kept, out: Outputs) -> None:
    """Outputs start at 0."""
    shares, count = room_for_shares(inputs), len(inputs.query)
    for begin in range(0, count, WINDOWS):
        end = min(begin + WINDOWS, count)
        events = (inputs.first[begin], inputs.first[end])
        for t in range(max(events[0], 0), events[1]):
            kept.log_age[t] = vector_math.log(inputs.x[t] + LEAST_AGE)
        for b in range(begin, end):
            write_products(inputs, b, kept)
        for h in range(inputs.query.shape[1]):
            write_weights(inputs.x, events, h, rates, kept)
        for b in range(begin, end):
            write_totals(inputs, b, kept)
            add_tokens(inputs, b, kept, out)
            if out.diffused.shape[2]:
                add_partners(inputs, b, kept, shares, out)
