"""The moving average of weights: what a continued training must find again."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from dsrd.train import checkpoint
from dsrd.train.loop import MovingAverage


class Two(nn.Module):
    """Two weights of one shape, whose names are not in alphabetical order."""

    def __init__(self) -> None:
        super().__init__()
        self.second = nn.Parameter(torch.tensor([1.0, 2.0]))
        self.first = nn.Parameter(torch.tensor([30.0, 40.0]))


def test_weights_keep_their_places_in_a_checkpoint(tmp_path: Path):
    """A file orders tensors by name, `update` by the model."""
    model, file = Two(), tmp_path / "last.safetensors"
    average = MovingAverage(model, memory=0.9)
    average.update()
    checkpoint.save(file, {"average": average.state()}, {})
    restored = MovingAverage(model, memory=0.9)
    restored.restore(checkpoint.load(file)[0]["average"])
    assert list(restored.weights) == list(average.weights)

    with torch.no_grad():
        model.second += 1
    for each in (average, restored):
        each.update()
    assert restored.steps == average.steps
    assert all(torch.equal(restored.weights[name], average.weights[name]) for name in average.weights)
    assert restored.weights["first"].tolist() == [30.0, 40.0]
