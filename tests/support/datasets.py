"""Data sets compared entry by entry."""

from __future__ import annotations

import numpy as np
import torch

from dsrd.data.dataset import Dataset


def assert_same_events(one: Dataset, other: Dataset) -> None:
    """Equal events, edge features and labels."""
    for a, b in zip(one.events.numpy(), other.events.numpy(), strict=True):
        np.testing.assert_array_equal(a, b, strict=True)
    torch.testing.assert_close(one.edge_x, other.edge_x, rtol=0, atol=0)
    assert (one.label is None) == (other.label is None)
    if one.label is not None:
        torch.testing.assert_close(one.label, other.label, rtol=0, atol=0)
    assert one.bipartite == other.bipartite
