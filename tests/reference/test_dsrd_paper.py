"""The paper's equations event by event, in plain loops: the specification of the preset `paper`."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import gelu, layer_norm

from dsrd.data.dataset import Dataset
from dsrd.events import Events, Query
from dsrd.history.past import Past
from dsrd.models import GraphSpec, create, model_class, settings
from dsrd.models.dsrd import dense
from dsrd.models.dsrd.steps import Steps, in_pieces, retained, weighted_rows

Interaction = tuple[int, int, float]  # (partner, event, time)


def stream(seed: int, events: int = 36, nodes: int = 6, features: bool = True) -> Dataset:
    """Repeated timestamps, self-loops, nodes that appear late or never."""
    generator = torch.Generator().manual_seed(seed)
    high = torch.linspace(3, nodes, events).long()
    src, dst = (torch.randint(0, 1 << 20, (events,), generator=generator) % high + 1 for _ in range(2))
    dst = torch.where(torch.arange(events) % 9 == 0, src, dst)
    time = torch.randint(0, 20, (events,), generator=generator).sort().values.double()
    if not features:
        return Dataset.from_arrays("toy", src, dst, time)
    edge_x, node_x = (torch.randn(rows, 2, generator=generator) for rows in (events + 1, nodes + 3))
    edge_x[0], node_x[0] = 0, 0
    return Dataset.from_arrays("toy", src, dst, time, edge_x=edge_x, node_x=node_x)


def make_model(data: Dataset, **changes: Any) -> Any:
    cls = model_class("dsrd")
    torch.manual_seed(1)
    values = {**cls.card.small, "dim": 4, "time_dim": 3, "neighbors": 4, **changes}
    spec = GraphSpec(num_nodes=data.num_nodes, node_dim=data.node_dim, edge_dim=data.edge_dim)
    model = create("dsrd", spec, settings("dsrd", "toy", "paper", values))
    for name, parameter in model.named_parameters():  # nothing at a special value
        special = "norm" in name or "raw" in name or not parameter.any()
        parameter.data += 0.3 * torch.randn(parameter.shape) if special else 0
    return model.double().eval()


def signed_log(features: Tensor) -> Tensor:
    return torch.tensor([math.copysign(math.log1p(abs(x)), x) for x in features.tolist()]).double()


class LiteralDSRD:
    """State in a dictionary, one event at a time; every line is an equation."""

    def __init__(self, model: Any, data: Dataset) -> None:
        self.model, self.body, self.data = model, model.body, data
        self.layers, self.heads = list(model.body.layers), model.config.heads
        self.size = model.config.dim // self.heads
        self.rows = list(zip(*(column.tolist() for column in data.events.numpy()), strict=True))
        self.state: dict[tuple[int, int, int], Tensor] = {}  # (node, layer, head) -> S
        self.before, self.moment, self.seen = self.state, -math.inf, 0

    def x(self, node: int) -> Tensor:
        inputs = self.body.inputs
        return (
            inputs.bias if inputs.node is None else inputs.node(signed_log(self.data.node_x[node])) + inputs.bias
        )

    def window(self, node: int, t: float, k: int) -> list[Interaction]:
        """The last k interactions of a node strictly before t, either role."""
        earlier: list[Interaction] = []
        for src, dst, time, event in self.rows:
            if time < t:
                earlier += [(dst, event, time)] * (src == node) + [(src, event, time)] * (dst == node)
        return earlier[max(len(earlier) - k, 0) :]

    def part(self, vector: Tensor, head: int) -> Tensor:
        return vector[head * self.size : (head + 1) * self.size]

    def keys_and_values(self, layer: Any, head: int, t: float, window: list[Interaction]) -> list[Any]:
        inputs, parts = self.body.inputs, []
        for partner, event, time in window:
            phi = torch.cos((t - time) * inputs.log_rate.exp())
            if inputs.edge is not None:
                phi = phi + inputs.edge(signed_log(self.data.edge_x[event]))
            fused = inputs.mix(phi)
            key = layer.key(self.x(partner)) + layer.key(fused)
            value = layer.value(self.x(partner)) + layer.value(fused)
            parts.append((self.part(key, head), self.part(value, head), math.log1p(t - time)))
        return parts

    def injection(self, layer: Any, head: int, query: Tensor, t: float, window: list[Interaction]) -> Tensor:
        lam, alpha = (layer.decays()[name][head] for name in ("lambda", "alpha"))
        parts = self.keys_and_values(layer, head, t, window)
        omega = []
        for key, _, x in parts:
            decay = 1.0 if self.model.config.ablate == "no_temporal_decay" else torch.exp(-lam * x**alpha)
            omega.append(torch.sigmoid(query @ key / (query.norm() * key.norm())) * decay)
        total = sum(omega, torch.zeros(())).clamp(min=1)
        delta = torch.zeros(self.size, self.size).double()
        for weight, (key, value, _) in zip(omega, parts, strict=True):
            delta = delta + weight / total * torch.outer(key, value)
        return delta

    def gamma(self, layer: Any, head: int) -> Tensor:
        gamma: Tensor = layer.decays()["gamma"][head]
        return 0 * gamma if self.model.config.ablate == "no_state" else gamma

    def block(self, layer: Any, x: Tensor, out: list[Tensor]) -> Tensor:
        def norm(of: Any, value: Tensor) -> Tensor:
            return layer_norm(value, value.shape, of.weight, of.bias, of.eps)

        z = x + norm(layer.block.norm_out, torch.cat(out))
        first, _, second = layer.block.feed
        return z + gelu(norm(layer.block.norm_in, z) @ first.weight.T) @ second.weight.T

    def fuse(self, node: int, t: float, window: list[Interaction]) -> tuple[dict[tuple[int, int], Tensor], Tensor]:
        """Retention and readout, layer by layer: S by layer and head, and h."""
        x, fused = self.x(node), {}
        for depth, layer in enumerate(self.layers):
            out = []
            for head in range(self.heads):
                query, gamma = self.part(layer.query(x), head), self.gamma(layer, head)
                delta = self.injection(layer, head, query, t, window)
                fused[depth, head] = gamma * self.matrix(node, depth, head) + (1 - gamma) * delta
                out.append(query @ fused[depth, head] / math.sqrt(self.size))
            if depth + 1 < len(self.layers):
                x = self.block(layer, x, out)
        return fused, torch.stack(out).mean(0)

    def matrix(self, node: int, depth: int, head: int) -> Tensor:
        return self.state.get((node, depth, head), torch.zeros(self.size, self.size).double())

    def step(self, node: int, t: float, event: Interaction) -> None:
        """Retention, then diffusion from the top layer down, from the states before the timestamp."""
        window = [*self.window(node, t, self.model.config.neighbors - 1), event]
        fused, _ = self.fuse(node, t, window)
        for depth in range(len(self.layers) - 1, -1, -1):
            for head in range(self.heads):
                after = fused[depth, head]
                if depth and self.model.config.ablate != "no_diffusion":
                    delta = self.layers[depth].decays()["delta"][head]
                    psi = [torch.exp(-(depth + 1) * delta * math.log1p(t - time)) for _, _, time in window]
                    for weight, (partner, _, _) in zip(psi, window, strict=True):
                        met = self.before.get((partner, depth - 1, head), torch.zeros_like(after))
                        after = after + weight / sum(psi).clamp(min=1) * met
                self.state[node, depth, head] = after

    def observe(self, upto: float) -> None:
        """Observe every event before a time."""
        while self.seen < len(self.rows) and self.rows[self.seen][2] < upto:
            src, dst, time, event = self.rows[self.seen]
            if time > self.moment:
                self.before, self.moment = dict(self.state), time
            for node, partner in {(src, dst), (dst, src)}:
                self.step(node, time, (partner, event, time))
            self.seen += 1

    def score(self, src: int, dst: int, t: float) -> Tensor:
        self.observe(t)
        ends = [self.fuse(node, t, self.window(node, t, self.model.config.neighbors))[1] for node in (src, dst)]
        return self.model.partner(torch.cat(ends))[0]


def past_of(data: Dataset) -> Past:
    return Past(data.events, edge_x=data.edge_x, node_x=data.node_x)


def questions(data: Dataset) -> Query:
    """Pairs that met and others, at times of events, between them and after; nodes without events."""
    rows = data.events[1::5]
    query = Query.cat(rows.query(), Query(rows.src, rows.dst.flip(0), rows.time + 0.5))
    return Query.cat(query, Query(torch.tensor([1, 8]), torch.tensor([8, 7]), torch.tensor([19.5, 30.0]).double()))


def expected_scores(model: Any, data: Dataset, query: Query) -> Tensor:
    literal, order = LiteralDSRD(model, data), torch.argsort(query.time)
    pairs = zip(*(column[order].tolist() for column in (query.src, query.dst, query.time)), strict=True)
    return torch.stack([literal.score(src, dst, t) for src, dst, t in pairs])[torch.argsort(order)]


@pytest.mark.parametrize(("seed", "layers", "features"), [(0, 2, True), (1, 3, True), (2, 2, False)])
def test_values_and_gradients(seed: int, layers: int, features: bool) -> None:
    """From an empty state, with every event unobserved."""
    data = stream(seed, features=features)
    model, query = make_model(data, layers=layers), questions(data)
    result = model.score(query, past_of(data).during(data.events))
    expected = expected_scores(model, data, query)
    assert torch.allclose(result, expected, atol=1e-6)
    weights = dict(model.named_parameters())
    gradients, expected_gradients = (
        torch.autograd.grad(logits.square().sum(), list(weights.values())) for logits in (result, expected)
    )
    for name, one, other in zip(weights, gradients, expected_gradients, strict=True):
        assert torch.allclose(one, other, atol=1e-5, rtol=1e-5), name
        assert one.any(), name


@pytest.mark.parametrize("at_once", [1, 3, 500])
@pytest.mark.parametrize("pieces", [(20,), (7, 22, 30), tuple(range(1, 36))])
def test_values_from_a_state_that_has_observed_some_events(
    pieces: tuple[int, ...], at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Observed in pieces that end between timestamps; `observe` cuts them again."""
    monkeypatch.setattr(dense, "EVENTS_AT_ONCE", at_once)
    data = stream(3)
    model, query, past = make_model(data), questions(data), past_of(data)
    times, at = data.events.time, 0
    for end in pieces:
        if times[end] > times[end - 1]:
            model.observe(data.events[at:end], past)
            at = end
    query = query[query.time >= times[at]]
    before = model.state.snapshot()["matrix"]
    with torch.no_grad():
        result = model.score(query, past.during(data.events[at:]))
    assert torch.equal(before, model.state["matrix"])
    assert torch.allclose(result, expected_scores(model, data, query), atol=1e-6)
    literal = LiteralDSRD(model, data)
    literal.observe(float(times[at]))
    for (node, depth, head), matrix in literal.state.items():
        assert torch.allclose(before[node, depth, head], matrix, atol=1e-6)


