"""Products of tall and narrow matrices against torch's, for every remainder of rows and of columns."""

from __future__ import annotations

import pytest
import torch

from dsrd.models.dsrd.small_products import (
    heads_product,
    product,
    transposed_heads_product,
    transposed_product,
)

SHAPES = [(0, 3, 5), (1, 1, 1), (7, 5, 3), (8, 8, 16), (13, 9, 42), (530, 39, 32), (300, 42, 17)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_products(shape: tuple[int, int, int]) -> None:
    rows, depth, width = shape
    generator = torch.Generator().manual_seed(0)
    a, weight, bias = (torch.randn(size, generator=generator) for size in ((rows, depth), (depth, width), width))
    b = torch.randn(rows, width, generator=generator)
    assert torch.allclose(product(a, weight), a @ weight, atol=1e-4)
    assert torch.allclose(product(a, weight.t().contiguous().t(), bias), a @ weight + bias, atol=1e-4)
    assert torch.allclose(transposed_product(a, b), a.t() @ b, atol=1e-4)


@pytest.mark.parametrize("heads", [1, 3, 4])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_products_of_heads(shape: tuple[int, int, int], heads: int) -> None:
    rows, depth, width = shape
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(rows, heads, size, generator=generator) for size in (depth, width))
    weight = torch.randn(heads, depth, width, generator=generator)
    each = torch.einsum("nhk,hkm->nhm", a, weight)
    assert torch.allclose(heads_product(a.flatten(1), weight), each.flatten(1), atol=1e-4)
    summed = torch.einsum("nhk,nhm->hkm", a, b)
    assert torch.allclose(transposed_heads_product(a.flatten(1), b.flatten(1), heads), summed, atol=1e-4)
