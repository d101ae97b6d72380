"""What looks strange: a tenth of what is known, most of what is new, whatever its FRE."""

from __future__ import annotations

import numpy as np
import pytest

from monitor.novelty.detector import Detector
from monitor.novelty.strangeness import LEVEL, strange

DIMENSION = 48


def images(seed: int, centre: int, count: int, *, wide: bool = False) -> np.ndarray:
    """A class around a centre of its own; a wide one varies along many directions."""
    rng = np.random.default_rng([seed, centre, count])
    mean = np.random.default_rng(centre).normal(0, 3, DIMENSION)
    scale = 2.5 if wide else 1.0
    return (mean + rng.normal(0, scale, (count, DIMENSION))).astype("f")


def detector(seed: int, *, per_class: int = 300, wide: bool = False) -> Detector:
    known = np.concatenate([images(seed, c, per_class, wide=wide) for c in range(4)])
    return Detector.fit(known, [f"k{c}" for c in range(4) for _ in range(per_class)], seed=seed)


def test_known_samples_are_strange_as_often_as_it_says() -> None:
    shares = [
        strange(detector(seed), np.concatenate([images(seed, c, 100) for c in range(4)]))
        for seed in range(8)
    ]
    assert np.mean([found.samples.mean() for found in shares]) == pytest.approx(LEVEL, abs=0.05)
    assert {found.chance for found in shares} == {LEVEL}
    assert {found.references for found in shares} == {120}


def test_an_uneven_mix_of_known_classes_is_not_strange() -> None:
    pool = np.concatenate([images(9, 0, 380), images(9, 1, 20)])
    assert strange(detector(0), pool).samples.mean() < 2 * LEVEL


def test_a_new_class_is_strange_although_wide_classes_reconstruct_it() -> None:
    known = detector(0, wide=True)
    new = images(5, 11, 100)
    assert known.score(new).novel.mean() < 0.5
    pool = np.concatenate([*(images(5, c, 100, wide=True) for c in range(4)), new])
    assert strange(known, pool).samples[400:].mean() > 0.8


def test_with_hardly_anything_held_out_t_inner_decides() -> None:
    known = detector(0, per_class=12)
    pool = images(3, 11, 30)
    found = strange(known, pool)
    assert found.references == known.calibration.count
    assert found.samples.tolist() == known.score(pool).novel.astype(float).tolist()


def test_it_is_the_same_every_time() -> None:
    pool = images(2, 7, 60)
    first, second = (strange(detector(1), pool).samples for _ in range(2))
    assert first.tolist() == second.tolist()
