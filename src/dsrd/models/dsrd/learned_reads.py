"""State reads at learned decay rates: from readings at all rates of the grid to what the network gets.

Each layer has a time constant per head (`kernels`). Ablations remove here what the network may know.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from dsrd.models.dsrd.kernels import Kernels, half_lives, mixtures
from dsrd.models.dsrd.mixed_reads import Block, mixed_reads
from dsrd.models.dsrd.retention import six_digits
from dsrd.models.dsrd.settings import DSRDConfig
from dsrd.models.dsrd.walk_products import PRODUCTS
from dsrd.models.dsrd.walk_queries import (
    BACK,
    COUNTS,
    EVENTS,
    FOLLOWS,
    FORTH,
    MEETINGS,
    Reading,
    node_width,
    pair_width,
)
from dsrd.models.dsrd.walk_state import ACT_KINDS, RECEIVED, SENT
from dsrd.models.dsrd.windows import RANK


class LearnedReads(nn.Module):
    """Reads pairs and nodes at the learned rates of every layer, log(1 + .)."""

    def __init__(self, config: DSRDConfig) -> None:
        super().__init__()
        self.ablate = config.ablate
        self.walks, self.counts = len(config.scales), len(config.count_scales)  # rates of either grid
        self.one_grid = config.scales == config.count_scales
        self.layers = nn.ModuleList(Kernels(config) for _ in range(config.layers))
        self.pair_dim = pair_width(config.heads, config.heads)  # of one layer's read of a pair
        self.node_dim = node_width(config.heads, config.heads) * config.layers  # of all layers' reads of a node
        self.walk_scales: Tensor
        self.register_buffer("walk_scales", torch.tensor(config.scales).log(), persistent=False)
        self.count_scales: Tensor
        self.register_buffer("count_scales", torch.tensor(config.count_scales).log(), persistent=False)

    def kernels(self) -> list[tuple[Tensor, Tensor]]:
        """Per layer, the weights of the grid's rates in the heads' kernels: of walks, of counts."""
        places = self.count_scales if self.counts > 1 else self.walk_scales
        layers = self._layers()
        raw, fixed = torch.stack([layer.raw_place for layer in layers]), layers[0].fixed  # [L, H]
        counts = mixtures(raw, self.count_scales, places, fixed).unbind()
        walks = counts if self.one_grid else mixtures(raw, self.walk_scales, places, fixed).unbind()
        return list(zip(walks, counts, strict=True))

    def pair(self, grid: Tensor, kernels: list[tuple[Tensor, Tensor]]) -> Tensor:
        """Reads of pairs by the kernels of some layers, no other columns.  # [..., grid] -> [..., L * pair_dim]"""
        blocks = [Block(*each) for kernel in kernels for each in zip((PRODUCTS, COUNTS), kernel, strict=True)]
        return mixed_reads(grid, blocks, rest=MEETINGS, layers=len(kernels))

    def nodes(self, grid: Tensor, kernels: list[tuple[Tensor, Tensor]]) -> Tensor:
        """Reads of nodes by the kernels of all layers.  # [..., grid] -> [..., node_dim]"""
        blocks = [Block(*each) for kernel in kernels for each in zip((2, ACT_KINDS), kernel, strict=True)]
        return mixed_reads(grid, blocks, layers=len(kernels))

    def remembered(self, reading: Reading[Tensor]) -> tuple[Tensor, Tensor]:
        """Counts of each pair by kind of memory, and their totals over all targets.  # [Q, kinds, rates] twice"""
        start, shape = PRODUCTS * self.walks, (self.counts, COUNTS)
        counts = slice(start, start + COUNTS * self.counts)
        pair = reading.pair[:, counts].reshape(-1, *shape)  # [Q, rates, COUNTS]
        first, stop = reading.first[: len(pair)], reading.first[1 : len(pair) + 1]
        newest = torch.where(stop > first, torch.cat([reading.which, first[:1]])[first], 0)  # [Q] of each source
        latest = reading.partner[newest, counts].reshape(-1, *shape)
        acts = reading.node[0, :, 2 * self.walks :].reshape(-1, self.counts, ACT_KINDS)
        count = torch.stack([pair[..., FORTH], pair[..., BACK], latest[..., FOLLOWS]], dim=1)
        return count, torch.stack([acts[..., SENT], acts[..., RECEIVED], latest[..., EVENTS]], dim=1)

    def ablated(self, reading: Reading[Tensor]) -> Reading[Tensor]:
        """The reading without what an ablation takes away."""
        partner, pair, node = reading.partner, reading.pair, self.ablated_nodes(reading.node)
        counts = reading.counts
        if self.ablate == "no_state":
            partner, pair = torch.zeros_like(partner), torch.zeros_like(pair)
        if self.ablate == "no_diffusion":  # nothing reaches a pair along walks of two steps
            products = PRODUCTS * self.walks
            partner, pair = torch.zeros_like(partner), without(pair, slice(0, products))
            pair = without(pair, slice(products + FOLLOWS, -MEETINGS, COUNTS))
        if self.ablate in ("no_temporal_decay", "no_age_features"):  # nor the order of events
            counts = without(counts, slice(RANK, RANK + 1))
        return reading._replace(partner=partner, counts=counts, pair=pair, node=node)

    def ablated_nodes(self, node: Tensor) -> Tensor:
        """The same for reads of nodes: all of them, or the lengths of their walks of two steps.  # [..., grid]"""
        unread = {"no_state": slice(None), "no_diffusion": slice(1, 2 * self.walks, 2)}.get(self.ablate)
        return node if unread is None else without(node, unread)

    def ablated_content(self, content: Tensor) -> Tensor:
        """The same for the features of a node's events.  # [..., rates * d]"""
        faster = content.shape[-1] // self.walks * (self.walks - 1)
        unread = {"no_state": content.shape[-1], "no_temporal_decay": faster}.get(self.ablate, 0)
        return without(content, slice(0, unread)) if unread else content

    def learned(self, num_events: float) -> dict[str, Any]:
        """Half-lives of the kernels by layer and head, in events, given the number of training events."""
        scales = self.count_scales.exp() * num_events
        lives = [six_digits(half_lives(counts, scales)) for _, counts in self.kernels()]
        return {} if self.ablate in ("no_state", "no_temporal_decay") else {"half_life_in_events": lives}

    def _layers(self) -> list[Kernels]:
        return [layer for layer in self.layers if isinstance(layer, Kernels)]


def without(values: Tensor, columns: slice) -> Tensor:
    """A copy with zeros in these columns.  # [..., n]"""
    values = values.clone()
    values[..., columns] = 0
    return values
