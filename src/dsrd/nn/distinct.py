"""Equal (node, time) pairs of a call, to be computed once."""

from __future__ import annotations

import torch
from torch import Tensor


def distinct(node: Tensor, time: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Each (node, time) pair once, and for every row the position of its pair among them.

    >>> node, time, where = distinct(torch.tensor([4, 2, 4]), torch.tensor([1.0, 1.0, 1.0]))
    >>> node.tolist(), time.tolist(), where.tolist()
    ([2, 4], [1.0, 1.0], [1, 0, 1])
    """
    times, time_index = torch.unique(time, return_inverse=True)
    pair = node * len(times) + time_index
    pairs, where = torch.unique(pair, return_inverse=True)
    return pairs.div(len(times), rounding_mode="floor"), times[pairs % len(times)], where
