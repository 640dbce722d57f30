"""Weights away from zero: a last layer that starts at 0 hides everything behind it from a test."""

from __future__ import annotations

import torch

from dsrd.models import TemporalModel


def with_random_heads(model: TemporalModel) -> TemporalModel:
    """The model, with random numbers in the weight matrices that are all 0."""
    for weight in model.parameters():
        if weight.ndim > 1 and not weight.any():
            torch.nn.init.normal_(weight, std=0.1)
    return model
