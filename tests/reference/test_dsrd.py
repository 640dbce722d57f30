"""DSRD as its equations read, pair by pair and event by event: the specification of the fast model."""

from __future__ import annotations

import math
from dataclasses import replace
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
from dsrd.negatives.sampling import TrainingNegatives
from reference.test_levels import compared
from reference.test_walks import FINE, RATES, WIDTH, NaiveState


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
        "neighbors": 4,
        "scales": RATES,
        "count_scales": FINE,
        **settings,
    }
    spec = GraphSpec(
        num_nodes=data.num_nodes, node_dim=data.node_dim, edge_dim=data.edge_dim, whole_moments=whole_moments
    )
    model = create("dsrd", spec, overridden(cls.Config(), values))
    model.body.rate = torch.tensor(RATES, dtype=torch.float64)
    model.body.fine = torch.tensor(FINE, dtype=torch.float64)
    for name, parameter in model.named_parameters():  # nothing at a special value
        parameter.data += 0.1 * torch.randn(parameter.shape) if "norm" in name or "raw" in name else 0
    return model.eval()


def signed_log(x: Tensor) -> Tensor:
    return torch.where(x < 0, -torch.log(1 - x), torch.log(1 + x))


class NaiveDSRD:
    """Reads the state from its definition, then follows the equations with one loop per sum."""

    def __init__(self, model: Any, data: Dataset) -> None:
        self.model, self.body, self.data, self.k = model, model.body, data, model.config.neighbors
        self.rows = list(zip(*(column.tolist() for column in data.events.numpy()), strict=True))
        self.state = NaiveState([row[:3] for row in self.rows], model.graph.whole_moments)

    def window(self, node: int, t: float) -> list[tuple[int, int, float, float]]:
        """(partner, event, age, outgoing) of the latest events, newest first."""
        events = []
        for src, dst, time, id in self.rows:
            if time < t:
                events += [(dst, id, t - time, 1.0)] * (src == node) + [(src, id, t - time, 0.0)] * (dst == node)
        return events[::-1][: self.k]

    def time(self, age: float) -> Tensor:
        x = torch.tensor(math.log1p(age))
        part = self.body.age
        return torch.cat([torch.cos(x * part.rate + part.phase), torch.tanh(x - part.step)])

    def read(self, a: int, b: int, t: float) -> Tensor:
        return torch.tensor(self.state.pair(a, b, t), dtype=torch.float32).clamp(min=0).log1p()

    def activity(self, node: int, t: float) -> Tensor:
        counts = torch.tensor(self.state.node(node, t), dtype=torch.float32).clamp(min=0).log1p()
        x = signed_log(self.data.edge_x[1:]).double().numpy()
        return torch.cat([counts, signed_log(torch.tensor(compared(self.state, x, node, t), dtype=torch.float32))])

    def embed(self, node: int, other: int, t: float) -> Tensor:
        window, across = self.window(node, t), self.window(other, t)
        partners, other_partners = [w for w, *_ in window], [w for w, *_ in across]
        z = [self.read(w, other, t) for w in partners]
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
            torch.cat([last, has_history, length, self.activity(node, t), signed_log(self.data.node_x[node])])
        )
        x = [math.log1p(age) for _, _, age, _ in window]
        for layer in self.body.layers:
            h = self.block(layer, h, tokens, z, self.read(*self.ordered(node, other), t), x)
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
        parts = [self.embed(src, dst, t), self.embed(dst, src, t), self.read(src, dst, t)]
        features = torch.cat([*parts, self.activity(src, t), self.activity(dst, t)])
        partner = self.model.partner(features)[0]
        return partner if head == "partner" else partner.detach() + self.model.activity(features)[0]


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
        expected = torch.cat([naive.embed(u, 0, t), naive.activity(u, t), *directions]).float()
        assert torch.allclose(result[row], expected, atol=1e-3)


@pytest.mark.parametrize("ablate", ["no_block", "no_temporal_decay", "no_diffusion", "no_state"])
def test_an_ablation_removes_its_part_and_no_gradient_reaches_it(ablate: str) -> None:
    data = stream()
    past = Past(data.events, edge_x=data.edge_x, node_x=data.node_x)
    whole, part = make_model(data), make_model(data, ablate=ablate)
    query = data.events[20:].query()
    for model in (whole, part):
        model.observe(data.events[:20], past)
    assert not torch.allclose(whole.score(query, past), part.score(query, past), atol=1e-3)
    part.zero_grad()
    part.score(query, past).sum().backward()
    layer = part.body.layers[0]
    decays = layer.decays
    unused = {
        "no_block": [decays.raw_lambda, decays.raw_gamma, decays.raw_delta, layer.value],
        "no_temporal_decay": [decays.raw_lambda, decays.raw_alpha],
        "no_diffusion": [decays.raw_delta, layer.diffuse],
        "no_state": [decays.raw_gamma, decays.raw_delta, layer.retain.weight],
    }[ablate]
    assert all(weight.grad is None or not weight.grad.any() for weight in unused)
    if ablate == "no_state":
        before_reset = part.score(query, past)
        part.state.reset()
        assert torch.equal(before_reset, part.score(query, past))


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


@pytest.mark.parametrize(("pair_random", "pair_unmet"), [(0.25, 0.25), (0.25, 1.0), (0.5, 0.0), (0.0, 0.25)])
def test_the_loss_is_the_sum_of_both_heads_losses(pair_random: float, pair_unmet: float) -> None:
    """Partner: events against random targets. Pair: a weighted mean in which random targets weigh less, and those
    without any event even less; the weights are not normalised again."""
    data = stream(events=90, nodes=20)
    start = int((data.events.time < data.events.time[20]).sum())  # a timestamp's first event
    batch, negatives = data.events[start : start + 30], TrainingNegatives(data.events, seed=4)
    past = Past(data.events, edge_x=data.edge_x, node_x=data.node_x).during(batch)
    model = make_model(data, pair_random=pair_random, pair_unmet=pair_unmet)
    model.observe(data.events[:start], past)
    drawn = negatives.state()
    result = model.loss(batch, negatives, past)
    negatives.restore(drawn)
    earlier, random = negatives.earlier(batch, len(batch) // 2), negatives.sample(batch)
    assert len(earlier)

    def surprise(head: str, query: Query, happened: bool) -> Tensor:
        logits = model.score(query, past, head)
        return -torch.log(torch.sigmoid(logits if happened else -logits))

    partner = torch.cat([surprise("partner", batch.query(), True), surprise("partner", random, False)])
    happened, stopped = surprise("pair", batch.query(), True).sum(), surprise("pair", earlier, False).sum()
    met = [
        bool((((data.events.src == node) | (data.events.dst == node)) & (data.events.time < time)).any())
        for node, time in zip(random.dst, random.time, strict=True)
    ]
    assert 0 < sum(met) < len(met)
    counted = pair_random * torch.tensor([1.0 if known else pair_unmet for known in met])
    weights = len(batch) + len(earlier) + pair_random * len(batch)
    pair = (happened + stopped + (counted * surprise("pair", random, False)).sum()) / weights
    assert torch.allclose(result, partner.mean() + pair, atol=1e-5)
