"""What the paper proves about its state, checked on the states as implemented."""

from __future__ import annotations

import importlib
import inspect
import re
from typing import Any

import numpy as np
import pytest
import torch

import dsrd.models.dsrd as package
from dsrd.events import Events
from dsrd.history.past import Past
from dsrd.models import GraphSpec, create, settings
from dsrd.models.dsrd import DSRD, DSRDConfig, walk_state
from dsrd.models.dsrd.dense import DenseLayer
from dsrd.models.dsrd.retention import Decays


def make_model(rate: float, width: int, nodes: int) -> DSRD:
    config = DSRDConfig(code_dim=width, scales=(1.0,), count_scales=(1.0,))
    model = create("dsrd", GraphSpec(num_nodes=nodes), config)
    assert isinstance(model, DSRD)
    model.body.rate = model.body.fine = torch.tensor([rate], dtype=torch.float64)
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
        walk_state.write_code(node, codes[node])
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
    active = model.state["acts"][:, :2].sum(1)[:, 0]  # [N], decayed events of either role
    one, two = (model.state[name][:, 0].norm(dim=-1) for name in ("step1", "step2"))
    assert (one <= active * (1 + 1e-4) + 1e-4).all()
    most = max(1.0, float(len(events)) if rate == 0 else float(_largest_step1(model, events)))
    assert (two <= active * most * (1 + 1e-4) + 1e-4).all()


def _largest_step1(model: DSRD, events: Events) -> float:
    """The longest S1 that any node ever had."""
    other, most = make_model(float(model.body.rate[0]), 64, 15), 0.0
    for event in events.batches(1):
        other.observe(event, Past(events))
        most = max(most, float(other.state["step1"].norm(dim=-1).max()))
    return most


def make_dense(nodes: int, **changes: Any) -> DSRD:
    """The paper's state, in float64."""
    torch.manual_seed(0)
    config = settings("dsrd", "", "paper", {"dim": 8, "heads": 2, "dropout": 0.0, **changes})
    model = create("dsrd", GraphSpec(num_nodes=nodes), config)
    assert isinstance(model, DSRD)
    return model.double().eval()


def layers_of(model: DSRD) -> list[DenseLayer]:
    return [part for part in model.modules() if isinstance(part, DenseLayer)]


@pytest.mark.parametrize("neighbors", [1, 4])
def test_lemma_1_diffusion_sums_over_walks_in_time_order(neighbors: int) -> None:
    """With gamma = 1 there is no injection and no decay: the initial matrices of layer 1, G_i, only diffuse, and
    S_j(l+1) = sum_i A(l)(i, j) G_i. The walk matrices are explicit: A(l) <- A(l) + A(l-1) T at each timestamp;
    with delta = 0, T spreads each step evenly over its window."""
    nodes, layers = 7, 4
    events = random_events(2, 25, nodes, 18)
    model = make_dense(nodes, layers=layers, neighbors=neighbors)
    with torch.no_grad():
        for layer in layers_of(model):
            layer.decays.raw_gamma.fill_(60)
            if layer.decays.raw_delta is not None:
                layer.decays.raw_delta.fill_(-60)
    initial = torch.randn(nodes, *model.state["matrix"].shape[2:], dtype=torch.float64)  # G
    initial[0] = 0
    model.state.rows_for(torch.arange(nodes))
    model.state["matrix"][:, 0] = initial
    model.observe(events, Past(events))
    walks_of = [torch.eye(nodes).double(), *(torch.zeros(nodes, nodes).double() for _ in range(layers - 1))]
    met: dict[int, list[tuple[int, float]]] = {node: [] for node in range(nodes)}
    rows = list(zip(events.src.tolist(), events.dst.tolist(), events.time.tolist(), strict=True))
    for moment in dict.fromkeys(time for *_, time in rows):
        step = torch.zeros(nodes, nodes).double()  # T
        ends = [(j, i) for src, dst, time in rows if time == moment for j, i in ((src, dst), (dst, src))]
        for node, partner in ends:
            earlier = [other for other, time in met[node] if time < moment]
            window = [partner, *earlier[max(len(earlier) - neighbors + 1, 0) :]]
            for other in window:
                step[other, node] += 1 / len(window)
        for node, partner in ends:
            met[node].append((partner, moment))
        walks_of = [walks_of[0], *(walks_of[hop] + walks_of[hop - 1] @ step for hop in range(1, layers))]
    for hop, matrix in enumerate(walks_of):
        expected = torch.einsum("ij,i...->j...", matrix, initial)
        assert torch.allclose(model.state["matrix"][1:, hop], expected[1:])
    assert walks_of[-1].any()


