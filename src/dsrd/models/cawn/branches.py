"""Branches of walks drawn with the chances of the public code, compiled."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from dsrd.compiled import compiled
from dsrd.events import NULL, Neighbors, as_tensor
from dsrd.hashing import hashed_uniform
from dsrd.history.index import Floats, Index, Ints, history
from dsrd.history.lookups import entries_at
from dsrd.history.past import Past
from dsrd.history.sampling import Draw, longest_block, pick


def published_branches(node: Tensor, time: Tensor, past: Past, k: int, rate: float) -> Neighbors:
    """`Past.decayed` with the chances of the public code: see Fidelity in `cawn`.  # [Q] -> [Q, k]"""
    draw = Draw(rate, np.uint64(past.seed))
    places = sample(past.index, node.cpu().numpy(), time.cpu().numpy(), k, draw)
    columns = entries_at(past.index, places.reshape(-1))
    nodes, event, times, outgoing = (as_tensor(column).view(len(node), k).to(node.device) for column in columns)
    return Neighbors(nodes, event, times, outgoing, mask=event != NULL)


@compiled
def sample(index: Index, node_ids: Ints, query_time: Floats, k: int, draw: Draw) -> Ints:
    """Places of k entries before each time, entry i weighing exp(e_i / (e_1 + ... + e_i)); -1 without history.

    # [Q, k]
    """
    weight_sums = np.empty(longest_block(index), np.float64)
    time_bits = query_time.view(np.uint64)
    places = np.full((len(node_ids), k), -1, np.int64)
    for q in range(len(node_ids)):
        first, stop = history(index, node_ids[q], query_time[q])
        if stop == first:
            continue
        ratio, total = 0.0, 0.0  # (e_1 + ... + e_i) / e_i, and the running sum of weights
        for place in range(first, stop):
            gap = index.time[place] - index.time[place - 1] if place > first else 0.0
            ratio = 1.0 + ratio * np.exp(-draw.rate * gap)
            total += np.exp(1.0 / ratio)
            weight_sums[place - first] = total
        for j in range(k):
            chance = hashed_uniform(draw.seed, node_ids[q], time_bits[q], j)
            places[q, j] = first + pick(weight_sums, stop - first, chance)
        places[q].sort()
    return places
