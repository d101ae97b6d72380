"""A class subspace is sane from one sample to many, and its FRE is a distance."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.decomposition import PCA

from monitor.novelty.errors import ClassTooSmall, DimensionMismatch, InvalidFeatures
from monitor.novelty.subspace import Subspace


def samples(n: int, d: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    mixing = rng.normal(size=(d, d)) * np.geomspace(1, 0.01, d)
    return (rng.normal(size=(n, d)) @ mixing + rng.normal(size=d)).astype(np.float32)


@pytest.mark.parametrize("n", [40, 500])
def test_agrees_with_scikit_learn(n: int) -> None:
    x, probe = samples(n, 60), samples(25, 60, seed=1)
    ours = Subspace.fit(x, variance=0.9)
    theirs = PCA(n_components=0.9, svd_solver="full").fit(x.astype(np.float64))
    assert ours.components == theirs.n_components_
    residual = probe - theirs.inverse_transform(theirs.transform(probe))
    np.testing.assert_allclose(ours.fre(probe), (residual**2).sum(axis=1), rtol=1e-4)
    np.testing.assert_allclose(
        ours.fre(probe, squared=False), np.sqrt((residual**2).sum(axis=1)), rtol=1e-4
    )


@given(n=st.integers(1, 12), d=st.integers(1, 16), variance=st.floats(0.1, 0.999))
def test_directions_are_orthonormal_and_fewer_than_samples(n: int, d: int, variance: float) -> None:
    subspace = Subspace.fit(samples(n, d), variance=variance)
    assert subspace.components <= min(n - 1, d)
    gram = subspace.basis @ subspace.basis.T
    np.testing.assert_allclose(gram, np.eye(subspace.components), atol=1e-4)


@given(n=st.integers(1, 20), d=st.integers(1, 16), scale=st.sampled_from([1e-6, 1.0, 1e6]))
def test_fre_is_never_negative(n: int, d: int, scale: float) -> None:
    x = samples(n, d) * np.float32(scale)
    assert (Subspace.fit(x, variance=0.9).fre(x) >= 0).all()


def test_one_sample_is_measured_by_distance() -> None:
    subspace = Subspace.fit(np.array([[1.0, 2.0]]), variance=0.9)
    assert subspace.components == 0
    np.testing.assert_allclose(subspace.fre([[4.0, 6.0]]), [25.0])


def test_identical_samples_have_no_direction() -> None:
    subspace = Subspace.fit(np.ones((30, 5)), variance=0.9)
    assert subspace.components == 0
    np.testing.assert_allclose(subspace.fre(np.ones((1, 5))), [0.0])


def test_fit_leaves_the_callers_array_alone() -> None:
    x = samples(30, 8)
    before = x.copy()
    Subspace.fit(x, variance=0.9).fre(x)
    np.testing.assert_array_equal(x, before)


def test_bad_features_are_refused_by_name() -> None:
    with pytest.raises(ClassTooSmall):
        Subspace.fit(np.empty((0, 4)), variance=0.9)
    broken = samples(5, 4)
    broken[3, 1] = np.nan
    with pytest.raises(InvalidFeatures, match="row 3"):
        Subspace.fit(broken, variance=0.9)
    with pytest.raises(InvalidFeatures, match="shape"):
        Subspace.fit(np.zeros(4), variance=0.9)
    with pytest.raises(DimensionMismatch, match="5 columns"):
        Subspace.fit(samples(9, 4), variance=0.9).fre(samples(9, 5))


def test_one_product_says_the_same_as_two() -> None:
    rng = np.random.default_rng(0)
    subspace = Subspace.fit(rng.normal(2, 1, size=(30, 12)).astype("f"), variance=0.6)
    inside = subspace.mean + rng.normal(size=(5, subspace.components)) @ subspace.basis
    # The last ones lie in the subspace but for a thousandth, where a difference would be noise.
    x = np.concatenate([rng.normal(2, 2, size=(5, 12)), inside * 1.001]).astype("f")
    np.testing.assert_allclose(
        subspace.squared_fre_by_lengths(x), subspace.squared_fre(x), rtol=1e-5
    )
