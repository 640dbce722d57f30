"""Products of the walks of two nodes, compiled: the costly part of a query of the walk state."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dsrd.compiled import inlined, vectorised
from dsrd.models.dsrd import vector_math
from dsrd.models.dsrd.walk_rows import stored_row
from dsrd.models.dsrd.walk_state import Decay, NodeRows, Singles

UNSEEN = 40  # exp(-UNSEEN) times any length of walks is below the rounding of float32
PRODUCTS = 6  # of {r, S1, S2} of one node with those of another, without the three that are counted exactly


class Endpoint(NamedTuple):
    """The second node of many pairs, loaded once per query; and work space for the first node."""

    code: Singles  # [width]
    one: Singles  # [rates, width]: S1 at its last event
    two: Singles  # [rates, width]: S2 at its last event
    kept: Singles  # [rates]: the factor by which S1 has decayed since; that of S2 is its square
    first_code: Singles  # [width]: of the first node
    first_kept: Singles  # [rates]: the same factor of its walks
    room: Singles  # [2, width]: for rows that are not stored as float32


@vectorised
def length(row: Singles) -> np.float32:
    total = np.float32(0)
    for i in range(len(row)):
        total += row[i] * row[i]
    return np.float32(np.sqrt(total))


@vectorised
def products(
    code: Singles, one: Singles, two: Singles, other_code: Singles, other_one: Singles, other_two: Singles
) -> tuple[np.float32, np.float32, np.float32, np.float32, np.float32, np.float32]:
    """r_i S2_j, S2_i r_j, S1_i S1_j, S1_i S2_j, S2_i S1_j, S2_i S2_j at one rate, in one pass."""
    zero = np.float32(0)
    a, b, c, d, e, f = zero, zero, zero, zero, zero, zero
    for n in range(len(one)):
        a += code[n] * other_two[n]
        b += two[n] * other_code[n]
        c += one[n] * other_one[n]
        d += one[n] * other_two[n]
        e += two[n] * other_one[n]
        f += two[n] * other_two[n]
    return a, b, c, d, e, f


@vectorised
def product(one: Singles, two: Singles) -> np.float32:
    total = np.float32(0)
    for n in range(len(one)):
        total += one[n] * two[n]
    return total


@inlined
def left(rate: float, age: float) -> np.float32:
    """`faded` for reading: faster, and 0 from `UNSEEN` on, when the rounding of any sum of products is larger."""
    exponent = rate * age
    return vector_math.exp(np.float32(-exponent)) if exponent < UNSEEN else np.float32(0)


@inlined
def read_walks(nodes: NodeRows, row: int, other: Endpoint, now: float, decay: Decay, out: Singles) -> None:
    """Products of two nodes' walks, decayed to now.  # [PRODUCTS * rates]

    At fast rates most nodes have been silent for too long: without their walks, one product of six is left.
    """
    columns = decay.columns
    for r in range(len(decay.rate)):
        kept, other_kept = left(decay.rate[r], now - nodes.last[row]), other.kept[r]
        other.first_kept[r] = kept
        at = PRODUCTS * r
        if kept == 0 or other_kept == 0:
            for i in range(PRODUCTS):
                out[at + i] = 0
            if other_kept > 0:
                out[at] = decay.gain[r] * product(other.first_code, other.two[r]) * (other_kept * other_kept)
            if kept > 0:
                two = stored_row(nodes.step2[row, r], nodes.step2, row, r, columns, other.room[1])
                out[at + 1] = decay.gain[r] * product(two, other.code) * (kept * kept)
            continue
        one = stored_row(nodes.step1[row, r], nodes.step1, row, r, columns, other.room[0])
        two = stored_row(nodes.step2[row, r], nodes.step2, row, r, columns, other.room[1])
        a, b, c, d, e, f = products(other.first_code, one, two, other.code, other.one[r], other.two[r])
        out[at] = decay.gain[r] * a * (other_kept * other_kept)
        out[at + 1] = decay.gain[r] * b * (kept * kept)
        out[at + 2] = c * (kept * other_kept)
        out[at + 3] = d * (kept * other_kept * other_kept)
        out[at + 4] = e * (kept * kept * other_kept)
        out[at + 5] = f * (kept * kept * other_kept * other_kept)
