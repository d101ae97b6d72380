"""The directions of a class are those of its covariance, by whichever way they are computed."""

from __future__ import annotations

import numpy as np
import pytest

from monitor.novelty import subspace
from monitor.novelty.array_types import Floats
from monitor.novelty.subspace import References, Subspace, SubspaceBank, principal


def drawn(n: int, d: int, seed: int = 0) -> Floats:
    rng = np.random.default_rng(seed)
    found: Floats = (rng.normal(size=(n, d)) * np.geomspace(3, 0.1, d)).astype(np.float32)
    return found


@pytest.mark.parametrize(("n", "d"), [(8, 20), (20, 20), (21, 20), (200, 20)])
def test_energies_and_directions_are_those_of_the_covariance(n: int, d: int) -> None:
    x = drawn(n, d)
    mean = x.mean(axis=0, dtype=np.float64)
    directions, energies, total = principal(x, mean)
    _, sizes, expected = np.linalg.svd(x.astype(np.float64) - mean, full_matrices=False)
    kept = len(energies)
    assert total == pytest.approx(float((sizes**2).sum()), rel=1e-6)
    np.testing.assert_allclose(energies, sizes[:kept] ** 2, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(directions @ directions.T, np.eye(kept), atol=1e-5)
    # A direction and its opposite are the same one.
    clear = energies > 1e-3 * energies[0]
    along = np.abs(np.einsum("ij,ij->i", directions, expected[:kept]))[clear]
    assert along.min() > 0.99


def test_a_class_that_is_read_in_pieces_has_the_same_directions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x = drawn(100, 12)
    whole = Subspace.fit(x, variance=0.9)
    monkeypatch.setattr(subspace, "_ROWS_AT_ONCE", 7)
    pieces = Subspace.fit(x, variance=0.9)
    assert pieces.components == whole.components
    np.testing.assert_allclose(pieces.fre(x), whole.fre(x), rtol=1e-4, atol=1e-5)


def test_more_variance_never_keeps_fewer_directions_and_never_leaves_more_over() -> None:
    x = drawn(60, 16)
    fits = [Subspace.fit(x, variance=share) for share in (0.1, 0.5, 0.9, 0.99, 1.0)]
    counts = [one.components for one in fits]
    assert counts == sorted(counts)
    left = [float(one.fre(x).mean()) for one in fits]
    assert left == sorted(left, reverse=True)
    assert left[-1] < 1e-5 * left[0]


def test_what_is_left_over_is_what_was_not_kept() -> None:
    x = drawn(80, 16)
    fit = Subspace.fit(x, variance=0.8)
    spread = float(((x - x.mean(axis=0)) ** 2).sum(axis=1).mean())
    assert 0.0 < float(fit.fre(x).mean()) <= 0.2 * spread * (1 + 1e-5)


def test_moving_a_class_and_its_images_changes_no_distance() -> None:
    x, new = drawn(50, 16), drawn(10, 16, seed=1)
    moved = np.float32(5.0)
    before = SubspaceBank([Subspace.fit(x, variance=0.9)]).fre(new)
    after = SubspaceBank([Subspace.fit(x + moved, variance=0.9)]).fre(new + moved)
    np.testing.assert_allclose(after, before, rtol=1e-3, atol=1e-4)


def references(counts: tuple[int, ...]) -> References:
    classes = np.repeat(np.arange(len(counts)), counts)
    total = len(classes)
    return References(drawn(total, 4), classes, np.zeros((total, len(counts)), np.float32))


def test_some_references_are_as_many_of_each_class() -> None:
    found = references((50, 10, 3))
    rows = found.some(12)
    assert np.bincount(found.classes[rows]).tolist() == [4, 4, 3]
    assert len(set(rows.tolist())) == len(rows)
    assert found.some(63).tolist() == list(range(63))


def test_rows_that_are_taken_keep_their_class_and_features() -> None:
    found = references((5, 5))
    taken = found.taken(np.array([9, 0]))
    assert len(taken) == 2
    assert taken.classes.tolist() == [1, 0]
    np.testing.assert_array_equal(taken.features, found.features[[9, 0]])
