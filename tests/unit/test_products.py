"""Products in pieces, and layers in one pass, against torch's own."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from dsrd.nn import products, ragged_attention, token_mix
from dsrd.nn.dropout import Dropout, dropout_
from dsrd.nn.feed_forward import FeedForward
from dsrd.nn.pool import Pool
from dsrd.nn.products import Linear, linear
from dsrd.nn.ragged import Layout
from dsrd.nn.ragged_attention import Reading, attend
from dsrd.nn.residual import added, fed, fed_and_pooled

ROWS = 640 + 2 * 64 + 5  # pieces of every size


def same_gradients(found: Tensor, expected: Tensor, inputs: list[Tensor], tolerance: float) -> None:
    probe = torch.randn(found.shape, dtype=found.dtype)
    assert torch.allclose(found, expected, atol=tolerance, rtol=tolerance)
    ours, theirs = (torch.autograd.grad((y * probe).sum(), inputs) for y in (found, expected))
    for one, other in zip(ours, theirs, strict=True):
        assert float((one - other).abs().max()) <= tolerance * max(1.0, float(other.abs().max()))


@pytest.mark.parametrize("shape", [(ROWS,), (8, 100), (3,)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_many_rows_by_a_matrix(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    x = torch.randn(*shape, 96, dtype=dtype, requires_grad=True)
    weight = torch.randn(128, 96, dtype=dtype, requires_grad=True)
    bias = torch.randn(128, dtype=dtype, requires_grad=True)
    inputs = [x, weight, bias]
    same_gradients(linear(x, weight, bias), nn.functional.linear(x, weight, bias), inputs, 1e-4)
    layer, theirs = Linear(96, 128), nn.Linear(96, 128)
    theirs.load_state_dict(layer.state_dict())
    assert torch.allclose(layer(x.float()), theirs(x.float()), atol=1e-4)


def test_wide_outputs_and_wide_inputs_have_the_same_gradients() -> None:
    torch.manual_seed(0)
    for wide in ((64, 256), (256, 64)):
        x, weight = torch.randn(ROWS, wide[1], requires_grad=True), torch.randn(*wide, requires_grad=True)
        same_gradients(linear(x, weight, None), x @ weight.t(), [x, weight], 1e-4)


def masked(y: Tensor, seed: int, p: float) -> Tensor:
    return y * dropout_(torch.ones_like(y), seed, p)


@pytest.mark.parametrize("p", [0.0, 0.3])
@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize("activation", [nn.GELU, nn.ReLU])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_net_norm_and_residual(
    dtype: torch.dtype, activation: type[nn.Module], norm_first: bool, p: float
) -> None:
    torch.manual_seed(0)
    net, norm = FeedForward(48, 4, p, activation).to(dtype).train(), nn.LayerNorm(48).to(dtype)
    nn.init.normal_(norm.weight)
    x = torch.randn(ROWS, 48, dtype=dtype, requires_grad=True)

    def slowly() -> Tensor:
        seeds = torch.randint(2**62, (2,)).tolist()
        h = net[1](net[0](norm(x) if norm_first else x))
        y = net[3](masked(h, seeds[0], p) if p else h)
        y = x + (masked(y, seeds[1], p) if p else y)
        return y if norm_first else norm(y)

    inputs = [x, *norm.parameters(), *net.parameters()]
    same_gradients(*seeded(lambda: fed(x, norm, net, norm_first), slowly), inputs, 1e-4)


def seeded(*functions: Callable[[], Tensor]) -> list[Tensor]:
    found = []
    for function in functions:
        torch.manual_seed(1)
        found.append(function())
    return found


@pytest.mark.parametrize("p", [0.0, 0.3])
def test_map_dropout_and_residual(p: float) -> None:
    torch.manual_seed(0)
    layer, dropout = nn.Linear(80, 120), Dropout(p)
    x, read = torch.randn(ROWS, 120, requires_grad=True), torch.randn(ROWS, 80, requires_grad=True)

    def slowly() -> Tensor:
        return x + (masked(layer(read), int(torch.randint(2**62, (1,))), p) if p else layer(read))

    inputs = [x, read, *layer.parameters()]
    same_gradients(*seeded(lambda: added(x, read, layer, dropout), slowly), inputs, 1e-4)


@pytest.mark.parametrize("p", [0.0, 0.3])
def test_net_and_means(p: float) -> None:
    torch.manual_seed(0)
    net, norm = FeedForward(48, 4, p).train(), nn.LayerNorm(48)
    x = torch.randn(ROWS, 48, requires_grad=True)
    length = torch.tensor([1, 700, 2, ROWS - 703])

    def slowly() -> Tensor:
        return torch.stack([part.mean(0) for part in fed(x, norm, net, norm_first=True).split(length.tolist())])

    pool = Layout(length).pool(torch.float32)
    inputs = [x, *norm.parameters(), *net.parameters()]
    same_gradients(*seeded(lambda: fed_and_pooled(x, norm, net, pool), slowly), inputs, 1e-4)


def test_means_count_copies() -> None:
    x = torch.randn(5, 3, dtype=torch.double)
    found = Layout(torch.tensor([2, 3]), torch.tensor([1, 3, 2, 1, 1])).pool(x.dtype).mean(x)
    weight = torch.tensor([0.25, 0.75, 0.5, 0.25, 0.25]).double().unsqueeze(1)
    assert torch.allclose(found, torch.stack([part.sum(0) for part in (x * weight).split([2, 3])]))
    assert torch.allclose(Pool.of_equal(1, 5, x).mean(x), x.mean(0, keepdim=True))


@pytest.mark.parametrize("crossed", [False, True])
@pytest.mark.parametrize("p", [0.0, 0.3])
def test_attention_of_unequal_sequences(p: float, crossed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """One sequence and one head at a time."""
    monkeypatch.setattr(ragged_attention, "AT_ONCE", 12)
    torch.manual_seed(0)
    length, other_length = torch.tensor([4, 4, 4, 1, 3, 6]), torch.tensor([2, 2, 2, 5, 1, 1])
    layout = Layout(length)
    x = torch.randn(int(length.sum()), 8 if crossed else 24, dtype=torch.double, requires_grad=True)
    other = torch.randn(int(other_length.sum()), 16, dtype=torch.double, requires_grad=True) if crossed else None
    how = Reading(2, layout, Layout(other_length) if crossed else layout, p, 7 if p else None)
    mask = iter(masks(how))
    query, key, value = (x, *other.chunk(2, -1)) if other is not None else x.chunk(3, -1)
    per_key = other_length.tolist() if crossed else length.tolist()
    found = []
    for q, k, v in zip(query.split(length.tolist()), key.split(per_key), value.split(per_key), strict=True):
        kept = next(mask)
        heads = []
        for head, (a, b, c) in enumerate(zip(q.chunk(2, -1), k.chunk(2, -1), v.chunk(2, -1), strict=True)):
            shares = (a @ b.t() / 2).softmax(-1) * kept[head, : len(a), : len(b)]
            heads.append(shares @ c)
        found.append(torch.cat(heads, -1))
    inputs = [x] if other is None else [x, other]
    same_gradients(attend(x, other, how), torch.cat(found), inputs, 1e-10)


def masks(how: Reading) -> list[Tensor]:
    """What dropout multiplies the shares of each sequence by.  # [H, L, L'] each"""
    found, first = [], 0
    for readers, read in how.chunks():
        ones = torch.ones(how.heads, readers.shape[0], readers.shape[1], read.shape[1], dtype=torch.double)
        found += how.dropped(ones, first).unbind(1)
        first += ones.numel()
    return found


