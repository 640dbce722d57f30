"""Scores of one source with many targets at one time: the network of `walk_body`, with all shared that can be.

Per source: its window and tokens' ages, its first vector, its loaded partners, its activity. Per node in the
windows of the targets: its read with the source. Per target: its read with the source and with each distinct
partner of the source. No gradients, no dropout, main memory; other calls go through `Walks.represent`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from dsrd.events import NULL, Query, as_tensor
from dsrd.history.past import Past
from dsrd.models.dsrd import first_features, one_source, one_source_layers, walk_queries
from dsrd.models.dsrd.first_features import Guess
from dsrd.models.dsrd.mixed_reads import Block, Mixture, mixture_of
from dsrd.models.dsrd.one_source import Asked, ManyReading
from dsrd.models.dsrd.one_source_layers import Ages, Fading, Norms, Tokens, Window
from dsrd.models.dsrd.overlay import Queries
from dsrd.models.dsrd.retention import Decays, signed_log
from dsrd.models.dsrd.row_functions import gelu_row
from dsrd.models.dsrd.walk_body import Walks
from dsrd.models.dsrd.walk_layer import WalkLayer
from dsrd.models.dsrd.walk_queries import COUNTS, MEETINGS, PRODUCTS, Pending, Reading, View
from dsrd.models.dsrd.walk_state import ACT_KINDS, Singles
from dsrd.models.dsrd.windows import WINDOW
from dsrd.state import State

READ_AT_ONCE = 2_048  # targets whose windows share what is read with the source
COMPUTED_AT_ONCE = 1024

Array = NDArray[Any]


class Question(NamedTuple):
    """One source at one time."""

    source: int
    time: float
    past: Past
    state: State

    def alone(self, target: int) -> tuple[Tensor, Tensor, Tensor]:
        """The columns of a query of the source with this target."""
        return torch.tensor([self.source]), torch.tensor([target]), torch.tensor([self.time], dtype=torch.float64)


class Decayed(NamedTuple):
    """Weights of one side's events at each layer."""

    decay: list[Singles]  # [C or 1, H, k] per layer
    psi: list[Singles]  # likewise


class Shared(NamedTuple):
    """What all targets share."""

    size: int  # events in the source's window
    base: Tensor  # [1, k, dim]: of its tokens
    weights: Decayed
    place: NDArray[np.int64]  # [k]
    start: Tensor  # [1, dim]: of the source, before the first layer
    node: Tensor  # [1, node]


class Head(NamedTuple):
    """The input of the partner head, and the first guess."""

    features: Tensor  # [C, width]
    guess: Tensor  # [C]