@pytest.mark.parametrize("ablate", ["no_diffusion", "none"])
def test_theorem_1_matrices_are_bounded(ablate: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """After n steps |S| <= (1 - gamma^n) M without diffusion, M the largest injection. The bound that holds with
    diffusion, psi summing to 1 at most: (1 - gamma^n) (M + B / (1 - gamma)), B the bound one layer below."""
    nodes, events = 12, random_events(4, 300, 12, 200)
    model = make_dense(nodes, layers=3, ablate=ablate)
    largest: dict[int, torch.Tensor] = {}
    injection = DenseLayer.injection

    def noted(layer: DenseLayer, query: torch.Tensor, window: Any) -> torch.Tensor:
        delta = injection(layer, query, window)
        norm, depth = delta.flatten(2).norm(dim=-1).amax(0), layer.decays.depth  # [H]
        largest[depth] = torch.maximum(largest.get(depth, norm), norm)
        return delta

    monkeypatch.setattr(DenseLayer, "injection", noted)
    model.observe(events, Past(events))
    steps = torch.bincount(torch.cat([events.src, events.dst]), minlength=nodes)  # [N], no self-loops here
    below = torch.zeros(2).double()
    for depth, layer in enumerate(layers_of(model)):
        gamma = layer.decays()["gamma"].detach()
        limit = largest[depth + 1] + below / (1 - gamma)
        norm = model.state["matrix"][:, depth].flatten(2).norm(dim=-1)  # [N, H]
        assert (norm <= (1 - gamma ** steps.unsqueeze(1)) * limit + 1e-12).all()
        assert norm.max() > 0.01 * limit.min()  # the bound is not vacuous
        below = limit if ablate == "none" else below


def test_weights_of_a_window_sum_to_one_at_most() -> None:
    decays = Decays(DSRDConfig(heads=3), depth=2)
    x, mask = 3 * torch.rand(50, 20), (torch.rand(50, 20) < 0.7).float()
    for weight in (decays.omega(2 * torch.rand(50, 3, 20) - 1, x, mask), decays.psi(x, mask)):
        assert (weight >= 0).all()
        assert (weight.sum(-1) <= 1 + 1e-6).all()
        assert not weight[(mask == 0).unsqueeze(1).expand_as(weight)].any()


@pytest.mark.parametrize("state", ["walks", "dense"])
def test_decays_stay_in_their_ranges(state: str) -> None:
    model = make_model(0.1, 16, 5) if state == "walks" else make_dense(5)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(100 * torch.randn_like(parameter))
    for decays in (part for part in model.modules() if isinstance(part, Decays)):
        learned = decays()
        assert (learned["lambda"] >= 0).all()
        assert (learned.get("delta", torch.zeros(1)) >= 0).all()
        assert all(((learned[name] >= 0) & (learned[name] <= 1)).all() for name in ("alpha", "gamma"))


SYMBOL_ROW = re.compile(r"^ {4}(\S.*?) {2,}(\S.*?) {2,}([a-z_0-9; ]+)$", re.MULTILINE)  # symbol, names, files


def test_the_table_of_symbols_names_existing_files_and_attributes() -> None:
    """Every file in the package's table exists, and one of a row's files has each `Class.attribute` of the row."""
    table = (package.__doc__ or "").partition("Symbols of the paper")[2]
    rows = [row for row in SYMBOL_ROW.findall(table) if row[2] != "file"]
    assert len(rows) > 25
    for symbol, names, files in rows:
        paths = [f"{package.__name__}.{file}".removesuffix(".__init__") for file in files.split("; ")]
        modules = [importlib.import_module(path) for path in paths]
        for owner, attribute in re.findall(r"\b([A-Z]\w+)\.(\w+)", names):
            sources = [inspect.getsource(getattr(module, owner)) for module in modules if hasattr(module, owner)]
            assert any(re.search(rf"\b{attribute}\b", source) for source in sources), (symbol, owner, attribute)