@pytest.mark.parametrize("p", [0.0, 0.3])
def test_mixing_of_tokens(p: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_mix, "AT_ONCE", 100)
    torch.manual_seed(0)
    net, norm = FeedForward(5, 0.5, p).double().train(), nn.LayerNorm(5).double()
    nn.init.normal_(norm.weight)
    x = torch.randn(7, 5, 12, dtype=torch.double, requires_grad=True)

    def slowly() -> Tensor:
        h = net[1](net[0](norm(x.transpose(1, 2)))).transpose(1, 2).contiguous()
        seeds = torch.randint(2**62, (2,)).tolist()
        if p:  # masks of the hidden layer are numbered by the first value of the input of each part
            parts = [h[:1], h[1:2], h[2:3], h[3:4], h[4:5], h[5:6], h[6:]]
            kept = [dropout_(torch.ones_like(part), seeds[0], p, 60 * i) for i, part in enumerate(parts)]
            h = h * torch.cat(kept)
        y = net[3](h.transpose(1, 2)).transpose(1, 2)
        return x + (masked(y.contiguous(), seeds[1], p) if p else y)

    inputs = [x, *norm.parameters(), *net.parameters()]
    same_gradients(*seeded(lambda: token_mix.tokens_mixed(x, norm, net), slowly), inputs, 1e-10)


def test_pieces_are_compiled_for_few_numbers_of_rows() -> None:
    sizes = {part.stop - part.start for rows in range(64, 3000, 7) for part in products.pieces(rows)}
    assert {size for size in sizes if size >= 64} == set(products.PIECES)