class ManyTargets:
    """The weights of a body, arranged for one source and many targets; for one call."""

    def __init__(self, body: Walks) -> None:
        self.body, self.config = body, body.config
        self.kernels = body.reads.kernels()
        self.layers = [layer for layer in body.layers if isinstance(layer, WalkLayer)]
        self.heads = self.config.heads
        age = body.age
        steps = torch.exp(-2 * age.step).numpy()
        self.ages = Ages(np.float32(body.tick), age.rate.detach().numpy(), age.phase.detach().numpy(), steps)
        self.fading = [_fading(layer.decays) for layer in self.layers]
        rest = MEETINGS
        self.of_pair = [
            mixture_of([Block(PRODUCTS, walks), Block(COUNTS, counts)], rest) for walks, counts in self.kernels
        ]
        self.of_node = [
            mixture_of([Block(2, walks), Block(ACT_KINDS, counts)], 0) for walks, counts in self.kernels
        ]
        widths = (self.config.time_dim, body.reads.pair_dim, WINDOW)
        rest_dim = body.token.in_features - sum(widths)
        parts = torch.split(body.token.weight.detach(), [*widths, rest_dim], dim=1)
        self.of_time, self.of_read, of_counts, self.of_event = (part.t() for part in parts)
        self.of_counts = of_counts.contiguous().numpy()
        gamma = [layer.decays.gate().detach() for layer in self.layers]  # [H]
        self.diffuse = [
            layer.diffuse.detach() * g[:, None, None] for layer, g in zip(self.layers, gamma, strict=True)
        ]
        size = self.config.dim // self.heads
        self.retain = [
            (layer.retain.weight.detach().t() * each, layer.retain.bias.detach() * each)
            for layer, each in zip(self.layers, (g.repeat_interleave(size) for g in gamma), strict=True)
        ]
        self.value = [
            layer.value.detach() * (1 - g)[:, None, None] / self.config.dim**0.5
            for layer, g in zip(self.layers, gamma, strict=True)
        ]

    # --- Reading -------------------------------------------------------------------------------------------------

    def represent(self, asked: Question, targets: Tensor) -> Iterator[Head]:
        """The partner head's input for the targets, piece by piece."""
        place = np.full((2, len(asked.past.index.start)), -1, np.int32)
        for piece in torch.split(targets, READ_AT_ONCE):
            reading, sizes = self._read(asked, piece.numpy(), place)
            shared = self._shared(asked, reading, sizes)
            met = self._mixed(reading.met, self.of_pair[0])
            spread = [
                torch.cat([met @ each for each in diffuse], dim=1).numpy() for diffuse in self.diffuse
            ]  # [rows, dim]
            of_met = (met @ self.of_read).numpy()
            for rows in _slices(len(piece), COMPUTED_AT_ONCE):
                yield self._chunk(asked, piece[rows], _rows(reading, rows), (shared, of_met, spread))

    def _read(
        self, asked: Question, targets: NDArray[np.int64], place: NDArray[np.int32]
    ) -> tuple[ManyReading, tuple[int, int]]:
        body, k, count = self.body, self.config.neighbors, len(targets)
        widths = (len(body.rate), len(body.fine))
        pair, node = walk_queries.pair_width(*widths), walk_queries.node_width(*widths)
        singles = np.float32
        out = ManyReading(
            source_node=np.empty(node, singles),
            source_age=np.empty(k, singles),
            source_event=np.empty(k, np.int64),
            source_place=np.zeros(k, np.int32),
            node=np.empty((count, node), singles),
            age=np.empty((count, k), singles),
            event=np.empty((count, k), np.int64),
            place=np.zeros((count, k), np.int32),
            size=np.empty(count, np.int64),
            counts=np.empty((2, count, k, WINDOW), singles),
            loaded=np.empty((1 + k, count, pair), singles),
            met=np.empty((count * k, pair), singles),
        )
        view, pending = _view(body, asked)
        question = Asked(asked.source, asked.time, targets, place)
        size, partners, met = one_source.read_many(view, pending, asked.past.index, question, out)
        return out._replace(loaded=out.loaded[: 1 + partners], met=out.met[:met]), (size, partners)

    def _mixed(self, values: Singles, mixture: Mixture) -> Tensor:
        """log(1 + reads).  # [n, grid] -> [n, out]"""
        out = np.empty((len(values), len(mixture.low)), np.float32)
        weight = np.stack([mixture.low_weight, mixture.high_weight])
        one_source_layers.read_rows(values, mixture.low, mixture.high, weight, out)
        return torch.from_numpy(out)

    def _nodes(self, asked: Question, node: Tensor, grid: Singles) -> Tensor:
        """Reads of nodes, and how the features of their events compare.  # [n], [n, grid] -> [n, node]"""
        reads = [self._mixed(grid, mixture) for mixture in self.of_node]
        if self.body.content is not None:
            time = torch.full(node.shape, asked.time, dtype=torch.float64)
            decay = self.body._decay().rate
            compared = self.body.content.read(Query(node, node, time), asked.past, asked.state, decay)[0]
            reads.append(signed_log(compared))
        return torch.cat(reads, dim=1)

    # --- Ages ----------------------------------------------------------------------------------------------------

    def _log_ages(self, age: Singles) -> Singles:
        x = np.empty_like(age)
        one_source_layers.log_ages(age.reshape(-1), self.ages.tick, x.reshape(-1))
        return x

    def _features(self, x: Singles) -> Tensor:
        """Features of ages.  # [...] -> [..., time]"""
        out = np.empty((*x.shape, self.config.time_dim), np.float32)
        one_source_layers.age_rows(x.reshape(-1), self.ages, out.reshape(-1, self.config.time_dim))
        return torch.from_numpy(out)

    def _decayed(self, x: Singles, size: NDArray[np.int64]) -> Decayed:
        shape, decayed = (len(x), self.heads, x.shape[1]), Decayed([], [])
        for fading in self.fading:
            decay, psi = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
            one_source_layers.fade_all(x, size, fading, decay, psi)
            decayed.decay.append(decay)
            decayed.psi.append(psi)
        return decayed

    def _base(self, x: Singles, event: NDArray[np.int64], past: Past) -> Tensor:
        """Tokens before what is read and counted.  # [C, k] -> [C, k, dim]"""
        base = torch.addmm(self.body.token.bias.detach(), self._features(x).flatten(0, 1), self.of_time)
        if len(self.of_event):
            base += signed_log(past.edge_x(as_tensor(event).flatten())) @ self.of_event
        return base.view(*x.shape, -1)

    def _start(self, x: Singles, size: Tensor, node: Tensor, ids: Tensor, past: Past) -> Tensor:
        """h before the first layer.  # [C, k], [C], [C, node], [C] -> [C, dim]"""
        has_history = (size > 0).float().unsqueeze(1)
        age = self._features(np.ascontiguousarray(x[:, 0])) * has_history
        known = signed_log(past.node_x(ids))
        parts = [age, has_history, size.float().log1p().unsqueeze(1), node, known]
        start: Tensor = self.body.start(torch.cat(parts, dim=1))
        return start

    def _shared(self, asked: Question, reading: ManyReading, sizes: tuple[int, int]) -> Shared:
        source, size = torch.tensor([asked.source]), np.array([sizes[0]])
        x = self._log_ages(reading.source_age[None])  # [1, k]
        node = self._nodes(asked, source, reading.source_node[None])
        return Shared(
            sizes[0],
            self._base(x, reading.source_event[None], asked.past),
            self._decayed(x, size),
            reading.source_place.astype(np.int64),
            self._start(x, as_tensor(size), node, source, asked.past),
            node,
        )

    # --- Layers --------------------------------------------------------------------------------------------------

    def _chunk(
        self, asked: Question, targets: Tensor, reading: ManyReading, known: tuple[Shared, Singles, list[Singles]]
    ) -> Head:
        (shared, of_met, spread), count = known, len(targets)
        x = self._log_ages(reading.age)
        node = self._nodes(asked, targets, reading.node)
        pair, partner = reading.loaded[0], reading.loaded[1:]
        s = [self._mixed(pair, mixture) for mixture in self.of_pair]
        z = self._mixed(partner.reshape(-1, pair.shape[1]), self.of_pair[0])  # [d count, pair]
        row = shared.place[None] * count + np.arange(count)[:, None]  # [count, k]
        size = np.full(count, shared.size)
        weights = self._decayed(x, reading.size)
        base = self._base(x, reading.event, asked.past)
        sides = (
            self._tokens((shared.base, (z @ self.of_read).numpy(), row), reading.counts[0], size),
            self._tokens((base, of_met, reading.place.astype(np.int64)), reading.counts[1], reading.size),
        )
        start = self._start(x, as_tensor(reading.size), node, targets, asked.past)
        h = torch.cat([shared.start.expand(count, -1), start])  # [2 count, dim]
        for depth, layer in enumerate(self.layers):
            retained = torch.addmm(self.retain[depth][1], s[depth], self.retain[depth][0])  # [count, dim]
            out = torch.cat([retained, retained])
            out[:count] += self._spread(shared, z.view(-1, count, z.shape[1]), depth)
            place = reading.place.astype(np.int64)
            one_source_layers.diffuse(weights.psi[depth], reading.size, place, spread[depth], out[count:].numpy())
            windows = [
                side._replace(decay=each.decay[depth])
                for side, each in zip(sides, (shared.weights, weights), strict=True)
            ]
            out += self._injected(layer, depth, h, windows)
            self._block(layer, h, out)
        guess = self._guess(reading, shared)
        features = [h[:count], h[count:], *s, shared.node.expand(count, -1), node, guess.unsqueeze(1)]
        return Head(torch.cat(features, dim=1), guess)

    def _tokens(
        self, parts: tuple[Tensor, Singles, NDArray[np.int64]], counts: Singles, size: NDArray[np.int64]
    ) -> Window:
        base, of_read, row = parts
        counted = np.log1p(counts)
        made = Tokens(base.numpy(), of_read, row, counted, self.of_counts, size)
        k, count = row.shape[1], len(row)
        token, square = np.empty((count, k, self.config.dim), np.float32), np.empty((count, k), np.float32)
        window = Window(token, square, np.empty((1, 1, 1), np.float32), size)
        one_source_layers.fill_tokens(made, window)
        return window

    def _spread(self, shared: Shared, z: Tensor, depth: int) -> Tensor:
        """sum_i psi_i z_i of the source's window, projected.  # [d, C, pair] -> [C, dim]"""
        psi = torch.zeros(self.heads, len(z))
        events = as_tensor(shared.place[: shared.size])
        psi.index_add_(1, events, as_tensor(shared.weights.psi[depth][0, :, : shared.size]))
        summed = (psi @ z.flatten(1)).view(self.heads, *z.shape[1:])  # [H, C, pair]
        spread: Tensor = torch.bmm(summed, self.diffuse[depth]).transpose(0, 1).flatten(1)
        return spread

    def _injected(self, layer: WalkLayer, depth: int, h: Tensor, windows: Sequence[Window]) -> Tensor:
        """The injection of both sides.  # [2 C, dim] -> [2 C, dim]"""
        query = layer.query(h).view(2, -1, self.heads, h.shape[1]).numpy()  # [2, C, H, dim]
        summed = np.empty((2, self.heads, query.shape[1], h.shape[1]), np.float32)
        for side, window in enumerate(windows):
            one_source_layers.inject(query[side], window, summed[side])
        injected: Tensor = torch.from_numpy(summed) @ self.value[depth]  # [2, H, C, dim / H]
        return injected.transpose(1, 2).reshape(len(h), -1)

    def _block(self, layer: WalkLayer, h: Tensor, out: Tensor) -> None:
        """The block around a layer, in place in h.  # [R, dim] twice"""
        block = layer.block
        one_source_layers.residual(h.numpy(), out.numpy(), _norms(block.norm_out, block.norm_in))
        first, _, second = block.feed
        hidden = first(out)
        gelu_row(hidden.view(-1).numpy())
        h += second(hidden)

    def _guess(self, reading: ManyReading, shared: Shared) -> Tensor:
        """log(D p0) of each target.  # [C]"""
        pair = reading.loaded[0]
        count, latest = len(pair), np.zeros_like(pair)
        if shared.size:
            latest[:] = reading.loaded[1 + shared.place[0]]
        asked = Reading[Tensor](
            tokens=torch.from_numpy(latest).view(1, count, 1, -1),
            age=torch.empty(0),
            event=torch.empty(0),
            pair=torch.from_numpy(pair),
            node=torch.from_numpy(reading.source_node).expand(1, count, -1),
        )
        body = self.body
        guess: Tensor = body.memory(*body.reads.remembered(asked), body.num_targets)
        return guess


