"""A moving average of the weights: smoother than the weights themselves, and better on events to come."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

WARM_UP = 0.1  # early on the average looks back on a tenth of the steps so far, whatever its memory


class Average:
    """Follows a model's weights; `memory` 0 is the weights themselves.

    >>> layer = nn.Linear(1, 1, bias=False)
    >>> average = Average(layer, memory=0.9)
    >>> average.update()
    >>> with average.in_place():
    ...     pass  # validate, save
    """

    def __init__(self, model: nn.Module, memory: float) -> None:
        self.model, self.memory, self.steps = model, memory, 0
        self.weights = (
            {name: weight.detach().clone() for name, weight in model.named_parameters()} if memory else {}
        )

    @torch.no_grad()
    def update(self) -> None:
        """Move towards the present weights; called after every step."""
        self.steps += 1
        memory = min(self.memory, 1 - 1 / (1 + WARM_UP * self.steps))
        for name, weight in self.model.named_parameters() if self.memory else ():
            self.weights[name].lerp_(weight, 1 - memory)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """The model with averaged weights inside the block, with its own again after it."""
        own = {name: weight.detach().clone() for name, weight in self.model.named_parameters() if self.memory}
        self._take(self.weights)
        try:
            yield
        finally:
            self._take(own)

    def state(self) -> dict[str, Tensor]:
        """Everything needed to go on."""
        return {**self.weights, "steps": torch.tensor(self.steps)}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Go on from a saved `state`."""
        self.steps = int(state["steps"])
        self.weights = {name: value.clone() for name, value in state.items() if name != "steps"}

    @torch.no_grad()
    def _take(self, weights: Mapping[str, Tensor]) -> None:
        for name, weight in self.model.named_parameters():
            if name in weights:
                weight.copy_(weights[name])
