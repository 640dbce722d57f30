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
    """What the backward pass reads, per head and event. The rest it computes again, faster than from memory."""

    product: Singles  # [H, T]: q k
    omega: Singles  # [H, T]: not yet divided
    square: Singles  # [T]: squared length of the token
    total_omega: Singles  # [H, B]: sum of a window's omega, at least 1
    total_psi: Singles  # [H, B]


class Scratch(NamedTuple):
    """Room for the events of some windows, from the first of them on."""

    size: Singles  # [H, n]: squared length of q times that of k
    psi: Singles  # [H, n]: not yet divided
    log_age: Singles  # [n]
    shares: Singles  # [H, k]: psi of each distinct partner of a window, divided


class Outputs(NamedTuple):
    """Or their gradients."""

    injected: Singles  # [H, B, dim]
    diffused: Singles  # [H, B, pair], or without columns


@inlined_sums
def write_products(inputs: Inputs, b: int, kept: Kept) -> None:
    """q k of each head and event of a window."""
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


@inlined_sums
def write_sizes(inputs: Inputs, b: int, shift: int, kept: Kept, scratch: Scratch) -> None:
    """What the cosines of a window divide by, squared; `shift` is the first event of the scratch."""
    start, place = max(inputs.first[b], 0), max(inputs.first[b] - shift, 0)
    for h in range(inputs.query.shape[1]):
        length = squared_length(inputs.query, b, h)
        for n in range(inputs.first[b + 1] - start):
            scratch.size[h, place + n] = length * kept.square[start + n] + TINY


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
def write_totals(inputs: Inputs, b: int, shift: int, kept: Kept, scratch: Scratch) -> None:
    """max(sum, 1) of the weights of a window, by which they are divided."""
    start, place = max(inputs.first[b], 0), max(inputs.first[b] - shift, 0)
    for h in range(inputs.query.shape[1]):
        omega, psi = np.float32(0), np.float32(0)
        for n in range(inputs.first[b + 1] - start):
            omega += kept.omega[h, start + n]
            psi += scratch.psi[h, place + n]
        kept.total_omega[h, b], kept.total_psi[h, b] = max(omega, np.float32(1)), max(psi, np.float32(1))


@inlined_sums
def write_shares(inputs: Inputs, b: int, shift: int, kept: Kept, scratch: Scratch) -> int:
    """psi of each distinct partner of a window, divided; returns their number."""
    start, stop, partners = max(inputs.first[b], 0), inputs.first[b + 1], 0
    for t in range(start, stop):
        partners = max(partners, inputs.partner[t] - inputs.partner[start] + 1)
    for h in range(inputs.query.shape[1]):
        for u in range(partners):
            scratch.shares[h, u] = 0
        part = np.divide(np.float32(1), kept.total_psi[h, b])
        for t in range(start, stop):
            scratch.shares[h, inputs.partner[t] - inputs.partner[start]] += scratch.psi[h, t - shift] * part
    return partners


@compiled
def empty_scratch(inputs: Inputs) -> Scratch:
    longest, heads = 1, inputs.query.shape[1]
    for b in range(len(inputs.query)):
        longest = max(longest, inputs.first[b + 1] - inputs.first[b])
    count = longest * min(WINDOWS, len(inputs.query))
    rows = np.empty((2, heads, count), np.float32)
    return Scratch(rows[0], rows[1], np.empty(count, np.float32), np.empty((heads, longest), np.float32))


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
def add_partners(inputs: Inputs, b: int, shift: int, kept: Kept, scratch: Scratch, out: Outputs) -> None:
    """The weighted sum of a window's z."""
    for u in range(write_shares(inputs, b, shift, kept, scratch)):
        row = inputs.partner[inputs.first[b]] + u
        for h in range(inputs.query.shape[1]):
            for i in range(inputs.z.shape[1]):
                out.diffused[h, b, i] += scratch.shares[h, u] * inputs.z[row, i]


@compiled
def attend(inputs: Inputs, rates: Rates, kept: Kept, out: Outputs) -> None:
    """Outputs start at 0."""
    scratch, count = empty_scratch(inputs), len(inputs.query)
    for begin in range(0, count, WINDOWS):
        end = min(begin + WINDOWS, count)
        events = (inputs.first[begin], inputs.first[end])
        write_ages(inputs.x, events, scratch)
        for b in range(begin, end):
            write_products(inputs, b, kept)
            write_sizes(inputs, b, events[0], kept, scratch)
        for h in range(inputs.query.shape[1]):
            write_psi(inputs.x, events, h, rates.spread[h], scratch)
            write_omega(inputs.x, events, h, rates, kept, scratch)
        for b in range(begin, end):
            write_totals(inputs, b, events[0], kept, scratch)
            add_tokens(inputs, b, kept, out)
            if out.diffused.shape[2]:
                add_partners(inputs, b, events[0], kept, scratch, out)
