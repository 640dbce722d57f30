"""What the paper proves of its state, checked on the state as built."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from dsrd.events import Events
from dsrd.graph import walks
from dsrd.graph.past import Past
from dsrd.models import GraphSpec, create
from dsrd.models.dsrd import DSRD, DSRDConfig


def make_model(rate: float, width: int, nodes: int) -> DSRD:
    model = create("dsrd", GraphSpec(num_nodes=nodes), DSRDConfig(code_dim=width, scales=(1.0,)))
    assert isinstance(model, DSRD)
    model.rate = torch.tensor([rate], dtype=torch.float64)
    return model


def random_events(seed: int, count: int, nodes: int, moments: int) -> Events:
    rng = np.random.default_rng(seed)
    src = rng.integers(1, nodes, count)
    dst = (src + rng.integers(1, nodes - 1, count) - 1) % (nodes - 1) + 1  # no self-loops
    return Events.from_numpy(src, dst, np.sort(rng.choice(moments, count, replace=moments < count)).astype(float))


@pytest.mark.parametrize("seed", range(3))
def test_lemma_1_the_state_counts_walks_in_time_order(seed: int) -> None:
    """Without decay, a code contracted with S(l) is the number of time-respecting walks of length l.

    The walk matrices are explicit: A(l) <- A(l) + A(l-1) T at each event, T its two directions.
    """
    nodes, width = 8, 1 << 14
    events = random_events(seed, 14, nodes, 1000)
    model = make_model(0.0, width, nodes)
    model.observe(events, Past(events))
    one, two = np.zeros((nodes, nodes)), np.zeros((nodes, nodes))
    for src, dst in zip(events.src.tolist(), events.dst.tolist(), strict=True):
        step = np.zeros((nodes, nodes))
        step[src, dst] = step[dst, src] = 1
        two += one @ step
        one += step
    codes = np.empty((nodes, width), np.float32)
    for node in range(nodes):
        walks.write_code(node, codes[node])
    for field, matrix in (("step1", one), ("step2", two)):
        counted = codes @ model.state[field][:, 0].numpy().T  # [from, to]
        assert np.abs(counted - matrix)[1:, 1:].max() < 0.35  # the codes' noise, sqrt(walks / width)


@pytest.mark.parametrize("batch", [1, 7, 50])
def test_proposition_1_the_recurrence_does_not_depend_on_how_the_stream_is_cut(batch: int) -> None:
    events = random_events(0, 200, 20, 500)
    whole, cut = make_model(0.01, 64, 20), make_model(0.01, 64, 20)
    past = Past(events)
    whole.observe(events, past)
    for part in events.batches(batch):
        cut.observe(part, past)
    assert all(torch.equal(whole.state[name], cut.state[name]) for name in whole.state.fields)


@pytest.mark.parametrize("rate", [0.0, 0.02, 1.0])
def test_theorem_1_states_and_weights_are_bounded(rate: float) -> None:
    """The bound that holds for the state as built: codes have length 1, so S1 is no longer than the node's decayed
    activity, and S2 no longer than that times the largest S1; the weights of a layer sum to 1 at most."""
    events = random_events(1, 400, 15, 300)
    model = make_model(rate, 64, 15)
    model.observe(events, Past(events))
    active = model.state["acts"].sum(1)[:, 0]  # [N], decayed events of either role
    one, two = (model.state[name][:, 0].norm(dim=-1) for name in ("step1", "step2"))
    assert (one <= active * (1 + 1e-4) + 1e-4).all()
    most = max(1.0, float(len(events)) if rate == 0 else float(_largest_step1(model, events)))
    assert (two <= active * most * (1 + 1e-4) + 1e-4).all()


def _largest_step1(model: DSRD, events: Events) -> float:
    """The longest S1 that any node ever had."""
    other, most = make_model(float(model.rate[0]), 64, 15), 0.0
    for event in events.batches(1):
        other.observe(event, Past(events))
        most = max(most, float(other.state["step1"].norm(dim=-1).max()))
    return most


def test_decays_stay_in_their_ranges() -> None:
    model = make_model(0.1, 16, 5)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(100 * torch.randn_like(parameter))
    for layer in model.layers:
        learned = layer.decays()
        assert (learned["lambda"] >= 0).all()
        assert (learned["delta"] >= 0).all()
        assert all(((learned[name] >= 0) & (learned[name] <= 1)).all() for name in ("alpha", "gamma"))
