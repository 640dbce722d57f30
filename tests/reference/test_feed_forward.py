"""The two-layer net in pieces, and dropout by hashing, against torch's own."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from dsrd.nn import feed_forward
from dsrd.nn.dropout import Dropout, dropout_
from dsrd.nn.feed_forward import FeedForward


def slowly(net: FeedForward, x: Tensor, seeds: list[int]) -> Tensor:
    """Whole layers, masks applied by multiplication."""
    h = net[1](net[0](x))
    for seed, follow in zip(seeds, (net[3], nn.Identity()), strict=True):
        h = follow(h * dropout_(torch.ones_like(h), seed, net[2].p))
    return h


@pytest.mark.parametrize("activation", [nn.GELU, nn.ReLU])
@pytest.mark.parametrize("training", [True, False])
def test_pieces_make_the_whole(
    activation: type[nn.Module], training: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed_forward, "PIECE", 100)
    torch.manual_seed(0)
    net = FeedForward(6, 4, 0.3, activation).double().train(training)
    x = torch.randn(5, 3, 6, dtype=torch.double, requires_grad=True)
    torch.manual_seed(1)
    found = net(x)
    torch.manual_seed(1)
    seeds = torch.randint(2**62, (2,)).tolist()
    expected = slowly(net, x.view(-1, 6), seeds).view_as(x) if training else net[3](net[1](net[0](x)))
    assert torch.allclose(found, expected, atol=1e-12)
    assert bool((found == 0).any()) == training
    inputs = (x, *net.parameters())
    ours, theirs = (torch.autograd.grad(y.square().sum(), inputs) for y in (found, expected))
    for one, other in zip(ours, theirs, strict=True):
        assert torch.allclose(one, other, atol=1e-10)
    with torch.no_grad():
        assert training or torch.equal(net(x), found)


@pytest.mark.parametrize("training", [True, False])
def test_pooling_first_changes_nothing(training: bool) -> None:
    for dropout in (0.0, 0.3):
        net = FeedForward(6, 4, dropout).double().train(training)
        x = torch.randn(5, 3, 6, dtype=torch.double)
        torch.manual_seed(1)
        found = net.pooled(x, lambda rows: rows.mean(dim=1))
        torch.manual_seed(1)
        assert torch.allclose(found, net(x).mean(dim=1), atol=1e-12)


def test_dropout_drops_evenly_and_scales() -> None:
    dropout = Dropout(0.2).train()
    torch.manual_seed(0)
    x = torch.ones(2000, 300, requires_grad=True)
    y = dropout(x)
    assert set(y.unique().tolist()) == {0.0, 1.25}
    dropped = (y == 0).double()
    assert abs(dropped.mean() - 0.2) < 0.002
    for dim, count in ((0, 2000), (1, 300)):  # as scattered over rows and columns as independent draws would be
        assert 0.85 < float(dropped.mean(dim=dim).std()) / (0.16 / count) ** 0.5 < 1.15
    pairs = (dropped[:, 1:] * dropped[:, :-1]).mean()
    assert abs(pairs - 0.04) < 0.002
    y.sum().backward()
    assert x.grad is not None
    assert torch.equal(x.grad, y.detach())
    assert not torch.equal(y, dropout(x))
