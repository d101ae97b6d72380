"""The perceptron of ER learns as torch's own parts would."""

from __future__ import annotations

import numpy as np
import torch

from monitor.evaluation.methods.buffer import ReplayBuffer
from monitor.evaluation.methods.perceptron_head import Head, HeadSettings
from monitor.novelty.paper.adam import Adam


def test_adam_takes_the_steps_of_torch_s() -> None:
    rng = np.random.default_rng(0)
    start = torch.from_numpy(rng.normal(size=(5, 3)))
    ours, theirs = start.clone(), start.clone().requires_grad_(True)
    mine, reference = Adam([ours], 0.01), torch.optim.Adam([theirs], lr=0.01)
    for _ in range(25):
        gradient = torch.from_numpy(rng.normal(size=(5, 3)))
        mine.step([gradient])
        theirs.grad = gradient.clone()
        reference.step()
    np.testing.assert_allclose(ours.numpy(), theirs.detach().numpy(), rtol=1e-9)


def test_growing_leaves_old_classes_as_they_were() -> None:
    x = np.random.default_rng(0).normal(size=(30, 6)).astype(np.float32)
    head = Head(x, ["a", "b"], HeadSettings(hidden=16), seed=0)
    before = head.probabilities(x)
    head.grow(["c"])
    after = head.probabilities(x)
    assert head.classes == ("a", "b", "c")
    # The new node takes its share of probability; the odds between old classes stay.
    np.testing.assert_allclose(after[:, 0] / after[:, 1], before[:, 0] / before[:, 1], rtol=1e-5)


def test_a_small_class_is_heard_as_often_as_a_large_one() -> None:
    x = np.zeros((1000, 2), np.float32)
    head = Head(x, ["a", "b"], HeadSettings(hidden=4, batch=2000), seed=0)
    rows = head._batch(np.array([0] * 997 + [1] * 3))
    assert 0.45 < (rows >= 997).mean() < 0.55


def test_columns_that_never_vary_do_no_harm() -> None:
    x = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
    x[:, 1] = 7.0
    head = Head(x, ["a", "b"], HeadSettings(hidden=8), seed=0)
    head.train(x, ["a", "b"] * 20, steps=3)
    assert np.isfinite(head.probabilities(x * 1000)).all()


def test_a_full_buffer_keeps_small_classes_whole() -> None:
    rng = np.random.default_rng(0)
    buffer = ReplayBuffer.empty(width=1, capacity=10)
    buffer = buffer.extended(np.arange(20, dtype=np.float32)[:, None], ["a"] * 10 + ["b"] * 10, rng)
    assert sorted(buffer.names.tolist()) == ["a"] * 5 + ["b"] * 5
    fuller = buffer.extended(np.array([[99.0], [98.0]], np.float32), ["c", "c"], rng)
    assert sorted(fuller.names.tolist()) == ["a"] * 4 + ["b"] * 4 + ["c"] * 2
    assert len(buffer.names) == 10
