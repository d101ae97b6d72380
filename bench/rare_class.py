"""A class that is a fiftieth of a pool, and a pool with nothing new.

    python -m bench.rare_class --data ../shared/data/eurosat.parquet --known 5

For each run, other known classes, another new one, and another pool. Prints in how many runs the
rare class was found within the budget, that nothing was added to pools with nothing new, and
what each cost in labels. Without ``--data`` it takes scikit-learn's digits as they are.
"""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path

import numpy as np

from bench.labelled import labelled
from monitor.novelty.array_types import Floats
from monitor.novelty.detector import Detector
from monitor.novelty.inner_loop import Update, drive, inner_loop
from monitor.novelty.robust.robust_settings import RobustSettings

# Smaller than what `conclad fit` allows: some datasets have few images per class.
SETTINGS = RobustSettings(least=4)
# Half of each class fits the detector at the most; the rest is there for pools.
FIT_SHARE = 0.5


def run(x: Floats, y: np.ndarray, known: int, share: float, budget: float, seed: int) -> Update:
    """One pool with this share of one new class, judged with answers from the labels."""
    rng = np.random.default_rng(seed)
    classes = rng.permutation(np.unique(y))[: known + 1]
    fit, pool = [], []
    for name in classes[:known]:
        rows = rng.permutation(np.flatnonzero(y == name))
        cut = int(FIT_SHARE * len(rows))
        fit.append(rows[:cut])
        pool.append(rows[cut:])
    old = np.concatenate(pool)
    new = rng.permutation(np.flatnonzero(y == classes[known]))[: round(share * len(old))]
    rows, seen = np.concatenate([old, new]), np.concatenate(fit)
    detector = Detector.fit(x[seen], [str(v) for v in y[seen]], settings=SETTINGS, seed=seed)
    labels = max(1, round(budget * len(rows)))
    return drive(inner_loop(detector, x[rows], budget=labels, seed=seed), lambda i: str(y[rows[i]]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="labelled images, as for conclad evaluate")
    parser.add_argument("--label-column", default="label")
    parser.add_argument("--known", type=int, default=5)
    parser.add_argument("--share", type=float, default=0.02)
    parser.add_argument("--budget", type=float, default=0.0125)
    parser.add_argument("--runs", type=int, default=20)
    options = parser.parse_args()
    x, y = labelled(options.data, options.label_column)
    for share in (options.share, 0.0):
        updates = [
            run(x, y, options.known, share, options.budget, seed) for seed in range(options.runs)
        ]
        outcomes = Counter(update.outcome for update in updates)
        labels = np.mean([update.labels for update in updates])
        print(f"{share:.1%} new: {dict(outcomes)}, {labels:.1f} labels a pool", flush=True)


if __name__ == "__main__":
    main()