@pytest.mark.parametrize("ablate", ["no_temporal_decay", "no_diffusion", "no_state"])
def test_ablations(ablate: str) -> None:
    data = stream(4)
    whole, part, query = make_model(data), make_model(data, ablate=ablate), questions(data)
    past = past_of(data).during(data.events)
    result = part.score(query, past)
    assert torch.allclose(result, expected_scores(part, data, query), atol=1e-6)
    assert not torch.allclose(result, whole.score(query, past), atol=1e-4)
    result.sum().backward()
    decays = part.body.layers[1].decays
    unused = {
        "no_temporal_decay": [decays.raw_lambda, decays.raw_alpha],
        "no_diffusion": [decays.raw_delta],
        "no_state": [decays.raw_gamma, decays.raw_delta],
    }[ablate]
    assert all(weight.grad is None or not weight.grad.any() for weight in unused)


def test_without_the_block_a_node_is_its_features() -> None:
    data = stream(5)
    model = make_model(data, ablate="no_block")
    model.observe(data.events[:20], past_of(data))
    result = model.embed(torch.tensor([1, 2]), data.events.time[-2:], past_of(data))
    literal = LiteralDSRD(model, data)
    assert torch.allclose(result, torch.stack([literal.x(node).view(2, 2).mean(0) for node in (1, 2)]))
    assert model.learned() == {}


