"""Learned kernels of retention, and the first guess from a learned memory."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from dsrd.config import overridden
from dsrd.events import Events, Query
from dsrd.history.past import Past
from dsrd.models import GraphSpec, create
from dsrd.models.dsrd import DSRD, DSRDConfig
from dsrd.models.dsrd.kernels import Kernels, half_lives, mixtures, mixtures_plainly, read_at
from dsrd.models.dsrd.memory import KINDS, Memory
from dsrd.models.dsrd.mixed_reads import Block, mixed_reads

SCALES = torch.tensor([1.0, 10.0, 50.0, 1000.0])
PLACES = torch.linspace(-12, 12, 101)  # before the sigmoid


def kernels(raw: Tensor, **settings: object) -> Kernels:
    part = Kernels(overridden(DSRDConfig(), {"heads": len(raw), "dim": 0, **settings}))
    part.raw_place.data = raw.clone()
    return part


def weights(raw: Tensor, scales: Tensor = SCALES, **settings: object) -> Tensor:
    return kernels(raw, **settings).weights(scales.log(), SCALES.log())


def test_a_kernel_mixes_two_neighbours_of_the_grid() -> None:
    weight = weights(PLACES)
    assert torch.allclose(weight.sum(1), torch.ones(len(PLACES)))
    assert (weight >= -1e-6).all()
    used = weight > 1e-6
    assert (used.sum(1) <= 2).all()
    first, last = used.float().argmax(1), len(SCALES) - 1 - used.flip(1).float().argmax(1)
    assert (last - first <= 1).all()


def test_half_lives_grow_with_the_place() -> None:
    """From the fastest rate of the grid to its slowest, without a jump."""
    lives = half_lives(weights(PLACES), SCALES)
    assert (lives.diff() > 0).all()
    assert lives[0].item() == pytest.approx(math.log(2), rel=1e-2)
    assert lives[-1].item() == pytest.approx(1000 * math.log(2), rel=1e-2)
    assert (lives[1:] / lives[:-1]).max() < 2.2


def test_reading_at_a_rate_of_the_grid_is_exact() -> None:
    """And between two rates it is between their readings."""
    places = (SCALES.log() - SCALES.log()[0]) / (SCALES.log()[-1] - SCALES.log()[0])
    inner = torch.logit(places[1:-1])
    grid = torch.rand(5, len(SCALES) * 3)  # three channels at each rate
    read = read_at(grid, weights(inner)).view(5, len(inner), 3)
    assert torch.allclose(read, grid.view(5, len(SCALES), 3)[:, 1:-1], atol=1e-5)
    between = read_at(grid, weights(inner.mean().repeat(2)))[:, :3]
    low, high = grid.view(5, len(SCALES), 3)[:, 1:3].sort(dim=1).values.unbind(1)
    assert ((low <= between) & (between <= high)).all()
    assert half_lives(torch.eye(4), SCALES).tolist() == pytest.approx((SCALES * math.log(2)).tolist(), rel=1e-4)


def plain_reads(values: Tensor, blocks: list[Block], rest: int) -> Tensor:
    """`mixed_reads` by the product with a matrix."""
    parts, start = [], 0
    for channels, kernel in blocks:
        stop = start + channels * kernel.shape[1]
        parts.append(read_at(values[..., start:stop].clamp(min=0), kernel))
        start = stop
    return torch.log1p(torch.cat([*parts, values[..., start : start + rest].clamp(min=0)], dim=-1))


@pytest.mark.parametrize("settings", [{}, {"ablate": "no_temporal_decay"}])
@pytest.mark.parametrize(("rest", "ignored"), [(0, 0), (2, 3)])
def test_compiled_reads_and_their_gradients_equal_the_plain_ones(
    settings: dict[str, str], rest: int, ignored: int
) -> None:
    part = kernels(torch.tensor([-9.0, -1.0, 0.3, 9.0]), **settings)
    torch.manual_seed(0)
    values = torch.randn(3, 300, 2 * 4 + 5 * 1 + rest + ignored)
    values.view(-1)[::7] = 0
    upstream = torch.randn(3, 300, 2 * 4 + 5 * 4 + rest)
    reads, gradients = [], []
    for form in (mixed_reads, plain_reads):
        part.raw_place.grad = None
        blocks = [
            Block(2, part.weights(SCALES.log(), SCALES.log())),
            Block(5, part.weights(SCALES[:1].log(), SCALES.log())),
        ]
        reads.append(form(values, blocks, rest))
        if not settings:  # else nothing is learned
            reads[-1].backward(upstream)
            gradients.append(part.raw_place.grad)
    assert torch.allclose(*reads, atol=1e-6)
    if not settings:
        assert gradients[0].abs().min() > 1e-4
        assert torch.allclose(*gradients, rtol=1e-4, atol=1e-4)


def test_one_head_can_read() -> None:
    assert read_at(torch.rand(5, len(SCALES) * 3), weights(torch.zeros(1))).shape == (5, 3)


def test_a_half_life_is_where_the_kernel_has_fallen_to_one_half() -> None:
    weight = torch.softmax(torch.randn(20, 4, generator=torch.Generator().manual_seed(0)), dim=1)
    ages = np.linspace(0, 1000, 200_001)
    for row, life in zip(weight.numpy(), half_lives(weight, SCALES).tolist(), strict=True):
        kernel = sum(w * np.exp(-ages / scale) for w, scale in zip(row, SCALES.tolist(), strict=True))
        assert life == pytest.approx(ages[np.argmax(kernel <= 0.5)], abs=0.02, rel=1e-3)


def test_every_place_has_a_gradient() -> None:
    part = kernels(torch.linspace(-4, 4, 81))
    grid = torch.tensor([1.0, 3.0, 7.0, 20.0])
    read_at(grid, part.weights(SCALES.log(), SCALES.log())).sum().backward()
    assert (part.raw_place.grad > 0).all()  # slower rates count more events


def test_without_temporal_decay_or_with_one_rate_the_slowest_is_read() -> None:
    assert weights(PLACES, ablate="no_temporal_decay").tolist() == [[0, 0, 0, 1]] * len(PLACES)
    assert weights(PLACES, SCALES[:1]).tolist() == [[1]] * len(PLACES)


def test_heads_start_at_different_places() -> None:
    part = Kernels(DSRDConfig(heads=4, dim=8))
    lives = half_lives(part.weights(SCALES.log(), SCALES.log()), SCALES)
    assert (lives[1:] / lives[:-1]).min() > 2


# --- The first guess ---------------------------------------------------------------------------------------------


def random_memory(**settings: object) -> Memory:
    memory = Memory(overridden(DSRDConfig(), settings))
    torch.manual_seed(3)
    for weight in memory.parameters():
        weight.data += torch.randn(weight.shape)
    return memory


@pytest.mark.parametrize("ablate", ["none", "no_temporal_decay", "no_diffusion"])
def test_weights_of_the_memory_sum_to_one(ablate: str) -> None:
    uniform, kinds = random_memory(ablate=ablate).weights()
    assert (uniform.sum() + kinds.sum()).item() == pytest.approx(1)
    assert kinds.shape == (len(KINDS), len(DSRDConfig().count_scales))
    gone = {"none": [], "no_temporal_decay": [kinds[:, :-1]], "no_diffusion": [kinds[KINDS.index("follow")]]}
    assert all((part == 0).all() for part in gone[ablate])
    assert (kinds > 0).sum() == kinds.numel() - sum(part.numel() for part in gone[ablate])


def test_a_new_memory_is_uniform_but_for_a_tenth_that_all_kinds_share() -> None:
    uniform, kinds = Memory(DSRDConfig()).weights()
    assert [uniform.item(), *kinds.sum(1).tolist()] == pytest.approx([0.9] + [0.1 / 3] * 3, rel=1e-4)
    assert kinds.std(1).max() < 1e-6


def test_what_the_memory_has_learned_can_be_read() -> None:
    memory, scales = random_memory(), 700 * torch.tensor(DSRDConfig().count_scales)
    learned, (uniform, weight) = memory.learned(scales), memory.weights()
    assert learned["uniform"] == pytest.approx(uniform.item(), abs=1e-4)
    for kind, row in zip(KINDS, weight, strict=True):
        assert learned[kind]["share"] == pytest.approx(row.sum().item(), abs=1e-4)
        assert learned[kind]["weights"] == pytest.approx((row / row.sum()).tolist(), abs=1e-4)
        age = learned[kind]["half_life_in_events"]
        still = (row / row.sum() * torch.exp(-age / scales)).sum()  # share of repetitions from before that age
        assert still.item() == pytest.approx(0.5, abs=1e-3)


def model_of(events: Events, **settings: object) -> DSRD:
    torch.manual_seed(0)
    small = {"dim": 8, "heads": 2, "code_dim": 16, "dropout": 0.0, "neighbors": 5, **settings}
    model = create("dsrd", GraphSpec(num_nodes=100), overridden(DSRDConfig(), small))
    assert isinstance(model, DSRD)
    model.calibrate(events)
    return model.eval()


def test_the_first_guess_sums_to_one_over_all_targets() -> None:
    """p0 of one source over all targets, in a bipartite stream: whatever its memory says, somebody comes next."""
    rng = np.random.default_rng(0)
    events = Events.from_numpy(rng.integers(1, 6, 400), 10 + rng.geometric(0.2, 400).clip(max=12), np.arange(400))
    model, past = model_of(events), Past(events)
    for weight in model.body.memory.parameters():
        weight.data = torch.randn(weight.shape)
    model.observe(events[:300], past)
    targets = events.dst.unique()
    assert model.num_targets == len(targets)
    for source in range(1, 6):
        query = Query(torch.full_like(targets, source), targets, torch.full(targets.shape, 300.0).double())
        with torch.no_grad():
            chance = model.score(query, past, "partner").exp() / len(targets)  # the head's last layer is 0
        # a source has received nothing, so the share of replies stays with nobody;
        # w's next partner may be any node that met w, sources included: half of the successions
        uniform, kinds = model.body.memory.weights()
        possible = uniform.sum() + kinds[KINDS.index("repeat")].sum()
        assert possible.item() - 1e-4 < chance.sum().item() < 1 + 1e-4
        assert chance.std() > 0.01


@pytest.mark.parametrize("rates", [2, 6])
def test_mixtures_equal_plain_torch(rates: int) -> None:
    """Values and gradients, for places between the grid's rates and beyond both ends of a narrower one."""
    scales = torch.linspace(-9, 0, rates)
    places = torch.linspace(-12, 1, 3)
    raw = torch.tensor([[-20.0, -1.0, 0.0, 0.3], [1.0, 2.0, 20.0, -0.5]])
    wanted = torch.randn(2, 4, rates, generator=torch.Generator().manual_seed(0))
    results = []
    for form in (mixtures, mixtures_plainly):
        place = raw.clone().requires_grad_()
        weight = form(place, scales, places)
        (weight * wanted).sum().backward()
        assert place.grad is not None
        results.append((weight.detach(), place.grad))
    for got, expected in zip(*results, strict=True):
        assert torch.allclose(got, expected, rtol=1e-5, atol=1e-6)
