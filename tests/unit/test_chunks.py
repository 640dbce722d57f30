"""A batch trained in chunks has the loss and gradient of the whole batch."""

from __future__ import annotations

from functools import cached_property

import pytest
import torch

from conformance.conftest import build, make_stream
from dsrd.data.dataset import Dataset
from dsrd.errors import DsrdError
from dsrd.events import Events, Query
from dsrd.history.past import Past
from dsrd.models import GraphSpec, TemporalModel, create, model_class, settings
from dsrd.negatives.noise import Noise
from dsrd.negatives.sampling import TrainingNegatives
from dsrd.train.loop import backward_in_chunks
from support.random_heads import with_random_heads


class FixedNegatives(TrainingNegatives):
    """Negatives that depend on the event alone, not on its batch; some have unseen nodes. So does their law."""

    def sample(self, batch: Events) -> Query:
        return Query(batch.src, 1 + (batch.id * 11) % 37, batch.time)

    def met(self, batch: Events) -> Query:
        even = batch[(batch.id % 2 == 0).nonzero().squeeze(1)]
        return Query(even.src, 1 + (even.id * 3) % 29, even.time)

    def sources(self, batch: Events) -> Query:
        return Query(1 + (batch.id * 5) % 29, torch.zeros_like(batch.dst), batch.time)

    @cached_property
    def noise(self) -> Noise:
        return NoiseFrom200(self._pool)


class NoiseFrom200(Noise):
    """The law at the start of the whole batch."""

    def start(self, batch: Events) -> int:
        return 200


def model_of(stream: Dataset, precision: str) -> TemporalModel:
    torch.manual_seed(0)
    spec = GraphSpec(num_nodes=stream.num_nodes, node_dim=stream.node_dim, edge_dim=stream.edge_dim)
    small = {**model_class("dsrd").card.small, "precision": precision}
    model = create("dsrd", spec, settings("dsrd", stream.name, "default", small))
    model.calibrate(stream.events[:200])
    return with_random_heads(model)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("moments", [100_000, 40])  # nearly all times distinct; timestamps longer than a chunk
def test_chunks_give_the_loss_and_gradient_of_the_whole(moments: int, precision: str) -> None:
    stream = make_stream(moments=moments)
    past = Past(stream.events, edge_x=stream.edge_x, node_x=stream.node_x)
    batch, negatives = stream.events[200:280], FixedNegatives(stream.events, 0)
    if moments == 40:
        batch = Events(batch.src, batch.dst, torch.full_like(batch.time, float(batch.time[-1])), batch.id)
    results = []
    for size in (4, len(batch)):
        model = model_of(stream, precision)
        model.observe(stream.events[:200], past)
        if size == len(batch):
            loss = model.loss(batch, negatives, past.during(batch))
            loss.backward()
            model.observe(batch, past)
            total = loss.item()
        else:
            total = backward_in_chunks(model, batch, negatives, past, size)
        results.append((total, {n: p.grad for n, p in model.named_parameters()}, model.state.snapshot()))
    (chunked_loss, gradient, state), (whole_loss, whole_gradient, whole_state) = results
    assert chunked_loss == pytest.approx(whole_loss, rel=1e-5)
    for name, value in whole_gradient.items():
        assert torch.allclose(gradient[name], value, rtol=1e-4, atol=1e-6), name
    assert all(torch.equal(state[name], whole_state[name]) for name in state)


def test_a_model_that_cannot_be_chunked_is_refused() -> None:
    stream = make_stream()
    model, past = build("tgn", stream), Past(stream.events, edge_x=stream.edge_x, node_x=stream.node_x)
    with pytest.raises(DsrdError, match="in one piece"):
        backward_in_chunks(model, stream.events[:50], TrainingNegatives(stream.events, 0), past, 10)
