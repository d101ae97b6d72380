"""Scoring against many classes: our one product beside a loop over scikit-learn's PCA.

    python -m bench.scoring

Prints ratios of CPU time measured in one run, interleaved, medians; how cost grows with the
number of classes; and the largest relative error against float64.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np
from sklearn.decomposition import PCA

from monitor.novelty.arrays import Floats
from monitor.novelty.subspace import Subspace, SubspaceBank

DIMENSION, BATCH = 1280, 256


def subspaces(classes: int, components: int, rng: np.random.Generator) -> list[Subspace]:
    found = []
    for _ in range(classes):
        basis, _ = np.linalg.qr(rng.normal(size=(DIMENSION, components)))
        mean = rng.normal(size=DIMENSION)
        found.append(Subspace(mean.astype("f"), np.ascontiguousarray(basis.T, "f"), 1000))
    return found


def as_scikit(subspace: Subspace) -> PCA:
    model = PCA(subspace.components)
    model.mean_, model.components_ = subspace.mean, subspace.basis
    model.explained_variance_ = np.ones(subspace.components, dtype="f")
    return model


def loop(models: list[PCA], x: Floats) -> np.ndarray:
    errors = [((x - m.inverse_transform(m.transform(x))) ** 2).sum(axis=1) for m in models]
    return np.stack(errors, axis=1)


def exact(found: list[Subspace], x: Floats) -> np.ndarray:
    columns = []
    for s in found:
        centred = x.astype(np.float64) - s.mean
        inside = (centred @ s.basis.T.astype(np.float64)) @ s.basis.astype(np.float64)
        columns.append(((centred - inside) ** 2).sum(axis=1))
    return np.stack(columns, axis=1)


def seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def compare(classes: int, components: int, rounds: int) -> float:
    """Print the ratio for this size; return our seconds for a batch."""
    rng = np.random.default_rng(0)
    found = subspaces(classes, components, rng)
    models = [as_scikit(s) for s in found]
    bank = SubspaceBank(found)
    x = rng.normal(size=(BATCH, DIMENSION)).astype("f")
    ours, theirs = [], []
    for _ in range(rounds):
        ours.append(seconds(lambda: bank.fre(x)))
        theirs.append(seconds(lambda: loop(models, x)))
    error = np.abs(bank.fre(x[:32]) / exact(found, x[:32]) - 1).max()
    mine, other = statistics.median(ours), statistics.median(theirs)
    print(
        f"{classes:5d} classes × {components:3d} components: {1000 * mine:8.1f} ms a batch, "
        f"{other / mine:5.2f} times scikit-learn's loop, relative error {error:.1e}"
    )
    return mine


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds
    print(f"batches of {BATCH} × {DIMENSION}, float32, CPU time, medians of {rounds}")
    compare(50, 20, rounds)
    sizes = (50, 100, 200, 400)
    costs = [compare(n, 100, rounds) for n in sizes]
    per_class = [1e6 * cost / n for cost, n in zip(costs, sizes, strict=True)]
    print("microseconds per class: " + ", ".join(f"{v:.0f}" for v in per_class))


if __name__ == "__main__":
    main()