def _view(body: Walks, asked: Question) -> tuple[View, Pending]:
    alone = Queries(np.array([[asked.source], [NULL]]), np.array([asked.time]), np.zeros(1, np.int64))
    return body._view(alone, asked.past, asked.state)


@torch.no_grad()
def cheap_features(body: Walks, asked: Question, targets: Sequence[Tensor]) -> tuple[Tensor, Iterator[Tensor]]:
    """What the first score reads; see `TemporalModel.first_features`."""
    view, pending = _view(body, asked)
    first_features.advance(view, pending, asked.time)
    question = Asked(asked.source, asked.time, np.empty(0, np.int64), np.empty((2, 0), np.int32))
    uniform, weight = (each.detach().numpy() for each in body.memory.weights())
    guess = Guess(uniform[0], weight, np.float32(body.num_targets))
    source = first_features.summary_of(view, asked.past.index, question, body.config.neighbors)
    width = first_features.feature_width(len(body.fine))

    def features() -> Iterator[Tensor]:
        for piece in targets:
            out = np.empty((len(piece), width), np.float32)
            first_features.write_features(view, source, question._replace(targets=piece.numpy()), guess, out)
            yield torch.from_numpy(out)

    return torch.from_numpy(source.alone).log1p(), features()


def _fading(decays: Decays) -> Fading:
    learned = {name: value.detach().numpy() for name, value in decays().items()}
    return Fading(learned["lambda"], learned["alpha"], np.float32(decays.depth) * learned["delta"])


def _norms(*norms: nn.LayerNorm) -> Norms:
    scale = np.stack([norm.weight.detach().numpy() for norm in norms])
    shift = np.stack([norm.bias.detach().numpy() for norm in norms])
    return Norms(scale, shift, np.float32(norms[0].eps))


def _slices(length: int, size: int) -> Iterator[slice]:
    yield from (slice(start, min(start + size, length)) for start in range(0, length, size))


def _rows(reading: ManyReading, rows: slice) -> ManyReading:
    """The reading of some of the targets."""
    return reading._replace(
        node=reading.node[rows],
        age=reading.age[rows],
        event=reading.event[rows],
        place=reading.place[rows],
        size=reading.size[rows],
        counts=reading.counts[:, rows],
        loaded=np.ascontiguousarray(reading.loaded[:, rows]),
    )
