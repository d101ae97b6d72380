"""Is a class that was learnt from few images recognised beside classes learnt from many?

    python -m bench.small_classes --data ../shared/data/eurosat.parquet

Half of the classes are fitted on many samples, the others on few. Prints how often the nearest
class is the right one, for either half, as the detector says it and by the least FRE. Without
``--data`` it takes scikit-learn's digits as they are.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from bench.labelled import labelled
from monitor.novelty.array_types import Floats
from monitor.novelty.detector import Detector
from monitor.novelty.robust.robust_settings import RobustSettings

# Samples of each class that nothing was fitted on, to ask about.
ASKED = 100


def right(x: Floats, y: np.ndarray, counts: tuple[int, int], seed: int) -> np.ndarray:
    """Shares of right answers: (by resemblance, by FRE) × (classes of many, classes of few)."""
    rng = np.random.default_rng(seed)
    names = rng.permutation(np.unique(y))
    fit, asked = [], []
    for position, name in enumerate(names):
        rows = rng.permutation(np.flatnonzero(y == name))
        asked.append(rows[:ASKED])
        fit.append(rows[ASKED:][: counts[position % 2]])
    seen, new = np.concatenate(fit), np.concatenate(asked)
    is_small = np.isin(y[new], names[1::2])
    found = []
    for opinions in (True, False):
        settings = RobustSettings(opinions=opinions)
        detector = Detector.fit(x[seen], [str(v) for v in y[seen]], settings=settings, seed=seed)
        said = np.array([known.name for known in detector.classes])[detector.score(x[new]).nearest]
        found.append([(said == y[new])[half].mean() for half in (~is_small, is_small)])
    return np.array(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="labelled images, as for conclad evaluate")
    parser.add_argument("--label-column", default="label")
    parser.add_argument("--many", type=int, default=400)
    parser.add_argument("--few", type=int, nargs="+", default=[20, 50, 100])
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    x, y = labelled(options.data, options.label_column)
    for few in options.few:
        table = np.mean(
            [right(x, y, (options.many, few), seed) for seed in range(options.runs)], axis=0
        )
        print(
            f"{options.many} and {few} images a class: right for the large ones {table[0, 0]:.1%} "
            f"(by least FRE {table[1, 0]:.1%}), for the small ones {table[0, 1]:.1%} "
            f"({table[1, 1]:.1%})",
            flush=True,
        )


if __name__ == "__main__":
    main()