def test_learned_constants_by_layer_and_head() -> None:
    learned = make_model(stream(0), heads=2).learned()
    assert list(learned) == ["layer_1", "layer_2"]
    assert set(learned["layer_1"]) == {"lambda", "alpha", "gamma"}  # the first layer has no diffusion
    assert set(learned["layer_2"]) == {"lambda", "alpha", "gamma", "delta"}
    assert all(len(values) == 2 for layer in learned.values() for values in layer.values())


def test_steps_are_sorted_by_node_and_found_by_time() -> None:
    events = Events.from_numpy([1, 2, 3, 1], [2, 2, 1, 2], [0.0, 1.0, 1.0, 2.0])
    steps = Steps.of(events)
    assert steps.node.tolist() == [1, 1, 1, 2, 2, 2, 3]
    assert steps.partner.tolist() == [2, 3, 2, 1, 2, 1, 1]
    assert steps.event.tolist() == [1, 3, 4, 1, 2, 4, 3]
    assert steps.position.tolist() == [0, 1, 2, 0, 1, 2, 0]
    assert steps.last().tolist() == [2, 5, 6]
    node, time = torch.tensor([1, 1, 1, 3, 3, 9, 0]), torch.tensor([0.0, 1.0, 9.0, 1.0, 1.5, 9.0, 9.0]).double()
    assert steps.latest(node, time).tolist() == [-1, 0, 2, -1, 6, -1, -1]


