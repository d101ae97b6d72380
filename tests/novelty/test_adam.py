"""Adam of our own beside torch's."""

from __future__ import annotations

import pytest
import torch

from monitor.novelty.paper.adam import Adam


@pytest.mark.parametrize("rate", [1e-3, 0.1])
def test_steps_are_those_of_torch(rate: float) -> None:
    generator = torch.Generator().manual_seed(0)
    start = [torch.randn(3, 4, generator=generator), torch.randn(3, generator=generator)]
    mine = [w.clone() for w in start]
    theirs = [w.clone().requires_grad_() for w in start]
    ours, torchs = Adam(mine, rate), torch.optim.Adam(theirs, lr=rate)
    for _ in range(20):
        gradients = [torch.randn(w.shape, generator=generator) for w in start]
        ours.step(gradients)
        for weight, gradient in zip(theirs, gradients, strict=True):
            weight.grad = gradient
        torchs.step()
    for one, other in zip(mine, theirs, strict=True):
        torch.testing.assert_close(one, other.detach(), rtol=1e-5, atol=1e-7)


def test_it_finds_the_least_of_a_bowl() -> None:
    weight = torch.tensor([4.0, -3.0])
    adam = Adam([weight], 0.05)
    for _ in range(500):
        adam.step([2 * (weight - torch.tensor([1.0, 2.0]))])
    torch.testing.assert_close(weight, torch.tensor([1.0, 2.0]), atol=0.01, rtol=0)


def test_a_gradient_is_needed_for_each_weight() -> None:
    with pytest.raises(ValueError):
        Adam([torch.zeros(2)], 0.1).step([])
