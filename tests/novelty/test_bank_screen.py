"""Bounds by 8-bit products: they hold for every row, and verdicts with them are the same."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.novelty import subspace
from monitor.novelty.detector import Detector, Scores
from monitor.novelty.presets import preset_settings
from monitor.novelty.subspace import BankScreen, Subspace


def exact(subspaces: list[Subspace], x: np.ndarray) -> np.ndarray:
    columns = []
    for s in subspaces:
        centred = x.astype(np.float64) - s.mean
        basis = s.basis.astype(np.float64)
        columns.append(((centred - (centred @ basis.T) @ basis) ** 2).sum(axis=1))
    return np.stack(columns, axis=1)


def subspaces_of(
    rng: np.random.Generator, count: int, dimension: int, spread: float
) -> list[Subspace]:
    found = []
    for _ in range(count):
        samples = rng.normal(size=(int(rng.integers(1, 12)), dimension)) * spread
        # A few columns far larger than the rest: where 8 bits lose most.
        samples[:, :2] *= 50
        found.append(Subspace.fit(samples + rng.normal(size=dimension) * 3, variance=0.9))
    return found


@given(
    seed=st.integers(0, 2**32 - 1),
    dimension=st.integers(2, 70),
    spread=st.sampled_from([1e-3, 1.0, 1e3]),
    scale=st.sampled_from([0.0, 1e-4, 1.0, 1e4]),
)
def test_the_bounds_hold_for_every_row_and_class(
    seed: int, dimension: int, spread: float, scale: float
) -> None:
    rng = np.random.default_rng(seed)
    subspaces = subspaces_of(rng, 5, dimension, spread)
    x = (rng.normal(size=(9, dimension)) * scale).astype(np.float32)
    x[0] = subspaces[0].mean  # an error of nothing, where everything cancels
    truth = exact(subspaces, x)
    lower, upper = BankScreen(subspaces).bounds(x)
    assert (lower <= truth).all()
    assert (truth <= upper).all()


def test_the_bounds_are_narrow_enough_to_rule_out_nearly_all_classes() -> None:
    rng = np.random.default_rng(1)
    subspaces = [
        Subspace.fit(rng.normal(size=(30, 256)) + rng.normal(size=256), variance=0.9)
        for _ in range(200)
    ]
    x = np.stack([s.mean for s in subspaces[:40]]) + rng.normal(size=(40, 256)).astype("f")
    lower, upper = BankScreen(subspaces).bounds(x.astype(np.float32))
    left = (lower <= upper.min(axis=1, keepdims=True)).sum(axis=1)
    assert left.mean() < 3


def world_of_many(preset: str, rng: np.random.Generator) -> tuple[Detector, np.ndarray]:
    """A detector of forty classes, one of them of two modes, and samples that it has not seen."""
    middles = rng.normal(size=(40, 64)) * 1.5
    x = np.concatenate([m + rng.normal(size=(20, 64)) for m in middles]).astype("f")
    names = [f"class {i}" for i in range(40) for _ in range(20)]
    detector = Detector.fit(x, names, settings=preset_settings(preset)).merged("c1", ["c2"])
    known = np.concatenate([m + rng.normal(size=(5, 64)) for m in middles])
    new = rng.normal(size=(200, 64)) * 2.5
    return detector, np.concatenate([known, new]).astype("f")


def scored(
    detector: Detector, x: np.ndarray, monkeypatch: pytest.MonkeyPatch, *, from_: int
) -> Scores:
    monkeypatch.setattr(subspace, "WORTHWHILE", from_)
    monkeypatch.setattr("torch.cpu._is_vnni_supported", lambda: True)
    # Another detector of the same classes: a screen is made once.
    return detector.with_known(detector.classes).score(x)


@pytest.mark.parametrize("preset", ["robust", "paper"])
def test_verdicts_are_the_same_with_and_without_the_screen(
    preset: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    detector, x = world_of_many(preset, np.random.default_rng(2))
    plain = scored(detector, x, monkeypatch, from_=10**9)
    screened = scored(detector, x, monkeypatch, from_=1)
    np.testing.assert_array_equal(screened.nearest, plain.nearest)
    np.testing.assert_allclose(screened.score, plain.score, rtol=1e-5)
    np.testing.assert_array_equal(screened.novel, plain.novel)


def test_few_classes_are_not_screened() -> None:
    subspaces = subspaces_of(np.random.default_rng(0), 3, 20, 1.0)
    assert not BankScreen.pays(subspaces)
