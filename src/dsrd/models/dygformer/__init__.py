"""DyGFormer: a transformer over both endpoints' histories, with counts of the partners they share.

Yu, Sun, Du, Lv: Towards Better Dynamic Graph Learning: New Architecture and Unified Library, NeurIPS 2023.

For a pair (u, v) at time t, S_u is u itself followed by its last interactions, oldest first, in patches of p:

    node, edge, time channel = [ x(w_i) || .. ] W_n,  [ x(e_i) || .. ] W_e,  [ cos(w (t - t_i) + b) || .. ] W_t
    shared channel           = [ f(count of w_i in S_u) + f(count of w_i in S_v) || .. ] W_s,    f a small net
    H                        = transformer( tokens of S_u, then tokens of S_v ), channels side by side
    h_u, h_v                 = (mean of H over u's tokens) W,  (mean over v's tokens) W

Fidelity
--------
* Patches without any interaction are left out. The public code pads both sides to the longest history *of the
  call*, attends to the padding and averages over it, so a score depends on the other pairs of the call. It scores
  events and negatives in two calls, so the amount of padding can tell which is which (on CanParl it does: 100 % of
  the batches). The default equals the public code asked about one pair at a time.
  `padding="call"` pads to the longest history of *this* call, per side, as the public code does. Here events and
  negatives are scored in one call, so it reproduces the published scores, and the leak, only if the two are scored
  apart; where every batch has a history of full length (uci, enron, wikipedia) there is no difference.
* A partly filled patch is padded with zeros, which count as appearing nowhere: as published.
* The public code rounds the times of interactions to float32 before it takes differences, so on clocks of
  seconds since 1970 ages are off by up to a minute, the node's own included; here differences are float64.
* The node channel is a constant where there are no node features (all published rows): kept, as published.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from dsrd.errors import DsrdError
from dsrd.events import NULL, Query, as_tensor
from dsrd.history.past import Past
from dsrd.models.base import GraphSpec, PairEncoder
from dsrd.models.card import ModelCard
from dsrd.models.dygformer.block import PreNormBlock
from dsrd.models.dygformer.cooccurrence import SequencePairs, appearances
from dsrd.nn.distinct import distinct
from dsrd.nn.linear import BlockLinear
from dsrd.nn.products import Linear
from dsrd.nn.ragged import Layout, spans
from dsrd.nn.time import CosineTime
from dsrd.ranges import Chance, Heads, Layers, LinksOrNone, Width, WidthOrNone

CHANNELS = 4  # node, edge, time, shared partners


@dataclass(frozen=True, kw_only=True)
class DyGFormerConfig:
    length: LinksOrNone = 32  # entries read per endpoint, itself included
    patch: int = 1  # entries per token
    layers: Layers = 2
    heads: Heads = 2
    channel_dim: Width = 50  # width of each of the four channels
    dim: Width = 172  # width of embeddings; features are padded to it
    time_dim: WidthOrNone = 100  # cosines per age
    padding: Literal["none", "call"] = "none"  # see Fidelity
    dropout: Chance = 0.1

    def check(self) -> None:
        if self.length < 2 or self.patch < 1 or self.length % self.patch:
            raise DsrdError(
                f"model.length={self.length}, model.patch={self.patch}: "
                "give a length of 2 or more that the patch divides"
            )


@dataclass(frozen=True)
class Sequences:
    """A node and its last interactions, oldest first, zeros behind; each (node, time) of a call once."""

    node: Tensor  # [S, W] int64
    event: Tensor  # [S, W] int64
    age: Tensor  # [S, W] float64
    length: Tensor  # [S] entries in use


class DyGFormer(PairEncoder):
    """Both histories through one transformer, with counts of shared partners; keeps no state."""

    Config = DyGFormerConfig
    card = ModelCard(
        paper="Yu et al., NeurIPS 2023",
        reads="recent links of both endpoints, and whom they share",
        cost="long histories, 2 transformer layers over both",
        small={
            "length": 6,
            "patch": 2,
            "channel_dim": 4,
            "dim": 16,
            "time_dim": 8,
            "dropout": 0.0,
        },
    )

    def __init__(self, config: DyGFormerConfig, graph: GraphSpec) -> None:
        dim, channel = max(config.dim, graph.edge_dim, graph.node_dim), config.channel_dim
        super().__init__(config, graph, out_dim=dim)
        self.time = CosineTime(config.time_dim)
        self.count = nn.Sequential(nn.Linear(1, channel), nn.ReLU(), nn.Linear(channel, channel))
        self.node_channel, self.edge_channel = (BlockLinear([dim] * config.patch, channel) for _ in range(2))
        self.time_channel = Linear(config.patch * config.time_dim, channel)
        self.shared_channel = Linear(config.patch * channel, channel)
        self.blocks = nn.ModuleList(
            PreNormBlock(CHANNELS * channel, config.heads, config.dropout) for _ in range(config.layers)
        )
        self.out = nn.Linear(CHANNELS * channel, dim)

    @property
    def links_read(self) -> int:
        return int(self.config.length)

    def ends(self, query: Query, past: Past) -> tuple[Tensor, Tensor]:
        node, time = torch.stack([query.src, query.dst], dim=1), query.time.unsqueeze(1).expand(-1, 2)  # [Q, 2]
        node, time, where = distinct(node.reshape(-1), time.reshape(-1))
        ends = where.view(-1, 2)  # [Q, 2]
        read = self._sequences(node, time, past)
        patches = (read.length + self.config.patch - 1).div(self.config.patch, rounding_mode="floor")  # [S]
        shown = patches[ends]  # [Q, 2] tokens per pair and side
        if self.config.padding == "call" and len(query):
            shown = shown.amax(dim=0).expand_as(shown)
        order = shown.sum(dim=1).argsort()  # pairs of similar length are attended to together
        ends, shown = ends[order], shown[order]
        whole = Layout(shown.sum(dim=1))
        x = torch.cat(
            [self._feature_channels(read, patches, ends, shown, past), self._shared_channel(read, ends, shown)],
            dim=-1,
        )
        for block in self.blocks[:-1]:
            x = block(x, whole)
        last = self.blocks[-1]
        assert isinstance(last, PreNormBlock)
        pooled = last.pooled(x, whole, Layout(shown.reshape(-1)).pool(x.dtype))
        src, dst = self.out(pooled).view(len(query), 2, -1)[order.argsort()].unbind(1)
        return src, dst

    def _sequences(self, node: Tensor, time: Tensor, past: Past) -> Sequences:
        k, patch = self.config.length - 1, self.config.patch
        links = past.recent(node, time, k)
        count = links.mask.sum(dim=1)  # [S]
        longest = int(count.max()) + 1 if len(count) else 1
        column = torch.arange(-(-longest // patch) * patch, device=node.device)  # [W]
        used = (column > 0) & (column <= count.unsqueeze(1))  # [S, W]
        at = (column + (k - 1 - count).unsqueeze(1)).clamp(
            0, k - 1
        )  # its position in the look-up, which is padded in front
        partner, event = (torch.where(used, part.gather(1, at), NULL) for part in (links.node, links.event))
        partner[:, 0] = node
        age = torch.where(used, time.unsqueeze(1) - links.time.gather(1, at), 0.0)
        return Sequences(partner, event, age, count + 1)

    def _feature_channels(
        self, read: Sequences, patches: Tensor, ends: Tensor, shown: Tensor, past: Past
    ) -> Tensor:
        """Node, edge and time channels of all tokens, computed once per (node, time).  # [T, 3 * channel]"""
        patch, device = self.config.patch, ends.device
        column = torch.arange(read.node.shape[1], device=device)
        started = column[::patch] < read.length.unsqueeze(1)  # [S, W / patch]

        def packed(part: Tensor) -> Tensor:  # [S, W] -> [N + 1, patch], the last one empty
            return nn.functional.pad(part.view(len(part), -1, patch)[started], (0, 0, 0, 1))

        used = packed(column < read.length.unsqueeze(1))
        node, edge = past.node_x(packed(read.node)), past.edge_x(packed(read.event))  # [N + 1, patch, features]
        age = self.time(packed(read.age)) * used.unsqueeze(-1)  # [N + 1, patch, time_dim]
        channels = torch.cat(
            [
                self.node_channel(*node.unbind(1)),
                self.edge_channel(*edge.unbind(1)),
                self.time_channel(age.flatten(1)),
            ],
            dim=-1,
        )
        first = (patches.cumsum(0) - patches)[ends].view(-1)  # [2Q]
        token = spans(first, shown.reshape(-1))
        end = torch.repeat_interleave(first + patches[ends].view(-1), shown.reshape(-1))
        return channels.index_select(0, torch.where(token < end, token, len(channels) - 1))

    def _shared_channel(self, read: Sequences, ends: Tensor, shown: Tensor) -> Tensor:
        """The channel of shared partners; the net is applied once to each distinct count.  # [T, channel]"""
        entries = shown.reshape(-1) * self.config.patch
        begin = (entries.cumsum(0) - entries).view(-1, 2)
        pairs = SequencePairs(*(part.cpu().numpy() for part in (read.node, read.length, ends, begin)))
        count = as_tensor(appearances(pairs, int(entries.sum()))).to(ends.device)  # [.., 2]
        value = torch.arange(int(count.max()) + 1 if len(count) else 1, device=ends.device)
        net = self.count(value.to(self.out.weight.dtype).unsqueeze(1))  # [values, channel]
        both = nn.functional.embedding_bag(count, net, mode="sum")  # [T * patch, channel]
        shared: Tensor = self.shared_channel(both.view(int(shown.sum()), -1))
        return shared
