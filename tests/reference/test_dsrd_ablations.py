"""What each ablation of DSRD takes away: no gradient reaches it, and no information comes from it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from dsrd.data.dataset import Dataset
from dsrd.events import Query
from dsrd.history.past import Past
from reference.test_dsrd import make_model, stream


def scores(model: Any, query: Query, past: Past) -> Tensor:
    """Of both factors, so that nothing hides in either."""
    return torch.stack([model.score(query, past, "partner"), model.activity(query, past)])


def ablated_model(ablate: str, data: Dataset) -> Any:
    model = make_model(data, ablate=ablate)
    model.observe(data.events[:20], Past(data.events, edge_x=data.edge_x, node_x=data.node_x))
    return model


@pytest.mark.parametrize("ablate", ["no_block", "no_temporal_decay", "no_diffusion", "no_state"])
def test_an_ablation_removes_its_part_and_no_gradient_reaches_it(ablate: str) -> None:
    data = stream()
    past = Past(data.events, edge_x=data.edge_x, node_x=data.node_x)
    whole, part, query = ablated_model("none", data), ablated_model(ablate, data), data.events[20:].query()
    assert not torch.allclose(whole.score(query, past), part.score(query, past), atol=1e-3)
    part.zero_grad()
    scores(part, query, past).sum().backward()
    layer, memory = part.body.layers[0], part.body.memory
    decays = layer.decays
    places = [kernels.raw_place for kernels in part.body.reads.layers]
    unused = {
        "no_block": [decays.raw_lambda, decays.raw_gamma, decays.raw_delta, layer.value],
        "no_temporal_decay": [decays.raw_lambda, decays.raw_alpha, decays.raw_delta, *places],
        "no_diffusion": [decays.raw_delta, layer.diffuse],
        "no_state": [decays.raw_gamma, decays.raw_delta, layer.retain.weight, *places, *memory.parameters()],
    }[ablate]
    assert all(weight.grad is None or not weight.grad.any() for weight in unused)
    unweighted = {"no_temporal_decay": (slice(None), slice(0, -1)), "no_diffusion": (slice(-1, None), slice(None))}
    if ablate in unweighted:  # some kinds and rates of the memory
        assert not memory.raw_kinds.grad[unweighted[ablate]].any()
        assert memory.raw_kinds.grad.any()


def test_without_temporal_decay_no_age_matters() -> None:
    """Neither in windows, where ages are times, nor in the state, where they are numbers of events."""
    data, results = stream(), {}
    slower = replace(data.events, time=data.events.time**3 + 1000 * data.events.time)
    for ablate in ("none", "no_temporal_decay"):
        results[ablate] = []
        for events, hurry in ((data.events, 1.0), (slower, 1.0), (data.events, 3.0)):
            model, past = make_model(data, ablate=ablate), Past(events, edge_x=data.edge_x, node_x=data.node_x)
            for rates in (model.body.rate, model.body.fine):
                rates[:-1] *= hurry  # the slowest rate stays: what it reads is a count of all events
            model.observe(events[:20], past)
            query = events[20:].query()
            results[ablate].append(scores(model, query, past.during(events[20:])))
    as_is, slow, hurried = results["no_temporal_decay"]
    assert torch.equal(as_is, slow)
    assert torch.equal(as_is, hurried)
    as_is, slow, hurried = results["none"]
    for other in (slow, hurried):
        assert ((as_is - other).abs().amax(dim=1) > 1e-4).all()


def test_without_age_features_ages_pass_through_decays_only() -> None:
    """Slower clocks change scores as long as lambda and delta do something, and not a bit if these are 0."""
    data = stream()
    slower = replace(data.events, time=data.events.time**3 + 1000 * data.events.time)
    for decays in (True, False):
        results = []
        for events in (data.events, slower):
            model, past = (
                make_model(data, ablate="no_age_features"),
                Past(events, edge_x=data.edge_x, node_x=data.node_x),
            )
            for layer in () if decays else model.body.layers:
                layer.decays.raw_lambda.data.fill_(-1e9)
                layer.decays.raw_delta.data.fill_(-1e9)
            model.observe(events[:20], past)
            results.append(scores(model, events[20:].query(), past.during(events[20:])))
        assert torch.equal(*results) == (not decays)
        assert torch.equal(results[0][1], results[1][1])  # the activity has no decays of ages


def test_without_diffusion_nothing_passes_along_two_steps() -> None:
    """Neither whom a node's walks of two steps lead to, nor what others did after its latest partner. What is left
    are the lengths of the walks and the successions of the two nodes themselves."""
    data = stream()
    past = Past(data.events, edge_x=data.edge_x, node_x=data.node_x)
    query = data.events[20:].query()
    for ablate in ("none", "no_diffusion"):
        model = ablated_model(ablate, data)
        as_is = scores(model, query, past)
        flipped = 2.0 * torch.randint(0, 2, model.state["step2"].shape) - 1
        model.state["step2"] *= flipped  # other nodes at the ends of the walks, of which there are as many
        walked = scores(model, query, past)
        model = ablated_model(ablate, data)
        asked = torch.isin(model.state["follow_key"], query.src << 32 | query.dst)
        model.state["follow_met"] *= asked.unsqueeze(1)
        unfollowed = scores(model, query, past)
        for changed in (walked, unfollowed):
            assert torch.equal(as_is, changed) == (ablate == "no_diffusion")


def test_without_state_only_windows_count() -> None:
    data = stream()
    past = Past(data.events, edge_x=data.edge_x, node_x=data.node_x)
    query = data.events[20:].query()
    for ablate in ("none", "no_state"):
        model = ablated_model(ablate, data)
        before_reset = scores(model, query, past)
        model.state.reset()
        assert torch.equal(before_reset, scores(model, query, past)) == (ablate == "no_state")
