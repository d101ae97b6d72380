"""What each part of the eye is worth: one switched off at a time, on labelled features.

``python -m bench.parts --features F.npz`` draws pools with a tenth of a new class, and clean ones,
and shows AUROC and recall of single images, of the closed pool, and how strongly the pool shows.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.metrics import roc_auc_score

from monitor.evaluation.labelled_features import load_features
from monitor.novelty.detector import Detector
from monitor.novelty.robust.robust_settings import RobustSettings
from monitor.novelty.trigger.measure_pool_novelty import EVERYWHERE, measure_novelty
from monitor.novelty.trigger.trigger_decision import threshold

PARTS: Mapping[str, dict[str, Any]] = {
    "all of it": {},
    "S⁰ alone (opinions: false)": {"opinions": False},
    "a tenth held out (folds: 0)": {"folds": 0},
    "no neighbours (pool.smoothing: 0)": {"pool": {"smoothing": 0.0}},
    "unusual only (pool.alone: 0)": {"pool": {"alone": 0.0}},
    "no discriminant (pool.sharpen: false)": {"pool": {"sharpen": False}},
    "10 directions (pool.components: 10)": {"pool": {"components": 10}},
    "3 neighbours (graph.neighbours: 3)": {"graph": {"neighbours": 3}},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--features", type=Path, action="append", required=True)
    parser.add_argument("--draws", type=int, default=12)
    parser.add_argument("--labelled", type=int, default=100)
    parser.add_argument("--pool", type=int, default=400)
    parser.add_argument("--share", type=float, default=0.1)
    options = parser.parse_args()
    for path in options.features:
        data = load_features(path)
        labels = np.asarray(data.labels)
        print(f"{data.dataset}: {options.draws} draws, share {options.share:g}")
        print("| part | single AUROC / recall / false | closed | noticed | clean, noticed |")
        print("| --- | ---: | ---: | ---: | ---: |")
        for part, changes in PARTS.items():
            rows = [
                _draw(data.features, labels, seed, changes, options)
                for seed in range(options.draws)
            ]
            v = 100 * np.mean(rows, axis=0)
            print(
                f"| {part} | {v[0]:.1f} / {v[1]:.0f} / {v[2]:.1f} | {v[3]:.1f} / {v[4]:.0f} / "
                f"{v[5]:.1f} | {v[6]:.0f}% | {v[7]:.0f}% |",
                flush=True,
            )


def _draw(
    features: np.ndarray,
    labels: np.ndarray,
    seed: int,
    changes: dict[str, Any],
    options: argparse.Namespace,
) -> list[float]:
    rng = np.random.default_rng(seed)
    known, classes = 3 + seed % 3, rng.permutation(np.unique(labels))
    rows = {c: rng.permutation(np.flatnonzero(labels == c)) for c in classes[: known + 1]}
    fitted = np.concatenate([rows[c][: options.labelled] for c in classes[:known]])
    rest = rng.permutation(np.concatenate([rows[c][options.labelled :] for c in classes[:known]]))
    count = round(options.share * options.pool)
    old, clean = rest[: options.pool - count], rest[options.pool : 2 * options.pool]
    pool = np.concatenate([old, rows[classes[known]][:count]])
    truth = np.arange(len(pool)) >= len(old)
    settings = RobustSettings().replace(**changes)
    detector = Detector.fit(features[fitted], labels[fitted].tolist(), settings=settings, seed=seed)
    single, closed = (
        detector.score(features[pool]),
        measure_novelty(detector, features[pool], seed=seed),
    )
    level = threshold(1 / 30)
    return [
        float(roc_auc_score(truth, single.score)),
        float(single.novel[truth].mean()),
        float(single.novel[~truth].mean()),
        float(roc_auc_score(truth, closed.score)),
        float(closed.novel[truth].mean()),
        float(closed.novel[~truth].mean()),
        float(closed.strength[EVERYWHERE] > level),
        float(measure_novelty(detector, features[clean], seed=seed).strength[EVERYWHERE] > level),
    ]


if __name__ == "__main__":
    main()
