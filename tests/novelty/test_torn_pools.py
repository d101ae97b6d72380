"""Pools whose classes run into each other: what teaches a new class."""

from __future__ import annotations

import numpy as np

from monitor.novelty.array_types import Bools, Floats
from monitor.novelty.detector import Detector
from monitor.novelty.inner_loop import Update, drive, inner_loop
from monitor.novelty.robust.robust_settings import RobustSettings

DIMENSION, NEW = 24, 40
SEEDS = range(3)


def images(kind: int, count: int, seed: int) -> Floats:
    centre = np.random.default_rng(kind).normal(0, 1, size=DIMENSION)
    noise = np.random.default_rng([seed, kind]).normal(0, 1.6, size=(count, DIMENSION))
    found: Floats = (centre + noise).astype(np.float32)
    return found


def asked_about(settings: RobustSettings, seed: int) -> tuple[Bools, Update]:
    """What of a pool is new, and what twenty questions about it found."""
    labelled = np.concatenate([images(kind, 80, 100 + seed) for kind in range(3)])
    names = np.repeat(["0", "1", "2"], 80).tolist()
    detector = Detector.fit(labelled, names, settings=settings)
    pool = np.concatenate([images(kind, 80, seed) for kind in range(3)] + [images(3, NEW, seed)])
    truth = np.concatenate([np.repeat(["0", "1", "2"], 80), np.repeat(["new"], NEW)])
    update = drive(inner_loop(detector, pool, budget=20, seed=seed), lambda i: str(truth[i]))
    new: Bools = truth == "new"
    return new, update


def test_what_many_references_reach_teaches_no_new_class() -> None:
    purity, sizes = [], []
    for share in (1.0, 0.02):
        right, count = 0, 0
        for seed in SEEDS:
            settings = RobustSettings().replace(references_taught=share)
            new, update = asked_about(settings, seed)
            [found] = update.discoveries
            rows = [label.sample for label in found.pseudo]
            right, count = right + int(new[rows].sum()), count + len(rows)
        purity.append(right / count)
        sizes.append(count)
    assert purity[1] > purity[0]
    assert 0 < sizes[1] < sizes[0]