@pytest.mark.parametrize("size", [1, 3, 100])
def test_pieces_cut_no_timestamp_and_parts_no_node(size: int) -> None:
    data = stream(6)
    pieces = list(in_pieces(data.events, size))
    times = [torch.cat([part.time for part in parts]).unique() for parts in pieces]
    assert torch.equal(torch.cat(times), data.events.time.unique())
    events = [torch.cat([part.event for part in parts]).unique() for parts in pieces]
    assert torch.equal(torch.cat(events), data.events.id)
    for parts, moments in zip(pieces, times, strict=True):
        nodes = torch.cat([part.node.unique() for part in parts])
        assert len(nodes) == len(nodes.unique())
        assert len(parts) == 1 or len(moments) == 1
        assert len(moments) == 1 or sum(map(len, parts)) <= 2 * size
    assert max(map(len, pieces)) > 1 or size > 1


@pytest.mark.parametrize("lengths", [[1], [5, 1, 2], [3, 9, 1, 1, 4], []])
def test_closed_form_is_the_recurrence(lengths: list[int]) -> None:
    """Proposition 1, along several chains at once; values and gradients."""
    position = torch.cat([torch.arange(length) for length in [*lengths, 0]])
    increment = torch.randn(len(position), 2, 3, 3, dtype=torch.float64, requires_grad=True)
    gamma = torch.tensor([0.3, 0.9], dtype=torch.float64, requires_grad=True)
    result = retained(increment, gamma.view(-1, 1, 1), position)
    expected, state = [], torch.zeros(2, 3, 3).double()
    for row, place in enumerate(position.tolist()):
        state = increment[row] + (gamma.view(-1, 1, 1) * state if place else 0)
        expected.append(state)
    twin = torch.stack(expected) if expected else increment
    assert torch.allclose(result, twin)
    if lengths:
        pairs = zip(
            *(
                torch.autograd.grad(v.square().sum(), [increment, gamma], allow_unused=True)
                for v in (result, twin)
            ),
            strict=True,
        )
        assert all(one is other is None or torch.allclose(one, other) for one, other in pairs)


def test_weighted_rows_sums_rows_head_by_head() -> None:
    table = torch.randn(5, 2, 3, 3, dtype=torch.float64, requires_grad=True)
    row, weight = torch.randint(0, 5, (4, 6)), torch.randn(4, 2, 6, dtype=torch.float64, requires_grad=True)
    result, twin = weighted_rows(table, row, weight), torch.einsum("ehk,ekhij->ehij", weight, table[row])
    assert torch.allclose(result, twin)
    gradients, expected_gradients = (
        torch.autograd.grad(v.square().sum(), [table, weight]) for v in (result, twin)
    )
    assert all(torch.allclose(one, other) for one, other in zip(gradients, expected_gradients, strict=True))
