"""A large pool through the whole inner loop, beside the same steps from off-the-shelf parts.

    python -m bench.inner_loop

The straightforward loop scores with one scikit-learn PCA per class and spreads labels with
scikit-learn's LabelSpreading over raw features, once per round, as one would first write it. Both
have one thread, since threads that wait for each other count as work.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from sklearn.decomposition import PCA
from sklearn.semi_supervised import LabelSpreading
from threadpoolctl import threadpool_limits

from monitor.novelty.array_types import Floats
from monitor.novelty.detector import Detector
from monitor.novelty.inner_loop import drive, inner_loop

KNOWN, NEW, DIMENSION = 10, 5, 1280


def draw(rng: np.random.Generator, means: np.ndarray, count: int) -> tuple[Floats, list[str]]:
    labels = rng.integers(len(means), size=count)
    x = means[labels] + rng.normal(size=(count, DIMENSION))
    return x.astype("f"), [f"class-{i}" for i in labels]


def straightforward(
    fitted: list[PCA],
    reserve: Floats,
    held: np.ndarray,
    pool: Floats,
    truth: list[str],
    rounds: int,
    budget: int,
) -> None:
    """Score, ask the highest, spread what is known, and again."""
    names = sorted(set(truth))
    asked: dict[int, int] = {}
    score = np.min(
        [((pool - m.inverse_transform(m.transform(pool))) ** 2).sum(axis=1) for m in fitted], axis=0
    )
    for _ in range(rounds):
        for i in [i for i in np.argsort(-score) if i not in asked][: budget // rounds]:
            asked[int(i)] = names.index(truth[i])
        labels = np.concatenate([np.full(len(pool), -1), held])
        labels[list(asked)] = list(asked.values())
        spreading = LabelSpreading(kernel="knn", n_neighbors=10, alpha=0.8, max_iter=40, tol=0)
        spreading.fit(np.concatenate([pool, reserve]), labels)
        score = 1 - spreading.label_distributions_[: len(pool)].max(axis=1)
    for name in names:
        PCA(0.9, svd_solver="full").fit(pool[[t == name for t in truth]])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pool", type=int, default=10_000)
    parser.add_argument("--budget", type=int, default=125)
    options = parser.parse_args()
    threadpool_limits(1)
    rng = np.random.default_rng(0)
    means = rng.normal(size=(KNOWN + NEW, DIMENSION)) * 0.5
    x, y = draw(rng, means[:KNOWN], 4000)
    pool, truth = draw(rng, means, options.pool)
    detector = Detector.fit(x, y)
    reserve, held = detector.references.features, detector.references.classes
    fitted = [
        PCA(0.9, svd_solver="full").fit(x[[n == c.name for n in y]]) for c in detector.classes
    ]

    start = time.process_time()
    update = drive(inner_loop(detector, pool, budget=options.budget), lambda i: truth[i])
    update.apply(detector, pool)
    ours = time.process_time() - start
    found = len(update.discoveries)
    print(
        f"ours: {ours:.1f} s CPU, {found} of {NEW} new classes, {update.labels} labels", flush=True
    )
    start = time.process_time()
    straightforward(fitted, reserve, held, pool, truth, len(update.rounds), options.budget)
    theirs = time.process_time() - start
    print(f"straightforward: {theirs:.1f} s CPU, {theirs / ours:.1f} times ours")


if __name__ == "__main__":
    main()
