"""The bank gives what each subspace would give alone, for any batch size."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.novelty.errors import ClassTooSmall, DimensionMismatch
from monitor.novelty.subspace import Subspace, SubspaceBank


def classes(count: int, d: int, seed: int = 0, spread: float = 3.0) -> list[Subspace]:
    rng = np.random.default_rng(seed)
    return [
        Subspace.fit(
            rng.normal(size=(int(rng.integers(1, 3 * d)), d)) * np.geomspace(2, 0.1, d)
            + rng.normal(size=d) * spread,
            variance=0.9,
        )
        for _ in range(count)
    ]


def exact(subspaces: list[Subspace], x: np.ndarray) -> np.ndarray:
    columns = []
    for s in subspaces:
        centred = x.astype(np.float64) - s.mean.astype(np.float64)
        basis = s.basis.astype(np.float64)
        residual = centred - (centred @ basis.T) @ basis
        columns.append((residual**2).sum(axis=1))
    return np.stack(columns, axis=1)


@pytest.mark.parametrize("offset", [0.0, 1000.0])
def test_within_1e_5_of_float64(offset: float) -> None:
    subspaces = [Subspace(s.mean + np.float32(offset), s.basis, s.count) for s in classes(30, 64)]
    x = (np.random.default_rng(1).normal(size=(300, 64)) * 3 + offset).astype(np.float32)
    got = SubspaceBank(subspaces).fre(x)
    want = exact(subspaces, x)
    # The features themselves carry a rounding of 6e-8 of the offset; the rest is ours.
    tolerance = 1e-5 if offset == 0.0 else 1e-3
    np.testing.assert_allclose(got, want, rtol=tolerance)


def test_samples_inside_a_subspace_do_not_cancel_to_noise() -> None:
    subspaces = classes(5, 40, spread=50.0)
    s = subspaces[2]
    rng = np.random.default_rng(3)
    noise = rng.normal(size=(50, 40)).astype(np.float32) * 1e-2
    x = s.mean + rng.normal(size=(50, s.components)).astype(np.float32) @ s.basis + noise
    got = SubspaceBank(subspaces).fre(x)
    assert (got >= 0).all()
    np.testing.assert_allclose(got[:, 2], exact(subspaces, x)[:, 2], rtol=1e-2)


@given(seed=st.integers(0, 10_000), size=st.integers(1, 40))
def test_batch_size_does_not_move_a_score(seed: int, size: int) -> None:
    bank = SubspaceBank(classes(4, 12, seed=seed))
    x = np.random.default_rng(seed).normal(size=(40, 12)).astype(np.float32)
    whole = bank.fre(x)
    parts = np.concatenate([bank.fre(x[i : i + size]) for i in range(0, 40, size)])
    np.testing.assert_allclose(parts, whole, rtol=1e-5)


@given(seed=st.integers(0, 10_000))
def test_adding_a_class_never_changes_anothers_fre(seed: int) -> None:
    subspaces = classes(5, 10, seed=seed)
    x = np.random.default_rng(seed).normal(size=(20, 10)).astype(np.float32)
    before = SubspaceBank(subspaces[:4]).fre(x)
    after = SubspaceBank(subspaces).fre(x)[:, :4]
    np.testing.assert_allclose(after, before, rtol=1e-4, atol=1e-5)


def test_more_columns_than_one_chunk_holds() -> None:
    subspaces = classes(170, 96)
    assert sum(s.components for s in subspaces) > 4096
    x = np.random.default_rng(0).normal(size=(1500, 96)).astype(np.float32)
    nearest, error = SubspaceBank(subspaces).nearest(x)
    want = exact(subspaces, x)
    np.testing.assert_array_equal(nearest, want.argmin(axis=1))
    np.testing.assert_allclose(error, want.min(axis=1), rtol=1e-5)


def test_nothing_to_bank_is_refused() -> None:
    with pytest.raises(ClassTooSmall):
        SubspaceBank([])
    with pytest.raises(DimensionMismatch):
        SubspaceBank([*classes(1, 4), *classes(1, 5)])
