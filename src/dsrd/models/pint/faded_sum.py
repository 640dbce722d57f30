"""The sum over neighbours, compiled: a pair has hundreds of them, and none of their vectors is stored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dsrd.compiled import vectorised
from dsrd.history.index import Ints

Reals = NDArray[Any]  # float32 or float64, like the weights


@dataclass(frozen=True)
class NeighborTerms:
    """The m neighbours to sum over, each as the sum of three parts (see `faded_sum`)."""

    group: Tensor  # [m] index of the sum that the neighbour belongs to
    fade: Tensor  # [m] its weight in that sum
    node: Tensor  # [m] its row in `node_part`
    event: Tensor  # [m] its row in `event_part`
    position: Tensor  # [m, p]


class Inputs(NamedTuple):
    """The arguments of `faded_sum` for compiled code."""

    group: Ints  # [m]
    fade: Reals  # [m]
    node: Ints  # [m]
    event: Ints  # [m]
    position: Reals  # [m, p]
    node_part: Reals  # [n, dim]
    event_part: Reals  # [e, dim]; no rows: left out
    weight: Reals  # [p, dim]


class Gradients(NamedTuple):
    """Where `_add_gradients` adds to."""

    node_part: Reals
    event_part: Reals
    weight: Reals


@vectorised
def _write_term(inputs: Inputs, i: int, z: Reals) -> None:
    """z = neighbour i before the relu."""
    node_part, event_part, weight = inputs.node_part, inputs.event_part, inputs.weight
    for j in range(len(z)):
        z[j] = node_part[inputs.node[i], j]
    if len(event_part):
        for j in range(len(z)):
            z[j] += event_part[inputs.event[i], j]
    for k in range(inputs.position.shape[1]):
        share = inputs.position[i, k]
        if share != 0:  # most entries of a position are zero
            for j in range(len(z)):
                z[j] += share * weight[k, j]


@vectorised
def _add_terms(inputs: Inputs, out: Reals) -> None:
    z = np.empty(out.shape[1], out.dtype)
    for i in range(len(inputs.group)):
        _write_term(inputs, i, z)
        for j in range(len(z)):
            out[inputs.group[i], j] += inputs.fade[i] * max(z[j], 0)


@vectorised
def _add_gradients(inputs: Inputs, grad: Reals, into: Gradients) -> None:
    z = np.empty(grad.shape[1], grad.dtype)
    for i in range(len(inputs.group)):
        _write_term(inputs, i, z)
        for j in range(len(z)):
            z[j] = inputs.fade[i] * grad[inputs.group[i], j] if z[j] > 0 else 0
            into.node_part[inputs.node[i], j] += z[j]
        if len(inputs.event_part):
            for j in range(len(z)):
                into.event_part[inputs.event[i], j] += z[j]
        for k in range(inputs.position.shape[1]):
            share = inputs.position[i, k]
            if share != 0:
                for j in range(len(z)):
                    into.weight[k, j] += share * z[j]


class _FadedSum(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, node_part: Tensor, event_part: Tensor, weight: Tensor, terms: NeighborTerms, groups: int
    ) -> Tensor:
        columns = (terms.group, terms.fade, terms.node, terms.event, terms.position)
        ctx.inputs = Inputs(*map(_array, (*columns, node_part, event_part, weight)))
        out = node_part.new_zeros(groups, node_part.shape[1])
        _add_terms(ctx.inputs, out.numpy())
        return out

    @staticmethod
    def backward(ctx: Any, *grad: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        inputs: Inputs = ctx.inputs
        node_part, event_part, weight = (
            torch.zeros(part.shape, dtype=grad[0].dtype)
            for part in (inputs.node_part, inputs.event_part, inputs.weight)
        )
        into = Gradients(node_part.numpy(), event_part.numpy(), weight.numpy())
        _add_gradients(inputs, _array(grad[0]), into)
        return node_part, event_part, weight, None, None


def _array(x: Tensor) -> NDArray[Any]:
    array: NDArray[Any] = x.detach().contiguous().numpy()
    return array


def faded_sum(terms: NeighborTerms, node_part: Tensor, event_part: Tensor, weight: Tensor, groups: int) -> Tensor:
    """By group, sum of fade relu(node_part[node] + event_part[event] + position @ weight).  # [groups, dim]

    An `event_part` without rows is left out.
    """
    if node_part.device.type == "cpu":
        summed: Tensor = _FadedSum.apply(node_part, event_part, weight, terms, groups)  # type: ignore[no-untyped-call]
        return summed
    z = node_part[terms.node] + terms.position @ weight
    if len(event_part):
        z = z + event_part[terms.event]
    z = torch.relu(z) * terms.fade.unsqueeze(1)  # [m, dim]
    return z.new_zeros(groups, z.shape[1]).index_add(0, terms.group, z)
