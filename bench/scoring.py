"""Scoring against many classes: our one product beside a loop over scikit-learn's PCA.

    python -m bench.scoring [--features F.npz ...]

Prints ratios of CPU time measured in one run, interleaved, medians; how cost grows with the
number of classes; and the largest relative error against float64. At last a thousand classes of
20 to 40 directions as a verdict needs them: the nearest class and its error, by 8-bit bounds beside
the whole product. With --features the classes are clusters of those features, else random ones.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from sklearn.cluster import MiniBatchKMeans
from sklearn.decomposition import PCA

from monitor.novelty.array_types import Floats
from monitor.novelty.detector import Detector, KnownClass
from monitor.novelty.fingerprint import Fingerprint
from monitor.novelty.presets import preset_settings
from monitor.novelty.subspace import BankScreen, Subspace, SubspaceBank

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


def random_world(rng: np.random.Generator) -> tuple[list[Subspace], Floats]:
    found = [subspaces(1, int(rng.integers(20, 41)), rng)[0] for _ in range(1000)]
    return found, rng.normal(size=(BATCH, DIMENSION)).astype("f")


def clustered_world(files: list[Path], rng: np.random.Generator) -> tuple[list[Subspace], Floats]:
    """A thousand clusters of real features, those of five samples and more."""
    x = np.concatenate([np.load(file)["X"] for file in files]).astype("f")
    x = x[rng.permutation(len(x))]
    batch, rest = x[:BATCH], x[BATCH:]
    clusters = MiniBatchKMeans(1000, n_init=1, batch_size=4096, random_state=0).fit(rest).labels_
    members = [rest[clusters == j] for j in range(1000)]
    return [Subspace.fit(m, variance=0.9) for m in members if len(m) >= 5], batch


def compare_screen(found: list[Subspace], x: Floats, rounds: int) -> None:
    """The least error of each row, from bounds and from the whole product."""
    classes = tuple(
        KnownClass(f"c{j}", f"c{j}", (s,), s.mean[None], np.ones(1, "f"), np.ones(1, bool))
        for j, s in enumerate(found)
    )
    detector = Detector.of(
        classes,
        fingerprint=Fingerprint.of_features(x.shape[1]),
        settings=preset_settings("paper"),
    )
    bank = SubspaceBank(found)
    if not BankScreen.pays(found):
        print("many classes: this processor multiplies no 8-bit integers, so nothing is screened")
        return
    detector.fre_of_contenders(x)  # the first call builds the screen
    screened, whole = [], []
    for _ in range(rounds):
        screened.append(seconds(lambda: detector.fre_of_contenders(x)))
        whole.append(seconds(lambda: bank.fre(x)))
    mine, all_of_it = detector.fre_of_contenders(x), bank.fre(x)
    same = (mine.argmin(axis=1) == all_of_it.argmin(axis=1)).mean()
    error = np.abs(mine.min(axis=1) / all_of_it.min(axis=1) - 1).max()
    print(
        f"{len(found)} classes × {np.mean([s.components for s in found]):.0f} components: bounds "
        f"take {statistics.median(screened) / statistics.median(whole):.2f} of the whole product "
        f"({1000 * statistics.median(whole):.0f} ms a batch); same nearest class in {same:.1%}, "
        f"relative difference {error:.1e}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--features", type=Path, nargs="*", default=[], help=".npz files with X")
    given = parser.parse_args()
    rounds = given.rounds
    print(f"batches of {BATCH} × {DIMENSION}, float32, CPU time, medians of {rounds}")
    compare(50, 20, rounds)
    sizes = (50, 100, 200, 400)
    costs = [compare(n, 100, rounds) for n in sizes]
    per_class = [1e6 * cost / n for cost, n in zip(costs, sizes, strict=True)]
    print("microseconds per class: " + ", ".join(f"{v:.0f}" for v in per_class))
    rng = np.random.default_rng(0)
    world = clustered_world(given.features, rng) if given.features else random_world(rng)
    compare_screen(*world, rounds)


if __name__ == "__main__":
    main()
