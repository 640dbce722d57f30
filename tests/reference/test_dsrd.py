"""DSRD as its equations read, pair by pair and event by event: the specification of the fast model."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import gelu

from dsrd.config import overridden
from dsrd.data.dataset import Dataset
from dsrd.events import Query
from dsrd.history.past import Past
from dsrd.models import GraphSpec, create, model_class
from dsrd.models.dsrd.memory import FADED
from dsrd.models.dsrd.walk_body import LATEST
from dsrd.negatives.sampling import TrainingNegatives
from reference.test_levels import compared
from reference.test_walks import COUNT_SCALES, FINE, RATES, SCALES, WIDTH, NaiveState

GRIDS = ("scales", "count_scales")


def stream(events: int = 50, nodes: int = 7) -> Dataset:
    """Repeated timestamps, self-loops, nodes that come late."""
    generator = torch.Generator().manual_seed(3)
    src = torch.randint(1, nodes, (events,), generator=generator)
    dst = torch.where(torch.arange(events) % 9 == 0, src, torch.randint(1, nodes, (events,), generator=generator))
    time = torch.randint(0, 30, (events,), generator=generator).sort().values.double()
    edge_x, node_x = (
        torch.randn(events + 1, 2, generator=generator),
        torch.randn(nodes + 3, 1, generator=generator),
    )
    edge_x[0], node_x[0] = 0, 0
    return Dataset.from_arrays("toy", src, dst, time, edge_x=edge_x, node_x=node_x)


def make_model(data: Dataset, whole_moments: bool = False, **settings: Any) -> Any:
    cls = model_class("dsrd")
    torch.manual_seed(1)
    values = {
        **cls.card.small,
        "code_dim": WIDTH,
        "neighbors": 5,
        "scales": SCALES,
        "count_scales": COUNT_SCALES,
        **settings,
    }
    spec = GraphSpec(
        num_nodes=data.num_nodes, node_dim=data.node_dim, edge_dim=data.edge_dim, whole_moments=whole_moments
    )
    model = create("dsrd", spec, overridden(cls.Config(), values))
    model.body.rate, model.body.fine = (1 / torch.tensor(values[name]).double() for name in GRIDS)
    model.body.num_targets = torch.tensor(6.0)
    for name, parameter in model.named_parameters():  # nothing at a special value
        special = "norm" in name or "raw" in name or not parameter.any()
        parameter.data += 0.1 * torch.randn(parameter.shape) if special else 0
    return model.eval()


def signed_log(x: Tensor) -> Tensor:
    return torch.where(x < 0, -torch.log(1 - x), torch.log(1 + x))


class NaiveDSRD:
    """Reads the state from its definition, then follows the equations with one loop per sum."""

    def __init__(self, model: Any, data: Dataset) -> None:
        self.model, self.body, self.data, self.k = model, model.body, data, model.config.neighbors
        self.layers = range(model.config.layers)
        self.rows = list(zip(*(column.tolist() for column in data.events.numpy()), strict=True))
        self.state = NaiveState([row[:3] for row in self.rows], model.graph.whole_moments)

    def window(self, node: int, t: float, k: int) -> list[tuple[int, int, float, float]]:
        """(partner, event, age, outgoing) of the latest events, newest first."""
        events = []
        for src, dst, time, id in self.rows:
            if time < t:
                events += [(dst, id, t - time, 1.0)] * (src == node) + [(src, id, t - time, 0.0)] * (dst == node)
        return events[::-1][:k]

    def time(self, age: float) -> Tensor:
        x = torch.tensor(math.log1p(age))
        part = self.body.age
        return torch.cat([torch.cos(x * part.rate + part.phase), torch.tanh(x - part.step)])

    def kernel(self, layer: int, head: int, scales: tuple[float, ...]) -> list[Tensor]:
        """The weights of the grid in a head's kernel: of the two scales next to its own, by their logarithms."""
        share = torch.sigmoid(self.body.reads.layers[layer].raw_place[head])
        first, last = math.log(COUNT_SCALES[0]), math.log(COUNT_SCALES[-1])
        wanted = first + share * (last - first)
        weights = [torch.zeros(()) for _ in scales]
        for i, (low, high) in enumerate(pairwise(map(math.log, scales))):
            if low <= wanted < high:
                weights[i], weights[i + 1] = (high - wanted) / (high - low), (wanted - low) / (high - low)
        return weights

    def mixed(self, layer: int, values: list[float], scales: tuple[float, ...]) -> Tensor:
        """Readings on a grid, the same channels for every scale, at the rate of each head."""
        channels, out = len(values) // len(scales), []
        for head in range(self.model.config.heads):
            weights = self.kernel(layer, head, scales)
            for channel in range(channels):
                at_rates = [max(value, 0.0) for value in values[channel::channels]]
                out.append(sum(w * value for w, value in zip(weights, at_rates, strict=True)))
        return torch.stack(out)

    def read(self, layer: int, a: int, b: int, t: float) -> Tensor:
        values = self.state.pair(a, b, t)
        products, counts, meetings = values[: 6 * len(RATES)], values[6 * len(RATES) : -2], values[-2:]
        parts = [self.mixed(layer, products, SCALES), self.mixed(layer, counts, COUNT_SCALES)]
        return torch.cat([*parts, torch.tensor(meetings)]).log1p()

    def node(self, node: int, t: float) -> Tensor:
        values, parts = self.state.node(node, t), []
        for layer in self.layers:
            parts.append(self.mixed(layer, values[: 2 * len(RATES)], SCALES))
            parts.append(self.mixed(layer, values[2 * len(RATES) :], COUNT_SCALES))
        x = signed_log(self.data.edge_x[1:]).double().numpy()
        content = signed_log(torch.tensor(compared(self.state, x, node, t), dtype=torch.float32))
        return torch.cat([torch.cat(parts).log1p(), content])

    def guess(self, src: int, dst: int, t: float) -> Tensor:
        """log(D p0): the uniform target, then what the source repeats, replies to and goes on to."""
        events, now, memory = self.state.before(t), self.state.now(t), self.body.memory
        power = [torch.exp(memory.raw_uniform[0]), torch.exp(memory.raw_kinds)]
        everything = power[0] + power[1].sum()
        latest = self.window(src, t, 1)
        total = power[0] / everything
        for g, rate in enumerate(FINE):
            sent, received = ([e for e in events if e[role] == src] for role in (0, 1))
            kinds = [
                ([time for _, end, time in sent if end == dst], [time for _, _, time in sent]),
                ([time for end, _, time in received if end == dst], [time for _, _, time in received]),
            ]
            if latest:
                w = latest[0][0]
                of_w = [time for a, b, time in events for end in (a, b) if end == w]
                kinds.append((self.state.follow(w, dst, events), of_w))
            for kind, times in enumerate(kinds):
                count, among = (self.state.decayed(each, rate, now) for each in times)
                share = min(count / (among + FADED), 1)
                total = total + power[1][kind, g] / everything * share * self.body.num_targets
        return torch.log(total)

    def embed(self, node: int, other: int, t: float) -> Tensor:
        window, across = self.window(node, t, self.k), self.window(other, t, self.k)
        partners, other_partners = [w for w, *_ in window], [w for w, *_ in across]
        z = [self.read(0, w, other, t) for w in partners]
        tokens = []
        for i, (w, event, age, outgoing) in enumerate(window):
            across_at_time = sum(met == w and then == age for met, _, then, _ in across)
            at_time = sum(then == age for _, _, then, _ in window)
            counts = [partners.count(w), other_partners.count(w), across_at_time, at_time]
            compared = [float(w == other), *counts, i / self.k, outgoing]
            parts = [self.time(age), z[i], torch.tensor(compared).log1p(), signed_log(self.data.edge_x[event])]
            tokens.append(gelu(self.body.token(torch.cat(parts))))
        has_history = torch.tensor([float(bool(window))])
        last = self.time(window[0][2]) if window else torch.zeros(self.model.config.time_dim)
        length = torch.tensor([math.log1p(len(window))])
        h = self.body.start(
            torch.cat([last, has_history, length, self.node(node, t), signed_log(self.data.node_x[node])])
        )
        x = [math.log1p(age) for _, _, age, _ in window]
        for depth, layer in enumerate(self.body.layers):
            h = self.block(layer, h, tokens, z, self.read(depth, *self.ordered(node, other), t), x)
        return h

    def ordered(self, node: int, other: int) -> tuple[int, int]:
        """Both endpoints use the state read of the queried pair, source first."""
        return (node, other) if (node, other) == self.queried else (other, node)

    def block(
        self, layer: Any, h: Tensor, tokens: list[Tensor], z: list[Tensor], s: Tensor, x: list[float]
    ) -> Tensor:
        learned, width, heads, block = layer.decays(), h.shape[0], layer.heads, layer.block
        out = []
        for head in range(heads):
            lam, alpha, gamma, delta = (learned[name][head] for name in ("lambda", "alpha", "gamma", "delta"))
            q = layer.query(h).view(heads, width)[head]
            omega = [
                torch.sigmoid(q @ k / (q.norm() * k.norm())) * torch.exp(-lam * torch.tensor(xi) ** alpha)
                for k, xi in zip(tokens, x, strict=True)
            ]
            psi = [torch.exp(-layer.decays.depth * delta * xi) for xi in x]
            injection, diffused = torch.zeros(width), torch.zeros(s.shape[0])
            for i, k in enumerate(tokens):
                injection = injection + omega[i] / sum(omega).clamp(min=1) * (q @ k / math.sqrt(width)) * k
                diffused = diffused + psi[i] / sum(psi).clamp(min=1) * z[i]
            share = slice(head * width // heads, (head + 1) * width // heads)
            retained = layer.retain(s)[share] + diffused @ layer.diffuse[head]
            out.append(gamma * retained + (1 - gamma) * injection @ layer.value[head])
        h = h + block.norm_out(torch.cat(out))
        result: Tensor = h + block.feed(block.norm_in(h))
        return result

    def score(self, src: int, dst: int, t: float, head: str) -> Tensor:
        self.queried = (src, dst)
        parts = [self.embed(src, dst, t), self.embed(dst, src, t)]
        parts += [self.read(layer, src, dst, t) for layer in self.layers]
        guess = self.guess(src, dst, t)
        partner = guess + self.model.partner(
            torch.cat([*parts, self.node(src, t), self.node(dst, t), guess[None]])
        )
        return partner[0] + (self.activity(src, t) if head == "pair" else 0)

    def activity(self, src: int, t: float) -> Tensor:
        latest = self.window(src, t, LATEST)
        x, exists, outgoing = torch.zeros(3, LATEST)
        for i, (_, _, age, sent) in enumerate(latest):
            x[i], exists[i], outgoing[i] = math.log1p(age), 1, sent
        known = [self.node(src, t), signed_log(self.data.node_x[src])]
        return self.model.source(torch.cat([*known, x, exists, outgoing]))[0]


@pytest.mark.parametrize("head", ["partner", "pair"])
@pytest.mark.parametrize("observed", [0, 30])
@pytest.mark.parametrize("whole_moments", [False, True])
def test_values_and_gradients(head: str, observed: int, whole_moments: bool) -> None:
    """From an empty state with every event unobserved, and from a state that has observed most of them."""
    data = stream()
    times = data.events.time.tolist()
    while observed and times[observed - 1] == times[observed]:
        observed += 1
    model = make_model(data, whole_moments)
    past = Past(data.events, edge_x=data.edge_x, node_x=data.node_x)
    model.observe(data.events[:observed], past)
    rows = data.events[max(observed, 1) :: 4]
    query = Query.cat(rows.query(), Query(rows.src, rows.dst.flip(0), rows.time))
    query = Query.cat(
        query, Query(torch.tensor([1, 9]), torch.tensor([9, 8]), torch.tensor([29.5, 31.0]).double())
    )
    result = model.score(query, past.during(data.events[observed:]), head)
    naive = NaiveDSRD(model, data)
    pairs = zip(query.src.tolist(), query.dst.tolist(), query.time.tolist(), strict=True)
    expected = torch.stack([naive.score(src, dst, t, head) for src, dst, t in pairs])
    assert torch.allclose(result, expected, atol=1e-4)
    weights = dict(model.named_parameters())
    gradients, expected_gradients = (
        torch.autograd.grad(logits.square().sum(), list(weights.values()), allow_unused=True)
        for logits in (result, expected)
    )
    for name, one, other in zip(weights, gradients, expected_gradients, strict=True):
        assert (one is None) == (other is None), name
        assert one is None or torch.allclose(one, other, atol=2e-3, rtol=2e-3), name


@pytest.mark.parametrize("observed", [0, 30])
def test_embeddings(observed: int) -> None:
    """h with the NULL node as partner, the node's activity, and the directions of its slowest walks."""
    data = stream()
    times = data.events.time.tolist()
    while observed and times[observed - 1] == times[observed]:
        observed += 1
    model, past = make_model(data), Past(data.events, edge_x=data.edge_x, node_x=data.node_x)
    model.observe(data.events[:observed], past)
    before = model.state.snapshot()
    node, time = torch.tensor([1, 4, 9, 4]), torch.tensor([40.0, 29.5, 40.0, 31.0]).double()
    result = model.embed(node, time, past.during(data.events[observed:]))
    assert all(torch.equal(before[name], model.state[name]) for name in before)
    naive = NaiveDSRD(model, data)
    for row, (u, t) in enumerate(zip(node.tolist(), time.tolist(), strict=True)):
        naive.queried = (u, 0)
        known, now, slow = naive.state.before(t), naive.state.now(t), min(RATES)
        walks = [torch.tensor(step(u, now, slow, known)) for step in (naive.state.step1, naive.state.step2)]
        directions = [walk / (walk.norm() or 1.0) for walk in walks]
        expected = torch.cat([naive.embed(u, 0, t), naive.node(u, t), *directions]).float()
        assert torch.allclose(result[row], expected, atol=1e-3)


@pytest.mark.parametrize("unit", [1e-6, 86_400.0])
def test_the_unit_of_time_does_not_matter(unit: float) -> None:
    scores = []
    for scale in (1.0, unit):
        data = stream()
        events = replace(data.events, time=data.events.time * scale)
        model = make_model(data)
        model.calibrate(events)
        past = Past(events, edge_x=data.edge_x, node_x=data.node_x)
        model.observe(events[:30], past)
        scores.append(model.score(events[30:].query(), past.during(events[30:])))
    assert torch.allclose(*scores, atol=1e-4)
    assert scores[0].std() > 1e-3


def test_training_multiplies_all_ages_by_one_random_factor() -> None:
    """A training batch is scored like a stream whose times are all multiplied by one factor."""
    data = stream()
    model = make_model(data, stretch=1.0)
    query = Query(data.events.src[20:], data.events.dst[20:].flip(0), data.events.time[20:])
    past = Past(data.events, edge_x=data.edge_x, node_x=data.node_x).during(data.events)
    unstretched = model.score(query, past)
    torch.manual_seed(7)
    factor = math.exp(torch.randn(()).item())
    assert abs(math.log(factor)) > 0.1
    slower = replace(data.events, time=data.events.time * factor)
    expected = model.score(
        replace(query, time=query.time * factor),
        Past(slower, edge_x=data.edge_x, node_x=data.node_x).during(slower),
    )
    model.train()
    torch.manual_seed(7)
    result = model.score(query, past)
    assert torch.allclose(result, expected, atol=1e-5)
    assert not torch.allclose(result, unstretched, atol=1e-3)


def test_the_loss_tells_events_from_noise_of_a_known_law() -> None:
    """Partner and activity, each with the logit log p - log n: what tells events from noise best."""
    data = stream(events=90, nodes=20)
    start = int((data.events.time < data.events.time[20]).sum())  # a timestamp's first event
    batch, negatives = data.events[start : start + 30], TrainingNegatives(data.events, seed=4)
    past = Past(data.events, edge_x=data.edge_x, node_x=data.node_x).during(batch)
    model = make_model(data)
    model.observe(data.events[:start], past)
    drawn = negatives.state()
    result = model.loss(batch, negatives, past)
    negatives.restore(drawn)
    random, met, sources = negatives.sample(batch), negatives.met(batch), negatives.sources(batch)
    assert len(met)
    assert len(sources) == 2 * len(batch)

    earlier = list(zip(data.events.src[:start].tolist(), data.events.dst[:start].tolist(), strict=True))
    num_sources, num_targets = len(set(data.events.src.tolist())), len(set(data.events.dst.tolist()))

    def target_noise(u: int, v: int) -> float:
        partners = {dst for src, dst in earlier if src == u}
        return 1 + num_targets / 2 * (v in partners) / max(len(partners), 1)

    def source_noise(u: int) -> float:
        return 1 + num_sources * sum(src == u for src, _ in earlier) / start

    def surprise(logit: Tensor, noise: float, happened: bool) -> Tensor:
        chance = torch.exp(logit) / (torch.exp(logit) + noise)  # of being an event
        return -torch.log(chance if happened else 1 - chance)

    partner, activity = [], []
    for query in (batch.query(), random, met):
        for u, v, logit in zip(query.src.tolist(), query.dst.tolist(), model.score(query, past), strict=True):
            partner.append(surprise(logit, target_noise(u, v), len(partner) < len(batch)))
    for query in (batch.query(), sources):
        for u, logit in zip(query.src.tolist(), model.activity(query, past), strict=True):
            activity.append(surprise(logit, source_noise(u), len(activity) < len(batch)))
    expected = torch.stack(partner).mean() + torch.stack(activity).mean()
    assert torch.allclose(result, expected, atol=1e-5)
    weights = list(model.parameters())
    gradients, expected_gradients = (
        torch.autograd.grad(loss, weights, allow_unused=True) for loss in (result, expected)
    )
    for one, other in zip(gradients, expected_gradients, strict=True):
        assert torch.allclose(one, other, atol=1e-5, rtol=1e-3)
