"""Models on a device that is not the CPU, checked on the `meta` device of torch: shapes, but no numbers.

What is compiled for the CPU (look-ups in the past, walk states, ...) runs there on zeros, and its results are sent
to the device. Everything else is plain torch and must not mix devices.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from conformance.conftest import build, make_stream
from dsrd.history.past import Past
from dsrd.models import TemporalModel
from dsrd.negatives.sampling import TrainingNegatives
from dsrd.nn.attention import TemporalAttention
from dsrd.nn.feed_forward import FeedForward
from dsrd.nn.linear import Merge
from dsrd.nn.memory import GRU, RNN
from dsrd.nn.mixer import MixerBlock
from dsrd.nn.time import CosineTime, Freshness
from support.two_processes import learned_variants

META = "meta"
WHOLE = ("dsrd", "dsrd:paper", "graphmixer", "tgat")
"""Models whose shapes do not depend on numbers: they can be computed without any."""


@pytest.fixture
def no_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tensors come back from the device as zeros; of values that may repeat, all are distinct."""
    to_cpu, unique = Tensor.cpu, torch.unique

    def zeros(self: Tensor, *how: Any, **more: Any) -> Tensor:
        return torch.zeros(self.shape, dtype=self.dtype) if self.is_meta else to_cpu(self, *how, **more)

    def all_distinct(x: Tensor, *how: Any, **more: Any) -> Any:
        if not x.is_meta:
            return unique(x, *how, **more)
        return x.flatten(), torch.empty(x.shape, dtype=torch.int64, device=META)

    monkeypatch.setattr(Tensor, "cpu", zeros)
    monkeypatch.setattr(torch, "unique", all_distinct)


def moved(name: str) -> tuple[TemporalModel, Past]:
    stream = make_stream()
    model = build(name, stream)
    past = Past(stream.events, edge_x=stream.edge_x, node_x=stream.node_x)
    model.observe(stream.events[:200], past)
    return model.to(META), past.to(META)


@pytest.mark.parametrize("name", learned_variants())
def test_weights_and_buffers_move(name: str):
    model, past = moved(name)
    assert model.device.type == META
    assert {tensor.device.type for tensor in model.state_dict().values()} == {META}
    assert past.edge_x(torch.zeros(3, dtype=torch.int64)).device.type == META


@pytest.mark.parametrize("name", WHOLE)
def test_scores_losses_and_gradients_are_computed_on_the_device(name: str, no_numbers: None):
    model, past = moved(name)
    events = make_stream().events
    score = model.eval().score(events[200:230].query().to(META), past)
    assert (score.shape, score.device.type) == ((30,), META)
    batch = events[200:240]
    loss = model.train().loss(batch, TrainingNegatives(events, 0), past.during(batch))
    loss.backward()
    assert loss.shape == ()
    assert {weight.grad.device.type for weight in model.parameters() if weight.grad is not None} == {META}


def on_meta(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.empty(*shape, dtype=dtype, device=META)


SHARED: list[tuple[nn.Module, list[Tensor], tuple[int, ...]]] = [
    (CosineTime(6), [on_meta(5, dtype=torch.float64)], (5, 6)),
    (Freshness(), [on_meta(5, dtype=torch.float64)], (5,)),
    (Merge([4, 3], 8, 1), [on_meta(5, 4), on_meta(5, 3)], (5, 1)),
    (FeedForward(4, 2, 0.1), [on_meta(5, 4)], (5, 4)),
    (MixerBlock(3, 4), [on_meta(5, 3, 4)], (5, 3, 4)),
    (
        TemporalAttention(4, 2, 6, 2, 0.1),
        [
            *(on_meta(5, 4), on_meta(5, 6), on_meta(5, 3, 4), on_meta(5, 3, 6), on_meta(5, 3, 2)),
            on_meta(5, 3, dtype=torch.bool),
        ],
        (5, 10),
    ),
]


@pytest.mark.parametrize(("part", "inputs", "shape"), SHARED, ids=lambda value: type(value).__name__)
def test_shared_parts_compute_on_the_device(part: nn.Module, inputs: list[Tensor], shape: tuple[int, ...]):
    out = part.to(META).train()(*inputs)
    assert (tuple(out.shape), out.device.type) == (shape, META)


@pytest.mark.parametrize("cell", [GRU([4, 3], 8), RNN([4, 3], 8)])
def test_recurrent_cells_compute_on_the_device(cell: nn.Module):
    assert cell.to(META)(on_meta(5, 4), on_meta(5, 3), h=on_meta(5, 8)).shape == (5, 8)
